//! Models are picked, changed, downloaded and deleted with the real program.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mlx_chat::chat::Store;

use crate::hub_server::{HubServer, Repo, send_blob};
use crate::model::with_tokenizer;
use crate::program::Program;
use crate::screen::{Screen, Start};

const ALT_M: &str = "\x1bm";

/// Chooses a model in the picker by its whole name.
fn choose(screen: &mut Screen, name: &str) {
    screen.send(ALT_M);
    screen.wait_for("on this machine");
    screen.send(name);
    screen.wait_for(&format!("model> {name}"));
    screen.send("\r");
}

/// Leaves by a single key: another ^C would have the terminal forget what is said at the end, and the program leave the
/// prompt cache unwritten.
fn leave(screen: &mut Screen) {
    screen.send("\x04");
    assert_eq!(screen.exit_code(), 0);
}

#[test]
fn a_model_takes_anothers_place_when_the_answers_that_stream_have_been_stopped() {
    let mut screen = Start::scripts(&["calm", "second"]).open();
    screen.wait_for("ready");
    screen.send("endless please\r");
    screen.wait_for("on and on");
    screen.send(ALT_M);
    screen.wait_for("scripted, up to ");
    screen.send("\x1b");
    screen.wait("the list is closed", |text| !text.contains("model>"));
    choose(&mut screen, "second");
    screen.wait_for("An answer still streams.");
    screen.send("s");
    screen.wait_for("second answers from now on, in place of calm");
    assert!(screen.text().contains("on and on"), "what came is kept");
    screen.wait("the header tells", |text| text.starts_with(" Second"));
    screen.send("who are you?\r");
    screen.wait_for("The second one speaks.");
    screen.wait_for("/2048");
    choose(&mut screen, "calm");
    screen.wait_for("calm answers from now on, in place of second");
    screen.send("remember\r");
    screen.wait_for("I do remember you.");
    screen.quit();
    screen.assert_restored();
}

#[test]
fn answers_end_first_and_prompts_wait_for_the_model_that_comes() {
    let mut screen = Start::scripts(&["calm", "second"]).open();
    screen.wait_for("ready");
    screen.send("a story\r");
    screen.wait_for("word after word");
    screen.send("/model second\r");
    screen.wait_for("An answer still streams.");
    screen.send("f");
    screen.wait_for("then second");
    screen.send("next?\r");
    screen.wait_for("The second one speaks.");
    screen.quit();
}

#[test]
fn a_model_that_cannot_be_loaded_brings_the_one_before_back() {
    let mut screen = Start::scripts(&["calm", "broken"]).argument("--panes=1").open();
    screen.wait_for("ready");
    choose(&mut screen, "broken");
    screen.wait_for("broken: reading weights");
    screen.wait_for("broken can't be used: the file is damaged; calm is back");
    screen.send("remember\r");
    screen.wait_for("I do remember you.");
    screen.quit();
}

#[test]
fn escape_gives_a_model_up_that_is_being_loaded() {
    let mut screen = Start::scripts(&["calm", "slow_load"]).open();
    screen.wait_for("ready");
    choose(&mut screen, "slow_load");
    screen.wait_for("Esc goes back to calm");
    screen.send("\x1b");
    screen.wait_for("slow_load was given up; calm is back");
    screen.quit();
}

#[test]
fn who_leaves_is_told_how_to_come_back_if_there_is_something_to_come_back_to() {
    let mut screen = Start::script("calm").open();
    screen.wait_for("ready");
    leave(&mut screen);
    assert!(!screen.bytes_contain("--resume"));
    let mut screen = Start::script("calm").open();
    screen.wait_for("ready");
    screen.send("remember\r");
    screen.wait_for("stop, ");
    leave(&mut screen);
    let output = screen.whole_output();
    let (_, after) = output.rsplit_once("\x1b[?1049l").unwrap();
    assert!(after.contains("mlx-chat --resume"), "{after}");
}

#[test]
fn without_a_model_and_offline_there_is_no_screen_but_a_reason() {
    for model in [None, Some("org/tiny")] {
        let mut start = Start::default_model().argument("--offline");
        for word in model.iter().flat_map(|model| ["-m", model]) {
            start = start.argument(word);
        }
        let mut screen = start.open();
        assert_eq!(screen.exit_code(), 1);
        let output = screen.whole_output();
        assert!(!output.contains("\x1b[?1049h"), "{output}");
        assert!(
            output.contains("offline") && output.contains("mlx-chat models pull"),
            "{output}"
        );
    }
}

/// Puts a tiny model of the oracle's into the models folder, with a tokenizer.
pub fn install(home: &Path, name: &str, oracle: &str) {
    let program = Program::new();
    let talks = with_tokenizer(&program);
    let folder = home.join("data/mlx-chat/models").join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/oracle");
    for (from, file) in [
        (fixtures.join(oracle), "config.json"),
        (fixtures.join(oracle), "model.safetensors"),
        (talks.clone().into(), "tokenizer.json"),
        (talks.into(), "tokenizer_config.json"),
    ] {
        std::fs::copy(from.join(file), folder.join(file)).unwrap();
    }
}

