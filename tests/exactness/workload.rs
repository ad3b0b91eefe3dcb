//! Random requests, and what each of them hears alone.

use std::collections::HashMap;

use mlx_chat::cache::KvSchemes;
use mlx_chat::engine::options::PromptCacheLimit;
use mlx_chat::engine::{EngineHandle, EngineOptions, Event, Finish, FinishReason, Prompt, Request};
use mlx_chat::sampling::Sampling;

use crate::support::{Dice, Heard, engine_with, options, request, run};
use crate::tiny::{load_tiny, load_tiny_holding};

/// Ids below this are known to every tiny model.
pub const IDS: usize = 320;

/// What a consumer heard, with the bits of the log-probabilities.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    pub tokens: Vec<(u32, Option<u32>)>,
    pub finish: Finish,
}

impl Said {
    pub fn of(heard: &Heard) -> Self {
        let tokens = heard.events.iter().filter_map(|event| match event {
            Event::Token { token, logprob, .. } => Some((*token, logprob.map(f32::to_bits))),
            _ => None,
        });
        Self {
            tokens: tokens.collect(),
            finish: heard.end().clone(),
        }
    }

    /// Panics unless this is what the request says alone, or, if it was cancelled, a beginning of it.
    pub fn assert_as(&self, alone: &Self, what: &str) {
        let end = if self.finish.reason == FinishReason::Cancelled {
            self.tokens.len().min(alone.tokens.len())
        } else {
            assert_eq!(
                self.finish.reason, alone.finish.reason,
                "{what}: {:?}",
                self.finish.message
            );
            alone.tokens.len()
        };
        let differs = (0..end).find(|&at| self.tokens.get(at) != alone.tokens.get(at));
        assert!(
            differs.is_none() && self.tokens.len() == end,
            "{what}: {} tokens, {} alone; they differ at {differs:?}: {:?} is {:?} alone",
            self.tokens.len(),
            alone.tokens.len(),
            differs.and_then(|at| self.tokens.get(at)),
            differs.and_then(|at| alone.tokens.get(at)),
        );
    }
}

/// An engine over a tiny model, on so many threads.
pub fn engine_of(name: &'static str, threads: usize, options: EngineOptions) -> EngineHandle {
    engine_with(options, move || load_tiny(name, Some(threads)))
}

/// What requests say alone: each in a fresh engine with one thread that reads each step before the next.
pub struct Alone {
    name: &'static str,
    kv: KvSchemes,
    known: HashMap<String, Said>,
}

impl Alone {
    pub fn new(name: &'static str) -> Self {
        Self::holding(name, KvSchemes::default())
    }

    /// With keys and values held as asked.
    pub fn holding(name: &'static str, kv: KvSchemes) -> Self {
        Self {
            name,
            kv,
            known: HashMap::new(),
        }
    }

    pub fn says(&mut self, request: &Request) -> Said {
        let request = Request {
            session: None,
            cache: true,
            cancel_after_tokens: None,
            ..request.clone()
        };
        let said = self.known.entry(format!("{request:?}")).or_insert_with(|| {
            let options = EngineOptions {
                prompt_cache: PromptCacheLimit::Off,
                pipeline: false,
                ..options()
            };
            let (name, kv) = (self.name, self.kv.clone());
            let engine = engine_with(options, move || load_tiny_holding(name, 1, kv));
            Said::of(&run(&engine, vec![(0, request)])[0])
        });
        said.clone()
    }
}

/// Lengths around what is cut, grown or paged by, and any others up to 900.
fn length(dice: &mut Dice) -> usize {
    const EDGES: [usize; 12] = [1, 2, 3, 31, 32, 33, 64, 255, 256, 257, 512, 513];
    match dice.below(3) {
        0 => EDGES[dice.below(EDGES.len())],
        1 => 1 + dice.below(80),
        _ => 1 + dice.below(900),
    }
}

/// A prompt that often begins as one of those before it does.
fn prompt(dice: &mut Dice, before: &[Vec<u32>]) -> Vec<u32> {
    if before.is_empty() || dice.below(3) > 0 {
        let length = length(dice);
        return dice.prompt(length, IDS);
    }
    let model = &before[dice.below(before.len())];
    let mut prompt = model[..dice.below(model.len() + 1)].to_vec();
    let tail = 1 + dice.below(40);
    prompt.extend(dice.prompt(tail, IDS));
    prompt
}

pub fn sampling(dice: &mut Dice) -> Sampling {
    let mut sampling = Sampling::default();
    if dice.below(2) == 0 {
        return sampling;
    }
    sampling.temperature = 0.5 + dice.below(3) as f32;
    sampling.seed = Some(dice.below(1000) as u64);
    match dice.below(4) {
        0 => sampling.top_p = 0.9,
        1 => sampling.top_k = 20,
        2 => sampling.min_p = 0.01,
        _ => {}
    }
    sampling
}

/// `count` requests at random steps.
pub fn random(dice: &mut Dice, count: usize) -> Vec<(u64, Request)> {
    let mut prompts = Vec::new();
    let mut workload = Vec::new();
    for number in 0..count {
        let prompt = prompt(dice, &prompts);
        prompts.push(prompt.clone());
        let max_tokens = 1 + dice.below(40);
        let request = Request {
            sampling: sampling(dice),
            session: (dice.below(2) == 0).then(|| format!("session {number}")),
            cancel_after_tokens: (dice.below(6) == 0).then(|| 1 + dice.below(max_tokens)),
            cache: dice.below(8) > 0,
            logprobs: dice.below(4) > 0,
            ..request(&prompt, max_tokens)
        };
        workload.push((dice.below(60) as u64, request));
    }
    workload
}

/// The next turns of those that have a session: the first one's prompt, its answer, and more.
pub fn follow_ups(dice: &mut Dice, workload: &[(u64, Request)], heard: &[Heard]) -> Vec<(u64, Request)> {
    let mut next = Vec::new();
    for ((_, first), heard) in workload.iter().zip(heard) {
        let Prompt::Tokens(prompt) = &first.prompt else {
            continue;
        };
        if first.session.is_none() || prompt.len() > 900 {
            continue;
        }
        let mut prompt = prompt.clone();
        prompt.extend(&heard.tokens);
        let more = 1 + dice.below(30);
        prompt.extend(dice.prompt(more, IDS));
        let turn = Request {
            session: first.session.clone(),
            sampling: sampling(dice),
            logprobs: true,
            ..request(&prompt, 1 + dice.below(20))
        };
        next.push((dice.below(20) as u64, turn));
    }
    next
}
