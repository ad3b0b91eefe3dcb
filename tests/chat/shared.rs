//! Several processes over one folder, one that broke off, and a folder that can't be written.

use mlx_chat::chat::store::Before;
use mlx_chat::chat::{
    Access, Ask, Effect, Event, NoticeKind, Report, Settings, State, Store, Way, Write, replay,
};
use mlx_chat::engine::FinishReason;
use mlx_chat::engine::telemetry::EngineState;

use crate::rig::{Rig, pane, records, session, snapshot, submissions};
use crate::store::{keep, store, talk};

#[test]
fn the_first_process_keeps_the_layout_and_one_beside_it_none() {
    let (mut first, folder) = store();
    assert_eq!(first.claim_layout(), Before::Ended);
    let mut rig = Rig::ready(3);
    keep(&mut first, &talk(&mut rig, "three panes"));
    let layout = rig.state.layout();
    let mut second = Store::at(&folder.path().join("state"));
    assert_eq!(second.claim_layout(), Before::Runs);
    let other = Rig::ready(1).state.layout();
    second.save_layout(&other).unwrap();
    assert_eq!(first.load_layout().unwrap().as_ref(), Some(&layout));
    // Not even when the first one has ended: who resumes gets what that one had.
    drop(first);
    second.save_layout(&other).unwrap();
    assert_eq!(second.load_layout().unwrap(), Some(layout));
    drop(second);
    assert_eq!(
        Store::at(&folder.path().join("state")).claim_layout(),
        Before::Ended
    );
}

#[test]
fn who_broke_off_is_told_to_the_next_one_and_no_draft_takes_its_layouts_place() {
    let (mut store, folder) = store();
    let state = folder.path().join("state");
    store.claim_layout();
    let mut rig = Rig::ready(2);
    keep(&mut store, &talk(&mut rig, "what was said"));
    // As it is when nothing more could be done: the word that stands in the file until the end.
    let word = std::fs::read(state.join("layout.lock")).unwrap();
    assert!(!word.is_empty());
    drop(store);
    std::fs::write(state.join("layout.lock"), &word).unwrap();
    let crashed = || {
        let mut next = Store::at(&state);
        assert_eq!(next.claim_layout(), Before::Crashed);
        next
    };
    // Who looks and leaves changes nothing.
    drop(crashed());
    let next = crashed();
    let mut rig = Rig::ready(1);
    rig.state.spare_last_layout();
    let layouts = |effects: &[Effect]| {
        let saved = |effect: &&Effect| matches!(effect, Effect::Write(Write::Layout(_)));
        effects.iter().filter(saved).count()
    };
    assert_eq!(layouts(&rig.draft("only a draft")), 0);
    let sent = rig.event(Event::Submit);
    assert_eq!(layouts(&sent), 1);
    next.save_layout(&rig.state.layout()).unwrap();
    drop(next);
    assert_eq!(Store::at(&state).claim_layout(), Before::Ended);
    // Nor is it told again to who resumed it and ended.
    std::fs::write(state.join("layout.lock"), &word).unwrap();
    let mut resumed = crashed();
    assert!(resumed.restore().unwrap().is_some());
    drop(resumed);
    assert_eq!(Store::at(&state).claim_layout(), Before::Ended);
}

/// A process with a conversation of its own.
fn here() -> Rig {
    let mut rig = Rig::ready(1);
    rig.state = State::new(Settings::default(), session(60), &[]);
    rig.event(snapshot(EngineState::Ready));
    rig
}

/// A pane with a conversation that another process has, as it was when it was opened.
fn read_here() -> (Rig, Vec<mlx_chat::chat::Record>) {
    let mut there = Rig::ready(1);
    let sent = there.send("first");
    let mut said = records(&sent, session(1));
    let request = there.accept(&sent)[0];
    said.extend(records(&there.finish(request, FinishReason::Stop), session(1)));
    let mut rig = here();
    rig.event(Event::Writer(opened(&said, Access::Elsewhere)));
    // A pane that was as it was made gave its place.
    assert_eq!(
        (rig.state.panes().len(), rig.state.focused_pane().turns.len()),
        (1, 1)
    );
    let sent = there.send("second");
    said.extend(records(&sent, session(1)));
    (rig, said)
}

