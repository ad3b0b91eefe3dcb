//! Another engine takes the place of the one before.

use mlx_chat::chat::{
    Effect, EngineStatus, Event, Kind, Parameter, Record, Sampling, Settings, Status, replay,
};
use mlx_chat::engine::FinishReason;
use mlx_chat::engine::telemetry::EngineState;

use super::rig::*;

fn new_engine(recommended: Sampling) -> Event {
    Event::NewEngine { recommended }
}

fn greedy() -> Sampling {
    Sampling::default()
}

#[test]
fn while_it_is_held_prompts_wait_and_answers_go_on() {
    let mut rig = Rig::ready(2);
    let first = rig.ask("one");
    rig.event(Event::Hold);
    rig.event(Event::Focus(pane(2)));
    assert!(submissions(&rig.send("two")).is_empty());
    rig.token(first, "still here");
    assert_eq!(rig.last_turn(1).answer.to_string(), "still here");
    // What waits in the pane that answers waits on when that ends.
    rig.event(Event::Focus(pane(1)));
    assert!(submissions(&rig.send("three")).is_empty());
    assert!(submissions(&rig.finish(first, FinishReason::Stop)).is_empty());
    let released = rig.event(Event::Release);
    let panes: Vec<u8> = submissions(&released)
        .iter()
        .map(|(pane, ..)| pane.get())
        .collect();
    assert_eq!(panes, [1, 2]);
}

#[test]
fn what_waits_is_sent_to_the_engine_that_comes_once_it_is_ready() {
    let mut rig = Rig::ready(1);
    rig.event(Event::Hold);
    assert!(submissions(&rig.send("wait for it")).is_empty());
    assert!(submissions(&rig.event(new_engine(greedy()))).is_empty());
    let loading = EngineState::Loading {
        stage: "weights".into(),
        done: 1,
        total: 2,
    };
    assert!(submissions(&rig.event(snapshot(loading))).is_empty());
    let effects = rig.event(snapshot(EngineState::Ready));
    assert_eq!(messages(&effects).last().unwrap().content, "wait for it");
}

#[test]
fn answers_that_are_all_stopped_keep_their_text_and_what_waits_behind_them() {
    let mut rig = Rig::ready(2);
    let first = rig.ask("one");
    rig.token(first, "partial");
    rig.send("later");
    rig.event(Event::Focus(pane(2)));
    let second = rig.ask("two");
    rig.event(Event::Hold);
    let effects = rig.event(Event::StopAll);
    let cancelled = |request| effects.contains(&Effect::Cancel(request));
    assert!(cancelled(first) && cancelled(second), "{effects:?}");
    assert!(rig.event(Event::StopAll).is_empty(), "once is enough");
    rig.finish(first, FinishReason::Cancelled);
    assert_eq!(rig.last_turn(1).answer.to_string(), "partial");
    assert!(matches!(rig.last_turn(1).status, Status::Stopped { .. }));
    let queued = rig.state.pane(pane(1)).unwrap().queued.clone();
    assert_eq!(queued.unwrap().text, "later");
}

#[test]
fn requests_are_counted_anew_and_late_events_of_the_engine_before_are_ignored() {
    let mut rig = Rig::ready(1);
    let old = rig.ask("one");
    rig.event(Event::Hold);
    rig.event(new_engine(greedy()));
    assert!(matches!(rig.last_turn(1).status, Status::Stopped { .. }));
    rig.event(snapshot(EngineState::Ready));
    rig.token(old, "a ghost");
    assert!(rig.last_turn(1).answer.is_empty());
    // The same number from the new engine is another request.
    let effects = rig.send("two");
    let turn = submissions(&effects)[0].1;
    rig.event(Event::Submitted { turn, request: old });
    rig.token(old, "alive");
    assert_eq!(rig.last_turn(1).answer.to_string(), "alive");
}

#[test]
fn an_engine_that_failed_can_be_replaced() {
    let mut rig = Rig::loading(1);
    rig.event(snapshot(EngineState::Failed("damaged".into())));
    assert!(submissions(&rig.send("anybody?")).is_empty());
    rig.event(new_engine(greedy()));
    rig.event(snapshot(EngineState::Ready));
    assert_eq!(submissions(&rig.send("anybody?")).len(), 1);
}

#[test]
fn while_another_engine_is_awaited_a_failed_one_is_forgotten_and_the_next_failure_told() {
    let mut rig = Rig::loading(1);
    rig.event(snapshot(EngineState::Failed("damaged".into())));
    rig.event(snapshot(EngineState::Ready));
    assert!(
        matches!(rig.state.engine(), EngineStatus::Failed(_)),
        "it stays failed"
    );
    rig.event(Event::Hold);
    rig.event(snapshot(EngineState::Loading {
        stage: "finding it".into(),
        done: 0,
        total: 0,
    }));
    assert!(matches!(rig.state.engine(), EngineStatus::Loading { .. }));
    let message = "it isn't there".to_owned();
    rig.event(Event::EngineFailed { message });
    rig.event(Event::Release);
    assert_eq!(*rig.state.engine(), EngineStatus::Failed("it isn't there".into()));
    assert!(
        rig.state
            .notices()
            .last()
            .unwrap()
            .text
            .contains("it isn't there")
    );
}

