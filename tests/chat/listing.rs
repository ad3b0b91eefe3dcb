//! The list of conversations: what it says of each, and what is found in it.

use std::fs;

use mlx_chat::chat::store::Place;
use mlx_chat::chat::{Event, Kind, Marks, Parameter, SessionId, Settings, Store, StoreError, import};
use mlx_chat::engine::FinishReason;
use mlx_chat::text::message::Role;
use tempfile::TempDir;

use crate::rig::{Rig, at, pane, session};
use crate::store::{delta, end, header, keep, record, store, talk, user};

#[test]
fn a_conversation_with_a_draft_alone_is_called_by_it_and_found_by_its_words() {
    let (mut store, _folder) = store();
    let mut rig = Rig::ready(4);
    keep(&mut store, &rig.draft("\n  the pearl that I\nmean to ask about"));
    rig.event(Event::Focus(pane(2)));
    keep(&mut store, &rig.draft("another"));
    keep(&mut store, &rig.draft("  "));
    rig.event(Event::Focus(pane(3)));
    let mut warm = Settings::default();
    Parameter::Temperature.set(&mut warm, "0.5").unwrap();
    keep(&mut store, &rig.event(Event::Configure(warm)));
    // A prompt that waits for the model counts, too.
    rig.event(Event::Focus(pane(4)));
    let listed = store.list().unwrap().sessions;
    let names: Vec<_> = listed.iter().map(|s| (s.session, s.title.as_str())).collect();
    assert_eq!(names, [(session(1), "the pearl that I")]);
    for words in ["pearl", "mean ask"] {
        let hits = store.search(words, 9).unwrap().hits;
        let hit = hits.last().unwrap();
        assert_eq!((hit.session, hit.place), (session(1), Place::Draft), "{words}");
        assert_eq!(hit.title, "the pearl that I");
    }
    assert_eq!(store.search("another", 9).unwrap().hits, []);
    // Once it is sent, it is a message and no draft.
    rig.event(Event::Focus(pane(1)));
    let sent = rig.event(Event::Submit);
    keep(&mut store, &sent);
    let hits = store.search("mean ask", 9).unwrap().hits;
    assert!(
        !hits.is_empty() && hits.iter().all(|hit| hit.place != Place::Draft),
        "{hits:?}"
    );
}

#[test]
fn a_prompt_that_waits_to_be_sent_is_listed_and_found() {
    let (mut store, _folder) = store();
    let mut rig = Rig::loading(1);
    keep(&mut store, &rig.send("a waiting oyster"));
    assert_eq!(store.list().unwrap().sessions[0].title, "a waiting oyster");
    assert!(!store.search("oyster", 9).unwrap().hits.is_empty());
}

/// A store with an imported conversation of which two answers are there.
fn imported() -> (Store, TempDir) {
    let (mut store, folder) = store();
    let talk = r#"{"title": "Old", "create_time": 1700000000.0, "update_time": 1700000900.0, "mapping": {
        "a": {"id": "a", "parent": null, "children": ["b", "c"], "message": {"author": {"role": "user"}, "create_time": 1700000000.0, "content": {"content_type": "text", "parts": ["why?"]}}},
        "b": {"id": "b", "parent": "a", "children": [], "message": {"author": {"role": "assistant"}, "create_time": 1700000010.0, "content": {"content_type": "text", "parts": ["because"]}}},
        "c": {"id": "c", "parent": "a", "children": [], "message": {"author": {"role": "assistant"}, "create_time": 1700000020.0, "content": {"content_type": "text", "parts": ["who knows"]}}}},
        "current_node": "c"}"#;
    let talk = import(talk).unwrap().conversations.remove(0);
    store.take_in(talk, at(1_000_000_000)).unwrap();
    (store, folder)
}

#[test]
fn only_what_is_said_dates_a_conversation() {
    let (mut store, _folder) = imported();
    let before = store.list().unwrap().sessions.remove(0);
    assert!(before.updated.as_second() < 1_700_001_000, "{}", before.updated);
    let name = before.session;
    let (conversation, access) = store.take(name).unwrap();
    let mut rig = Rig::ready(1);
    rig.ms = 3_000_000_000;
    let conversation = Box::new(conversation);
    rig.event(Event::Writer(mlx_chat::chat::Report::Opened {
        conversation,
        access,
    }));
    let marks = Marks {
        pinned: true,
        ..Marks::default()
    };
    for event in [
        Event::Sibling { forward: false },
        Event::Sibling { forward: true },
        Event::Draft(mlx_chat::chat::Draft::at_end("/import talks.json")),
        Event::ClearDraft,
        Event::Configure(Settings::default()),
        Event::Rename { title: "New".into() },
        Event::MarkStored { session: name, marks },
    ] {
        keep(&mut store, &rig.event(event));
        let listed = store.list().unwrap().sessions.remove(0);
        assert_eq!(listed.updated, before.updated);
        assert_eq!(store.load(name).unwrap().updated, Some(before.updated));
    }
    let sent = rig.send("and now?");
    keep(&mut store, &sent);
    let request = rig.accept(&sent)[0];
    keep(&mut store, &rig.finish(request, FinishReason::Stop));
    assert!(store.list().unwrap().sessions[0].updated > before.updated);
}