/// A start on models of a home, and on no others.
pub fn at_home(home: &Path, model: &str) -> Start {
    let cache = home.join("hub").display().to_string();
    Start::default_model()
        .home(home)
        .environment("HF_HUB_CACHE", &cache)
        .argument("-m")
        .argument(model)
        .argument("--panes=1")
        .argument("--max-tokens=8")
        .argument("--threads=1")
}

/// The first answers of all conversations, the oldest first.
fn answers(home: &Path) -> Vec<String> {
    let store = Store::at(&home.join("state/mlx-chat"));
    let mut sessions = store.list().unwrap().sessions;
    sessions.sort_by_key(|summary| summary.session);
    let answer = |summary: &mlx_chat::chat::store::Summary| {
        let conversation = store.load(summary.session).unwrap();
        conversation.turns[0].answer.to_string()
    };
    sessions.iter().map(answer).collect()
}

#[test]
fn real_models_take_turns_and_answer_as_they_did_before() {
    let home = tempfile::tempdir().unwrap();
    install(home.path(), "one", "llama");
    install(home.path(), "two", "qwen3-4bit");
    let mut screen = at_home(home.path(), "one").open();
    screen.wait_for("ready");
    screen.send("abc\r");
    screen.wait_for("8 tokens in");
    for name in ["two", "one"] {
        choose(&mut screen, name);
        screen.wait_for(&format!("{name} answers from now on"));
        screen.send("\x1bOS"); // F4
        screen.wait_for("Write a prompt below");
        screen.send("abc\r");
        let answered = |text: &str| {
            let title = text.lines().nth(1).unwrap_or_default();
            let (_, own) = title.rsplit_once("abc* ").unwrap_or_default();
            own.starts_with("ready") && !text.contains("Write a prompt below")
        };
        screen.wait("it has answered", answered);
    }
    leave(&mut screen);
    assert!(screen.bytes_contain("mlx-chat -m one --resume"));
    let answers = answers(home.path());
    assert_eq!(answers.len(), 3);
    assert!(!answers[0].is_empty());
    assert_eq!(answers[0], answers[2]);
    assert_ne!(answers[0], answers[1]);
}

#[test]
fn models_are_deleted_from_the_screen_but_not_the_one_in_use() {
    let home = tempfile::tempdir().unwrap();
    install(home.path(), "one", "llama");
    install(home.path(), "old", "gemma3");
    let old = home.path().join("data/mlx-chat/models/old");
    let mut screen = at_home(home.path(), "one").open();
    screen.wait_for("ready");
    screen.send(ALT_M);
    screen.wait("both are listed, and read", |text| {
        text.lines()
            .any(|line| line.contains("* one") && line.contains("fits"))
            && text
                .lines()
                .any(|line| line.contains("  old") && line.contains("fits"))
    });
    screen.send("\x18"); // ^X
    screen.wait_for("one: it is in use");
    screen.send("old");
    screen.wait_for("model> old");
    screen.send("\x18");
    screen.wait_for("Delete old, ");
    assert!(old.exists());
    screen.send("y");
    screen.wait("it is gone", |text| text.contains("1 on this machine"));
    assert!(!old.exists());
    screen.send("\x1b");
    screen.quit();
}

#[test]
fn the_prompt_caches_files_are_deleted_from_the_screen() {
    let home = tempfile::tempdir().unwrap();
    install(home.path(), "one", "llama");
    let prompts = home.path().join("cache/mlx-chat/prompts");
    let files = || {
        let folder = std::fs::read_dir(&prompts).into_iter().flatten().flatten();
        let names = folder.filter_map(|item| item.file_name().into_string().ok());
        names.filter(|name| name.ends_with(".safetensors")).count()
    };
    // What is in memory goes to disk at the end.
    let mut screen = at_home(home.path(), "one").open();
    screen.wait_for("ready");
    screen.send("abc\r");
    screen.wait_for("8 tokens in");
    leave(&mut screen);
    assert!(files() > 0);
    let mut screen = at_home(home.path(), "one").open();
    screen.wait_for("ready");
    screen.send(ALT_M);
    screen.wait_for("prompt cache");
    screen.send("prompt");
    screen.wait_for("model> prompt");
    screen.send("\x18");
    screen.wait_for("Delete the prompt cache's files");
    screen.send("y");
    screen.wait("the line is gone", |text| {
        text.contains("on this machine") && !text.contains("prompt cache")
    });
    assert_eq!(files(), 0);
    screen.send("\x1b");
    screen.quit();
}

