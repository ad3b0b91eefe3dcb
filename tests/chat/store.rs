//! Logs on disk: round trips, damage, locks, layouts, privacy.

use std::fs;
use std::path::Path;

use mlx_chat::chat::{
    Access, Effect, End, Event, Kind, Record, RecordId, Settings, State, Status, Store, StoreError, Write,
    replay,
};
use mlx_chat::config::paths::Paths;
use mlx_chat::engine::FinishReason;
use mlx_chat::engine::telemetry::EngineState;
use tempfile::TempDir;

use crate::rig::{Rig, at, pane, piece, records, session, snapshot, submissions};

fn paths(folder: &Path) -> Paths {
    let sub = |name: &str| folder.join(name);
    Paths {
        config: sub("config"),
        data: sub("data"),
        state: sub("state"),
        cache: sub("cache"),
    }
}

pub fn store() -> (Store, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (Store::open(&paths(folder.path())), folder)
}

pub fn keep(store: &mut Store, effects: &[Effect]) {
    for effect in effects {
        match effect {
            Effect::Write(Write::Records { session, records }) => store.append(*session, records).unwrap(),
            Effect::Write(Write::Layout(layout)) => store.save_layout(layout).unwrap(),
            Effect::Write(Write::Release(session)) => store.release(*session),
            _ => {}
        }
    }
}

/// A conversation with two turns, the second one stopped, and a draft.
pub fn talk(rig: &mut Rig, topic: &str) -> Vec<Effect> {
    let mut all = rig.send(&format!("Tell me of {topic}\nplease"));
    let request = rig.accept(&all)[0];
    for piece in ["Ca", "fé 👍", "\n\"quoted\" \u{1b}[31m"] {
        all.extend(rig.token(request, piece));
    }
    all.extend(rig.finish(request, FinishReason::Stop));
    let second = rig.send("more");
    let request = rig.accept(&second)[0];
    all.extend(second);
    all.extend(rig.token(request, "well"));
    all.extend(rig.event(Event::Stop));
    all.extend(rig.finish(request, FinishReason::Cancelled));
    all.extend(rig.draft("unsent é"));
    all
}

pub fn record(id: u64, parent: Option<u64>, kind: Kind) -> Record {
    Record {
        id: RecordId(id),
        parent: parent.map(RecordId),
        at: at(i64::try_from(id).unwrap_or(0)),
        kind,
    }
}

pub fn header(n: u128) -> Record {
    let kind = Kind::Session {
        version: 1,
        session: session(n),
        model: "tiny".into(),
        settings: Settings::default(),
    };
    record(0, None, kind)
}

pub fn user(id: u64, parent: u64, text: &str) -> Record {
    record(
        id,
        Some(parent),
        Kind::User {
            text: text.into(),
            typed: None,
            turn: 1,
            seed: None,
        },
    )
}

pub fn delta(id: u64, parent: u64, text: &str) -> Record {
    record(id, Some(parent), piece(text))
}

pub fn end(id: u64, parent: u64, turn: usize, title: &str) -> Record {
    let (title, reason) = (title.into(), End::Stop);
    record(
        id,
        Some(parent),
        Kind::Finish {
            reason,
            stop_reason: None,
            message: None,
            stats: None,
            thoughts: Vec::new(),
            turn,
            title,
            tokens: None,
            marks: Default::default(),
        },
    )
}

#[test]
fn a_log_gives_back_the_conversation() {
    let (mut store, _folder) = store();
    let mut rig = Rig::ready(1);
    let effects = talk(&mut rig, "cafés");
    keep(&mut store, &effects);
    let told = store.load(session(1)).unwrap();
    let shown = rig.state.focused_pane();
    assert_eq!(told.turns, shown.turns);
    assert_eq!((&told.title, told.draft.text()), (&shown.title, "unsent é"));
    assert_eq!(told.notes, Vec::<String>::new());
    assert!(matches!(told.turns[1].status, Status::Stopped { stats: Some(_) }));
}

