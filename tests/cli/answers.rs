//! Texts through a replay: stop strings, messages, raw text, held-back characters.

use clap::Parser;
use mlx_chat::cli::args::AnswerArgs;
use mlx_chat::sampling::Sampling;
use serde_json::{Value, json};

use super::model::with_tokenizer;
use super::program::Program;

fn messages() -> Value {
    json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello?"}])
}

/// A request whose answer is noise, of 48 tokens, the same each time.
fn line(id: &str) -> Value {
    json!({"id": id, "messages": messages(), "max_tokens": 48, "ignore_eos": true})
}

#[test]
fn a_stop_string_ends_the_answer_before_it_and_is_never_shown() {
    let program = Program::new();
    let model = with_tokenizer(&program);
    let whole = program.replay(&model, &[line("a")], &[]).text("a");
    let letters: Vec<char> = whole.chars().collect();
    assert!(letters.len() > 24, "{whole:?}");
    let stop: String = letters[12..16].iter().collect();
    let before = &whole[..whole.find(&stop).unwrap()];
    for flags in [&[][..], &["--no-pipeline"]] {
        let mut stopped = line("a");
        stopped["stop"] = json!(["never in there", stop]);
        let replayed = program.replay(&model, &[stopped], flags);
        assert_eq!(replayed.text("a"), before);
        let finish = replayed.finish("a");
        assert_eq!(
            (&finish["reason"], &finish["stop_reason"]),
            (&json!("stop"), &json!("stop_string"))
        );
        assert!(finish["generated_tokens"].as_u64().unwrap() < 48);
        // Nor piece by piece: no delivered text runs into it.
        let id = json!("a");
        let mut shown = String::new();
        for token in replayed.events("token", &id) {
            shown += token["text"].as_str().unwrap();
            assert!(before.starts_with(&shown), "{shown:?} is more than {before:?}");
        }
    }
}

#[test]
fn a_stop_string_that_does_not_come_changes_no_text() {
    let program = Program::new();
    let model = with_tokenizer(&program);
    let whole = program.replay(&model, &[line("a")], &[]).text("a");
    let last: String = whole
        .chars()
        .rev()
        .take(2)
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .collect();
    let mut held = line("a");
    // The answer's end may be the beginning of a stop string: it is held back, and delivered at the end.
    held["stop"] = json!([format!("{last}\u{1}\u{2}")]);
    let replayed = program.replay(&model, &[held], &[]);
    assert_eq!(replayed.text("a"), whole);
    assert!(replayed.finish("a")["text"].as_str().unwrap().ends_with(&last));
}

#[test]
fn rendered_messages_as_raw_text_or_as_ids_are_the_same_prompt() {
    let program = Program::new();
    let model = with_tokenizer(&program);
    let rendered = "<system>Be brief.</s><user>Hello?</s><assistant>";
    let mut ids: Vec<u32> = Vec::new();
    for (at, piece) in rendered.split("</s>").enumerate() {
        ids.extend((at > 0).then_some(257));
        ids.extend(piece.bytes().map(u32::from));
    }
    let with = |prompt: Value| json!({"id": "a", "prompt": prompt, "max_tokens": 48, "ignore_eos": true});
    let [chat, raw, tokens] =
        [line("a"), with(json!(rendered)), with(json!(ids))].map(|line| program.replay(&model, &[line], &[]));
    for replayed in [&chat, &raw, &tokens] {
        assert_eq!(replayed.finish("a")["prompt_tokens"], ids.len());
    }
    assert_eq!(chat.tokens("a"), raw.tokens("a"));
    assert_eq!(chat.tokens("a"), tokens.tokens("a"));
    assert_eq!(chat.text("a"), tokens.text("a"));
}

#[test]
fn the_end_token_ends_an_answer_and_is_not_delivered() {
    let program = Program::new();
    let model = with_tokenizer(&program);
    let whole = program.replay(&model, &[line("a")], &[]).tokens("a");
    // Any token of its own answer can be the model's EOS.
    let eos = whole[5];
    let first = whole.iter().position(|token| *token == eos).unwrap();
    let generation = std::path::Path::new(&model).join("generation_config.json");
    std::fs::write(generation, json!({"eos_token_id": [eos]}).to_string()).unwrap();
    let mut ends = line("a");
    ends["ignore_eos"] = json!(false);
    let replayed = program.replay(&model, &[ends, line("b")], &[]);
    assert_eq!(replayed.tokens("a"), whole[..first]);
    let finish = replayed.finish("a");
    assert_eq!(
        (&finish["reason"], &finish["stop_reason"]),
        (&json!("stop"), &json!("eos"))
    );
    assert_eq!(finish["generated_tokens"], first + 1);
    assert_eq!(replayed.tokens("b"), whole);
}

#[test]
fn draws_follow_the_seed_whatever_else_is_in_the_batch() {
    let program = Program::new();
    let model = with_tokenizer(&program);
    let drawn = |id: &str, seed: u64| {
        let mut line = line(id);
        line["sampling"] = json!({"temperature": 1.5, "seed": seed});
        line
    };
    let alone = program.replay(&model, &[drawn("a", 7)], &[]);
    let among = program.replay(&model, &[line("g"), drawn("b", 8), drawn("a", 7)], &[]);
    assert_eq!(alone.tokens("a"), among.tokens("a"));
    assert_ne!(among.tokens("a"), among.tokens("b"));
}

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    answer: AnswerArgs,
}

#[test]
fn what_flags_say_of_sampling_wins_over_what_is_recommended() {
    let recommended = Sampling {
        temperature: 0.6,
        top_p: 0.9,
        top_k: 20,
        min_p: 0.1,
        seed: None,
    };
    let sampling = |said: &[&str]| {
        let line = Line::try_parse_from(["line"].iter().chain(said)).unwrap();
        line.answer.sampling(recommended)
    };
    assert_eq!(sampling(&[]).unwrap(), recommended);
    let said = sampling(&["--temperature", "0", "--top-k", "0", "--seed", "7"]).unwrap();
    let expected = Sampling {
        temperature: 0.0,
        top_k: 0,
        seed: Some(7),
        ..recommended
    };
    assert_eq!(said, expected);
    assert!(sampling(&["--temperature", "-1"]).is_err());
}
