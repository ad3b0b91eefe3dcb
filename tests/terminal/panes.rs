//! Settings, presets, broadcasts to some panes, comparison, answers that go on, private panes and imports, with the real
//! program.

use crate::screen::Start;

#[test]
fn settings_are_changed_on_the_screen_and_come_back_with_resume() {
    let home = tempfile::tempdir().unwrap();
    let mut screen = Start::script("calm").home(home.path()).open();
    screen.wait_for("ready");
    screen.send("remember me\r");
    screen.wait_for("I do remember you.");
    screen.send("\x1bs"); // Alt-s
    screen.wait_for("settings of pane 1");
    screen.send("\x1b[B\r"); // Down, Enter
    screen.wait_for("temperature> 0");
    screen.send("\x150.75\r"); // ^U
    screen.wait_for("set here");
    screen.send("\x1b");
    screen.wait("the settings are closed", |text| !text.contains("settings of"));
    screen.quit();
    let mut screen = Start::script("calm")
        .home(home.path())
        .argument("--resume")
        .argument("--temperature")
        .argument("0.25")
        .open();
    screen.wait_for("--temperature counts for new panes");
    screen.send("/settings\r");
    screen.wait("the stored setting applies", |text| {
        text.lines().any(|line| {
            line.contains("temperature") && line.contains("0.75") && line.contains("this conversation")
        })
    });
    screen.send("\x1b");
    screen.quit();
}

#[test]
fn a_preset_is_saved_and_applied_and_a_bad_file_stops_nothing() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("config/mlx-chat/presets");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("bad.toml"), "[x]\nwarmth = 1\n").unwrap();
    let mut screen = Start::script("calm").home(home.path()).open();
    screen.wait_for("ready");
    screen.send("/preset creative\r");
    screen.wait_for("pane 1 is as preset \"creative\" has it");
    screen.send("/save-preset mine\r");
    screen.wait_for("preset \"mine\" is saved");
    assert!(folder.join("mine.toml").is_file());
    screen.send("\x1bp"); // Alt-p
    screen.wait_for("bad.toml:2: preset \"x\": warmth: there is no setting");
    screen.send("mine");
    screen.wait_for("preset> mine");
    screen.send("\r");
    screen.wait_for("pane 1 is as preset \"mine\" has it");
    screen.quit();
}

#[test]
fn a_prompt_goes_to_the_chosen_panes_and_one_answer_is_kept() {
    let mut screen = Start::script("calm").argument("--panes").argument("3").open();
    screen.wait_for("ready");
    screen.send("\x1b3"); // Alt-3
    screen.wait_for("to 3");
    screen.send("\x1bj"); // Alt-j
    screen.wait_for("takes no part");
    screen.send("\x1b1\x1bOR"); // Alt-1, F3
    screen.wait_for("to panes 1, 2");
    screen.send("remember this\r");
    screen.wait("two panes have answered", |text| {
        text.matches("stop, 5 tokens").count() == 2
    });
    screen.send("\x1bc"); // Alt-c
    screen.wait_for("keeps it, the others go back");
    screen.send("\x1b[C"); // Right
    screen.wait_for("2 of 2");
    screen.send("\r");
    screen.wait("pane 1 went back", |text| {
        !text.contains("keeps it") && text.matches("I do remember you.").count() == 1
    });
    screen.send("\x1b1\x1bOR\x1b[1;3B"); // Alt-1, F3, Alt-Down
    screen.wait("it is there again", |text| {
        text.matches("I do remember you.").count() == 2
    });
    screen.quit();
}

#[test]
fn an_answer_that_was_cut_off_goes_on_where_it_ended() {
    let home = tempfile::tempdir().unwrap();
    let start = || {
        Start::script("calm")
            .home(home.path())
            .argument("--max-tokens")
            .argument("2")
    };
    let mut screen = start().open();
    screen.wait_for("ready");
    screen.send("remember me\r");
    screen.wait_for("Alt-n has the answer go on");
    assert!(screen.text().contains("I do") && !screen.text().contains("remember you"));
    screen.quit();
    let mut screen = start().argument("--resume").open();
    screen.wait_for("ready");
    screen.wait_for("Alt-n has the answer go on");
    screen.send("\x1bn"); // Alt-n
    screen.wait_for("I do remember you.");
    screen.send("/continue\r");
    screen.wait("its end is reached", |text| text.contains("stop, "));
    assert!(screen.text().contains("I do remember you."));
    screen.quit();
}