fn opened(said: &[mlx_chat::chat::Record], access: Access) -> Report {
    let conversation = Box::new(replay(session(1), said.iter().cloned()));
    Report::Opened { conversation, access }
}

fn asks(effects: &[Effect]) -> bool {
    effects.contains(&Effect::Write(Write::Ask(Ask::Open(session(1)))))
}

#[test]
fn what_is_followed_is_shown_and_a_draft_stays() {
    let (mut rig, said) = read_here();
    rig.draft("mine");
    let notices = rig.state.notices().len();
    let conversation = || Box::new(replay(session(1), said.iter().cloned()));
    let followed = |access| {
        Event::Writer(Report::Followed {
            conversation: conversation(),
            access,
        })
    };
    rig.event(followed(Access::Elsewhere));
    assert_eq!(rig.state.focused_pane().turns.len(), 2);
    assert_eq!((rig.draft_of(1), rig.state.notices().len()), ("mine", notices));
    rig.event(followed(Access::Write));
    let told = &rig.state.notices().last().unwrap().text;
    assert!(told.contains("is open here alone now"), "{told}");
    // Nobody shows it any more.
    let (mut rig, _) = read_here();
    rig.event(Event::NewPane { session: session(7) });
    rig.event(Event::PrevPane);
    let effects = rig.event(Event::ClosePane);
    assert!(
        !effects.contains(&Effect::Write(Write::Release(session(1)))),
        "it may be reopened"
    );
    rig.event(followed(Access::Elsewhere));
    assert_eq!(rig.state.panes().len(), 1);
    assert!(asks(&rig.event(Event::ReopenPane)), "it is looked at again");
}

#[test]
fn a_prompt_for_what_another_process_had_waits_until_what_that_wrote_is_read() {
    let (mut rig, said) = read_here();
    let effects = rig.send("and now?");
    assert!(asks(&effects) && submissions(&effects).is_empty(), "{effects:?}");
    // It is still there.
    let effects = rig.event(Event::Writer(opened(&said, Access::Elsewhere)));
    assert!(effects.contains(&Effect::Bell));
    let told = rig.state.notices().last().unwrap().clone();
    assert!(told.text.contains("open in another process"), "{}", told.text);
    assert_eq!(rig.state.focused_pane().turns.len(), 2, "what it wrote is shown");
    assert_eq!(rig.draft_of(1), "and now?");
    // It has ended.
    assert!(asks(&rig.event(Event::Submit)));
    rig.event(Event::Writer(opened(&said, Access::Write)));
    let told = rig.state.notices().last().unwrap();
    assert_eq!((told.kind, told.way), (NoticeKind::Info, Some(Way::Send)));
    let sent = rig.event(Event::Submit);
    assert_eq!(submissions(&sent).len(), 1);
    assert_eq!(rig.last_turn(1).prompt, "and now?");
    // Its names follow those that are in the log.
    let next = replay(session(1), said.iter().cloned()).next_record;
    assert!(
        records(&sent, session(1))
            .iter()
            .all(|record| record.id.0 >= next)
    );
}

