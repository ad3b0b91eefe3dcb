//! What is told: how long it is shown, and when it leaves.

use mlx_chat::chat::{Event, Notice, NoticeKind, PaneId, Report, Settings, Topic};
use mlx_chat::engine::FinishReason;
use mlx_chat::engine::telemetry::EngineState;

use crate::rig::*;

fn tell(rig: &mut Rig, text: &str) {
    let (kind, text) = (NoticeKind::Info, text.to_owned());
    rig.event(Event::Notice { kind, text });
}

const SEEN: i64 = Notice::SEEN.as_millis() as i64;

#[test]
fn a_message_is_shown_as_long_as_it_takes_to_read_and_never_longer_than_the_longest() {
    let life = |letters: usize| {
        let mut rig = Rig::ready(1);
        tell(&mut rig, &"x".repeat(letters));
        rig.state.notices()[0].lifetime()
    };
    assert!(life(10) < life(100) && life(100) < Notice::LONGEST);
    assert_eq!(life(10_000), Notice::LONGEST);
    let mut rig = Rig::ready(1);
    tell(&mut rig, "short");
    let left = rig.state.notices()[0].left(at(rig.ms));
    rig.ms += left.as_millis() as i64 - 11;
    rig.event(Event::Tick);
    assert_eq!(rig.told(), ["short"]);
    rig.event(Event::Tick);
    assert_eq!(rig.told(), [""; 0]);
}

#[test]
fn what_is_newer_takes_the_place_of_what_could_be_seen() {
    let mut rig = Rig::ready(1);
    tell(&mut rig, "one");
    tell(&mut rig, "two");
    assert_eq!(rig.told(), ["one", "two"], "one was not there long enough");
    rig.ms += SEEN;
    tell(&mut rig, "three");
    assert_eq!(rig.told(), ["three"]);
}

#[test]
fn who_does_something_else_has_seen_what_was_told_and_who_writes_may_not_have() {
    let does: [fn() -> Event; 5] = [
        || Event::NextPane,
        || Event::ToggleZoom,
        || Event::NewPane { session: session(9) },
        || Event::Configure(Settings::default()),
        || Event::Submit,
    ];
    for event in does {
        let mut rig = Rig::ready(2);
        tell(&mut rig, "told");
        rig.draft("a word");
        assert!(rig.told().contains(&"told"), "who writes doesn't look");
        rig.event(event());
        assert!(!rig.told().contains(&"told"), "it answered what was done before");
        let failing = "conversations can't be saved now: it is full";
        let message = "it is full".to_owned();
        rig.event(Event::Writer(Report::Failing { message }));
        rig.event(event());
        assert!(rig.told().contains(&failing), "nobody had asked for it");
        rig.ms += SEEN;
        rig.event(Event::Tick);
        assert!(
            !rig.told().contains(&failing),
            "it was seen, and something else done"
        );
    }
}

#[test]
fn what_was_undone_or_mended_is_not_told_any_more() {
    let mut rig = Rig::ready(1);
    for title in ["Rivers", "Ropes"] {
        let title = title.to_owned();
        rig.event(Event::Writer(Report::Removed { title }));
    }
    assert_eq!(rig.told().len(), 2);
    let title = "Ropes".to_owned();
    rig.event(Event::Writer(Report::Restored { title }));
    assert_eq!(rig.told(), ["\"Ropes\" is there again"]);
    let wrong = vec!["config.toml:1: one".to_owned(), "config.toml:2: two".to_owned()];
    rig.event(Event::SettingsRead { wrong });
    assert_eq!(rig.told()[1..], ["config.toml:1: one", "config.toml:2: two"]);
    rig.event(Event::SettingsRead { wrong: Vec::new() });
    assert_eq!(rig.told().len(), 1);
}