#[test]
fn panes_sample_as_the_new_model_recommends_where_they_have_nothing_of_their_own() {
    let mut rig = Rig::ready(2);
    let own = Sampling {
        temperature: 0.3,
        ..greedy()
    };
    let settings = Settings {
        sampling: own,
        ..Settings::default()
    };
    rig.event(Event::Configure(settings));
    rig.ask("so that there is a log");
    let recommended = Sampling {
        temperature: 0.6,
        top_k: 20,
        ..greedy()
    };
    let effects = rig.event(new_engine(recommended));
    let sampling = |rig: &Rig, n| rig.state.pane(pane(n)).unwrap().settings.sampling;
    let mixed = Sampling {
        temperature: 0.3,
        ..recommended
    };
    assert_eq!(sampling(&rig, 1), mixed, "its own temperature stays");
    assert_eq!(sampling(&rig, 2), recommended);
    let written = records(&effects, session(1));
    let is_written = |kind: &Kind| matches!(kind, Kind::Settings { settings } if settings.sampling == mixed);
    assert!(
        written.iter().any(|record| is_written(&record.kind)),
        "{written:?}"
    );
    rig.event(Event::NewPane { session: session(9) });
    assert_eq!(sampling(&rig, 3), recommended, "and so do new panes");
    // Back to a model that recommends nothing.
    rig.event(new_engine(greedy()));
    assert_eq!((sampling(&rig, 1), sampling(&rig, 2)), (own, greedy()));
}

#[test]
fn only_an_engine_that_took_anothers_place_counts_tokens_anew() {
    let mut rig = Rig::loading(1);
    rig.event(new_engine(greedy()));
    assert_eq!(rig.state.counts_since(rig.state.focused_pane()), None);
    rig.event(snapshot(EngineState::Ready));
    let request = rig.ask("one");
    rig.finish(request, FinishReason::Stop);
    rig.event(new_engine(greedy()));
    assert!(rig.state.counts_since(rig.state.focused_pane()).unwrap() > rig.last_turn(1).at);
}

#[test]
fn a_prompt_is_not_answered_once_more_while_the_engine_changes() {
    let mut rig = Rig::ready(1);
    let request = rig.ask("one");
    rig.finish(request, FinishReason::Stop);
    rig.event(Event::Hold);
    assert!(submissions(&rig.event(Event::Regenerate)).is_empty());
    assert!(rig.state.notices().last().unwrap().text.contains("being changed"));
}

#[test]
fn what_a_preset_brought_stays_under_another_model_though_it_is_what_all_had() {
    let mut rig = Rig::ready(1);
    let presets = mlx_chat::chat::own_presets();
    let precise = presets
        .into_iter()
        .find(|preset| preset.name == "precise")
        .unwrap();
    rig.event(Event::Preset(Box::new(precise)));
    let before = rig.state.pane(pane(1)).unwrap().settings.sampling;
    assert!(before.is_greedy());
    let warm = Sampling {
        temperature: 0.7,
        ..greedy()
    };
    rig.event(new_engine(warm));
    assert_eq!(
        rig.state.pane(pane(1)).unwrap().settings.sampling.temperature,
        0.0
    );
    let origin = |rig: &Rig| rig.state.origins().of(Parameter::Temperature).to_owned();
    assert_eq!(origin(&rig), "the model's makers");
    rig.event(new_engine(greedy()));
    assert_eq!(origin(&rig), "default");
}

/// The models that a log names, in order.
fn named(effects: &[Effect]) -> Vec<String> {
    let model = |record: Record| match record.kind {
        Kind::Session { model, .. } | Kind::Model { model } => Some(model),
        _ => None,
    };
    records(effects, session(1))
        .into_iter()
        .filter_map(model)
        .collect()
}

#[test]
fn a_log_names_the_model_that_answers_even_if_it_began_while_there_was_none() {
    let mut rig = Rig::loading(1);
    let mut all = rig.send("early");
    assert_eq!(named(&all), [""]);
    let effects = rig.event(ready_as("first"));
    all.extend(rig.answered(effects, &[], FinishReason::Stop));
    let effects = rig.send("once more");
    all.extend(rig.answered(effects, &[], FinishReason::Stop));
    assert_eq!(named(&all), ["", "first"], "once");
    rig.event(new_engine(greedy()));
    all.extend(rig.event(ready_as("second")));
    all.extend(rig.send("and you?"));
    assert_eq!(named(&all), ["", "first", "second"]);
    let read = replay(session(1), records(&all, session(1)));
    assert_eq!((read.model.as_str(), read.turns.len()), ("second", 3));
}
