use std::sync::Arc;

use mlx_chat::text::message::{ChatOptions, Message, Role};
use mlx_chat::text::template::{ChatTemplate, Fallback, Specials};
use mlx_chat::text::{Rendered, StopStrings};

use super::{assistant, system, user};

fn template(source: Option<&str>, fallback: Fallback, wants_bos: bool) -> ChatTemplate {
    let specials = Specials {
        bos: "<s>".into(),
        eos: "</s>".into(),
        wants_bos,
    };
    let clock = || jiff::civil::date(2031, 2, 3).at(4, 5, 6, 0).in_tz("UTC").unwrap();
    ChatTemplate::new(source, specials, fallback, Arc::new(clock))
}

fn render(source: &str, messages: &[Message]) -> Rendered {
    template(Some(source), Fallback::ChatMl, false).render(messages, &ChatOptions::default())
}

/// The text that `source` renders to, by itself.
pub(super) fn text(source: &str, messages: &[Message]) -> String {
    let rendered = render(source, messages);
    assert_eq!(rendered.note, None);
    rendered.text
}

/// The note with which `source` was replaced by ChatML.
pub(super) fn note(source: &str) -> String {
    let rendered = render(source, &[user("hi")]);
    assert_eq!(
        rendered.text,
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    );
    rendered.note.expect("a note says why")
}

#[test]
fn tags_on_their_own_lines_leave_no_blank_lines() {
    let source = "{% for m in messages %}\n    {% if m.role == 'user' %}\n{{ m.content }}\n    {% endif %}\n{% endfor %}\n";
    assert_eq!(text(source, &[user("a"), user("b")]), "a\nb\n");
}

#[test]
fn templates_see_roles_special_tokens_and_the_request_for_an_answer() {
    let source = "{{ bos_token }}{% for m in messages %}{{ m['role'] }}={{ m.content }}{{ eos_token }}{% endfor %}\
        {% if add_generation_prompt %}>{% endif %}{% if tools %}tools{% endif %}";
    let messages = [system("s"), user("u"), assistant("a")];
    assert_eq!(
        text(source, &messages),
        "<s>system=s</s>user=u</s>assistant=a</s>>"
    );
}

#[test]
fn pythons_methods_work() {
    let source = "{{ messages[0].content.strip().split(':')[-1].lstrip().upper() }}\
        {% if messages[0].content.startswith(' a') %}!{% endif %}{{ messages[0].get('name', '-') }}\
        {% for k, v in messages[0].items() %}{{ k }},{% endfor %}";
    assert_eq!(text(source, &[user(" a: b ")]), "B!-role,content,");
}

#[test]
fn loops_know_their_neighbours_and_can_be_left() {
    let source = "{% for m in messages %}{% if loop.previtem is defined and loop.previtem.role == m.role %}+{% endif %}\
        {{ m.content }}{% if loop.nextitem is not defined %}.{% endif %}\
        {% if m.content == 'b' %}{% break %}{% endif %}{% endfor %}";
    // The last message is left out, which is noted.
    assert_eq!(render(source, &[user("a"), user("b"), user("c")]).text, "a+b");
    let source = "{% set ns = namespace(n=0) %}{% for m in messages[::-1] %}{% set ns.n = ns.n + loop.index0 %}\
        {{ m.content }}{% endfor %}{{ ns.n }}";
    assert_eq!(text(source, &[user("a"), user("b"), user("c")]), "cba3");
}

#[test]
fn json_is_written_as_python_writes_it() {
    let source = "{{ messages[0] | tojson }} {{ ['é', 1, true, none] | tojson }} {{ 'é' | tojson(ensure_ascii=true) }}";
    assert_eq!(
        text(source, &[user("<b> & 'q'")]),
        r#"{"role": "user", "content": "<b> & 'q'"} ["é", 1, true, null] "\u00e9""#
    );
    assert_eq!(
        text("{{ {'a': [1]} | tojson(indent=2) }}", &[]),
        "{\n  \"a\": [\n    1\n  ]\n}"
    );
}

#[test]
fn the_date_comes_from_the_clock() {
    assert_eq!(text("{{ strftime_now('%d %b %Y') }}", &[]), "03 Feb 2031");
    assert!(note("{{ strftime_now('%!') }}").contains("`%!`"));
}

#[test]
fn generation_marks_change_nothing_but_white_space() {
    let source =
        "{% for m in messages %} {%- generation -%} {{ m.content }} {%- endgeneration %} {% endfor %}";
    assert_eq!(text(source, &[user("a"), user("b")]), "a b ");
    let source = "{%generation%}x{%+ endgeneration +%}{% raw %}{% unended {% endraw %}";
    assert_eq!(text(source, &[]), "x{% unended ");
}

#[test]
fn a_template_that_fails_is_replaced_and_the_note_says_why() {
    assert!(note("{{ raise_exception('no such luck') }}").contains("no such luck"));
    assert!(note("{% if %}").contains("cannot be read"));
    assert!(note("{{ messages[0].a.b }}").contains("undefined"));
    assert!(note("{{ unheard_of() }}").contains("unheard_of"));
}