#[test]
fn why_something_could_not_be_done_leaves_once_it_can() {
    let mut rig = Rig::ready(1);
    let request = rig.ask("one");
    rig.event(Event::Regenerate);
    assert!(rig.told()[0].contains("an answer runs here"), "{:?}", rig.told());
    rig.finish(request, FinishReason::Stop);
    assert_eq!(rig.told(), [""; 0], "it has ended");
    rig.event(Event::Hold);
    rig.event(Event::Regenerate);
    assert!(rig.told()[0].contains("is being changed"));
    rig.event(Event::Release);
    assert_eq!(rig.told(), [""; 0], "it is changed no more");
    let mut rig = Rig::loading(1);
    rig.event(Event::EngineFailed {
        message: "no memory".into(),
    });
    rig.send("hello");
    assert_eq!(rig.state.notices().len(), 1);
    assert_eq!(rig.state.notices()[0].about, Some(Topic::Engine));
    rig.event(Event::Hold);
    rig.event(snapshot(EngineState::Ready));
    assert_eq!(rig.told(), [""; 0], "another one is there");
}

#[test]
fn of_the_answers_that_run_each_has_its_own() {
    let mut rig = Rig::ready(2);
    let first = rig.ask("one");
    rig.event(Event::NextPane);
    let second = rig.ask("two");
    rig.event(Event::EditPrompt);
    assert_eq!(rig.state.notices()[0].about, PaneId::new(2).map(Topic::Answer));
    rig.finish(first, FinishReason::Stop);
    assert_eq!(rig.state.notices().len(), 1);
    rig.finish(second, FinishReason::Stop);
    assert_eq!(rig.told(), [""; 0]);
}

#[test]
fn that_nothing_is_saved_leaves_when_it_is() {
    let mut rig = Rig::ready(1);
    let failing = |message: &str| {
        let message = message.to_owned();
        Event::Writer(Report::Failing { message })
    };
    rig.event(failing("disk full"));
    rig.event(failing("no such folder"));
    assert_eq!(rig.state.notices().len(), 1);
    assert!(rig.told()[0].contains("no such folder"));
    rig.event(Event::Writer(Report::Recovered));
    assert_eq!(rig.told(), ["conversations are saved again"]);
}

#[test]
fn how_far_something_is_takes_the_place_of_how_far_it_was() {
    let mut rig = Rig::ready(1);
    for text in ["100 of 300", "200 of 300", "done"] {
        rig.event(Event::Progress { text: text.into() });
    }
    assert_eq!(rig.told(), ["done"]);
    let told: Vec<&str> = rig.state.told().map(|notice| notice.text.as_str()).collect();
    assert_eq!(told, ["done"]);
}

#[test]
fn what_came_of_something_takes_the_place_of_how_far_it_was() {
    let mut rig = Rig::ready(1);
    for text in ["100 of 300", "200 of 300"] {
        rig.event(Event::Progress { text: text.into() });
    }
    for text in ["imported 300", "exported"] {
        let (kind, text) = (NoticeKind::Info, text.to_owned());
        rig.event(Event::Outcome { kind, text });
    }
    assert_eq!(rig.told(), ["imported 300", "exported"]);
    let told: Vec<&str> = rig.state.told().map(|notice| notice.text.as_str()).collect();
    assert_eq!(told, ["imported 300", "exported"], "what came of things stays");
}

#[test]
fn all_that_was_told_lately_can_be_read_again() {
    let mut rig = Rig::ready(1);
    for number in 0..Notice::KEPT + 5 {
        tell(&mut rig, &format!("message {number}"));
        rig.ms += SEEN;
    }
    rig.event(Event::DismissNotices);
    assert_eq!(rig.told(), [""; 0]);
    assert_eq!(rig.state.told().len(), Notice::KEPT);
    assert_eq!(rig.state.told().next().unwrap().text, "message 5");
    // The same once more is one message.
    tell(&mut rig, "again");
    tell(&mut rig, "again");
    let last: Vec<&str> = rig.state.told().rev().take(2).map(|n| n.text.as_str()).collect();
    assert_eq!(last, ["again", "message 104"]);
}
