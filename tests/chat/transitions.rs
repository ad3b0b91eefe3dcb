//! What each event does in each state.

use mlx_chat::chat::{
    Access, Conversation, Effect, EngineStatus, Event, Kind, NoticeKind, Phase, Report, Settings, Status,
    Write, replay,
};
use mlx_chat::engine::telemetry::EngineState;
use mlx_chat::engine::{self, FinishReason, Prompt, RequestId};
use mlx_chat::text::message::{Message, Role};

use crate::rig::{Rig, at, pane, records, session, snapshot, submissions, token};

fn message(role: Role, content: &str) -> Message {
    Message {
        role,
        content: content.to_owned(),
    }
}

fn messages(effects: &[Effect]) -> Vec<Message> {
    match &submissions(effects)[0].2.prompt {
        Prompt::Messages(messages) => messages.clone(),
        other => panic!("not messages: {other:?}"),
    }
}

#[test]
fn a_prompt_goes_to_the_focused_pane_under_its_session() {
    let mut rig = Rig::ready(2);
    rig.event(Event::NextPane);
    let effects = rig.send("hello");
    let sent = submissions(&effects);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].0, pane(2));
    assert_eq!(sent[0].2.session, Some(session(2).to_string()));
    assert!(sent[0].2.cache);
    assert_eq!(messages(&effects), [message(Role::User, "hello")]);
    assert_eq!(rig.draft_of(2), "");
    assert!(rig.state.pane(pane(1)).unwrap().turns.is_empty());
}

#[test]
fn the_prompt_is_written_before_it_is_submitted() {
    let mut rig = Rig::ready(1);
    let effects = rig.send("hello");
    let user = |e: &Effect| matches!(e, Effect::Write(Write::Records { records, .. }) if records.iter().any(|r| matches!(r.kind, Kind::User { .. })));
    let written = effects.iter().position(user).unwrap();
    let sent = effects
        .iter()
        .position(|e| matches!(e, Effect::Submit { .. }))
        .unwrap();
    assert!(written < sent);
}

#[test]
fn a_blank_draft_is_not_sent() {
    for text in ["", "  \n\t"] {
        let mut rig = Rig::ready(1);
        assert!(submissions(&rig.send(text)).is_empty());
        assert_eq!(rig.draft_of(1), text);
    }
}

#[test]
fn an_answer_streams_phase_by_phase() {
    let mut rig = Rig::ready(1);
    let request = rig.ask("hi");
    let phase = |rig: &Rig| match rig.last_turn(1).status {
        Status::Streaming { phase, .. } => phase,
        ref other => panic!("{other:?}"),
    };
    assert_eq!(phase(&rig), Phase::Queued);
    rig.engine(
        request,
        engine::Event::Admitted {
            prompt_tokens: 9,
            cached_tokens: 4,
        },
    );
    assert_eq!(phase(&rig), Phase::Prefill { done: 4, total: 9 });
    rig.engine(request, engine::Event::Prefill { done: 9, total: 9 });
    assert_eq!(phase(&rig), Phase::Prefill { done: 9, total: 9 });
    rig.token(request, "He");
    assert_eq!(phase(&rig), Phase::Decode);
    rig.token(request, "llo");
    assert_eq!(rig.last_turn(1).answer, "Hello");
    let mut end = crate::rig::finish(FinishReason::Stop);
    end.text = "!".into();
    rig.engine(request, engine::Event::Finish(end));
    assert_eq!(rig.last_turn(1).answer, "Hello!");
    let Status::Done {
        truncated: false,
        stats,
    } = rig.last_turn(1).status
    else {
        panic!("not done")
    };
    assert_eq!(
        (stats.prompt_tokens, stats.cached_tokens, stats.generated_tokens),
        (10, 4, 3)
    );
}

#[test]
fn finish_reasons_become_statuses() {
    for (reason, word) in [
        (FinishReason::Stop, "Done { truncated: false"),
        (FinishReason::Length, "Done { truncated: true"),
        (FinishReason::Cancelled, "Stopped"),
        (
            FinishReason::Rejected,
            "Failed { message: \"too long\", refused: true",
        ),
        (
            FinishReason::Error,
            "Failed { message: \"too long\", refused: false",
        ),
    ] {
        let mut rig = Rig::ready(1);
        let request = rig.ask("hi");
        rig.token(request, "x");
        rig.finish(request, reason);
        let status = format!("{:?}", rig.last_turn(1).status);
        assert!(status.starts_with(word), "{reason:?} gave {status}");
    }
}

