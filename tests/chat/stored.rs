//! Stored conversations that are opened, renamed and deleted, through the writer that has their logs.

use std::time::Duration;

use mlx_chat::chat::writer::Writer;
use mlx_chat::chat::{Access, Ask, Effect, Event, Marks, Report, SessionId, Store, Write};
use tempfile::TempDir;

use crate::rig::{Rig, at, session};

const NOW: Duration = Duration::ZERO;

/// A writer over a store with a conversation, and the state that made it.
fn kept() -> (Writer<Store>, Rig, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(Store::at(folder.path()));
    let mut rig = Rig::ready(2);
    let effects = rig.send("hello");
    write(&mut writer, &effects);
    let request = rig.accept(&effects)[0];
    let effects = rig.finish(request, mlx_chat::engine::FinishReason::Stop);
    write(&mut writer, &effects);
    (writer, rig, folder)
}

/// Hands over what is to be kept, and gives the reports.
fn write(writer: &mut Writer<Store>, effects: &[Effect]) -> Vec<Report> {
    let writes = effects.iter().filter_map(|effect| match effect {
        Effect::Write(write) => Some(write.clone()),
        _ => None,
    });
    writes.filter_map(|write| writer.push(NOW, write)).collect()
}

fn first(rig: &Rig) -> SessionId {
    rig.state.focused_pane().session
}

#[test]
fn what_waits_to_be_written_goes_before_what_is_asked() {
    let (mut writer, rig, folder) = kept();
    let name = first(&rig);
    assert!(writer.due().is_some(), "nothing was written yet");
    let report = writer.push(NOW, Write::Ask(Ask::Open(name)));
    let Some(Report::Opened { conversation, access }) = report else {
        panic!("{report:?}");
    };
    assert_eq!((conversation.turns.len(), access), (1, Access::Write));
    assert_eq!(Store::at(folder.path()).load(name).unwrap().turns.len(), 1);
}

#[test]
fn what_another_process_writes_is_followed_until_that_is_gone() {
    let (mut theirs, mut rig, folder) = kept();
    let name = first(&rig);
    assert_eq!(theirs.flush(), [""; 0]);
    let mut ours = Writer::new(Store::at(folder.path()));
    let look = |times: u32| times * mlx_chat::chat::writer::LOOK;
    let report = ours.push(NOW, Write::Ask(Ask::Open(name)));
    assert!(
        matches!(
            report,
            Some(Report::Opened {
                access: Access::Elsewhere,
                ..
            })
        ),
        "{report:?}"
    );
    assert_eq!(ours.due(), Some(look(1)));
    assert_eq!(ours.poll(look(1)), None, "nothing is new");
    let effects = rig.send("and more");
    write(&mut theirs, &effects);
    assert_eq!(theirs.flush(), [""; 0]);
    assert_eq!(ours.poll(look(1)), None, "it is not time to look");
    let Some(Report::Followed { conversation, access }) = ours.poll(look(2)) else {
        panic!("there is news")
    };
    assert_eq!((conversation.turns.len(), access), (2, Access::Elsewhere));
    drop(theirs);
    let Some(Report::Followed { access, .. }) = ours.poll(look(3)) else {
        panic!("it is free")
    };
    assert_eq!((access, ours.due()), (Access::Write, None));
    // What is closed is not followed.
    let mut others = Writer::new(Store::at(folder.path()));
    others.push(NOW, Write::Ask(Ask::Open(name)));
    others.push(NOW, Write::Release(name));
    others.poll(NOW);
    assert_eq!(others.due(), None);
}

#[test]
fn a_closed_panes_conversation_is_deleted_and_does_not_come_back() {
    let (mut writer, mut rig, folder) = kept();
    let name = first(&rig);
    let effects = rig.event(Event::ClosePane);
    write(&mut writer, &effects);
    let effects = rig.event(Event::RemoveStored { session: name });
    let told = write(&mut writer, &effects);
    assert!(
        matches!(&told[..], [Report::Removed { title }] if title == "hello"),
        "{told:?}"
    );
    assert_eq!(writer.flush(), [""; 0]);
    assert!(Store::at(folder.path()).load(name).is_err());
    let effects = rig.event(Event::ReopenPane);
    assert!(effects.contains(&Effect::Bell), "there is nothing to reopen");
}

#[test]
fn a_deleted_conversation_is_brought_back_even_by_another_process() {
    let (mut writer, mut rig, folder) = kept();
    let name = first(&rig);
    let effects = rig.event(Event::ClosePane);
    write(&mut writer, &effects);
    let effects = rig.event(Event::RemoveStored { session: name });
    write(&mut writer, &effects);
    let mut later = Writer::new(Store::at(folder.path()));
    let effects = rig.event(Event::RestoreRemoved);
    let told = write(&mut later, &effects);
    assert!(
        matches!(&told[..], [Report::Restored { title }] if title == "hello"),
        "{told:?}"
    );
    let store = Store::at(folder.path());
    assert_eq!(store.load(name).unwrap().turns.len(), 1);
    assert_eq!(store.list().unwrap().sessions.len(), 1);
    let told = write(&mut later, &effects);
    assert!(
        matches!(&told[..], [Report::Refused { message }] if message.contains("no deleted")),
        "{told:?}"
    );
}