#[test]
fn a_log_cut_at_any_byte_loads_loses_at_most_its_last_record_and_goes_on() {
    let mut rig = Rig::ready(1);
    let written = records(&talk(&mut rig, "é"), session(1));
    let lines: Vec<String> = written.iter().map(|r| r.to_line().unwrap()).collect();
    let whole = lines.concat();
    let (mut store, _folder) = store();
    store.append(session(1), &written[..1]).unwrap();
    store.release(session(1));
    let path = store.path(session(1));
    for cut in 0..=whole.len() {
        fs::write(&path, &whole.as_bytes()[..cut]).unwrap();
        let mut left = 0;
        let mut bytes = 0;
        // A record whose newline alone is missing is whole.
        while left < lines.len() && bytes + lines[left].len() - 1 <= cut {
            bytes += lines[left].len();
            left += 1;
        }
        let expected = replay(session(1), written[..left].iter().cloned());
        assert_eq!(store.load(session(1)).unwrap(), expected, "cut at {cut}");
        let next = user(1000, 0, "after");
        store.append(session(1), std::slice::from_ref(&next)).unwrap();
        let expected = replay(session(1), written[..left].iter().cloned().chain([next]));
        assert_eq!(
            store.load(session(1)).unwrap(),
            expected,
            "went on after a cut at {cut}"
        );
        store.release(session(1));
    }
}

#[test]
fn a_damaged_line_is_left_out_with_a_note_and_unknown_records_without() {
    let (mut store, _folder) = store();
    store
        .append(session(1), &[header(1), user(1, 0, "a"), delta(2, 1, "b")])
        .unwrap();
    let path = store.path(session(1));
    let mut text = fs::read(&path).unwrap();
    text.extend_from_slice(b"{\"id\":3,\"par\xff\n");
    text.extend_from_slice(
        b"{\"id\":4,\"parent\":1,\"at\":\"2026-01-01T00:00:00Z\",\"type\":\"hologram\",\"x\":[1]}\n\n",
    );
    text.extend_from_slice(delta(5, 1, "c").to_line().unwrap().as_bytes());
    store.release(session(1));
    fs::write(&path, &text).unwrap();
    let told = store.load(session(1)).unwrap();
    assert_eq!(told.turns[0].answer, "bc");
    assert_eq!(told.notes.len(), 1, "{:?}", told.notes);
    assert!(told.notes[0].starts_with("line 4 can't be read"));
    assert_eq!(told.next_record, 6);
    store.append(session(1), &[delta(6, 1, "d")]).unwrap();
    assert!(
        fs::read(&path).unwrap().starts_with(&text),
        "what isn't understood stays in the file"
    );
}

#[test]
fn a_lost_parent_costs_no_other_turn_and_a_fork_follows_its_newest_prompt() {
    let lost = [header(1), user(1, 0, "a"), delta(2, 1, "x"), user(9, 8, "b")];
    let turns = |records: &[Record]| -> Vec<String> {
        replay(session(1), records.iter().cloned())
            .turns
            .into_iter()
            .map(|turn| turn.prompt)
            .collect()
    };
    assert_eq!(turns(&lost), ["a", "b"]);
    let fork = [
        header(1),
        user(1, 0, "a"),
        end(2, 1, 1, ""),
        user(3, 2, "b"),
        end(4, 3, 2, ""),
        user(5, 2, "c"),
    ];
    assert_eq!(turns(&fork), ["a", "c"]);
    let circle = [user(1, 2, "a"), user(2, 1, "b"), user(2, 2, "c")];
    assert_eq!(turns(&circle).last().map(String::as_str), Some("c"));
    let stray = replay(
        session(1),
        [
            header(1),
            delta(1, 7, "x"),
            end(2, 7, 1, ""),
            user(u64::MAX, 0, "a"),
        ],
    );
    assert_eq!((stray.turns.len(), stray.notes.len()), (1, 1));
}