#[test]
fn the_next_prompt_carries_the_whole_history_with_stopped_answers() {
    let mut rig = Rig::ready(1);
    let settings = Settings {
        system: Some("be brief".into()),
        max_tokens: 5,
        ..Settings::default()
    };
    rig.event(Event::Configure(settings));
    let first = rig.ask("one");
    rig.token(first, "par");
    assert_eq!(rig.event(Event::Stop), [Effect::Cancel(first)]);
    rig.token(first, "tial");
    rig.finish(first, FinishReason::Cancelled);
    let effects = rig.send("two");
    let expected = [
        message(Role::System, "be brief"),
        message(Role::User, "one"),
        message(Role::Assistant, "partial"),
        message(Role::User, "two"),
    ];
    assert_eq!(messages(&effects), expected);
    assert_eq!(submissions(&effects)[0].2.max_tokens, 5);
}

#[test]
fn stopping_twice_cancels_once() {
    let mut rig = Rig::ready(1);
    let request = rig.ask("one");
    assert_eq!(rig.event(Event::Stop), [Effect::Cancel(request)]);
    assert_eq!(rig.event(Event::Stop), []);
}

#[test]
fn a_stop_before_the_engine_named_the_request_cancels_it_when_named() {
    let mut rig = Rig::ready(1);
    let effects = rig.send("one");
    assert_eq!(rig.event(Event::Stop), []);
    let turn = submissions(&effects)[0].1;
    let request = RequestId(5);
    assert_eq!(
        rig.event(Event::Submitted { turn, request }),
        [Effect::Cancel(request)]
    );
}

#[test]
fn stop_leaves_other_panes_alone() {
    let mut rig = Rig::ready(2);
    rig.ask("one");
    rig.event(Event::Focus(pane(2)));
    assert_eq!(rig.event(Event::Stop), []);
    assert!(rig.last_turn(1).is_running());
}

#[test]
fn events_that_overtake_their_submission_are_kept_until_it_is_named() {
    let mut rig = Rig::ready(1);
    let effects = rig.send("one");
    let request = RequestId(5);
    rig.token(request, "early");
    rig.token(RequestId(6), "stranger");
    assert_eq!(rig.last_turn(1).answer, "");
    rig.event(Event::Submitted {
        turn: submissions(&effects)[0].1,
        request,
    });
    assert_eq!(rig.last_turn(1).answer, "early");
    rig.token(request, "!");
    assert_eq!(rig.last_turn(1).answer, "early!");
}

#[test]
fn even_a_finish_can_overtake_its_submission() {
    let mut rig = Rig::ready(1);
    let effects = rig.send("one");
    let request = RequestId(5);
    rig.token(request, "early");
    rig.finish(request, FinishReason::Stop);
    rig.event(Event::Submitted {
        turn: submissions(&effects)[0].1,
        request,
    });
    assert!(!rig.last_turn(1).is_running());
    assert_eq!(rig.last_turn(1).answer, "early");
}

#[test]
fn a_refused_prompt_stays_visible_returns_to_the_draft_and_is_not_history() {
    for by_engine in [false, true] {
        let mut rig = Rig::ready(1);
        if by_engine {
            let request = rig.ask("long");
            rig.finish(request, FinishReason::Rejected);
        } else {
            let effects = rig.send("long");
            rig.refuse(&effects);
        }
        assert_eq!(rig.draft_of(1), "long");
        let Status::Failed {
            message: why,
            refused: true,
        } = &rig.last_turn(1).status
        else {
            panic!()
        };
        assert!(why.contains(if by_engine {
            "too long"
        } else {
            "64 requests wait already"
        }));
        assert_eq!(rig.state.notices()[0].kind, NoticeKind::Error);
        assert_eq!(messages(&rig.event(Event::Submit)), [message(Role::User, "long")]);
    }
}

#[test]
fn a_refused_prompt_goes_before_what_was_typed_since() {
    let mut rig = Rig::ready(1);
    let effects = rig.send("first");
    rig.draft("second");
    rig.refuse(&effects);
    assert_eq!(rig.draft_of(1), "first\nsecond");
    assert_eq!(rig.state.focused_pane().draft.cursor(), "first\nsecond".len());
}