#[test]
fn a_listing_is_newest_first_and_leaves_out_what_is_empty_or_no_log() {
    let (mut store, _folder) = store();
    assert!(store.list().unwrap().sessions.is_empty());
    let mut rig = Rig::ready(3);
    let effects = talk(&mut rig, "the first thing");
    keep(&mut store, &effects);
    rig.event(Event::Focus(pane(3)));
    let effects = talk(&mut rig, "the second thing");
    keep(&mut store, &effects);
    store.append(session(7), &[header(7)]).unwrap();
    let folder = store.path(session(7)).parent().unwrap().to_path_buf();
    fs::write(folder.join("notes.jsonl"), "x").unwrap();
    fs::write(folder.join(format!("{}.jsonl", session(8))), "").unwrap();
    fs::create_dir(folder.join(format!("{}.jsonl", session(9)))).unwrap();
    let listing = store.list().unwrap();
    let found: Vec<(SessionId, &str, usize)> = listing
        .sessions
        .iter()
        .map(|s| (s.session, s.title.as_str(), s.turns))
        .collect();
    let expected = [
        (session(3), "Tell me of the second thing", 2),
        (session(1), "Tell me of the first thing", 2),
    ];
    assert_eq!(found, expected);
    assert!(listing.sessions[0].created < listing.sessions[0].updated);
    assert_eq!(listing.notes.len(), 1);
}

#[test]
fn a_long_log_is_listed_from_its_ends_and_says_the_same() {
    let (mut store, _folder) = store();
    let piece = "x".repeat(1000);
    let mut log = vec![header(1), user(1, 0, "a")];
    log.extend((2..400).map(|id| delta(id, 1, &piece)));
    log.push(end(400, 1, 1, "a title"));
    store.append(session(1), &log).unwrap();
    let listed = store.list().unwrap().sessions.remove(0);
    assert_eq!(
        (listed.title.as_str(), listed.turns, listed.model.as_str()),
        ("a title", 1, "tiny")
    );
    assert_eq!((listed.created, listed.updated), (at(0), at(400)));
    // The model that came after a log had begun is named at its beginning.
    let kind = Kind::Model {
        model: "another".into(),
    };
    let mut log = vec![header(7), record(500, Some(0), kind)];
    log.extend((2..400).map(|id| delta(id, 1, &piece)));
    log.push(end(501, 1, 1, "a title"));
    store.append(session(7), &log).unwrap();
    assert_eq!(store.list().unwrap().sessions[0].model, "another");
    store.release(session(7));
    store.remove(session(7)).unwrap();
    // Its end says nothing of turns any more: it is read whole.
    let mut more = vec![user(401, 400, "b")];
    more.extend((402..500).map(|id| delta(id, 401, &piece)));
    store.append(session(1), &more).unwrap();
    let listed = store.list().unwrap().sessions.remove(0);
    assert_eq!((listed.title.as_str(), listed.updated), ("a title", at(499)));
}

#[test]
fn searching_finds_prompts_and_answers_whatever_their_case() {
    let (mut store, _folder) = store();
    let mut rig = Rig::ready(2);
    keep(&mut store, &talk(&mut rig, "Wide Oceans"));
    rig.event(Event::Focus(pane(2)));
    keep(&mut store, &talk(&mut rig, "rivers"));
    let found = |text: &str, limit| store.search(text, limit).unwrap().hits;
    let hits = found("oceans WIDE", 10);
    let message = |turn, role| Place::Message { turn, role };
    assert_eq!(
        hits.iter()
            .map(|hit| (hit.session, hit.place))
            .collect::<Vec<_>>(),
        [Place::Title, message(1, Role::User)].map(|place| (session(1), place)),
        "titles come first"
    );
    assert_eq!(hits[1].line, "Tell me of Wide Oceans");
    let hits = found("CAFÉ", 10);
    assert_eq!(
        hits.iter().map(|h| (h.session, h.place)).collect::<Vec<_>>(),
        [2, 1].map(|n| (session(n), message(1, Role::Assistant)))
    );
    assert_eq!(found("CAFÉ", 1).len(), 1);
    assert!(
        found("", 10).is_empty() && found("volcano", 10).is_empty() && found("wide rivers", 10).is_empty()
    );
}

#[test]
fn searching_finds_what_the_log_holds_in_pieces_and_in_every_branch_and_shows_it() {
    let (mut store, _folder) = store();
    let long = format!("{} the needle {}\nmore", "hay ".repeat(200), "straw ".repeat(200));
    let log = [
        header(1),
        user(1, 0, "a"),
        delta(2, 1, "a nee"),
        delta(3, 1, "dle"),
        end(4, 1, 1, "t"),
        user(5, 0, &long),
    ];
    store.append(session(1), &log).unwrap();
    let folder = store.path(session(1)).parent().unwrap().to_path_buf();
    fs::create_dir(folder.join(format!("{}.jsonl", session(9)))).unwrap();
    let found = store.search("needle", 10).unwrap();
    assert_eq!(found.hits.len(), 2);
    assert!(found.hits[1].line.contains("the needle straw") && found.hits[1].line.chars().count() <= 120);
    assert_eq!(found.notes.len(), 1);
}

#[test]
fn a_name_is_found_by_a_beginning_that_only_it_has() {
    let (mut store, _folder) = store();
    let names = [
        SessionId::from_bits(0xAB << 120),
        SessionId::from_bits(0xAC << 120),
    ];
    for name in names {
        store.append(name, &[header(1)]).unwrap();
    }
    assert_eq!(store.find("AB").unwrap(), names[0]);
    assert_eq!(store.find(&names[1].to_string()).unwrap(), names[1]);
    assert!(
        store
            .find("a")
            .unwrap_err()
            .to_string()
            .starts_with("2 conversations' ids")
    );
    for unknown in ["b", ""] {
        assert!(matches!(store.find(unknown), Err(StoreError::NoneBegins { .. })));
    }
}
