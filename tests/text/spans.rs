//! Thinking and calls of tools in a stream of text.

use mlx_chat::text::spans::{Markup, Span, Spanned};
use proptest::prelude::*;

const THINK: &str = "{{ '<think>' }}{{ content.split('</think>') }}<tool_call></tool_call>";
const CHANNELS: &str = "<|start|>assistant<|channel|>final<|message|><|end|>";

/// The parts of a text that comes in pieces: their kind, and what is shown of them.
fn scan(template: &str, tail: &str, pieces: &[&str]) -> Spanned {
    let mut scanner = Markup::of_template(template).scanner(tail);
    let mut all = Spanned::default();
    for piece in pieces {
        all.append(&scanner.push(piece));
    }
    all.append(&scanner.finish());
    all
}

fn shown(spanned: &Spanned) -> Vec<(Span, &str)> {
    let visible = spanned.runs().filter(|run| !run.marker);
    visible.map(|run| (run.span, run.text)).collect()
}

use Span::{Answer, Thinking, ToolCall};

#[test]
fn a_thought_is_told_from_the_answer_and_its_markers_are_not_shown() {
    let all = scan(THINK, "", &["<think>\nhm", "m\n</think>\n\nYes."]);
    assert_eq!(shown(&all), [(Thinking, "\nhmm\n"), (Answer, "\n\nYes.")]);
    assert_eq!(all, "<think>\nhmm\n</think>\n\nYes.");
}

#[test]
fn a_thought_that_the_prompt_opened_ends_at_its_closing_marker() {
    for tail in ["assistant\n<think>\n", "<think>", "</think><think>\n"] {
        let all = scan(THINK, tail, &["hmm</think>Yes."]);
        assert_eq!(shown(&all), [(Thinking, "hmm"), (Answer, "Yes.")], "{tail}");
    }
    for tail in ["", "assistant\n", "<think>\n\n</think>\n\n"] {
        assert_eq!(shown(&scan(THINK, tail, &["Yes."])), [(Answer, "Yes.")], "{tail}");
    }
}

#[test]
fn a_thought_begins_only_where_no_word_of_the_answer_has_come() {
    let all = scan(
        THINK,
        "",
        &["The tag <think> opens a thought, </think> closes it."],
    );
    assert!(all.is_plain());
    let all = scan(THINK, "", &[" \n<think>a</think> <think>b</think>c"]);
    let expected = [
        (Answer, " \n"),
        (Thinking, "a"),
        (Answer, " "),
        (Thinking, "b"),
        (Answer, "c"),
    ];
    assert_eq!(shown(&all), expected);
}

#[test]
fn what_is_not_closed_or_is_malformed_keeps_its_text() {
    assert_eq!(
        shown(&scan(THINK, "", &["<think>for ev"])),
        [(Thinking, "for ev")]
    );
    assert_eq!(
        shown(&scan(THINK, "", &["<think>a</thin"])),
        [(Thinking, "a</thin")]
    );
    assert_eq!(shown(&scan(THINK, "", &["<thi"])), [(Answer, "<thi")]);
    let call = "{\"name\": \"weather\", ";
    let all = scan(THINK, "", &["See:\n<tool_call>", call]);
    assert_eq!(shown(&all), [(Answer, "See:\n"), (ToolCall, call)]);
    let all = scan(CHANNELS, "", &["<|channel|>anal"]);
    assert_eq!(shown(&all), [(Answer, "anal")]);
    let long = "x".repeat(400);
    let all = scan(CHANNELS, "", &["<|channel|>", &long, "<|message|>y"]);
    assert_eq!(all.of(Answer), long + "y");
}

#[test]
fn a_call_of_a_tool_stands_apart_wherever_it_comes() {
    let all = scan(
        THINK,
        "",
        &["Let me look. <tool_call>{\"name\": \"a\"}</tool_call> Done."],
    );
    let expected = [
        (Answer, "Let me look. "),
        (ToolCall, "{\"name\": \"a\"}"),
        (Answer, " Done."),
    ];
    assert_eq!(shown(&all), expected);
    let all = scan("[TOOL_CALLS]", "", &["[TOOL_CALLS]a[ARGS]{}"]);
    assert_eq!(shown(&all), [(ToolCall, "a[ARGS]{}")]);
}