#[test]
fn a_failure_without_a_word_of_answer_returns_the_prompt_and_one_with_words_keeps_them() {
    let mut rig = Rig::ready(1);
    let request = rig.ask("a");
    rig.finish(request, FinishReason::Error);
    assert_eq!(rig.draft_of(1), "a");
    let request = rig.ask("b");
    rig.token(request, "half");
    rig.finish(request, FinishReason::Error);
    assert_eq!(rig.draft_of(1), "");
    let expected = [
        message(Role::User, "b"),
        message(Role::Assistant, "half"),
        message(Role::User, "c"),
    ];
    assert_eq!(messages(&rig.send("c")), expected);
}

#[test]
fn an_empty_answer_keeps_the_alternation() {
    let mut rig = Rig::ready(1);
    let request = rig.ask("a");
    rig.finish(request, FinishReason::Stop);
    let expected = [
        message(Role::User, "a"),
        message(Role::Assistant, ""),
        message(Role::User, "b"),
    ];
    assert_eq!(messages(&rig.send("b")), expected);
}

#[test]
fn broadcast_sends_to_every_pane_as_its_own_conversation() {
    let mut rig = Rig::ready(3);
    rig.event(Event::Focus(pane(2)));
    rig.draft("for later");
    rig.event(Event::Focus(pane(1)));
    rig.event(Event::ToggleBroadcast);
    let sent = submissions(&rig.send("all"));
    assert_eq!(
        sent.iter().map(|s| s.0).collect::<Vec<_>>(),
        [pane(1), pane(2), pane(3)]
    );
    let sessions: Vec<_> = sent.iter().map(|s| s.2.session.clone().unwrap()).collect();
    assert_eq!(sessions, [1, 2, 3].map(|n| session(n).to_string()));
    assert_eq!(rig.draft_of(2), "for later");
    assert_eq!(rig.draft_of(1), "");
}

#[test]
fn a_prompt_for_a_busy_pane_waits_and_is_sent_when_the_answer_ends() {
    let mut rig = Rig::ready(2);
    let request = rig.ask("one");
    rig.event(Event::ToggleBroadcast);
    let sent = submissions(&rig.send("two"));
    assert_eq!(sent.iter().map(|s| s.0).collect::<Vec<_>>(), [pane(2)]);
    assert_eq!(rig.state.pane(pane(1)).unwrap().queued.as_deref(), Some("two"));
    let sent = submissions(&rig.finish(request, FinishReason::Length));
    assert_eq!(sent[0].0, pane(1));
    assert_eq!(rig.state.pane(pane(1)).unwrap().queued, None);
    assert_eq!(rig.last_turn(1).prompt, "two");
}

#[test]
fn a_second_waiting_prompt_is_refused_for_all_and_stays_in_the_draft() {
    let mut rig = Rig::ready(2);
    rig.ask("one");
    rig.send("two");
    rig.event(Event::ToggleBroadcast);
    let effects = rig.send("three");
    assert!(submissions(&effects).is_empty());
    assert!(effects.contains(&Effect::Bell));
    assert_eq!(rig.draft_of(1), "three");
    assert!(rig.state.pane(pane(2)).unwrap().turns.is_empty());
    assert!(rig.state.notices()[0].text.contains("pane 1"));
}

#[test]
fn stop_returns_a_waiting_prompt_to_the_draft() {
    let mut rig = Rig::ready(1);
    let request = rig.ask("one");
    rig.send("two");
    assert!(rig.event(Event::Stop).contains(&Effect::Cancel(request)));
    assert_eq!(rig.draft_of(1), "two");
    assert!(submissions(&rig.finish(request, FinishReason::Cancelled)).is_empty());
}

#[test]
fn prompts_wait_while_the_model_loads_and_go_when_it_is_ready() {
    let mut rig = Rig::loading(2);
    assert!(submissions(&rig.send("early")).is_empty());
    rig.event(snapshot(EngineState::Loading {
        stage: "weights".into(),
        done: 1,
        total: 2,
    }));
    assert_eq!(
        *rig.state.engine(),
        EngineStatus::Loading {
            stage: "weights".into(),
            done: 1,
            total: 2
        }
    );
    let sent = submissions(&rig.event(snapshot(EngineState::Ready)));
    assert_eq!(sent.len(), 1);
    assert_eq!(rig.last_turn(1).prompt, "early");
}

#[test]
fn a_failed_engine_returns_waiting_prompts_and_refuses_new_ones() {
    let mut rig = Rig::loading(1);
    rig.send("early");
    rig.event(Event::EngineFailed {
        message: "no such model".into(),
    });
    assert_eq!(rig.draft_of(1), "early");
    let effects = rig.event(Event::Submit);
    assert!(submissions(&effects).is_empty() && effects.contains(&Effect::Bell));
    assert_eq!(rig.draft_of(1), "early");
    rig.event(snapshot(EngineState::Ready));
    assert_eq!(*rig.state.engine(), EngineStatus::Failed("no such model".into()));
}

