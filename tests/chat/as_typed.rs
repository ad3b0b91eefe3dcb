//! What a prompt was when it was typed, and what is said where it comes back.

use mlx_chat::chat::{Access, Draft, Effect, Event, Kind, Pane, Record, replay};
use mlx_chat::engine::FinishReason;

use super::rig::*;

const TYPED: &str = "look at @a.rs and [paste]";
const SENT: &str = "look at @a.rs and [paste]\n\na.rs:\n```rs\nfn a() {}\n```";

/// A draft with a file and a large paste.
fn typed() -> Draft {
    Draft::at_end(TYPED).with_pastes(std::iter::once(18..25))
}

/// Sends it, with the file's text in it.
fn send(rig: &mut Rig) -> Vec<Effect> {
    let mut effects = rig.event(Event::Draft(typed()));
    effects.extend(rig.event(Event::SubmitText { text: SENT.into() }));
    effects
}

/// The pane as its log tells it, line by line.
fn read_again(effects: &[Effect]) -> Pane {
    let lines: Vec<String> = records(effects, session(1))
        .iter()
        .map(|record| record.to_line().unwrap())
        .collect();
    let read = lines
        .iter()
        .map(|line| Record::from_line(line.as_bytes()).unwrap());
    Pane::restore(replay(session(1), read), Access::Write)
}

#[test]
fn a_prompt_that_is_edited_is_as_it_was_typed_and_the_model_is_told_what_was_sent() {
    let mut rig = Rig::ready(1);
    let sent = send(&mut rig);
    assert_eq!(messages(&sent)[0].content, SENT);
    let effects = rig.answered(sent, &["yes"], FinishReason::Stop);
    for pane in [rig.state.focused_pane().clone(), read_again(&effects)] {
        assert_eq!(pane.turns[0].prompt, SENT);
        assert_eq!(pane.turns[0].draft(), typed());
        assert_eq!(pane.history().next(), Some(typed()));
    }
    rig.draft("mine");
    rig.event(Event::EditPrompt);
    assert_eq!(rig.state.focused_pane().draft, typed());
    rig.event(Event::EditPrompt);
    rig.event(Event::Stop);
    assert_eq!(rig.draft_of(1), "mine", "nothing was changed");
    let effects = rig.event(Event::Regenerate);
    assert_eq!(messages(&effects)[0].content, SENT);
}

#[test]
fn a_draft_that_an_edit_put_aside_keeps_its_pastes() {
    let mut rig = Rig::ready(1);
    let sent = rig.send("one");
    let mut effects = rig.answered(sent, &["yes"], FinishReason::Stop);
    effects.extend(rig.event(Event::Draft(typed())));
    effects.extend(rig.event(Event::EditPrompt));
    let mut pane = read_again(&effects);
    assert_eq!(pane.draft.text(), "one");
    assert_eq!(pane.edit, rig.state.focused_pane().edit);
    rig.event(Event::Stop);
    assert_eq!(rig.state.focused_pane().draft, typed());
    // A log of before pastes were kept there.
    let line = effects.iter().rev().find_map(|effect| {
        let last = records(std::slice::from_ref(effect), session(1)).pop()?;
        matches!(last.kind, Kind::Draft { edit: Some(_), .. }).then(|| last.to_line().unwrap())
    });
    let line = line
        .unwrap()
        .replace(",\"stashed_pastes\":[{\"start\":18,\"end\":25}]", "");
    assert!(!line.contains("stashed_pastes"), "{line}");
    let Kind::Draft { edit, .. } = Record::from_line(line.as_bytes()).unwrap().kind else {
        panic!("{line}");
    };
    pane.edit.as_mut().unwrap().stashed_pastes.clear();
    assert_eq!(edit, pane.edit);
}

#[test]
fn a_prompt_that_waited_comes_back_as_it_was_typed() {
    let mut rig = Rig::loading(1);
    let effects = send(&mut rig);
    assert_eq!(rig.state.focused_pane().queued.as_ref().unwrap().text, SENT);
    assert_eq!(read_again(&effects).draft, typed());
    rig.event(Event::Stop);
    assert_eq!(rig.state.focused_pane().draft, typed());
}

#[test]
fn a_log_that_does_not_tell_how_prompts_were_typed_gives_back_what_was_sent() {
    let mut rig = Rig::ready(1);
    let effects = send(&mut rig);
    let mut records = records(&effects, session(1));
    for record in &mut records {
        if let Kind::User { typed, .. } = &mut record.kind {
            assert!(typed.take().is_some());
        }
    }
    let pane = Pane::restore(replay(session(1), records), Access::Write);
    assert_eq!(pane.turns[0].draft(), Draft::at_end(SENT));
    // What was sent as it was typed is told once.
    let plain = rig_records("plain");
    assert!(!plain.contains("typed"), "{plain}");
}

fn rig_records(text: &str) -> String {
    let effects = Rig::ready(1).send(text);
    let lines = records(&effects, session(1));
    lines.iter().map(|record| record.to_line().unwrap()).collect()
}

#[test]
fn a_refusal_says_where_the_prompt_is_and_what_was_begun_since_stays_apart() {
    let told = |rig: &Rig| rig.told().last().unwrap().to_string();
    let mut rig = Rig::ready(1);
    let sent = send(&mut rig);
    rig.refuse(&sent);
    assert_eq!(rig.state.focused_pane().draft, typed(), "the caret is at its end");
    assert!(
        told(&rig).ends_with("; the prompt is in the draft again"),
        "{}",
        told(&rig)
    );

    let mut rig = Rig::ready(1);
    let sent = send(&mut rig);
    rig.event(Event::Draft(Draft::new("next", 2)));
    rig.refuse(&sent);
    let draft = &rig.state.focused_pane().draft;
    assert_eq!(draft.text(), format!("{TYPED}\n\nnext"));
    assert_eq!(
        draft.text().len() - draft.cursor(),
        2,
        "the caret stays in what was begun"
    );
    assert_eq!(draft.pastes(), typed().pastes());
    assert!(
        told(&rig).ends_with("again, before what was begun since"),
        "{}",
        told(&rig)
    );
}
