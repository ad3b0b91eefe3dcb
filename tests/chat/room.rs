//! A conversation that comes to the end of what the model takes.

use std::sync::Arc;

use mlx_chat::chat::{Draft, Effect, Event, Limit, Refused, Status, Way};
use mlx_chat::engine::telemetry::{EngineInfo, EngineState, Snapshot};
use mlx_chat::engine::{Finish, FinishReason};

use super::rig::*;

const LIMIT: usize = 100;

fn ready(context_length: usize) -> Event {
    Event::Snapshot(Arc::new(Snapshot {
        state: EngineState::Ready,
        info: EngineInfo {
            model: "m".into(),
            context_length,
            ..EngineInfo::default()
        },
        ..Snapshot::loading("")
    }))
}

/// A pane in which one answer has ended, its prompt and itself so many tokens.
fn taken(prompt_tokens: usize, generated_tokens: usize, reason: FinishReason) -> Rig {
    let mut rig = Rig::loading(1);
    rig.event(ready(LIMIT));
    let request = rig.ask("one");
    let end = Finish {
        prompt_tokens,
        generated_tokens,
        ..finish(reason)
    };
    rig.answer(request, &["text"], end);
    rig
}

/// A prompt that the engine refuses, since with all before it there are so many tokens.
fn refused(rig: &mut Rig, prompt_tokens: usize) -> Vec<Effect> {
    let request = rig.ask("more");
    let end = Finish {
        prompt_tokens,
        message: Some("the prompt has too many tokens".into()),
        ..finish(FinishReason::Rejected)
    };
    rig.answer(request, &[], end)
}

#[test]
fn an_answer_that_filled_the_context_does_not_go_on() {
    let mut rig = taken(90, 10, FinishReason::Length);
    let pane = rig.state.focused_pane();
    let limit = Limit {
        tokens: LIMIT,
        by_memory: false,
    };
    assert_eq!(rig.state.full(pane), Some(limit));
    let effects = rig.event(Event::Continue);
    assert_eq!(effects, [Effect::Bell]);
    let notice = rig.state.notices().last().unwrap();
    assert_eq!(notice.text, "the conversation is full: 100 of 100 tokens");
    assert_eq!(notice.way, Some(Way::Full));
    // A model that takes more, or one of which that isn't known, goes on.
    for limit in [200, 0] {
        rig.event(ready(limit));
        assert_eq!(rig.state.full(rig.state.focused_pane()), None, "{limit}");
    }
    assert_eq!(submissions(&rig.event(Event::Continue)).len(), 1);
}

#[test]
fn an_answer_that_took_all_that_the_kv_budget_has_room_for_does_not_go_on() {
    let with_room_for = |longest_row: usize| {
        Event::Snapshot(Arc::new(Snapshot {
            state: EngineState::Ready,
            info: EngineInfo {
                model: "m".into(),
                context_length: LIMIT,
                ..EngineInfo::default()
            },
            longest_row,
            ..Snapshot::loading("")
        }))
    };
    let mut rig = taken(40, 10, FinishReason::Length);
    rig.event(with_room_for(50));
    assert_eq!(rig.event(Event::Continue), [Effect::Bell]);
    let notice = rig.state.notices().last().unwrap();
    assert_eq!(
        notice.text,
        "the conversation is full: 50 tokens, and --kv-budget has room for 50"
    );
    // A greater budget, or one of which nothing is known.
    for longest in [51, LIMIT, 0] {
        rig.event(with_room_for(longest));
        assert_eq!(rig.state.full(rig.state.focused_pane()), None, "{longest}");
    }
    assert_eq!(submissions(&rig.event(Event::Continue)).len(), 1);

    let mut rig = taken(30, 10, FinishReason::Stop);
    rig.event(with_room_for(50));
    refused(&mut rig, 55);
    let notice = rig.state.notices().last().unwrap();
    let full =
        "pane 1: the conversation is full: 55 tokens with this prompt, and --kv-budget has room for 50";
    assert!(notice.text.starts_with(full), "{}", notice.text);
}

#[test]
fn a_prompt_for_which_there_is_no_room_is_refused_with_the_figures() {
    let mut rig = taken(60, 30, FinishReason::Stop);
    refused(&mut rig, 120);
    let notice = rig.state.notices().last().unwrap();
    assert_eq!(
        notice.text,
        "pane 1: the conversation is full: 120 of 100 tokens with this prompt; the prompt is in the draft again"
    );
    assert_eq!(notice.way, Some(Way::Full));
    let Status::Failed { refused: why, .. } = &rig.last_turn(1).status else {
        panic!("{:?}", rig.last_turn(1).status);
    };
    assert_eq!(*why, Some(Refused::Full));

    let mut first = Rig::loading(1);
    first.event(ready(LIMIT));
    // A new conversation, and one that leaves the prompt less than it takes alone.
    for (mut rig, tokens) in [(first, 120), (taken(60, 30, FinishReason::Stop), 190)] {
        refused(&mut rig, tokens);
        let notice = rig.state.notices().last().unwrap();
        let too_long = format!("pane 1: the prompt is too long: {tokens} of 100 tokens; ");
        assert!(notice.text.starts_with(&too_long), "{}", notice.text);
        assert_eq!(notice.way, None);
    }
}

#[test]
fn another_reason_of_the_engine_stays_as_it_is() {
    let mut rig = taken(60, 30, FinishReason::Stop);
    refused(&mut rig, 95);
    let notice = rig.state.notices().last().unwrap();
    assert!(
        notice.text.contains("the prompt has too many tokens"),
        "{}",
        notice.text
    );
}

#[test]
fn a_draft_that_does_not_fit_is_known_while_it_is_written() {
    let rig = taken(60, 30, FinishReason::Stop);
    assert_eq!(rig.state.overflow(45), None);
    assert_eq!(rig.state.overflow(50), Some((100, LIMIT)));
    assert_eq!(rig.state.overflow(0), None);
    // What an edited prompt takes the place of doesn't count.
    let mut rig = taken(60, 30, FinishReason::Stop);
    rig.event(Event::EditPrompt);
    assert_eq!(rig.state.overflow(490), None);
    assert_eq!(rig.state.overflow(500), Some((100, LIMIT)));
    let mut unknown = Rig::ready(1);
    unknown.event(Event::Draft(Draft::at_end("x")));
    assert_eq!(unknown.state.overflow(1 << 30), None);
}
