//! Panes, drafts, titles, notices and the end; and every event in every state.

use mlx_chat::chat::{
    Access, Conversation, Draft, Effect, Event, Kind, NoticeKind, Report, Settings, Write, replay,
};
use mlx_chat::engine::telemetry::EngineState;
use mlx_chat::engine::{self, FinishReason, RequestId};
use mlx_chat::text::message::Role;

use crate::rig::{Rig, at, message, messages, pane, records, session, snapshot, submissions, token};

#[test]
fn panes_are_numbered_from_the_lowest_free_one_up_to_nine() {
    let mut rig = Rig::ready(3);
    rig.event(Event::Focus(pane(2)));
    rig.event(Event::ClosePane);
    assert_eq!(rig.state.focused(), pane(3));
    rig.event(Event::NewPane { session: session(50) });
    assert_eq!(rig.state.focused(), pane(2));
    for n in 51..=56 {
        rig.event(Event::NewPane { session: session(n) });
    }
    assert_eq!(rig.state.panes().len(), 9);
    assert_eq!(rig.event(Event::NewPane { session: session(60) }), [Effect::Bell]);
    assert_eq!(rig.state.panes().len(), 9);
}

#[test]
fn the_focus_goes_around() {
    let mut rig = Rig::ready(3);
    let mut seen = Vec::new();
    for event in [
        Event::PrevPane,
        Event::PrevPane,
        Event::NextPane,
        Event::NextPane,
        Event::Focus(pane(7)),
    ] {
        rig.event(event);
        seen.push(rig.state.focused().get());
    }
    assert_eq!(seen, [3, 2, 3, 1, 1]);
}

#[test]
fn closing_a_pane_cancels_keeps_the_draft_in_the_log_and_lets_the_log_go() {
    let mut rig = Rig::ready(2);
    let request = rig.ask("one");
    rig.token(request, "half");
    rig.send("two");
    rig.draft("three");
    let effects = rig.event(Event::ClosePane);
    assert!(effects.contains(&Effect::Cancel(request)));
    let kept = records(&effects, session(1));
    assert!(
        kept.iter()
            .any(|r| matches!(&r.kind, Kind::Draft { text, queued: None, .. } if text == "two\n\nthree"))
    );
    assert!(
        !effects.contains(&Effect::Write(Write::Release(session(1)))),
        "it can be reopened"
    );
    assert_eq!(rig.state.focused(), pane(2));
    assert_eq!(rig.token(request, "late"), []);
}

#[test]
fn the_last_pane_does_not_close() {
    let mut rig = Rig::ready(1);
    assert_eq!(rig.event(Event::ClosePane), [Effect::Bell]);
    assert_eq!(rig.state.panes().len(), 1);
}

#[test]
fn a_submission_of_a_closed_pane_is_cancelled_when_named_even_if_its_number_is_taken_again() {
    let mut rig = Rig::ready(2);
    let old = rig.send("one");
    rig.event(Event::ClosePane);
    rig.event(Event::NewPane { session: session(9) });
    assert_eq!(rig.state.focused(), pane(1));
    let new = rig.send("new");
    let request = RequestId(5);
    assert_eq!(
        rig.event(Event::Submitted {
            turn: submissions(&old)[0].1,
            request
        }),
        [Effect::Cancel(request)]
    );
    rig.token(request, "not for you");
    let mine = rig.accept(&new)[0];
    assert_eq!(rig.last_turn(1).answer, "");
    rig.token(mine, "yes");
    assert_eq!(rig.last_turn(1).answer, "yes");
}

#[test]
fn drafts_belong_to_their_pane() {
    let mut rig = Rig::ready(2);
    rig.draft("for one");
    rig.event(Event::NextPane);
    assert_eq!(rig.state.focused_pane().draft.text(), "");
    rig.draft("for two");
    rig.event(Event::NextPane);
    assert_eq!(rig.state.focused_pane().draft.text(), "for one");
}