#[test]
fn a_second_writer_is_told_which_conversation_is_open_elsewhere_and_may_read_it() {
    let (mut first, folder) = store();
    let mut rig = Rig::ready(1);
    let effects = talk(&mut rig, "locks");
    keep(&mut first, &effects);
    let mut second = Store::open(&paths(folder.path()));
    for error in [
        second.resume(session(1)).unwrap_err(),
        second.append(session(1), &[delta(99, 0, "no")]).unwrap_err(),
        second.remove(session(1)).unwrap_err(),
        first.remove(session(1)).unwrap_err(),
    ] {
        assert!(
            matches!(error, StoreError::OpenElsewhere { session: s, .. } if s == session(1)),
            "{error}"
        );
        let title = second.load(session(1)).unwrap().title;
        assert!(!title.is_empty() && error.to_string().starts_with(&format!("{title:?} is open in")));
    }
    assert_eq!(second.load(session(1)).unwrap().turns.len(), 2);
    let restored = second.restore().unwrap().unwrap();
    assert_eq!(restored.conversations[0].1, Access::Elsewhere);
    assert!(restored.notes[0].contains("open in another process"));
    first.release(session(1));
    assert_eq!(second.resume(session(1)).unwrap().turns.len(), 2);
}

#[test]
fn resuming_brings_back_every_pane_with_its_draft() {
    let (mut store, folder) = store();
    let mut rig = Rig::ready(3);
    let mut effects = talk(&mut rig, "one");
    effects.extend(rig.event(Event::Focus(pane(3))));
    effects.extend(rig.draft("only a draft"));
    effects.extend(rig.event(Event::ToggleBroadcast));
    effects.extend(rig.event(Event::ToggleZoom));
    effects.extend(rig.event(Event::Quit));
    keep(&mut store, &effects);
    drop(store);
    let mut store = Store::open(&paths(folder.path()));
    let restored = store.restore().unwrap().unwrap();
    assert_eq!(restored.notes, Vec::<String>::new());
    let state = State::resume(
        Settings::default(),
        &restored.layout,
        restored.conversations,
        session(99),
    );
    assert_eq!(state.layout(), rig.state.layout());
    for (id, was) in rig.state.panes() {
        let is = state.pane(*id).unwrap();
        assert_eq!(
            (&is.turns, &is.draft, &is.title),
            (&was.turns, &was.draft, &was.title)
        );
    }
    assert_eq!(state.focused_pane().draft.text(), "only a draft");
}

#[test]
fn the_first_turn_after_reopening_asks_what_it_would_have_asked_before() {
    // So the prompt cache on disk, which goes by tokens, finds the conversation again.
    let (mut store, folder) = store();
    let mut rig = Rig::ready(1);
    let mut effects = talk(&mut rig, "one");
    effects.extend(rig.event(Event::Quit));
    keep(&mut store, &effects);
    drop(store);
    let mut store = Store::open(&paths(folder.path()));
    let restored = store.restore().unwrap().unwrap();
    let mut reopened = Rig::ready(1);
    reopened.state = State::resume(
        Settings::default(),
        &restored.layout,
        restored.conversations,
        session(99),
    );
    reopened.event(snapshot(EngineState::Ready));
    let asked = |rig: &mut Rig| {
        let effects = rig.send("and now?");
        let (_, _, request) = submissions(&effects).remove(0);
        (request.prompt, request.session, request.chat, request.cache)
    };
    let mut never_closed = Rig::ready(1);
    talk(&mut never_closed, "one");
    assert_eq!(asked(&mut reopened), asked(&mut never_closed));
}

#[test]
fn a_prompt_that_waited_when_the_program_died_comes_back_as_draft() {
    let (mut store, _folder) = store();
    let mut rig = Rig::ready(1);
    let mut effects = rig.send("one");
    let request = rig.accept(&effects)[0];
    effects.extend(rig.token(request, "half"));
    effects.extend(rig.send("two"));
    keep(&mut store, &effects);
    let restored = store.restore().unwrap().unwrap();
    let state = State::resume(
        Settings::default(),
        &restored.layout,
        restored.conversations,
        session(99),
    );
    let pane = state.focused_pane();
    assert_eq!((pane.draft.text(), pane.queued.as_ref()), ("two", None));
    assert_eq!(pane.turns[0].answer, "half");
    assert_eq!(pane.turns[0].status, Status::Stopped { stats: None });
}