#[test]
fn the_one_that_was_deleted_last_comes_back_first_and_old_ones_go() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::at(folder.path());
    let records = |number| {
        let mut rig = Rig::ready(1);
        let effects = rig.send(&format!("talk {number}"));
        crate::rig::records(&effects, session(1))
    };
    for number in 1..=3 {
        store.append(session(number), &records(number)).unwrap();
        store.release(session(number));
    }
    let day = 24 * 3600 * 1000;
    store.put_away(session(1), at(0)).unwrap();
    store.put_away(session(2), at(29 * day)).unwrap();
    assert_eq!(store.bring_back().unwrap().as_deref(), Some("talk 2"));
    store.put_away(session(2), at(40 * day)).unwrap();
    store.put_away(session(3), at(41 * day)).unwrap();
    assert_eq!(store.bring_back().unwrap().as_deref(), Some("talk 3"));
    assert_eq!(store.bring_back().unwrap().as_deref(), Some("talk 2"));
    assert_eq!(store.bring_back().unwrap(), None, "the first one was too old");
}

#[test]
fn a_pinned_conversation_is_listed_first_whether_it_is_open_or_not() {
    let (mut writer, mut rig, folder) = kept();
    let name = first(&rig);
    let pinned = Marks {
        pinned: true,
        ..Marks::default()
    };
    let mark = |session, marks| Event::MarkStored { session, marks };
    let effects = rig.event(mark(name, pinned));
    write(&mut writer, &effects);
    // The end of a later answer says it, too: a long log is read from its end.
    let sent = rig.send("more");
    write(&mut writer, &sent);
    let request = rig.accept(&sent)[0];
    let effects = rig.finish(request, mlx_chat::engine::FinishReason::Stop);
    assert!(crate::rig::records(&effects, name).iter().any(|record| matches!(
        record.kind,
        mlx_chat::chat::Kind::Finish { marks, .. } if marks == pinned
    )));
    write(&mut writer, &effects);
    let effects = rig.event(Event::ClosePane);
    write(&mut writer, &effects);
    writer.push(NOW, Write::Release(name));
    writer.flush();
    let listed = |folder: &TempDir| Store::at(folder.path()).list().unwrap().sessions[0].marks;
    assert_eq!(listed(&folder), pinned);
    let away = Marks {
        archived: true,
        ..Marks::default()
    };
    let mark = Ask::Mark {
        session: name,
        at: at(9),
        marks: away,
    };
    assert_eq!(writer.push(NOW, Write::Ask(mark)), None);
    assert_eq!(listed(&folder), away);
    assert_eq!(Store::at(folder.path()).load(name).unwrap().marks, away);
}

#[test]
fn a_shown_conversation_is_not_deleted() {
    let (_, mut rig, _folder) = kept();
    let session = first(&rig);
    let effects = rig.event(Event::RemoveStored { session });
    assert!(
        !effects
            .iter()
            .any(|effect| matches!(effect, Effect::Write(Write::Ask(_))))
    );
    assert!(
        rig.state
            .notices()
            .last()
            .unwrap()
            .text
            .contains("open in pane 1")
    );
}

#[test]
fn a_title_given_to_a_stored_conversation_is_the_last_word() {
    let (mut writer, rig, folder) = kept();
    let name = first(&rig);
    writer.push(NOW, Write::Release(name));
    let rename = Ask::Rename {
        session: name,
        at: at(99_999),
        title: "Another".into(),
    };
    assert_eq!(writer.push(NOW, Write::Ask(rename)), None);
    let mut other = Store::at(folder.path());
    assert_eq!(
        other.resume(name).unwrap().title,
        "Another",
        "nobody holds its lock"
    );
    assert_eq!(other.list().unwrap().sessions[0].title, "Another");
}

#[test]
fn what_cannot_be_done_is_reported() {
    let (mut writer, rig, folder) = kept();
    let missing = writer.push(NOW, Write::Ask(Ask::Open(session(99))));
    assert!(
        matches!(missing, Some(Report::Refused { message }) if message.contains("there is no conversation"))
    );
    let name = first(&rig);
    writer.push(NOW, Write::Release(name));
    writer.flush();
    let mut elsewhere = Store::at(folder.path());
    elsewhere.resume(name).unwrap();
    let opened = writer.push(NOW, Write::Ask(Ask::Open(name)));
    assert!(matches!(
        opened,
        Some(Report::Opened {
            access: Access::Elsewhere,
            ..
        })
    ));
    let removed = writer.push(
        NOW,
        Write::Ask(Ask::Remove {
            session: name,
            at: at(1),
        }),
    );
    assert!(
        matches!(removed, Some(Report::Refused { message }) if message.contains("open in another process"))
    );
}

#[test]
fn a_refusal_is_told() {
    let mut rig = Rig::ready(1);
    let message = "it can't be done".to_owned();
    let effects = rig.event(Event::Writer(Report::Refused { message }));
    assert!(effects.contains(&Effect::Bell));
    assert_eq!(rig.state.notices().last().unwrap().text, "it can't be done");
}