#[test]
fn a_caret_inside_a_character_or_past_the_end_moves_back() {
    for (text, cursor, expected) in [("aé", 2, 1), ("aé", 99, 3), ("👍🏽", 5, 4), ("", 1, 0)] {
        let mut rig = Rig::ready(1);
        rig.event(Event::Draft(Draft::new(text, cursor)));
        assert_eq!(
            rig.state.focused_pane().draft.cursor(),
            expected,
            "{text:?} at {cursor}"
        );
    }
}

#[test]
fn history_has_the_prompts_and_the_cleared_drafts_in_the_order_of_time() {
    let mut rig = Rig::ready(1);
    for text in ["one", "two"] {
        let request = rig.ask(text);
        rig.finish(request, FinishReason::Stop);
    }
    rig.draft("oops");
    rig.event(Event::ClearDraft);
    assert_eq!(rig.draft_of(1), "");
    rig.event(Event::ClearDraft);
    let history = |rig: &Rig| -> Vec<String> {
        let history = rig.state.focused_pane().history();
        history.map(|draft| draft.text().to_owned()).collect()
    };
    assert_eq!(history(&rig), ["oops", "two", "one"]);
    let request = rig.ask("three");
    assert_eq!(
        history(&rig),
        ["three", "oops", "two", "one"],
        "in the order of time"
    );
    rig.finish(request, FinishReason::Stop);
    rig.draft("again");
    rig.event(Event::ClearDraft);
    assert_eq!(history(&rig), ["again", "three", "oops", "two", "one"]);
}

#[test]
fn quitting_writes_partial_answers_and_drafts_and_comes_last() {
    let mut rig = Rig::ready(2);
    let request = rig.ask("one");
    rig.token(request, "half");
    rig.event(Event::NextPane);
    rig.draft("unsent");
    let effects = rig.event(Event::Quit);
    assert_eq!(effects.last(), Some(&Effect::Quit));
    assert_eq!(effects.first(), Some(&Effect::Cancel(request)));
    let kept = records(&effects, session(1));
    assert!(matches!(
        kept[0].kind,
        Kind::Finish {
            reason: mlx_chat::chat::End::Cancelled,
            ..
        }
    ));
    assert!(rig.state.quitting());
    assert_eq!(rig.token(request, "late"), []);
    assert_eq!(rig.event(Event::Quit), []);
}

#[test]
fn the_layout_is_kept_when_it_changes_but_not_before_anything_has_begun() {
    let mut rig = Rig::ready(2);
    let layouts = |effects: Vec<Effect>| -> Vec<_> {
        let layout = |e: Effect| {
            if let Effect::Write(Write::Layout(layout)) = e {
                Some(layout)
            } else {
                None
            }
        };
        effects.into_iter().filter_map(layout).collect()
    };
    assert_eq!(layouts(rig.event(Event::ToggleBroadcast)), []);
    assert_eq!(layouts(rig.draft("x")), [rig.state.layout()]);
    assert_eq!(layouts(rig.draft("xy")), []);
    assert_eq!(layouts(rig.event(Event::ToggleZoom)), [rig.state.layout()]);
    assert!(rig.state.layout().zoomed && rig.state.layout().broadcast);
    assert_eq!(layouts(Rig::ready(2).event(Event::Quit)), []);
}

#[test]
fn a_title_comes_from_the_first_prompt_and_can_be_changed() {
    let mut rig = Rig::ready(1);
    let request = rig.ask(&format!("\n  \u{1b}[31mHow do\tcaches work? {}", "x".repeat(100)));
    rig.finish(request, FinishReason::Stop);
    let title = rig.state.focused_pane().title.clone();
    assert!(
        title.starts_with("How do caches work? xxx") && title.ends_with('…'),
        "{title}"
    );
    assert_eq!(title.chars().count(), 60);
    rig.event(Event::Rename {
        title: " My\ntitle ".into(),
    });
    assert_eq!(rig.state.focused_pane().title, "My title");
    rig.event(Event::Rename { title: "\n".into() });
    assert_eq!(rig.state.focused_pane().title, "My title");
}

