//! What the list of conversations says of drafts and dates.

use mlx_chat::chat::store::Place;
use mlx_chat::chat::{Event, Marks, Parameter, Settings, Store, import};
use mlx_chat::engine::FinishReason;
use tempfile::TempDir;

use crate::rig::{Rig, at, pane, session};
use crate::store::{keep, store};

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
