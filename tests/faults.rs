//! A kernel that panics ends what it computed for, with its name, and nothing else.
//!
//! Faults are kept for the whole process, so that all tests here are one engine after another.

#[path = "support/engine.rs"]
#[allow(dead_code, reason = "made for workloads of all kinds")]
mod support;
#[path = "support/tiny.rs"]
#[allow(dead_code, reason = "made for models fed by hand, too")]
mod tiny;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use mlx_chat::cache::{CachePlan, Layers};
use mlx_chat::engine::options::{MixedPrefill, PromptCacheLimit};
use mlx_chat::engine::{
    Consumer, ConsumerError, EngineHandle, EngineOptions, Event, FinishReason, Flow, Request, RequestId,
};
use mlx_chat::model::{Feed, LanguageModel, Loaded, ModelError, ModelInfo, MostLikely};
use mlx_chat::nn::kernels::Node;
use mlx_rs::{Array, Dtype};
use support::{Dice, Heard, engine_with, options, request, run, run_through};
use tiny::load_tiny;

/// Which run of which node panics, counted from 0.
#[derive(Debug, Clone)]
enum Fails {
    Never,
    Prefill(usize),
    Step(usize),
    /// Once this many tokens were delivered.
    StepAfter(usize, Arc<Delivered>, u32),
}

/// Counts tokens that consumers have heard.
#[derive(Debug, Default)]
struct Delivered {
    tokens: Mutex<u32>,
    more: Condvar,
}

impl Delivered {
    fn wait_for(&self, tokens: u32) {
        let heard = self.tokens.lock().unwrap();
        let enough = self.more.wait_while(heard, |heard| *heard < tokens);
        drop(enough.unwrap());
    }
}

struct Counting {
    delivered: Arc<Delivered>,
    consumer: Box<dyn Consumer>,
}

impl Consumer for Counting {
    fn deliver(&mut self, id: RequestId, event: Event) -> Result<Flow, ConsumerError> {
        let is_token = matches!(event, Event::Token { .. });
        let outcome = self.consumer.deliver(id, event);
        *self.delivered.tokens.lock().unwrap() += u32::from(is_token);
        self.delivered.more.notify_all();
        outcome
    }
}

/// Runs a workload whose faulty step panics late.
fn run_counting(
    engine: &EngineHandle,
    workload: Vec<(u64, Request)>,
    delivered: &Arc<Delivered>,
) -> Vec<Heard> {
    run_through(engine, workload, |consumer| {
        let delivered = Arc::clone(delivered);
        Box::new(Counting { delivered, consumer })
    })
}

/// A tiny model with one node more behind each forward.
struct Faulty {
    model: Box<dyn LanguageModel>,
    prefill: Node,
    step: Node,
}

/// Copies float32, but panics at one run, after `wait`.
fn node(name: &str, fails: Option<usize>, wait: impl Fn() + Send + Sync + 'static) -> Node {
    let runs = AtomicUsize::new(0);
    Node::new(name, move |inputs, outputs| {
        let run = runs.fetch_add(1, Ordering::Relaxed);
        if Some(run) == fails {
            wait();
            panic!("told to, at run {run}");
        }
        let input = inputs[0].as_slice::<f32>().expect("floats");
        outputs[0]
            .as_mut_slice::<f32>()
            .expect("floats")
            .copy_from_slice(input);
    })
}

impl Faulty {
    fn load(fails: Fails) -> Loaded {
        let (prefill, step, after) = match fails {
            Fails::Never => (None, None, None),
            Fails::Prefill(run) => (Some(run), None, None),
            Fails::Step(run) => (None, Some(run), None),
            Fails::StepAfter(run, delivered, tokens) => (None, Some(run), Some((delivered, tokens))),
        };
        let wait = move || {
            if let Some((delivered, tokens)) = &after {
                delivered.wait_for(*tokens);
            }
        };
        let loaded = load_tiny("llama-4bit", Some(2));
        let model = Self {
            model: loaded.model,
            prefill: node("FaultyPrefill", prefill, || ()),
            step: node("FaultyStep", step, wait),
        };
        Loaded {
            model: Box::new(model),
            ..loaded
        }
    }
}

