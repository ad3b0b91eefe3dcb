//! Downloads on the screen: hubs that refuse, fail, are slow or send too little, full disks, and leaving in the middle.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::hub_server::{HubServer, send_blob};
use crate::models::{at_home, hub, install, stop_halfway, tiny_repo, wait_for_half};
use crate::screen::{Screen, Start};
use crate::world::{respond, send_cut};

/// What is said, whatever its lines: rows are joined, and borders and spaces left out.
fn said(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace() && *c != '│').collect()
}

fn wait_until_said(screen: &Screen, what: &str) {
    let wanted = said(what);
    screen.wait(what, |text| said(text).contains(&wanted));
}

/// A screen on a tiny model, beside a hub.
fn beside(hub: &HubServer, home: &Path) -> Start {
    install(home, "one", "gemma3");
    at_home(home, "one")
        .environment("HF_ENDPOINT", &hub.hub.url(""))
        .environment("HF_TOKEN", "")
}

/// The hub's answers, in the place of what it would say; none: it says that.
type Refusal = Arc<Mutex<Option<(&'static str, &'static str)>>>;

/// A hub that refuses as it is told.
fn refusing() -> (HubServer, Refusal) {
    let refusal = Refusal::default();
    let its = Arc::clone(&refusal);
    let server = HubServer::before(tiny_repo(), move |_, stream| {
        let Some((status, headers)) = *its.lock().unwrap() else {
            return false;
        };
        respond(stream, status, headers, b"");
        true
    });
    (server, refusal)
}

#[test]
fn each_refusal_of_a_hub_is_told_where_models_are_picked() {
    let (hub, refusal) = refusing();
    let home = tempfile::tempdir().unwrap();
    let mut screen = beside(&hub, home.path()).open();
    screen.wait_for("ready");
    for (status, headers, told) in [
        (
            "401 Unauthorized",
            "",
            "not authorized (401); no token was sent: set HF_TOKEN",
        ),
        ("404 Not Found", "", "has no such repository, or it is private"),
        (
            "403 Forbidden",
            "X-Error-Code: GatedRepo\r\n",
            "it is gated: open http",
        ),
        (
            "429 Too Many Requests",
            "Retry-After: 3600\r\n",
            "asks to wait 3600 s; try again then",
        ),
        ("200 OK", "", "doesn't answer as a model hub does"),
    ] {
        *refusal.lock().unwrap() = Some((status, headers));
        screen.send("/model org/tiny\r");
        wait_until_said(&screen, told);
        assert!(screen.text().contains("model>"), "the list stays");
        screen.send("\x1b");
        screen.wait("the list is closed", |text| !text.contains("model>"));
    }
    // One that fails is asked again, which is told, too.
    *refusal.lock().unwrap() = Some(("503 Service Unavailable", ""));
    screen.send("/model org/tiny\r");
    screen.wait_for("org/tiny: attempt 2 in");
    *refusal.lock().unwrap() = None;
    screen.wait_for("org/tiny is here: Enter goes on with it");
    screen.send("\r");
    screen.wait_for("org/tiny answers from now on, in place of one");
    screen.quit();
}

#[test]
fn the_first_models_refusal_is_told_in_full_and_leaves_a_way_on() {
    let (hub, refusal) = refusing();
    *refusal.lock().unwrap() = Some(("404 Not Found", ""));
    let home = tempfile::tempdir().unwrap();
    let start = at_home(home.path(), "org/tiny").environment("HF_ENDPOINT", &hub.hub.url(""));
    let mut screen = start.open();
    wait_until_said(&screen, "has no such repository, or it is private");
    screen.wait_for("Alt-m chooses a model");
    *refusal.lock().unwrap() = None;
    screen.send("/model org/tiny\r");
    screen.wait_for("Enter goes on with it");
    screen.send("\r");
    screen.wait_for("ready");
    screen.quit();
}

