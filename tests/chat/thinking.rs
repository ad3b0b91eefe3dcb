//! Thinking and calls of tools in a conversation: told apart, counted, kept, resumed, exported.

use mlx_chat::chat::{Event, Kind, NoticeKind, Record, Settings, Thought, replay, to_markdown};
use mlx_chat::engine::telemetry::EngineState;
use mlx_chat::engine::{self, FinishReason};
use mlx_chat::text::message::Role;
use mlx_chat::text::spans::Span::{Answer, Thinking, ToolCall};

use crate::rig::{Rig, message, messages, records, session, snapshot, spanned, submissions};

/// A turn with a thought of three tokens, an answer, and a call.
fn thoughtful(rig: &mut Rig) -> Vec<Record> {
    let effects = rig.send("why?");
    let request = rig.accept(&effects)[0];
    let mut written = records(&effects, session(1));
    for parts in [
        vec![(Thinking, true, "<think>")],
        vec![(Thinking, false, "\nLet")],
        vec![],
        vec![(Thinking, false, " me.")],
        vec![(Thinking, true, "</think>"), (Answer, false, "Be")],
        vec![(Answer, false, "cause.")],
        vec![(ToolCall, true, "<tool_call>"), (ToolCall, false, "{}")],
    ] {
        rig.ms += 100;
        let event = spanned(&parts);
        written.extend(records(&rig.event(Event::Engine { request, event }), session(1)));
    }
    written.extend(records(&rig.finish(request, FinishReason::Stop), session(1)));
    written
}

#[test]
fn a_thought_is_counted_in_tokens_and_time() {
    let mut rig = Rig::ready(1);
    thoughtful(&mut rig);
    let turn = rig.last_turn(1);
    assert_eq!(turn.answer.of(Thinking), "\nLet me.");
    assert_eq!(turn.answer.of(Answer), "Because.");
    let [thought] = turn.thoughts[..] else {
        panic!("{:?}", turn.thoughts)
    };
    assert_eq!(thought.tokens, 4, "the token that closed it included");
    assert!(thought.ms >= 300, "{thought:?}");
}

#[test]
fn a_log_keeps_the_parts_of_an_answer() {
    let mut rig = Rig::ready(1);
    let written = thoughtful(&mut rig);
    let lines: Vec<String> = written.iter().map(|record| record.to_line().unwrap()).collect();
    let read = lines
        .iter()
        .map(|line| Record::from_line(line.as_bytes()).unwrap());
    let conversation = replay(session(1), read);
    let turn = rig.last_turn(1);
    assert_eq!(conversation.turns[0].answer, turn.answer);
    assert_eq!(conversation.turns[0].thoughts, turn.thoughts);
    assert!(lines.iter().any(|line| line.contains(r#""span":"thinking""#)));
}

#[test]
fn a_log_from_before_there_were_parts_is_all_answer() {
    let line = br#"{"id":2,"parent":1,"at":"2031-01-01T00:00:00Z","type":"delta","text":"<think>x"}"#;
    let record = Record::from_line(line).unwrap();
    assert_eq!(record.kind, crate::rig::piece("<think>x"));
    let again = record.to_line().unwrap();
    assert!(!again.contains("span") && !again.contains("marker"), "{again}");
    let line = br#"{"id":3,"parent":1,"at":"2031-01-01T00:00:00Z","type":"finish","reason":"stop","turn":1}"#;
    let record = Record::from_line(line).unwrap();
    assert!(matches!(&record.kind, Kind::Finish { thoughts, .. } if thoughts.is_empty()));
}

#[test]
fn the_next_prompt_hands_thinking_over_apart_from_the_answer() {
    let mut rig = Rig::ready(1);
    thoughtful(&mut rig);
    let sent = messages(&rig.send("and?"));
    assert_eq!(sent[1].reasoning_content.as_deref(), Some("\nLet me."));
    assert_eq!(sent[1].content, "Because.<tool_call>{}");
    assert_eq!(sent[2], message(Role::User, "and?"));
}

#[test]
fn an_export_sets_thinking_and_calls_apart() {
    let mut rig = Rig::ready(1);
    let written = thoughtful(&mut rig);
    let text = to_markdown(&replay(session(1), written));
    assert!(
        text.contains("\n> _Thinking:_\n>\n> Let me.\n\nBecause.\n\n_Tool call:_\n\n    {}\n"),
        "{text}"
    );
    assert!(!text.contains("<think>"), "{text}");
}

#[test]
fn whether_to_think_is_a_setting_of_the_conversation() {
    let mut rig = Rig::ready(1);
    let thinking = Some(false);
    rig.event(Event::Configure(Settings {
        thinking,
        ..Settings::default()
    }));
    assert_eq!(submissions(&rig.send("hi"))[0].2.chat.thinking, thinking);
    let old: Settings = serde_json::from_str("{}").unwrap();
    assert_eq!(old.thinking, None);
}

#[test]
fn a_switch_that_the_model_lacks_is_told_once_the_model_is_known() {
    let set = |rig: &mut Rig, thinking| {
        rig.event(Event::Configure(Settings {
            thinking,
            ..Settings::default()
        }));
    };
    let told = |rig: &Rig| {
        rig.told()
            .iter()
            .filter(|text| text.starts_with("thinking:"))
            .count()
    };
    let mut rig = Rig::loading(2);
    rig.event(Event::NextPane);
    set(&mut rig, Some(true));
    assert_eq!(told(&rig), 0, "{:?}", rig.told());
    rig.event(snapshot(EngineState::Ready));
    let text = rig.told().join("\n");
    assert!(
        text.contains("no switch for it, so nothing changes in pane 2"),
        "{text}"
    );
    let mut rig = Rig::loading(2);
    rig.event(snapshot(EngineState::Ready));
    assert_eq!(told(&rig), 0);
    set(&mut rig, Some(false));
    assert_eq!(told(&rig), 1);
}

#[test]
fn what_the_engine_notes_about_a_prompt_is_told_once() {
    let mut rig = Rig::ready(1);
    for _ in 0..2 {
        let effects = rig.send("hi");
        let request = rig.accept(&effects)[0];
        let event = engine::Event::Note("the template failed".into());
        rig.event(Event::Engine { request, event });
        rig.finish(request, FinishReason::Stop);
    }
    let told: Vec<_> = rig
        .state
        .notices()
        .iter()
        .filter(|notice| notice.kind == NoticeKind::Warning)
        .collect();
    assert_eq!(told.len(), 1);
    assert!(told[0].text.contains("the template failed"));
    assert_eq!(Thought::default().tokens, 0);
}