impl LanguageModel for Faulty {
    fn info(&self) -> &ModelInfo {
        self.model.info()
    }

    fn plan(&self) -> &CachePlan {
        self.model.plan()
    }

    fn packed(&self, feed: &mut Feed<'_>) -> Result<Array, ModelError> {
        let mut hidden = self.model.packed(feed)?;
        let then = |node: &Node, x: &Array| {
            let [out] = node.apply(&[x], [(x.shape(), Dtype::Float32)]).expect("a node");
            out
        };
        // Each piece is a run of its own.
        for piece in &mut feed.pieces {
            if let Some(fence) = piece.row.arrays().first().map(|fence| (*fence).clone()) {
                piece.row.wrote(&then(&self.prefill, &fence))?;
            }
        }
        if !feed.steps.is_empty() {
            hidden = then(&self.step, &hidden);
        }
        Ok(hidden)
    }

    fn head(&self, hidden: &Array) -> Result<Array, ModelError> {
        self.model.head(hidden)
    }

    fn most_likely(&self, logits: &Array) -> Result<MostLikely, ModelError> {
        self.model.most_likely(logits)
    }
}

fn one_at_a_time() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn engine(fails: Fails, options: EngineOptions) -> EngineHandle {
    engine_with(options, move || Faulty::load(fails))
}

/// Prompts that are long enough to be cached.
fn workload(rows: usize) -> Vec<(u64, Request)> {
    let mut dice = Dice(9);
    let prompts = (0..rows).map(|_| dice.prompt(300, 320));
    prompts.map(|prompt| (0, request(&prompt, 12))).collect()
}

fn healthy(rows: usize) -> Vec<Heard> {
    let options = EngineOptions {
        prompt_cache: PromptCacheLimit::Off,
        ..options()
    };
    run(&engine(Fails::Never, options), workload(rows))
}

fn assert_failed(heard: &Heard, node: &str) {
    let message = heard.end().message.clone().unwrap_or_default();
    assert_eq!(heard.end().reason, FinishReason::Error, "{message}");
    assert!(message.contains(node) && message.contains("told to"), "{message}");
}

fn assert_cached(engine: &EngineHandle, request: &Request, tokens: usize) {
    let again = Request {
        max_tokens: 1,
        ..request.clone()
    };
    assert_eq!(run(engine, vec![(0, again)])[0].end().cached_tokens, tokens);
}

#[test]
fn a_kernel_that_panics_in_a_step_fails_the_batch_and_the_queue_goes_on() {
    let _turn = one_at_a_time();
    let expected = healthy(4);
    for pipeline in [true, false] {
        // Two rows at a time, whose tokens 0 come from one forward; of their steps, the fifth panics.
        let options = EngineOptions {
            max_batch: 2,
            pipeline,
            ..options()
        };
        let engine = engine(Fails::Step(1 + 4), options);
        let heard = run(&engine, workload(4));
        for (heard, expected) in heard.iter().zip(&expected).take(2) {
            assert_failed(heard, "FaultyStep");
            assert!(
                !heard.tokens.is_empty() && heard.tokens.len() <= 5,
                "{:?}",
                heard.tokens
            );
            assert!(
                expected.tokens.starts_with(&heard.tokens),
                "only what is right is delivered"
            );
        }
        for (heard, expected) in heard.iter().zip(&expected).skip(2) {
            assert_eq!(heard.tokens, expected.tokens);
            assert_eq!(heard.end().reason, FinishReason::Length);
        }
        // The first two found their way to no cache, the others did: all but the last token that is never fed.
        for (number, (_, request)) in workload(4).iter().enumerate() {
            assert_cached(&engine, request, if number < 2 { 0 } else { 299 });
        }
    }
}