#[test]
fn settings_of_a_pane_in_which_nothing_was_said_are_in_its_log() {
    let mut rig = Rig::ready(1);
    let settings = Settings {
        max_tokens: Some(7),
        ..Settings::default()
    };
    let effects = rig.event(Event::Configure(settings.clone()));
    let again = mlx_chat::chat::replay(session(1), crate::rig::records(&effects, session(1)));
    assert_eq!(again.settings, settings);
}

#[test]
fn settings_out_of_range_are_refused() {
    let mut rig = Rig::ready(1);
    let before = rig.state.focused_pane().settings.clone();
    let mut bad = Settings {
        max_tokens: Some(0),
        ..Settings::default()
    };
    assert_eq!(rig.event(Event::Configure(bad.clone())), [Effect::Bell]);
    bad.max_tokens = Some(10);
    bad.sampling.top_p = 2.0;
    assert_eq!(rig.event(Event::Configure(bad)), [Effect::Bell]);
    assert_eq!(rig.state.focused_pane().settings, before);
}

#[test]
fn an_answer_that_ends_out_of_sight_is_unread_until_its_pane_is_focused() {
    let mut rig = Rig::ready(2);
    let request = rig.ask("one");
    rig.event(Event::NextPane);
    rig.finish(request, FinishReason::Stop);
    assert!(rig.state.pane(pane(1)).unwrap().unread);
    rig.event(Event::NextPane);
    assert!(!rig.state.pane(pane(1)).unwrap().unread);
}

#[test]
fn notices_pass_and_the_same_one_is_shown_once() {
    let mut rig = Rig::ready(1);
    rig.event(Event::ClosePane);
    rig.event(Event::ClosePane);
    assert_eq!(rig.state.notices().len(), 1);
    let left = rig.state.notices()[0].left(at(rig.ms)).as_millis() as i64;
    rig.ms += left - 11;
    rig.event(Event::Tick);
    assert_eq!(rig.state.notices().len(), 1);
    rig.event(Event::Tick);
    assert_eq!(rig.state.notices(), []);
}

#[test]
fn a_failing_store_is_a_notice_until_it_recovers() {
    let mut rig = Rig::ready(1);
    let failing = Report::Failing {
        message: "disk full".into(),
    };
    rig.event(Event::Writer(failing.clone()));
    rig.event(Event::Writer(failing));
    assert_eq!(rig.state.unsaved(), Some("disk full"));
    assert_eq!(rig.state.notices().len(), 1);
    rig.event(Event::Writer(Report::Recovered));
    assert_eq!(rig.state.unsaved(), None);
}

fn kept(n: u128, prompt: &str) -> Conversation {
    let mut rig = Rig::ready(n);
    rig.event(Event::Focus(pane(u8::try_from(n).unwrap())));
    let mut effects = rig.send(prompt);
    let request = rig.accept(&effects)[0];
    effects.extend(rig.token(request, "answer"));
    effects.extend(rig.finish(request, FinishReason::Stop));
    effects.extend(rig.draft("unsent"));
    replay(session(n), records(&effects, session(n)))
}

#[test]
fn an_opened_conversation_goes_on_where_it_ended() {
    let mut rig = Rig::ready(1);
    rig.event(Event::NewPane { session: session(50) });
    rig.event(Event::Writer(Report::Opened {
        conversation: Box::new(kept(3, "old")),
        access: Access::Write,
    }));
    assert_eq!((rig.state.focused(), rig.draft_of(2)), (pane(2), "unsent"));
    let effects = rig.event(Event::Submit);
    let expected = [
        message(Role::User, "old"),
        message(Role::Assistant, "answer"),
        message(Role::User, "unsent"),
    ];
    assert_eq!(messages(&effects), expected);
    let written = records(&effects, session(3));
    assert!(!written.iter().any(|r| matches!(r.kind, Kind::Session { .. })));
    rig.event(Event::Focus(pane(1)));
    rig.event(Event::Writer(Report::Opened {
        conversation: Box::new(kept(3, "old")),
        access: Access::Write,
    }));
    assert_eq!((rig.state.focused(), rig.state.panes().len()), (pane(2), 2));
}