#[test]
fn a_template_cannot_run_or_grow_without_end() {
    let loops = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
    assert!(note(loops).contains("fuel"));
    assert!(note("{% set x = 'x' * 1000000000000 %}").contains("failed"));
    let doubling =
        "{% set ns = namespace(x='x') %}{% for a in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}";
    assert!(note(doubling).contains("too large a value"));
    assert!(note("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}").contains("recursion"));
}

#[test]
fn long_conversations_do_not_run_out_of_fuel() {
    let long = "word ".repeat(200_000);
    let source = "{% for m in messages %}{{ '[' + m['role'] + ']' + m['content'] + eos_token }}{% endfor %}";
    let messages: Vec<Message> = (0..4).map(|_| user(&long)).collect();
    assert_eq!(
        text(source, &messages).len(),
        4 * (long.len() + "[user]</s>".len())
    );
    let many: Vec<Message> = (0..5000).map(|_| user("hi")).collect();
    assert_eq!(text(source, &many).len(), 5000 * "[user]hi</s>".len());
}

#[test]
fn a_template_without_system_messages_gets_them_in_the_users() {
    let source = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}\
        <{{ m.role }}>{{ m.content }}{% endfor %}";
    let rendered = render(
        source,
        &[system("be brief"), user("hi"), assistant("yo"), user("bye")],
    );
    assert_eq!(rendered.text, "<user>be brief\n\nhi<assistant>yo<user>bye");
    assert!(rendered.note.unwrap().contains("system message"));
}

#[test]
fn without_a_template_chatml_or_plain_text_stands_in() {
    let messages = [system("s"), user("u")];
    let rendered = template(None, Fallback::ChatMl, true).render(&messages, &ChatOptions::default());
    assert_eq!(
        rendered.text,
        "<s><|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n"
    );
    assert!(rendered.note.unwrap().contains("no chat template"));
    let rendered = template(None, Fallback::Plain, false).render(&messages, &ChatOptions::default());
    assert_eq!(rendered.text, "system: s\n\nuser: u\n\nassistant:");
    assert!(rendered.note.is_some());
}

fn thought(content: &str, reasoning: &str) -> Message {
    Message {
        reasoning_content: Some(reasoning.to_owned()),
        ..assistant(content)
    }
}

#[test]
fn more_of_pythons_methods_work() {
    let source = "{{ 'a-b-c'.removeprefix('a-').removesuffix('-c') }}|{{ 'a:b:c'.partition(':')[2] }}|\
        {{ 'a:b:c'.rpartition(':')[0] }}|{{ 'x'.partition(':')|length }}|{{ 'a b  c'.rsplit(none, 1)|join('+') }}|\
        {{ 'a,b,c'.rsplit(',', 1)|join('+') }}|{{ 'aB'.swapcase() }}|{{ 'ABC'.casefold() }}|{{ 'é1'.index('1') }}";
    assert_eq!(text(source, &[]), "b|b:c|a:b|3|a b+c|a,b+c|Ab|abc|1");
}

#[test]
fn json_takes_the_options_that_transformers_gives_it() {
    let source = "{{ {'b': [1, {}], 'a': 'é'} | tojson(sort_keys=true) }} {{ [1, 2] | tojson(separators=(',', ':')) }} \
        {{ 'é' | tojson(true) }} {{ [] | tojson(indent=2) }} {{ {'a': 1} | tojson(separators=(', ', '=')) }}";
    assert_eq!(
        text(source, &[]),
        r#"{"a": "é", "b": [1, {}]} [1,2] "\u00e9" [] {"a"=1}"#
    );
}

#[test]
fn json_of_shared_values_cannot_grow_without_end() {
    let source = "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}";
    assert!(note(source).contains("too large a value"));
}

#[test]
fn tools_and_further_variables_reach_the_template() {
    let source = "{% for t in tools %}{{ t.function.name }},{% endfor %}{{ effort | default('none') }}{{ messages[0].tool_calls[0].id }}";
    let options = ChatOptions {
        tools: vec![serde_json::json!({"type": "function", "function": {"name": "a"}})],
        arguments: serde_json::json!({"effort": "high"}).as_object().unwrap().clone(),
        ..ChatOptions::default()
    };
    let call = Message {
        tool_calls: vec![serde_json::json!({"id": "c1"})],
        ..assistant("")
    };
    let rendered = template(Some(source), Fallback::ChatMl, false).render(&[call], &options);
    assert_eq!(rendered.text, "a,highc1");
}

