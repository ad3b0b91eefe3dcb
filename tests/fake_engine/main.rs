//! The scripted engine: batching, limits, ends, failures, figures.

mod batching;
mod failures;
mod figures;

use std::sync::{Arc, Mutex};

use mlx_chat::engine::fake::Fake;
use mlx_chat::engine::fake::script::{Script, ScriptError};
use mlx_chat::engine::telemetry::{EngineState, RowState, Snapshot};
use mlx_chat::engine::{
    Consumer, ConsumerError, Engine, Event, Finish, FinishReason, Flow, Prompt, Request, RequestId,
    StopReason, SubmitError,
};
use mlx_chat::text::message::{Message, Role};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

type Heard = UnboundedReceiver<(RequestId, Event)>;

fn manual(script: &str) -> Fake {
    Fake::manual(Script::parse("test", script).expect("a good script"))
}

fn text(prompt: &str, max_tokens: usize) -> Request {
    Request::new(Prompt::Text(prompt.into()), max_tokens)
}

fn ask(engine: &Fake, request: Request) -> (RequestId, Heard) {
    let (sender, receiver) = unbounded_channel();
    (engine.submit(request, Box::new(sender)).expect("taken"), receiver)
}

fn events(heard: &mut Heard) -> Vec<Event> {
    std::iter::from_fn(|| heard.try_recv().ok())
        .map(|(_, event)| event)
        .collect()
}

/// The whole text, and the end if it has come.
fn answer(heard: &mut Heard) -> (String, Option<Finish>) {
    let mut all = String::new();
    let mut end = None;
    for event in events(heard) {
        assert!(end.is_none(), "nothing follows the end");
        match event {
            Event::Token { text, .. } => all.push_str(&text),
            Event::Finish(finish) => {
                all.push_str(&finish.text);
                end = Some(finish);
            }
            Event::Note(_) | Event::Admitted { .. } | Event::Prefill { .. } => {}
        }
    }
    (all, end)
}

fn end(heard: &mut Heard) -> Finish {
    answer(heard).1.expect("it has ended")
}

fn now(engine: &Fake) -> Arc<Snapshot> {
    engine.snapshots().borrow().clone()
}

fn states(engine: &Fake) -> Vec<RowState> {
    now(engine).rows.iter().map(|row| row.state).collect()
}

const ENDLESS: &str = "[[answer]]\ntext = 'a b c'\nendless = true\n";
