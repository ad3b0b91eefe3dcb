//! An answer of the default model that was cut off goes on as it would have with a larger limit, to the token.

use std::path::Path;

use mlx_chat::chat::Store;
use mlx_chat::engine::telemetry::EngineInfo;
use mlx_chat::engine::{
    Begun, Engine, EngineHandle, EngineOptions, Event, FinishReason, Prepared, Prompt, Request, RequestId,
};
use mlx_chat::model::{LoadOptions, load};
use mlx_chat::text::Codec;
use mlx_chat::text::message::{Message, Role};
use serde_json::json;

use crate::program::Program;
use crate::screen::Start;
use crate::support::default_model;

const PROMPT: &str = "Tell me about the sea, and why it is salty.";

fn engine() -> EngineHandle {
    let path = default_model();
    let loader = Box::new(move |progress: &mut dyn FnMut(mlx_chat::model::LoadProgress)| {
        Ok(Prepared {
            loaded: load(&path, &LoadOptions::default(), progress).map_err(|error| error.to_string())?,
            codec: Codec::open(&path).map_err(|error| error.to_string())?,
            info: EngineInfo::default(),
        })
    });
    let options = EngineOptions {
        kv_budget: Some(256 << 20),
        ..EngineOptions::default()
    };
    let engine = EngineHandle::spawn(options, loader).unwrap();
    engine.wait_until_ready().unwrap();
    engine
}

/// The tokens and the text of an answer at temperature 0, which the limit ends.
fn answer(engine: &EngineHandle, cache: bool, begun: Option<Begun>, max_tokens: usize) -> Begun {
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel::<(RequestId, Event)>();
    let request = Request {
        begun: begun.map(Box::new),
        session: cache.then(|| "s".into()),
        cache,
        ..Request::new(
            Prompt::Messages(vec![Message::new(Role::User, PROMPT)]),
            max_tokens,
        )
    };
    engine.submit(request, Box::new(sender)).unwrap();
    let mut said = Begun::default();
    while let Some((_, event)) = events.blocking_recv() {
        match event {
            Event::Token { token, text, .. } => {
                said.tokens.push(token);
                said.text.push_str(text.as_str());
            }
            Event::Finish(finish) => {
                assert_eq!(finish.reason, FinishReason::Length, "{:?}", finish.message);
                return said;
            }
            _ => {}
        }
    }
    panic!("it has no end");
}

#[test]
fn an_answer_of_the_default_model_that_was_cut_goes_on_to_the_token() {
    const TOKENS: usize = 48;
    let engine = engine();
    let whole = answer(&engine, false, None, TOKENS);
    assert_eq!(whole.tokens.len(), TOKENS);
    // With the prompt cache, what is held goes on; without it, the whole beginning is read anew.
    for cache in [true, false] {
        for cut in [1, 9, 30, TOKENS - 1] {
            let first = answer(&engine, cache, None, cut);
            assert_eq!(first.tokens, whole.tokens[..cut], "cut at {cut}");
            let rest = answer(&engine, cache, Some(first), TOKENS - cut);
            assert_eq!(rest.tokens, whole.tokens[cut..], "cut at {cut}, cache {cache}");
        }
    }
}

/// The tokens of the one conversation's answer, and its text.
fn kept(home: &Path) -> (Vec<u32>, String) {
    let store = Store::at(&home.join("state/mlx-chat"));
    let [summary] = &store.list().unwrap().sessions[..] else {
        panic!("one conversation");
    };
    let conversation = store.load(summary.session).unwrap();
    let turn = &conversation.turns[0];
    (turn.tokens.ids.clone(), turn.answer.as_str().to_owned())
}

#[test]
fn on_the_screen_it_goes_on_to_the_token_even_after_leaving_and_coming_back() {
    let model = default_model();
    let program = Program::new();
    let line = json!({"id": "whole", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 24});
    let whole = program.replay(&model.display().to_string(), &[line], &[]);
    let home = tempfile::tempdir().unwrap();
    let start = || {
        Start::model(&model)
            .home(home.path())
            .argument("--panes=1")
            .argument("--temperature=0")
            .argument("--max-tokens=8")
    };
    let mut screen = start().open();
    screen.wait_for("ready");
    screen.send(&format!("{PROMPT}\r"));
    screen.wait_for("Alt-n has the answer go on");
    screen.send("\x1bn"); // Alt-n
    screen.wait_for("16 tokens in");
    screen.quit();
    let (tokens, _) = kept(home.path());
    assert_eq!(tokens.len(), 16);
    let mut screen = start().argument("--resume").open();
    screen.wait_for("ready");
    screen.wait_for("16 tokens in");
    screen.send("/continue\r");
    screen.wait_for("24 tokens in");
    screen.quit();
    let (tokens, text) = kept(home.path());
    let tokens: Vec<u64> = tokens.into_iter().map(u64::from).collect();
    assert_eq!(tokens, whole.tokens("whole"));
    assert_eq!(text, whole.text("whole"));
}