#[test]
fn the_switch_for_thinking_is_found_and_turned() {
    for name in ["enable_thinking", "thinking"] {
        let source = format!(
            "{{% if {name} is defined %}}{{{{ {name} }}}}{{% endif %}}{{{{ messages[0].thinking }}}}"
        );
        let template = template(Some(&source), Fallback::ChatMl, false);
        assert!(template.has_thinking_switch());
        let turned = |thinking| {
            let options = ChatOptions {
                thinking,
                ..ChatOptions::default()
            };
            template.render(&[user("hi")], &options).text
        };
        assert_eq!([None, Some(true), Some(false)].map(turned), ["", "True", "False"]);
    }
    let fixed = template(
        Some("{% set thinking = 1 %}{{ thinking }}{{ messages[0].thinking }}"),
        Fallback::ChatMl,
        false,
    );
    assert!(!fixed.has_thinking_switch());
    assert!(!template(None, Fallback::ChatMl, false).has_thinking_switch());
}

#[test]
fn past_thinking_goes_where_the_template_looks_for_it() {
    let messages = [user("q"), thought("\n\nyes", "\nhmm\n"), user("next")];
    let each = "{% for m in messages %}[{{ m.content }}{{ '|' ~ m.reasoning_content if m.reasoning_content }}]{% endfor %}";
    assert_eq!(text(each, &messages), "[q][yes|hmm][next]");
    let other = each.replace("m.reasoning_content", "m['thinking']");
    assert_eq!(text(&other, &messages), "[q][yes|hmm][next]");
    let strips = "{% for m in messages %}[{{ m.content.split('</think>')[-1] | trim }}]{% endfor %}";
    assert_eq!(text(strips, &messages), "[q][yes][next]");
    let keeps = "{% for m in messages %}[{{ m.content }}]{% endfor %}{# knows </think> #}";
    assert_eq!(text(keeps, &messages), "[q][<think>\nhmm\n</think>\n\nyes][next]");
    let ignorant = "{% for m in messages %}[{{ m.content }}]{% endfor %}";
    assert_eq!(text(ignorant, &messages), "[q][yes][next]");
}

#[test]
fn an_answer_is_taken_apart_for_the_history() {
    use mlx_chat::text::spans::{Span, Spanned};
    let mut answer = Spanned::default();
    for (span, marker, text) in [
        (Span::Thinking, true, "<think>"),
        (Span::Thinking, false, "hmm"),
        (Span::Thinking, true, "</think>"),
        (Span::Answer, false, "Yes. "),
        (Span::ToolCall, true, "<tool_call>"),
        (Span::ToolCall, false, "{}"),
        (Span::ToolCall, true, "</tool_call>"),
        (Span::Answer, true, "<|END_RESPONSE|>"),
    ] {
        answer.push(span, marker, text);
    }
    let message = Message::answer(&answer);
    assert_eq!(
        (message.role, message.content.as_str()),
        (Role::Assistant, "Yes. <tool_call>{}</tool_call>")
    );
    assert_eq!(message.reasoning_content.as_deref(), Some("hmm"));
    assert_eq!(Message::answer(&"plain".into()), assistant("plain"));
}

#[test]
fn tests_answer_as_pythons_do() {
    let source = "{{ [none is iterable, 'a' is iterable, {} is iterable, 1 is iterable, tools is iterable] }}\
        {{ ['a' is sequence, {} is sequence, [] is sequence, none is sequence, 1 is sequence] }}\
        {% if tools is iterable and tools | length > 0 %}tools{% endif %}";
    let expected = "[False, True, True, False, False][True, True, True, False, False]";
    assert_eq!(text(source, &[]), expected);
}

#[test]
fn a_template_that_shows_no_message_is_told_of() {
    let noted = |source: &str, messages: &[Message]| {
        let rendered = render(source, messages);
        assert!(!rendered.replaced, "{rendered:?}");
        rendered.note
    };
    let said = |note: Option<String>| note.expect("a note");
    assert!(said(noted("Answer:", &[user("hi")])).contains("leaves out the last message"));
    let first = "{{ messages[0].content }}";
    assert!(said(noted(first, &[user("one"), assistant("two"), user("three")])).contains("last message"));
    let users = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}";
    assert!(said(noted(users, &[system("be brief"), user("hi")])).contains("the system message"));
    // What is changed on the way, or says nothing, is no matter.
    let changed = "{% for m in messages %}{{ m.content | replace('h', '1') | upper }}{% endfor %}";
    assert_eq!(noted(changed, &[system("hh"), user("hi")]), None);
    assert_eq!(noted("Answer:", &[user(" \n")]), None);
}

#[test]
fn without_a_template_an_answer_ends_where_the_model_writes_the_next_turn() {
    let rendered = template(None, Fallback::Plain, false).render(&[user("hi")], &ChatOptions::default());
    let mut stops = StopStrings::new(
        &rendered
            .stop
            .iter()
            .map(|&text| text.to_owned())
            .collect::<Vec<_>>(),
    )
    .unwrap();
    let scan = stops.push(" Hello.\n\nuser: And you?");
    assert_eq!((scan.text.as_str(), scan.stopped.is_some()), (" Hello.", true));
    assert!(
        rendered
            .note
            .unwrap()
            .contains("end where the model writes the next `user:`")
    );
    assert!(render("{{ messages[0].content }}", &[user("hi")]).stop.is_empty());
}