#[test]
fn nothing_of_a_private_pane_is_on_the_disk() {
    let home = tempfile::tempdir().unwrap();
    let mut screen = Start::script("calm").home(home.path()).open();
    screen.wait_for("ready");
    screen.send("\x1bq"); // Alt-q
    screen.wait_for("Private: nothing of it is kept.");
    screen.send("remember the secret\r");
    screen.wait_for("I do remember you.");
    screen.send("a secret draft");
    screen.wait_for("│a secret draft");
    screen.signal("TERM");
    screen.exit_code();
    let mut folders = vec![home.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = std::fs::read(&path).unwrap();
                let text = String::from_utf8_lossy(&text);
                assert!(!text.contains("secret"), "{}", path.display());
            }
        }
    }
}

#[test]
fn conversations_are_imported_pinned_deleted_and_brought_back() {
    let home = tempfile::tempdir().unwrap();
    let talks = r#"{"title": "Pearls", "messages": [{"role": "user", "content": "where are pearls?"}]}
{"title": "Rivers", "messages": [{"role": "user", "content": "why do rivers wind?"}]}
"#;
    std::fs::write(home.path().join("talks.jsonl"), talks).unwrap();
    let mut screen = Start::script("calm").home(home.path()).open();
    screen.wait_for("ready");
    screen.send("/import talks.jsonl\r");
    screen.wait_for("imported 2 conversations; Alt-o lists them");
    screen.send("/import talks.jsonl\r");
    screen.wait_for("all 2 were imported before: nothing is new");
    screen.send("\x1b[20~"); // F9
    screen.wait("it is in the list", |text| {
        text.contains("messages, the newest first") && text.contains("all 2 were imported before")
    });
    screen.send("\x1b[20~");
    screen.wait("the list is closed", |text| {
        !text.contains("messages, the newest first")
    });
    screen.send("\x1bo"); // Alt-o
    screen.wait_for("Pearls");
    screen.send("riv");
    screen.wait("one is found", |text| {
        text.contains("Rivers") && !text.contains("Pearls")
    });
    screen.send("\x1bp"); // Alt-p
    screen.wait_for("pinned");
    screen.send("\x18\x1b"); // ^X, Esc
    screen.wait_for("\"Rivers\" is deleted");
    screen.quit();
    let mut screen = Start::script("calm").home(home.path()).open();
    screen.wait_for("ready");
    screen.send("\x1bk"); // Alt-k
    screen.wait_for("\"Rivers\" is there again");
    screen.send("\x1bo");
    screen.wait("it is pinned still", |text| {
        text.contains("Pearls")
            && text
                .lines()
                .any(|line| line.contains("Rivers") && line.contains("pinned"))
    });
    screen.send("\x1b");
    screen.quit();
}

#[test]
fn what_another_process_has_open_is_not_deleted_and_told_by_its_title() {
    let home = tempfile::tempdir().unwrap();
    let start = || Start::script("calm").home(home.path());
    let mut first = start().open();
    first.wait_for("ready");
    first.send("remember me\r");
    first.wait_for("I do remember you.");
    first.wait_for("stop, ");
    let mut second = start().open();
    second.wait_for("ready");
    second.send("\x1bo"); // Alt-o
    second.wait_for("remember me");
    second.send("\x18"); // ^X
    second.wait_for("\"remember me\" is open in another process: close it there first");
    second.send("\x1b");
    second.quit();
    first.quit();
    let mut third = start().open();
    third.wait_for("ready");
    third.send("\x1bo");
    third.wait_for("remember me");
    third.send("\x18\x1b"); // ^X, Esc
    third.wait_for("\"remember me\" is deleted: Alt-k brings it back");
    third.quit();
}