#[test]
fn who_comes_back_to_such_a_pane_sees_what_was_written_since() {
    let (mut rig, said) = read_here();
    rig.event(Event::NewPane { session: session(50) });
    for event in [Event::Focus(pane(1)), Event::NextPane] {
        rig.event(Event::Focus(pane(2)));
        assert!(asks(&rig.event(event)));
    }
    assert!(!asks(&rig.event(Event::Focus(pane(2)))), "that one is ours");
    // Without a prompt it is looked at in silence.
    rig.event(Event::DismissNotices);
    let effects = rig.event(Event::Writer(opened(&said, Access::Elsewhere)));
    assert!(!effects.contains(&Effect::Bell) && rig.state.notices().is_empty());
    assert_eq!(rig.state.pane(pane(1)).unwrap().turns.len(), 2);
    assert_eq!(rig.state.focused(), pane(2));
    rig.event(Event::Writer(opened(&said, Access::Write)));
    assert_eq!(rig.state.pane(pane(1)).unwrap().access, Access::Write);
}

#[test]
fn a_draft_of_the_other_process_that_was_sent_there_does_not_come_back() {
    let mut there = Rig::ready(1);
    let mut said = records(&there.draft("their draft"), session(1));
    let mut rig = here();
    rig.event(Event::Writer(opened(&said, Access::Elsewhere)));
    assert_eq!(rig.draft_of(1), "their draft");
    said.extend(records(&there.event(Event::Submit), session(1)));
    rig.event(Event::Submit);
    rig.event(Event::Writer(opened(&said, Access::Write)));
    assert_eq!(rig.draft_of(1), "");
    assert_eq!(rig.last_turn(1).prompt, "their draft");
}

#[test]
fn what_nobody_can_write_says_so_and_not_that_it_is_open_elsewhere() {
    let why = "/state/sessions can't be written: permission denied";
    let (mut rig, said) = read_here();
    rig.event(Event::Writer(opened(&said, Access::Unwritable(why.into()))));
    assert_eq!(rig.state.focused_pane().access, Access::Unwritable(why.into()));
    rig.draft("hello");
    for event in [
        Event::Submit,
        Event::Regenerate,
        Event::EditPrompt,
        Event::Rename { title: "new".into() },
        Event::Configure(Settings::default()),
    ] {
        let effects = rig.event(event.clone());
        let told = &rig.state.notices().last().unwrap().text;
        assert!(
            effects.contains(&Effect::Bell) && told.contains(why),
            "{event:?}: {told}"
        );
        assert!(!told.contains("another process"), "{event:?}: {told}");
        rig.event(Event::DismissNotices);
    }
}

/// Makes a log one that can be read only: root may write everywhere, but for the kernel's own files.
#[cfg(unix)]
fn forbid(log: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(log, std::fs::Permissions::from_mode(0o400)).unwrap();
    let opens = || std::fs::OpenOptions::new().write(true).open(log).is_ok();
    if opens() {
        std::fs::remove_file(log).unwrap();
        std::os::unix::fs::symlink("/sys/kernel/address_bits", log).unwrap();
    }
    assert!(!opens());
}

#[cfg(unix)]
#[test]
fn all_conversations_that_cannot_be_written_are_read_and_told_why_once() {
    let (mut store, folder) = store();
    let mut rig = Rig::ready(2);
    let mut effects = talk(&mut rig, "one");
    rig.event(Event::Focus(pane(2)));
    effects.extend(talk(&mut rig, "two"));
    keep(&mut store, &effects);
    drop(store);
    let mut later = Store::at(&folder.path().join("state"));
    for number in [1, 2] {
        forbid(&later.path(session(number)));
    }
    let restored = later.restore().unwrap().unwrap();
    let (_, access) = later.take(session(2)).unwrap();
    assert_eq!(restored.conversations.len(), 2);
    let of_it = |note: &&String| note.contains("sessions can't be written: permission denied");
    let notes: Vec<&String> = restored.notes.iter().filter(of_it).collect();
    assert_eq!(notes.len(), 1, "{:?}", restored.notes);
    assert!(
        notes[0].ends_with("conversations can be read, and nothing is saved"),
        "{notes:?}"
    );
    let given = restored.conversations.iter().map(|(_, access)| access);
    for access in given.chain([&access]) {
        assert!(matches!(access, Access::Unwritable(_)), "{access:?}");
    }
}