#[test]
fn a_damaged_or_hostile_layout_is_an_error_or_a_pane_never_a_crash() {
    let (mut store, folder) = store();
    assert!(store.restore().unwrap().is_none());
    let path = folder.path().join("state/layout.json");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    for text in [
        "",
        "{",
        "{\"version\":1,\"panes\":[{\"pane\":12,\"session\":\"x\"}],\"focused\":1}",
        "[]",
    ] {
        fs::write(&path, text).unwrap();
        assert!(
            matches!(store.restore(), Err(StoreError::Layout { .. })),
            "{text}"
        );
    }
    fs::write(&path, r#"{"version":2,"panes":[],"focused":1}"#).unwrap();
    assert!(
        store
            .restore()
            .unwrap_err()
            .to_string()
            .contains("its version is 2")
    );
    fs::write(&path, r#"{"version":1,"panes":[],"focused":7}"#).unwrap();
    let restored = store.restore().unwrap().unwrap();
    let state = State::resume(
        Settings::default(),
        &restored.layout,
        restored.conversations,
        session(99),
    );
    assert_eq!(state.focused_pane().session, session(99));
}

#[test]
fn an_unwritable_folder_is_an_error_and_writing_goes_on_when_it_is_gone() {
    let (mut store, folder) = store();
    let state = folder.path().join("state");
    fs::write(&state, "in the way").unwrap();
    let error = store.append(session(1), &[header(1)]).unwrap_err();
    assert!(error.to_string().starts_with("can't make the folder"), "{error}");
    fs::remove_file(&state).unwrap();
    store.append(session(1), &[header(1)]).unwrap();
    store.append(session(1), &[user(1, 0, "a")]).unwrap();
    assert_eq!(store.load(session(1)).unwrap().turns.len(), 1);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_that_names_the_file() {
    let (mut store, _folder) = store();
    let path = store.path(session(1));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    for _ in 0..2 {
        let error = store.append(session(1), &[header(1)]).unwrap_err();
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
    assert!(
        store
            .load(session(1))
            .unwrap_err()
            .to_string()
            .contains("not a regular file")
    );
}

#[cfg(unix)]
#[test]
fn files_and_folders_are_the_users_alone() {
    use std::os::unix::fs::PermissionsExt;
    let (mut store, folder) = store();
    let mut rig = Rig::ready(1);
    keep(&mut store, &talk(&mut rig, "secrets"));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let state = folder.path().join("state");
    assert_eq!(mode(&state), 0o700);
    assert_eq!(mode(&state.join("sessions")), 0o700);
    assert_eq!(mode(&state.join("layout.json")), 0o600);
    assert_eq!(mode(&store.path(session(1))), 0o600);
    assert_eq!(
        fs::read_dir(&state).unwrap().count(),
        2,
        "no draft of the layout is left behind"
    );
}

#[cfg(unix)]
#[test]
fn a_log_that_somebody_deletes_while_it_is_open_is_written_anew() {
    let (mut store, folder) = store();
    let mut rig = Rig::ready(1);
    let said = talk(&mut rig, "one");
    keep(&mut store, &said);
    let path = store.path(session(1));
    let before = store.load(session(1)).unwrap().turns.len();
    fs::remove_file(&path).unwrap();
    let more = talk(&mut rig, "two");
    keep(&mut store, &more);
    assert_eq!(store.load(session(1)).unwrap().turns.len(), 2 * before);
    // It is this process's as it was before, even where the folder went.
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
    keep(&mut store, &talk(&mut rig, "three"));
    let mut others = Store::open(&paths(folder.path()));
    assert_eq!(
        others.take(session(1)).unwrap().1,
        mlx_chat::chat::Access::Elsewhere
    );
    assert_eq!(others.load(session(1)).unwrap().turns.len(), 3 * before);
    // Another file is nobody's to write to.
    fs::remove_file(&path).unwrap();
    fs::write(&path, "mine").unwrap();
    let records = records(&talk(&mut rig, "four"), session(1));
    let error = store.append(session(1), &records).unwrap_err().to_string();
    assert!(error.contains("another file has taken its place"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn a_removed_conversation_is_gone_and_a_missing_one_is_named() {
    let (mut store, _folder) = store();
    store.append(session(1), &[header(1), user(1, 0, "a")]).unwrap();
    store.release(session(1));
    store.remove(session(1)).unwrap();
    for error in [
        store.load(session(1)).unwrap_err(),
        store.resume(session(1)).unwrap_err(),
        store.remove(session(1)).unwrap_err(),
    ] {
        assert!(matches!(error, StoreError::Missing { .. }), "{error}");
    }
    assert!(!store.path(session(1)).exists());
}