/// A tiny model that talks, in a repository.
pub fn tiny_repo() -> Repo {
    let program = Program::new();
    let folder = with_tokenizer(&program);
    let read = |name: &str| std::fs::read(Path::new(&folder).join(name)).unwrap();
    let names = [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ];
    let files: Vec<(&str, Vec<u8>)> = names.iter().map(|name| (*name, read(name))).collect();
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (*name, &bytes[..])).collect();
    Repo::new(&files)
}

/// A model hub with it, which sends no more than a half of its weights until it is let go.
pub fn hub() -> (HubServer, Arc<AtomicBool>) {
    let repo = tiny_repo();
    let open = Arc::new(AtomicBool::new(false));
    let (sent, goes) = (repo.clone(), Arc::clone(&open));
    let server = HubServer::with(
        repo,
        |_, _| false,
        move |_, request, stream| {
            if goes.load(Ordering::SeqCst) {
                return send_blob(&sent, request, stream);
            }
            let bytes = sent.bytes("model.safetensors");
            let head = format!(
                "HTTP/1.1 200 OK\r\nETag: \"one\"\r\nAccept-Ranges: bytes\r\nContent-Length: {}\r\n\r\n",
                bytes.len()
            );
            // That the program goes away in the middle is what is wanted.
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.write_all(&bytes[..bytes.len() / 2]);
            crate::world::until_closed(stream);
        },
    );
    (server, open)
}

/// Waits until half of the hub's model is here.
pub fn wait_for_half(screen: &Screen) {
    screen.wait("half of it is here", |text| {
        let line = text.lines().find(|line| line.contains("org/tiny: "));
        line.is_some_and(|line| line.contains(" of ") && !line.contains(" 0%"))
    });
}

/// Begins the download of the hub's model, and stops it when half of it is here.
pub fn stop_halfway(screen: &mut Screen) {
    screen.send("/model org/tiny\r");
    wait_for_half(screen);
    screen.send("\x1b");
}

#[test]
fn a_model_is_downloaded_stopped_gone_on_with_and_taken() {
    let home = tempfile::tempdir().unwrap();
    install(home.path(), "one", "gemma3");
    let (hub, open) = hub();
    let start = at_home(home.path(), "one").environment("HF_ENDPOINT", &hub.hub.url(""));
    let mut screen = start.open();
    screen.wait_for("ready");
    stop_halfway(&mut screen);
    screen.wait_for("download of 'org/tiny' stopped");
    screen.wait("what came is listed", |text| {
        text.lines()
            .any(|line| line.contains("org/tiny") && line.contains("begun"))
    });
    open.store(true, Ordering::SeqCst);
    screen.send("\x1b");
    screen.wait("the list is closed", |text| !text.contains("model>"));
    screen.send("/model org/tiny\r");
    screen.wait_for("org/tiny is here: Enter goes on with it");
    let resumed = hub.cdn.requests();
    assert!(
        resumed.last().unwrap().header("range").is_some(),
        "it went on from where it was"
    );
    screen.send("\r");
    screen.wait_for("org/tiny answers from now on, in place of one");
    screen.send("abc\r");
    screen.wait_for("8 tokens in");
    screen.quit();
}

#[test]
fn what_a_download_left_is_deleted_from_the_screen() {
    let home = tempfile::tempdir().unwrap();
    install(home.path(), "one", "gemma3");
    let (hub, _) = hub();
    let start = at_home(home.path(), "one").environment("HF_ENDPOINT", &hub.hub.url(""));
    let mut screen = start.open();
    screen.wait_for("ready");
    stop_halfway(&mut screen);
    screen.wait_for("begun");
    let folder = home.path().join("hub/models--org--tiny");
    assert!(folder.exists());
    screen.send("org/tiny");
    screen.wait_for("model> org/tiny");
    screen.send("\x18"); // ^X
    screen.wait_for("Delete org/tiny, ");
    screen.send("y");
    screen.wait("it is gone", |text| !text.contains("begun"));
    assert!(!folder.exists());
    screen.send("\x1b");
    screen.quit();
}

#[test]
fn the_first_model_is_downloaded_on_the_screen() {
    let home = tempfile::tempdir().unwrap();
    let (hub, open) = hub();
    let start = at_home(home.path(), "org/tiny").environment("HF_ENDPOINT", &hub.hub.url(""));
    let mut screen = start.open();
    screen.wait_for("org/tiny: downloading");
    screen.send("\x1b");
    screen.wait_for("download of 'org/tiny' stopped");
    screen.wait_for("Alt-m chooses");
    open.store(true, Ordering::SeqCst);
    screen.send("/model org/tiny\r");
    screen.wait_for("Enter goes on with it");
    screen.send("\r");
    screen.wait_for("ready");
    screen.send("abc\r");
    screen.wait_for("8 tokens in");
    screen.quit();
}
