//! An engine over a model, and workloads run to their end.

use std::collections::BTreeMap;
use std::sync::Arc;

use mlx_chat::engine::telemetry::{EngineInfo, Snapshot};
use mlx_chat::engine::{
    Consumer, Engine, EngineHandle, EngineOptions, Event, Finish, Prepared, Prompt, Request, RequestId,
    SubmitError,
};
use mlx_chat::model::Loaded;

/// Everything that one request's consumer heard.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Heard {
    /// Tokens delivered.
    pub tokens: Vec<u32>,
    /// The end, once there.
    pub finish: Option<Finish>,
    /// Events in order, without the tokens' texts.
    pub events: Vec<Event>,
}

impl Heard {
    /// The end.
    pub fn end(&self) -> &Finish {
        self.finish.as_ref().expect("the request ended")
    }
}

/// An engine over what `load` gives on the engine's thread, ready.
pub fn engine_with(options: EngineOptions, load: impl FnOnce() -> Loaded + Send + 'static) -> EngineHandle {
    let loader = Box::new(move |_: &mut dyn FnMut(mlx_chat::model::LoadProgress)| {
        let loaded = load();
        let info = EngineInfo {
            model: loaded.name.clone(),
            ..EngineInfo::default()
        };
        Ok(Prepared {
            loaded,
            codec: None,
            info,
        })
    });
    let engine = EngineHandle::spawn(options, loader).expect("a thread can be started");
    engine.wait_until_ready().expect("the model loads");
    engine
}

/// Small chunks and a fixed budget: what the tests below start from.
pub fn options() -> EngineOptions {
    EngineOptions {
        kv_budget: Some(64 << 20),
        ..EngineOptions::default()
    }
}

/// A request for ids.
pub fn request(prompt: &[u32], max_tokens: usize) -> Request {
    Request::new(Prompt::Tokens(prompt.to_vec()), max_tokens)
}

/// Runs a workload to its end; what each request heard, in the order given.
pub fn run(engine: &EngineHandle, workload: Vec<(u64, Request)>) -> Vec<Heard> {
    run_through(engine, workload, |consumer| consumer)
}

/// The same, with something between the engine and each request's consumer.
pub fn run_through(
    engine: &EngineHandle,
    workload: Vec<(u64, Request)>,
    between: impl Fn(Box<dyn Consumer>) -> Box<dyn Consumer>,
) -> Vec<Heard> {
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel::<(RequestId, Event)>();
    let with_consumers = workload
        .into_iter()
        .map(|(step, request)| (step, request, between(Box::new(sender.clone()))));
    let outcomes = engine
        .schedule(with_consumers.collect())
        .expect("the engine runs");
    drop(sender);
    let mut heard: BTreeMap<RequestId, Heard> = BTreeMap::new();
    while let Some((id, event)) = events.blocking_recv() {
        let heard = heard.entry(id).or_default();
        match &event {
            Event::Token { token, .. } => heard.tokens.push(*token),
            Event::Finish(finish) => heard.finish = Some(finish.clone()),
            Event::Note(_) | Event::Admitted { .. } | Event::Prefill { .. } => {}
        }
        heard.events.push(event);
    }
    let of = |outcome: Result<RequestId, SubmitError>| {
        heard
            .remove(&outcome.expect("valid requests"))
            .unwrap_or_default()
    };
    outcomes.into_iter().map(of).collect()
}

/// Waits for a snapshot of which `condition` is true.
pub fn wait_for(engine: &EngineHandle, condition: impl Fn(&Snapshot) -> bool) -> Arc<Snapshot> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let mut snapshots = engine.snapshots();
    runtime.block_on(async {
        let limit = std::time::Duration::from_secs(60);
        let found = tokio::time::timeout(limit, snapshots.wait_for(|snapshot| condition(snapshot))).await;
        found
            .expect("the engine gets there")
            .expect("the engine publishes")
            .clone()
    })
}

/// Numbers that look random and are the same everywhere (splitmix64).
pub struct Dice(pub u64);

impl Dice {
    /// The next number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) % limit as u64).expect("small")
    }

    /// A prompt of `length` ids below `vocabulary`.
    pub fn prompt(&mut self, length: usize, vocabulary: usize) -> Vec<u32> {
        (0..length)
            .map(|_| u32::try_from(self.below(vocabulary)).expect("small"))
            .collect()
    }
}