#[test]
fn losing_the_engine_ends_what_runs() {
    let mut rig = Rig::ready(2);
    let request = rig.ask("one");
    rig.token(request, "half");
    rig.event(Event::Focus(pane(2)));
    let unnamed = rig.send("two");
    rig.event(Event::EngineFailed {
        message: "it broke".into(),
    });
    assert_eq!(rig.last_turn(1).answer, "half");
    assert!(!rig.last_turn(1).is_running() && !rig.last_turn(2).is_running());
    assert_eq!(rig.draft_of(2), "two");
    let turn = submissions(&unnamed)[0].1;
    rig.event(Event::Submitted {
        turn,
        request: RequestId(1),
    });
    assert!(!rig.last_turn(2).is_running());
}

#[test]
fn a_request_of_a_failed_engine_can_still_be_stopped() {
    let mut rig = Rig::ready(1);
    rig.ask("one");
    rig.event(snapshot(EngineState::Failed("panic".into())));
    assert!(rig.last_turn(1).is_running());
    rig.event(Event::Stop);
    assert!(matches!(rig.last_turn(1).status, Status::Stopped { .. }));
}

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
            .any(|r| matches!(&r.kind, Kind::Draft { text, queued: None, .. } if text == "two\nthree"))
    );
    let last = effects
        .iter()
        .position(|e| matches!(e, Effect::Write(Write::Records { .. })))
        .unwrap();
    let release = effects
        .iter()
        .position(|e| *e == Effect::Write(Write::Release(session(1))))
        .unwrap();
    assert!(last < release);
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
        rig.event(Event::Draft {
            text: text.into(),
            cursor,
        });
        assert_eq!(
            rig.state.focused_pane().draft.cursor(),
            expected,
            "{text:?} at {cursor}"
        );
    }
}

#[test]
fn history_has_the_cleared_draft_and_then_the_prompts() {
    let mut rig = Rig::ready(1);
    for text in ["one", "two"] {
        let request = rig.ask(text);
        rig.finish(request, FinishReason::Stop);
    }
    rig.draft("oops");
    rig.event(Event::ClearDraft);
    assert_eq!(rig.draft_of(1), "");
    rig.event(Event::ClearDraft);
    assert_eq!(
        rig.state.focused_pane().history().collect::<Vec<_>>(),
        ["oops", "two", "one"]
    );
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
        title.starts_with("[31mHow do caches work? xxx") && title.ends_with('…'),
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
fn settings_out_of_range_are_refused() {
    let mut rig = Rig::ready(1);
    let before = rig.state.focused_pane().settings.clone();
    let mut bad = Settings {
        max_tokens: 0,
        ..Settings::default()
    };
    assert_eq!(rig.event(Event::Configure(bad.clone())), [Effect::Bell]);
    bad.max_tokens = 10;
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
    rig.ms += 7_000;
    rig.event(Event::Tick);
    assert_eq!(rig.state.notices().len(), 1);
    rig.ms += 2_000;
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
    rig.event(Event::Open {
        conversation: Box::new(kept(3, "old")),
        access: Access::Write,
    });
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
    rig.event(Event::Open {
        conversation: Box::new(kept(3, "old")),
        access: Access::Write,
    });
    assert_eq!((rig.state.focused(), rig.state.panes().len()), (pane(2), 2));
}

#[test]
fn a_read_only_conversation_takes_no_prompt_and_is_never_written() {
    let mut rig = Rig::ready(1);
    rig.event(Event::Open {
        conversation: Box::new(kept(3, "old")),
        access: Access::ReadOnly,
    });
    let mut effects = rig.draft("hello");
    effects.extend(rig.event(Event::Submit));
    assert!(submissions(&effects).is_empty() && effects.contains(&Effect::Bell));
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
        Event::Draft {
            text: "text".into(),
            cursor: 2,
        },
        Event::ClearDraft,
        Event::Submit,
        Event::Stop,
        Event::Focus(pane(9)),
        Event::NextPane,
        Event::PrevPane,
        Event::NewPane { session: session(77) },
        Event::NewPane { session: session(1) },
        Event::Open {
            conversation: Box::new(replay(session(78), [])),
            access: Access::ReadOnly,
        },
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
