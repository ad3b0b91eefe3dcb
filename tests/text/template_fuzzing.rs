//! Damaged templates and messages: no panic, no hang, no outsized allocation. For long:
//!
//! ```sh
//! ulimit -v 16777216
//! MLX_CHAT_FUZZ_SECONDS=600 cargo test --test text fuzzing
//! ```

use std::sync::Arc;

use mlx_chat::text::message::{ChatOptions, Message, Role};
use mlx_chat::text::spans::{Markup, Spanned};
use mlx_chat::text::template::{ChatTemplate, Fallback, Specials};

use crate::fuzz::fuzz;

/// Parts the template from the messages, and those from each other.
const PART: char = '\x1e';

/// Templates with messages; each uses what real ones do.
const SEEDS: &[&str] = &[
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}\x1ebe brief\x1ehi\x1eyes",
    "{%- set ns = namespace(last=-1, on=true) %}{%- for m in messages[::-1] %}{%- set i = messages|length - 1 - loop.index0 %}\
     {%- if ns.on and m.role == 'user' and not(m.content.startswith('<t>') and m.content.endswith('</t>')) %}\
     {%- set ns.on = false %}{%- set ns.last = i %}{%- endif %}{%- endfor %}{{ ns.last }}\
     {{ messages[-1].content.split('</think>')[0].rstrip('\n').split('<think>')[-1] }}\x1e\x1ea\x1e<think>b</think>c",
    "{% macro show(x, depth=0) %}{% if x is mapping %}{% for k, v in x|dictsort %}{{ k ~ '=' }}{{ show(v, depth + 1) }}{% endfor %}\
     {% elif x is string %}{{ x|upper }}{% elif x is iterable and x is not mapping %}{{ x|join(', ') }}{% else %}{{ '%05d' % 7 }}\
     {% endif %}{% endmacro %}{{ show(messages) }}{{ messages|map(attribute='role')|list|tojson(indent=4) }}\
     {{ tools|tojson(sort_keys=true, separators=(',', ':')) if tools }}\x1es\x1eu\x1ea",
    "{{ strftime_now('%d %b %Y') }}{% if messages[0]['content'] == 'x' %}{{ raise_exception('no: ' + messages[0].role) }}{% endif %}\
     {% generation %}{{ 'a' * 3 + messages[0].content[1:-1:2] }}{% endgeneration %}{{ range(0, 9, 2)|sum // 2 }}\
     {% for x in [1, 2, 3] if x is odd %}{{ loop.previtem or '' }}{{ loop.cycle('a', 'b') }}{% break %}{% endfor %}\x1ehello",
    "[THINK]{{ messages|selectattr('role', 'equalto', 'user')|list|length }}[/THINK]{{ messages[0].content.replace('a', 'bb')\
     .partition('b')[2].rsplit(None, 1)|last }}<|channel|>{{ '{:>8}'.format('x') }}<|message|>{% set x %}b{% endset %}{{ x * 2 }}\x1eaaa\x1ex y",
    "{% for m in messages %}{% if m.role == 'tool' %}{{ '%s=%(a)03d' % {'a': 3} }}{% elif m.tool_calls %}{{ m.tool_calls|tojson }}{% endif %}\
     {{ m.content.ljust(9, '.')|urlencode }}{% endfor %}{{ '%s:%-4d|' % ('x', [1, 2].index(2)) ~ 'a'.zfill(3).center(8) }}\
     \x1es\x1eu\x1ea <tool_call>{\"name\": \"f\", \"arguments\": {\"b\": 1}}</tool_call>\x1eresult",
];

fn renders(input: &[u8]) -> bool {
    let text = String::from_utf8_lossy(input);
    let mut parts = text.split(PART);
    let source = parts.next().unwrap_or_default();
    let roles = [Role::System, Role::User, Role::Assistant, Role::Tool]
        .into_iter()
        .cycle();
    let messages: Vec<Message> = parts
        .zip(roles)
        .map(|(text, role)| Message::new(role, text))
        .collect();
    let clock = || jiff::civil::date(2031, 2, 3).at(4, 5, 6, 0).in_tz("UTC").unwrap();
    let template = ChatTemplate::new(
        Some(source),
        Specials::default(),
        Fallback::ChatMl,
        Arc::new(clock),
    );
    let options = ChatOptions {
        thinking: Some(true),
        tools: vec![serde_json::json!({"function": {"name": "a", "parameters": {"x": [1, 2.5, null]}}})],
        ..ChatOptions::default()
    };
    let rendered = template.render(&messages, &options);
    // What came out is as good as an answer to take apart: in two pieces it is what it is in one.
    let markup = Markup::of_template(source);
    let scan = |pieces: &[&str]| {
        let mut scanner = markup.scanner(source);
        let mut all = Spanned::default();
        pieces.iter().for_each(|piece| all.append(&scanner.push(piece)));
        all.append(&scanner.finish());
        all
    };
    let (one, two) = rendered
        .text
        .split_at(rendered.text.floor_char_boundary(rendered.text.len() / 2));
    let whole = scan(&[&rendered.text]);
    assert_eq!(whole.as_str(), rendered.text);
    assert_eq!(whole, scan(&[one, two]));
    rendered.note.is_none()
}

#[test]
fn templates_of_all_kinds_neither_panic_nor_run_for_ever() {
    let seeds: Vec<&[u8]> = SEEDS.iter().map(|seed| seed.as_bytes()).collect();
    fuzz("template", &seeds, renders);
}
