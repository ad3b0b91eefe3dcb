//! Search over many conversations, as their files change.

use mlx_chat::chat::store::Place;
use mlx_chat::chat::{Kind, Record, RecordId, SessionId, Settings, Store};
use mlx_chat::text::spans::Span;

use crate::rig::{at, session};

fn record(id: u64, parent: Option<u64>, kind: Kind) -> Record {
    Record {
        id: RecordId(id),
        parent: parent.map(RecordId),
        at: at(id as i64),
        kind,
    }
}

fn delta(text: &str) -> Kind {
    Kind::Delta {
        text: text.into(),
        span: Span::Answer,
        marker: false,
    }
}

fn talk(store: &mut Store, name: SessionId, title: &str, answer: &str) {
    let (model, settings) = (String::new(), Settings::default());
    let begins = Kind::Session {
        version: 1,
        session: name,
        model,
        settings,
    };
    let user = Kind::User {
        text: "Tell Me".into(),
        typed: None,
        turn: 1,
        seed: None,
    };
    let records = [
        record(0, None, begins),
        record(1, Some(0), Kind::Title { title: title.into() }),
        record(2, Some(0), user),
        record(3, Some(2), delta(answer)),
    ];
    store.append(name, &records).unwrap();
    store.release(name);
}

fn hits(store: &Store, words: &str) -> Vec<SessionId> {
    let found = store.search(words, 100).unwrap();
    assert_eq!(found.notes, [""; 0]);
    found.hits.iter().map(|hit| hit.session).collect()
}

#[test]
fn a_search_finds_what_was_said_since_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::at(folder.path());
    let reader = store.reader();
    talk(&mut store, session(1), "Rivers", "the banks ERODE");
    assert_eq!(hits(&reader, "erode banks"), [session(1)]);
    assert_eq!(hits(&reader, "pearl"), Vec::<SessionId>::new());
    talk(&mut store, session(2), "Pearls", "an oyster");
    let more = [record(4, Some(2), delta(" and a pearl"))];
    store.append(session(1), &more).unwrap();
    store.release(session(1));
    assert_eq!(
        hits(&reader, "pearl"),
        [session(2), session(1)],
        "titles come first"
    );
    store.remove(session(2)).unwrap();
    assert_eq!(hits(&reader, "pearl"), [session(1)]);
}

#[test]
fn a_hit_shows_the_line_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::at(folder.path());
    talk(&mut store, session(1), "Größe", "First\nDie GRÖSSE zählt\nLast");
    let found = store.search("zählt größe", 10).unwrap();
    assert_eq!(found.hits.len(), 0, "ß isn't ss");
    let found = store.search("ZÄHLT", 10).unwrap();
    let [hit] = &found.hits[..] else {
        panic!("{found:?}")
    };
    assert_eq!(hit.line, "Die GRÖSSE zählt");
    assert!(matches!(hit.place, Place::Message { turn: 1, .. }));
}

#[test]
fn of_thousands_the_newest_are_found_up_to_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::at(folder.path());
    for number in 0..400 {
        let what = if number % 3 == 0 { "a pearl" } else { "sand" };
        talk(&mut store, session(number), &format!("talk {number}"), what);
    }
    store.prepare_search().unwrap();
    let found = store.search("pearl", 50).unwrap();
    assert_eq!(found.hits.len(), 50);
    assert_eq!(found.hits[0].session, session(399));
    assert_eq!(hits(&store, "talk 398"), [session(398)]);
}
