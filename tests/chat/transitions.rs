//! A turn from its prompt to its end, in each state.

use mlx_chat::chat::{Effect, EngineStatus, Event, Kind, NoticeKind, Phase, Settings, Status, Write};
use mlx_chat::engine::telemetry::EngineState;
use mlx_chat::engine::{self, FinishReason, RequestId};
use mlx_chat::text::message::Role;

use crate::rig::{Rig, message, messages, pane, session, snapshot, submissions};

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
        truncated: None,
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
        (FinishReason::Stop, "Done { truncated: None"),
        (
            FinishReason::Length,
            "Done { truncated: Some(\"the answer reached",
        ),
        (FinishReason::Cancelled, "Stopped"),
        (
            FinishReason::Rejected,
            "Failed { message: \"too long\", refused: Some(Otherwise)",
        ),
        (
            FinishReason::Error,
            "Failed { message: \"too long\", refused: None",
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
        max_tokens: Some(5),
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
    let request = &submissions(&effects)[0].2;
    assert_eq!((request.max_tokens, request.shrinks), (5, false));
}

#[test]
fn a_limit_that_nobody_set_may_shrink() {
    let mut rig = Rig::ready(1);
    let request = &submissions(&rig.send("one"))[0].2;
    assert_eq!(
        (request.max_tokens, request.shrinks),
        (Settings::MAX_TOKENS, true)
    );
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
            refused: Some(_),
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
    assert_eq!(rig.draft_of(1), "first\n\nsecond");
    assert_eq!(rig.state.focused_pane().draft.cursor(), "first\n\nsecond".len());
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
    let queued = rig.state.pane(pane(1)).unwrap().queued.clone();
    assert_eq!(queued.unwrap().text, "two");
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