#[test]
fn a_read_only_conversation_takes_no_prompt_and_is_never_written() {
    let mut rig = Rig::ready(1);
    rig.event(Event::NewPane { session: session(50) });
    rig.event(Event::Writer(Report::Opened {
        conversation: Box::new(kept(3, "old")),
        access: Access::Elsewhere,
    }));
    let mut effects = rig.draft("hello");
    effects.extend(rig.event(Event::Submit));
    let asked = Effect::Write(Write::Ask(mlx_chat::chat::Ask::Open(session(3))));
    assert!(submissions(&effects).is_empty() && effects.contains(&asked));
    assert_eq!(rig.draft_of(2), "hello");
    rig.event(Event::ToggleBroadcast);
    let sent = rig.event(Event::Submit);
    assert_eq!(submissions(&sent)[0].0, pane(1));
    effects.extend(sent);
    effects.extend(rig.event(Event::ClosePane));
    assert_eq!(records(&effects, session(3)), []);
    assert!(!effects.contains(&Effect::Write(Write::Release(session(3)))));
}

#[test]
fn a_new_conversation_takes_the_place_of_the_panes_own_which_is_kept() {
    let mut rig = Rig::ready(1);
    let refused = rig.event(Event::NewConversation { session: session(9) });
    assert!(refused.contains(&Effect::Bell), "it is new already");
    let mut warm = Settings::default();
    warm.sampling.temperature = 0.5;
    rig.event(Event::Configure(warm.clone()));
    let request = rig.ask("one");
    rig.token(request, "half");
    let effects = rig.event(Event::NewConversation { session: session(9) });
    assert!(effects.contains(&Effect::Cancel(request)));
    let ended = |record: &mlx_chat::chat::Record| matches!(record.kind, Kind::Finish { .. });
    assert!(
        records(&effects, session(1)).iter().any(ended),
        "the half answer is kept"
    );
    let told = rig.state.notices().last().unwrap();
    assert!(told.text.contains("its answer stopped"), "{}", told.text);
    assert_eq!((rig.state.focused(), rig.state.panes().len()), (pane(1), 1));
    let new = rig.state.focused_pane();
    assert_eq!((new.session, new.turns.len()), (session(9), 0));
    assert_eq!(new.settings, warm, "it is made as the one before");
    rig.event(Event::ReopenPane);
    assert_eq!(rig.state.focused_pane().turns[0].answer, "half");
    // A private pane stays private.
    rig.event(Event::NewPrivatePane { session: session(20) });
    rig.ask("secret");
    rig.event(Event::NewConversation { session: session(21) });
    assert!(rig.state.focused_pane().private);
}

#[test]
fn the_focus_goes_back_to_where_a_closed_pane_was_opened_from() {
    let mut rig = Rig::ready(3);
    rig.event(Event::NewPrivatePane { session: session(20) });
    assert_eq!(rig.state.focused(), pane(4));
    rig.event(Event::ClosePane);
    assert_eq!(rig.state.focused(), pane(1));
    // Where that is closed itself, to the next one.
    rig.event(Event::NewPane { session: session(21) });
    rig.event(Event::Focus(pane(1)));
    rig.event(Event::ClosePane);
    rig.event(Event::Focus(pane(4)));
    rig.event(Event::ClosePane);
    assert_eq!(rig.state.focused(), pane(3));
}

