//! Answers that were cut off and go on where they ended.

use mlx_chat::chat::{Effect, Event, Stats, Status, replay};
use mlx_chat::engine::{self, Begun, FinishReason};

use crate::rig::{Rig, finish, ready_as, records, session, submissions, token};

fn loaded() -> Rig {
    let mut rig = Rig::loading(1);
    rig.event(ready_as("a model"));
    rig
}

/// An answer that reached the limit; its end brought a text that might have become a stop string.
fn cut_off(rig: &mut Rig) -> Vec<Effect> {
    let mut all = rig.send("count");
    let request = rig.accept(&all)[0];
    let end = engine::Finish {
        text: " E".into(),
        ..finish(FinishReason::Length)
    };
    all.extend(rig.answer(request, &["one", " two"], end));
    all
}

fn begun(effects: &[Effect]) -> Begun {
    let begun = submissions(effects)[0].2.begun.clone();
    *begun.expect("an answer that goes on")
}

fn stats(rig: &Rig) -> Stats {
    match rig.last_turn(1).status {
        Status::Done { stats, .. } | Status::Stopped { stats: Some(stats) } => stats,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn it_goes_on_after_its_own_tokens_as_the_same_message() {
    let mut rig = loaded();
    let mut all = cut_off(&mut rig);
    assert_eq!(rig.last_turn(1).answer, "one two E");
    let effects = rig.event(Event::Continue);
    assert_eq!(
        begun(&effects),
        Begun {
            tokens: vec![7, 7],
            text: "one two".into()
        }
    );
    assert_eq!(
        crate::rig::messages(&effects).len(),
        1,
        "the prompt, and not the answer"
    );
    all.extend(rig.answered(effects, &[" Three"], FinishReason::Stop));
    assert_eq!(rig.last_turn(1).answer, "one two Three");
    assert_eq!(stats(&rig).generated_tokens, 6, "of both");
    assert_eq!(stats(&rig).prompt_tokens, 10);
    let again = replay(session(1), records(&all, session(1)));
    assert_eq!(
        (again.turns.len(), again.turns[0].answer.as_str()),
        (1, "one two Three")
    );
    assert_eq!(again.turns[0].status, rig.last_turn(1).status);
}

#[test]
fn it_can_go_on_twice_and_after_being_read_from_the_log() {
    let mut rig = loaded();
    let mut all = cut_off(&mut rig);
    let effects = rig.event(Event::Continue);
    all.extend(rig.answered(effects, &[" three"], FinishReason::Length));
    let read = replay(session(1), records(&all, session(1)));
    assert_eq!(read.turns[0].tokens, rig.last_turn(1).tokens);
    let effects = rig.event(Event::Continue);
    assert_eq!(begun(&effects).tokens, [7, 7, 7]);
}

#[test]
fn tokens_of_another_model_are_not_taken_for_this_ones() {
    let mut rig = loaded();
    cut_off(&mut rig);
    rig.event(ready_as("another model"));
    let effects = rig.event(Event::Continue);
    let begun = begun(&effects);
    assert_eq!((begun.tokens, begun.text.as_str()), (Vec::new(), "one two E"));
    // What follows has tokens of which the first ones aren't known.
    rig.answered(effects, &[" x"], FinishReason::Length);
    let effects = rig.event(Event::Continue);
    assert_eq!(submissions(&effects)[0].2.begun.as_ref().unwrap().tokens, [0; 0]);
}

#[test]
fn one_that_cannot_go_on_is_as_it_was() {
    let mut rig = loaded();
    let mut all = cut_off(&mut rig);
    let before = rig.last_turn(1).clone();
    assert_eq!((before.answer.as_str(), before.tokens.held), ("one two E", 2));
    let effects = rig.event(Event::Continue);
    let refused = rig.refuse(&effects);
    all.extend(effects);
    all.extend(refused);
    assert_eq!(rig.last_turn(1), &before, "with its text and its tokens");
    assert!(rig.last_turn(1).in_history());
    assert_eq!(rig.draft_of(1), "", "the prompt was answered");
    assert!(rig.state.notices().last().unwrap().text.contains("can't go on"));
    let again = replay(session(1), records(&all, session(1)));
    assert_eq!(again.turns[0], before);
}

#[test]
fn one_that_was_going_on_when_the_program_was_killed_has_no_tokens_but_its_text() {
    let mut rig = loaded();
    let mut all = cut_off(&mut rig);
    let effects = rig.event(Event::Continue);
    let request = rig.accept(&effects)[0];
    all.extend(effects);
    all.extend(rig.token(request, " three"));
    let mut again = replay(session(1), records(&all, session(1)));
    let turn = again.turns.pop().unwrap();
    assert_eq!((turn.answer.as_str(), turn.tokens.ids), ("one two three", vec![]));
}

#[test]
fn one_that_was_stopped_goes_on_and_one_that_ended_does_not() {
    let mut rig = loaded();
    let effects = rig.event(Event::Continue);
    assert!(effects.contains(&Effect::Bell), "there is none");
    let request = rig.ask("count");
    rig.token(request, "one");
    let effects = rig.event(Event::Continue);
    assert!(submissions(&effects).is_empty(), "it runs");
    rig.finish(request, FinishReason::Cancelled);
    let effects = rig.event(Event::Continue);
    assert_eq!(begun(&effects).tokens, [7]);
    let request = rig.accept(&effects)[0];
    rig.finish(request, FinishReason::Stop);
    let effects = rig.event(Event::Continue);
    assert!(submissions(&effects).is_empty() && effects.contains(&Effect::Bell));
}

#[test]
fn an_answer_that_leaving_cuts_off_has_its_count() {
    let mut rig = loaded();
    let sent = rig.send("count");
    let request = rig.accept(&sent)[0];
    let (prompt_tokens, cached_tokens) = (30, 8);
    rig.engine(
        request,
        engine::Event::Admitted {
            prompt_tokens,
            cached_tokens,
        },
    );
    rig.engine(request, token("one"));
    rig.engine(request, token(" two"));
    let effects = rig.event(Event::Quit);
    let read = replay(session(1), records(&effects, session(1)));
    assert!(read.notes.len() <= 1, "the prompt was written before");
    let counted = stats(&rig);
    assert_eq!((counted.prompt_tokens, counted.generated_tokens), (30, 2));
}

#[test]
fn a_random_answer_tells_its_seed_and_the_next_one_has_another() {
    let mut rig = loaded();
    let mut settings = mlx_chat::chat::Settings::default();
    settings.sampling.temperature = 0.7;
    rig.event(Event::Configure(settings));
    let effects = rig.send("a");
    let first = submissions(&effects)[0].2.sampling.seed;
    assert!(first.is_some() && first == rig.last_turn(1).seed);
    let read = replay(session(1), records(&effects, session(1)));
    assert_eq!(read.turns[0].seed, first);
    let request = rig.accept(&effects)[0];
    rig.finish(request, FinishReason::Stop);
    let effects = rig.event(Event::Regenerate);
    assert_ne!(submissions(&effects)[0].2.sampling.seed, first);
    let mut greedy = loaded();
    let effects = greedy.send("a");
    assert_eq!(submissions(&effects)[0].2.sampling.seed, None);
}