#[test]
fn bytes_that_stop_early_are_asked_for_again_and_the_download_comes_to_its_end() {
    let repo = tiny_repo();
    let (sent, first) = (repo.clone(), AtomicBool::new(true));
    let hub = HubServer::with(
        repo,
        |_, _| false,
        move |_, request, stream| {
            let file = sent.bytes("model.safetensors");
            if first.swap(false, Ordering::SeqCst) {
                return send_cut(request, stream, file, file.len() / 3);
            }
            send_blob(&sent, request, stream);
        },
    );
    let home = tempfile::tempdir().unwrap();
    let mut screen = beside(&hub, home.path()).open();
    screen.wait_for("ready");
    screen.send("/model org/tiny\r");
    screen.wait_for("org/tiny is here: Enter goes on with it");
    let asked = hub.cdn.requests();
    assert_eq!(asked.len(), 2);
    assert!(asked[1].header("range").is_some(), "it went on from where it was");
    screen.send("\x1b");
    screen.quit();
}

#[test]
fn who_leaves_while_a_model_is_downloaded_keeps_what_came_and_goes_on_from_there() {
    let home = tempfile::tempdir().unwrap();
    let (hub, open) = hub();
    let mut screen = beside(&hub, home.path()).open();
    screen.wait_for("ready");
    screen.send("/model org/tiny\r");
    wait_for_half(&screen);
    screen.send("\x1bm"); // Alt-m closes the list, and the download goes on.
    screen.wait_for("gets org/tiny");
    screen.send("\x04");
    assert_eq!(screen.exit_code(), 0);
    screen.assert_restored();
    let output = screen.whole_output();
    let (_, after) = output.rsplit_once("\x1b[?1049l").unwrap();
    assert!(
        after.contains("the download of org/tiny was stopped; what came is kept"),
        "{after}"
    );
    open.store(true, Ordering::SeqCst);
    let mut screen = beside(&hub, home.path()).open();
    screen.wait_for("ready");
    screen.send("\x1bm");
    screen.wait("what came is listed", |text| {
        text.lines()
            .any(|line| line.contains("org/tiny") && line.contains("begun"))
    });
    screen.send("org/tiny");
    screen.wait_for("model> org/tiny");
    screen.wait_for("of it are here");
    screen.send("\r");
    screen.wait_for("org/tiny is here: Enter goes on with it");
    assert!(hub.cdn.requests().last().unwrap().header("range").is_some());
    screen.send("\x1b");
    screen.quit();
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_fills_up_in_the_middle_is_told_and_what_came_is_kept() {
    let home = tempfile::tempdir().unwrap();
    let hub = HubServer::start(tiny_repo());
    let mut screen = beside(&hub, home.path()).limited(64).open();
    screen.wait_for("ready");
    screen.send("/model org/tiny\r");
    wait_until_said(&screen, "File too large");
    screen.give_room();
    screen.send("\x1b");
    screen.wait("the list is closed", |text| !text.contains("model>"));
    screen.send("/model org/tiny\r");
    screen.wait_for("org/tiny is here: Enter goes on with it");
    assert!(hub.cdn.requests().last().unwrap().header("range").is_some());
    screen.send("\x1b");
    screen.quit();
}

/// The second of two downloads is refused with what to do, and the first one stopped from the list.
#[test]
fn a_second_download_is_refused_while_one_goes_on() {
    let home = tempfile::tempdir().unwrap();
    let (hub, _) = hub();
    let mut screen = beside(&hub, home.path()).open();
    screen.wait_for("ready");
    stop_halfway(&mut screen);
    screen.wait_for("download of 'org/tiny' stopped");
    screen.send("\r");
    wait_for_half(&screen);
    screen.send("\x1bm");
    screen.wait("the list is closed", |text| !text.contains("model>"));
    screen.send("/model org/other\r");
    screen.wait_for("a model is being downloaded already");
    screen.send("\x1b");
    screen.wait_for("download of 'org/tiny' stopped");
    screen.send("\x1b");
    screen.wait("the list is closed", |text| !text.contains("model>"));
    screen.quit();
}