#[test]
fn every_event_is_allowed_in_every_state() {
    let setups: [fn() -> Rig; 8] = [
        || Rig::loading(1),
        || Rig::ready(1),
        || Rig::ready(9),
        || {
            let mut rig = Rig::ready(2);
            rig.send("unnamed");
            rig
        },
        || {
            let mut rig = Rig::ready(2);
            rig.ask("streaming");
            rig.send("waiting");
            rig
        },
        || {
            let mut rig = Rig::ready(2);
            rig.ask("stopping");
            rig.event(Event::Stop);
            rig
        },
        || {
            let mut rig = Rig::ready(2);
            rig.event(Event::EngineFailed {
                message: "gone".into(),
            });
            rig
        },
        || {
            let mut rig = Rig::ready(2);
            rig.event(Event::Quit);
            rig
        },
    ];
    let turn = mlx_chat::chat::TurnId(0);
    let request = RequestId(100);
    let engine = |event| Event::Engine { request, event };
    let events = [
        Event::Draft(Draft::new("text", 2)),
        Event::ClearDraft,
        Event::Submit,
        Event::SubmitText {
            text: "in its place".into(),
        },
        Event::Notice {
            kind: NoticeKind::Warning,
            text: "no".into(),
        },
        Event::OpenStored { session: session(1) },
        Event::RenameStored {
            session: session(2),
            title: "new".into(),
        },
        Event::RemoveStored { session: session(2) },
        Event::Acted,
        Event::SettingsRead {
            wrong: vec!["wrong".into()],
        },
        Event::Stop,
        Event::Focus(pane(9)),
        Event::NextPane,
        Event::PrevPane,
        Event::NewPane { session: session(77) },
        Event::NewPane { session: session(1) },
        Event::NewConversation { session: session(76) },
        Event::Writer(Report::Opened {
            conversation: Box::new(replay(session(78), [])),
            access: Access::Elsewhere,
        }),
        Event::ClosePane,
        Event::ToggleBroadcast,
        Event::ToggleZoom,
        Event::Rename { title: "new".into() },
        Event::Configure(Settings::default()),
        Event::DismissNotices,
        Event::Quit,
        Event::Tick,
        Event::Submitted { turn, request },
        Event::SubmitFailed {
            turn,
            error: engine::SubmitError::Closed("gone".into()),
        },
        engine(engine::Event::Admitted {
            prompt_tokens: 1,
            cached_tokens: 0,
        }),
        engine(engine::Event::Prefill { done: 1, total: 1 }),
        engine(token("x")),
        engine(engine::Event::Finish(crate::rig::finish(FinishReason::Cancelled))),
        snapshot(EngineState::Ready),
        snapshot(EngineState::Closed),
        Event::EngineFailed {
            message: "gone".into(),
        },
        Event::Writer(Report::Recovered),
    ];
    for (place, setup) in setups.iter().enumerate() {
        for first in &events {
            for second in &events {
                let mut rig = setup();
                rig.event(first.clone());
                rig.event(second.clone());
                let focused = rig.state.focused();
                assert!(
                    rig.state.pane(focused).is_some(),
                    "setup {place}, {first:?}, {second:?}"
                );
            }
        }
    }
    let mut rig = Rig::ready(1);
    // Clocks go backwards, too.
    rig.state.handle(at(-1_000_000), Event::ClosePane);
    rig.event(Event::Tick);
}

#[test]
fn what_is_written_for_several_panes_goes_along_with_the_focus() {
    let mut rig = Rig::ready(3);
    rig.event(Event::ToggleBroadcast);
    rig.draft("for all");
    let effects = rig.event(Event::NextPane);
    assert_eq!((rig.draft_of(1), rig.draft_of(2)), ("", "for all"));
    assert!(!records(&effects, session(2)).is_empty(), "it is kept there");
    // A draft of its own stays, and one that is written for a single pane, too.
    rig.event(Event::ToggleBroadcast);
    rig.event(Event::NextPane);
    assert_eq!((rig.draft_of(2), rig.draft_of(3)), ("for all", ""));
    rig.draft("third");
    rig.event(Event::ToggleBroadcast);
    rig.event(Event::Focus(pane(2)));
    assert_eq!((rig.draft_of(2), rig.draft_of(3)), ("for all", "third"));
    // One that takes no part gets nothing.
    rig.event(Event::Focus(pane(1)));
    assert_eq!((rig.draft_of(1), rig.draft_of(2)), ("for all", ""));
    rig.event(Event::Focus(pane(2)));
    rig.event(Event::ToggleReceives);
    rig.event(Event::Focus(pane(1)));
    assert_eq!((rig.draft_of(1), rig.draft_of(2)), ("", "for all"));
}
