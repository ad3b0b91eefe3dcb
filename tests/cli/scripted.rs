//! `run` on a scripted engine: what goes where, and what is refused.

use std::io::{BufReader, Read};

use serde_json::{Value, json};

use super::program::{Output, Program, finish};

/// Thinks, answers, and calls a tool: the markers are those of the template.
const SCRIPT: &str = r#"
tick_ms = 1

[model]
template = "<think></think><tool_call></tool_call>"
thinking_switch = SWITCH

[[answer]]
match = "weather"
pieces = ["<th", "ink>\n", "Rain", " likely.", "</think>", "\n\n", "It", " rains."]

[[answer]]
match = "long"
text = "word after word "
endless = true
"#;

fn run(program: &Program, switch: bool, args: &[&str]) -> Output {
    let script = program.file("script.toml", SCRIPT.replace("SWITCH", &switch.to_string()));
    let engine = format!("fake:{script}");
    program.run(&[&["run", "--engine", &engine], args].concat())
}

#[test]
fn the_answer_goes_to_standard_output_and_the_thoughts_to_standard_error() {
    let output = run(&Program::new(), false, &["weather?"]);
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!(output.stdout, "It rains.\n");
    assert_eq!(output.stderr, "Rain likely.\n");
}

#[test]
fn json_tells_thoughts_from_answer_and_markers_from_both() {
    let output = run(&Program::new(), false, &["--json", "weather?"]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
    let mut parts: Vec<(String, bool, String)> = Vec::new();
    for line in output.json() {
        let spans = match (line.get("spans"), line["text"].as_str()) {
            (Some(spans), _) => spans.as_array().unwrap().clone(),
            (None, text) => vec![json!({"span": "answer", "text": text.unwrap_or_default()})],
        };
        let whole: String = spans.iter().map(|span| span["text"].as_str().unwrap()).collect();
        assert_eq!(
            whole,
            line["text"].as_str().unwrap_or_default(),
            "spans are the text"
        );
        for span in spans {
            let (name, marker) = (
                span["span"].as_str().unwrap(),
                span["marker"] == Value::Bool(true),
            );
            let text = span["text"].as_str().unwrap();
            match parts.last_mut() {
                Some(last) if last.0 == name && last.1 == marker => last.2 += text,
                _ if text.is_empty() => {}
                _ => parts.push((name.into(), marker, text.into())),
            }
        }
    }
    let part = |name: &str, marker, text: &str| (name.to_owned(), marker, text.to_owned());
    let expected = [
        part("thinking", true, "<think>"),
        part("thinking", false, "\nRain likely."),
        part("thinking", true, "</think>"),
        part("answer", false, "\n\nIt rains."),
    ];
    assert_eq!(parts, expected);
}

#[test]
fn thinking_is_refused_where_the_template_has_no_switch_for_it() {
    let program = Program::new();
    for value in ["on", "off"] {
        let output = run(&program, false, &["--thinking", value, "weather?"]);
        output.fails(2, &["--thinking", "no switch"]);
        assert_eq!(output.stdout, "");
        let output = run(&program, true, &["--thinking", value, "weather?"]);
        assert_eq!(
            (output.code, output.stdout.as_str()),
            (0, "It rains.\n"),
            "{output:?}"
        );
    }
}

#[test]
fn an_answer_that_a_limit_cuts_off_is_said_to_be() {
    let program = Program::new();
    let output = run(&program, false, &["a long one"]);
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!(
        output.stderr,
        "note: the answer was cut off: it has 1024 tokens; --max-tokens allows more\n"
    );
    let output = run(&program, false, &["--max-tokens", "5", "a long one"]);
    let told = "note: the answer was cut off: it has 5 tokens; --max-tokens allows more\n";
    assert_eq!((output.code, output.stderr.as_str()), (0, told));
    let output = run(&program, false, &["--json", "--max-tokens", "5", "a long one"]);
    assert_eq!(
        (output.code, output.stderr.as_str()),
        (0, ""),
        "it is among the events"
    );
    let output = run(&program, false, &["weather?"]);
    assert!(!output.stderr.contains("cut off"), "{output:?}");
}

#[test]
fn an_engine_that_fails_to_load_or_is_no_script_is_an_error() {
    let program = Program::new();
    program
        .run(&["run", "--engine", "real", "hi"])
        .fails(2, &["--engine takes fake:SCRIPT"]);
    let script = program.file(
        "broken.toml",
        "[[loading]]\nstage = 'weights'\nfail = 'it is damaged'\n",
    );
    program
        .run(&["run", "--engine", &format!("fake:{script}"), "hi"])
        .fails(1, &["it is damaged"]);
}

#[test]
fn a_reader_who_leaves_ends_an_answer_quietly() {
    let program = Program::new();
    let script = program.file("script.toml", SCRIPT.replace("SWITCH", "false"));
    let engine = format!("fake:{script}");
    let mut child = program
        .command(&["run", "--engine", &engine, "a long one"])
        .spawn()
        .unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    reader.read_exact(&mut [0; 20]).unwrap();
    drop(reader);
    let output = finish(child);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
}
