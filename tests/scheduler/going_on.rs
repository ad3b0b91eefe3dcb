//! An answer that was cut off by its limit goes on as it would have with a larger one.

use mlx_chat::engine::telemetry::EngineInfo;
use mlx_chat::engine::{
    Begun, Engine, EngineHandle, Event, FinishReason, Prepared, Prompt, Request, RequestId,
};
use mlx_chat::model::hashing::HashingOptions;
use mlx_chat::text::Codec;
use mlx_chat::text::message::{Message, Role};

/// A tokenizer of two tokens, `a` and `b`.
const TOKENIZER: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "normalizer": null,
    "added_tokens": [], "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
    "use_regex": true}, "post_processor": null, "decoder": {"type": "ByteLevel", "add_prefix_space": true,
    "trim_offsets": true, "use_regex": true}, "model": {"type": "BPE", "dropout": null, "unk_token": null,
    "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
    "vocab": {"a": 0, "b": 1}, "merges": []}}"#;

/// The tokens, the text and the end of an answer.
fn answer(
    engine: &EngineHandle,
    begun: Option<Begun>,
    max_tokens: usize,
) -> (Vec<u32>, String, FinishReason) {
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel::<(RequestId, Event)>();
    let request = Request {
        begun: begun.map(Box::new),
        session: Some("s".into()),
        stop: vec!["abbab".into()],
        ..Request::new(
            Prompt::Messages(vec![Message::new(Role::User, "abba")]),
            max_tokens,
        )
    };
    engine.submit(request, Box::new(sender)).unwrap();
    let (mut tokens, mut said) = (Vec::new(), String::new());
    while let Some((_, event)) = events.blocking_recv() {
        match event {
            Event::Token { token, text, .. } => {
                tokens.push(token);
                said.push_str(text.as_str());
            }
            Event::Finish(finish) => return (tokens, said + finish.text.as_str(), finish.reason),
            _ => {}
        }
    }
    panic!("it has no end");
}

fn engine() -> EngineHandle {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), TOKENIZER).unwrap();
    let codec = Codec::from_folder(folder.path()).unwrap();
    let loader = Box::new(move |_: &mut dyn FnMut(mlx_chat::model::LoadProgress)| {
        let options = HashingOptions {
            vocab_size: 2,
            ..HashingOptions::default()
        };
        let loaded = super::loaded(options);
        Ok(Prepared {
            loaded,
            codec,
            info: EngineInfo::default(),
        })
    });
    let engine = EngineHandle::spawn(super::support::options(), loader).unwrap();
    engine.wait_until_ready().unwrap();
    engine
}

#[test]
fn the_tokens_are_those_of_a_larger_limit_wherever_it_was_cut() {
    let engine = engine();
    let (whole, text, _) = answer(&engine, None, 40);
    assert!(
        whole.len() > 8 && whole.contains(&0) && whole.contains(&1),
        "{whole:?}"
    );
    for cut in 1..whole.len() {
        let (first, before, reason) = answer(&engine, None, cut);
        assert_eq!((&first[..], reason), (&whole[..cut], FinishReason::Length));
        let begun = Begun {
            tokens: first,
            text: before,
        };
        let (rest, _, _) = answer(&engine, Some(begun.clone()), 40 - cut);
        assert_eq!(rest, &whole[cut..], "cut at {cut}");
        // Where only its text is known, that is as good: these tokens are letters.
        let begun = Begun {
            tokens: Vec::new(),
            ..begun
        };
        let (rest, _, _) = answer(&engine, Some(begun), 40 - cut);
        assert_eq!(rest, &whole[cut..], "cut at {cut}, by text");
    }
    assert!(text.len() <= whole.len());
}