#[test]
fn channels_are_told_apart_by_their_headers() {
    let text = "<|channel|>analysis<|message|>hmm<|end|><|start|>assistant<|channel|>commentary to=functions.a \
        <|constrain|>json<|message|>{}<|call|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>";
    let all = scan(CHANNELS, "<|start|>assistant", &[text]);
    assert_eq!(
        shown(&all),
        [(Thinking, "hmm"), (ToolCall, "{}"), (Answer, "Yes.")]
    );
    assert_eq!(all, text);
    let opened = scan(
        CHANNELS,
        "<|start|>assistant<|channel|>analysis<|message|>",
        &["hmm<|end|>"],
    );
    assert_eq!(shown(&opened), [(Thinking, "hmm")]);
    let header = scan(
        CHANNELS,
        "<|start|>assistant<|channel|>",
        &["final<|message|>Yes."],
    );
    assert_eq!(shown(&header), [(Answer, "Yes.")]);
}

#[test]
fn a_model_whose_template_knows_no_marker_has_its_text_left_alone() {
    let text = "<think>a</think><|channel|>b<|message|>[TOOL_CALLS]";
    for template in ["{{ messages[0].content }}", ""] {
        let all = scan(template, "<think>", &[text]);
        assert!(all.is_plain());
        assert_eq!(all, text);
    }
    assert!(
        !scan("[THINK][/THINK]", "", &["<think>a</think>"])
            .runs()
            .any(|run| run.span == Thinking)
    );
}

#[test]
fn markers_that_are_control_tokens_are_never_text() {
    let markup = Markup::of_template("[THINK]{{ x }}[/THINK]").with_control(|_| true);
    let mut scanner = markup.scanner("");
    let mut all = scanner.push("a[/THINK]b[THINK]c");
    all.append(&scanner.finish());
    assert_eq!(all.of(Answer), "abc");
}

#[test]
fn text_that_cannot_become_a_marker_is_not_held_back() {
    let mut scanner = Markup::of_template(THINK).scanner("<think>");
    assert_eq!(scanner.push("a < b </thi"), "a < b ");
    assert_eq!(scanner.push("s"), "</this");
    assert_eq!(scanner.finish(), "");
}

fn pieces() -> impl Strategy<Value = Vec<String>> {
    let piece = prop_oneof![
        Just("<think>"),
        Just("</think>"),
        Just("<tool_call>"),
        Just("</tool_call>"),
        Just("<|channel|>"),
        Just("<|message|>"),
        Just("analysis"),
        Just("final"),
        Just(" to=functions.x"),
        Just("<|end|>"),
        Just("<|start|>"),
        Just("assistant"),
        Just("[THINK]"),
        Just("[/THINK]"),
        Just("[TOOL_CALLS]"),
        Just("<"),
        Just("</"),
        Just("<|"),
        Just("think>"),
        Just(" "),
        Just("\n"),
        Just("word"),
        Just("日本"),
        Just("👩‍👧"),
    ];
    prop::collection::vec(piece.prop_map(str::to_owned), 0..24)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_cut_of_a_stream_gives_the_same_parts_and_loses_nothing(
        pieces in pieces(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        template in prop_oneof![Just(THINK), Just(CHANNELS), Just("[THINK][/THINK][TOOL_CALLS]"), Just("none")],
        tail in prop_oneof![Just(""), Just("<think>\n"), Just("<|start|>assistant"), Just("[THINK]")],
    ) {
        let text = pieces.concat();
        let whole = scan(template, tail, &[&text]);
        prop_assert_eq!(whole.as_str(), text.as_str());
        let mut places: Vec<usize> = cuts.iter().map(|cut| text.floor_char_boundary(cut.index(text.len() + 1))).collect();
        places.extend([0, text.len()]);
        places.sort_unstable();
        let cut: Vec<&str> = places.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
        prop_assert_eq!(&scan(template, tail, &cut), &whole);
        let single: Vec<String> = text.chars().map(String::from).collect();
        let single: Vec<&str> = single.iter().map(String::as_str).collect();
        prop_assert_eq!(&scan(template, tail, &single), &whole);
    }

    #[test]
    fn an_opening_marker_is_never_shown_where_a_thought_may_begin(text in "[ \n]{0,3}", thought in "[a-z <>/]{0,12}") {
        let all = scan(THINK, "", &[&format!("{text}<think>{thought}</think>end")]);
        prop_assert!(!all.of(Answer).contains("think>"));
        prop_assert_eq!(all.of(Answer), format!("{text}end"));
    }
}