#[test]
fn a_kernel_that_panics_over_a_prompt_fails_that_joiner_alone() {
    let _turn = one_at_a_time();
    let expected = healthy(3);
    for pipeline in [true, false] {
        // Three chunks each: the second one's last.
        let options = EngineOptions {
            prefill_chunk: Some(100),
            prefill_batch_tokens: Some(100),
            pipeline,
            ..options()
        };
        let engine = engine(Fails::Prefill(5), options);
        let heard = run(&engine, workload(3));
        assert_failed(&heard[1], "FaultyPrefill");
        assert!(heard[1].tokens.is_empty());
        for number in [0, 2] {
            assert_eq!(heard[number].tokens, expected[number].tokens);
            assert_eq!(heard[number].end().reason, FinishReason::Length);
        }
        assert_cached(&engine, &workload(3)[1].1, 0);
    }
}

#[test]
fn a_kernel_that_panics_at_token_0_fails_that_joiner_alone() {
    let _turn = one_at_a_time();
    let expected = healthy(2);
    let alone = EngineOptions {
        max_batch: 1,
        ..options()
    };
    let engine = engine(Fails::Step(0), alone);
    let heard = run(&engine, workload(2));
    assert_failed(&heard[0], "FaultyStep");
    assert!(heard[0].tokens.is_empty());
    assert_eq!(heard[1].tokens, expected[1].tokens);
}

/// The first row's third step is under way, unread, when the second row's prompt is processed.
#[test]
fn a_panic_in_the_step_under_way_is_not_laid_to_the_prompt_that_is_processed_meanwhile() {
    let _turn = one_at_a_time();
    let expected = healthy(2);
    let delivered = Arc::new(Delivered::default());
    // Token 0, then the tokens of the first two steps.
    let engine = engine(Fails::StepAfter(3, Arc::clone(&delivered), 3), options());
    let mut requests = workload(2);
    requests[1].0 = 3;
    let heard = run_counting(&engine, requests, &delivered);
    assert_failed(&heard[0], "FaultyStep");
    assert_eq!(heard[0].tokens, expected[0].tokens[..3]);
    assert_eq!(heard[1].tokens, expected[1].tokens, "{:?}", heard[1].end());
}

/// The step under way when the last row leaves is read by nobody; its panic must not end the next request.
#[test]
fn a_panic_in_a_step_that_nobody_waits_for_concerns_nobody() {
    let _turn = one_at_a_time();
    let expected = healthy(2);
    for cache in [true, false] {
        let alone = EngineOptions {
            max_batch: 1,
            ..options()
        };
        // Token 0, then four steps; the fifth is under way when the row is cancelled.
        let delivered = Arc::new(Delivered::default());
        let engine = engine(Fails::StepAfter(5, Arc::clone(&delivered), 5), alone);
        let mut requests = workload(2);
        requests[0].1.cancel_after_tokens = Some(5);
        for (_, request) in &mut requests {
            request.cache = cache;
        }
        let heard = run_counting(&engine, requests.clone(), &delivered);
        assert_eq!(heard[0].tokens, expected[0].tokens[..5]);
        assert_eq!(heard[0].end().reason, FinishReason::Cancelled);
        assert_eq!(heard[1].tokens, expected[1].tokens, "{:?}", heard[1].end());
        // What that step wrote is not trusted.
        assert_cached(&engine, &requests[0].1, 0);
    }
}

/// The second row's prompt rides along in the steps of the first one.
#[test]
fn a_panic_in_a_mixed_step_fails_the_batch_and_the_prompt_in_it_starts_again() {
    let _turn = one_at_a_time();
    let expected = healthy(2);
    for pipeline in [true, false] {
        // A step by itself for token 0; then chunks of 57 ride along from the second step on.
        for step in [3, 4, 5] {
            let options = EngineOptions {
                mixed_prefill: MixedPrefill::Tokens(64),
                pipeline,
                ..options()
            };
            let engine = engine(Fails::Step(step), options);
            let mut requests = workload(2);
            requests[1].0 = 2;
            let heard = run(&engine, requests.clone());
            assert_failed(&heard[0], "FaultyStep");
            assert!(expected[0].tokens.starts_with(&heard[0].tokens));
            assert_eq!(heard[1].tokens, expected[1].tokens, "{:?}", heard[1].end());
            assert_cached(&engine, &requests[0].1, 0);
        }
    }
}
