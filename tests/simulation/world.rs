//! What is simulated over.

use mlx_chat::cache::{CachePlan, KvLayout, KvSchemes};
use mlx_chat::engine::Request;
use mlx_chat::model::hashing::{HashingLayer, HashingModel, HashingOptions};
use mlx_chat::model::{LanguageModel, Loaded};
use mlx_chat::nn::Backend;

use crate::support::Dice;
use crate::tiny::load_tiny_holding;
use crate::workload::{Alone, Said};

/// Tokens with the bits of their log-probabilities.
pub type Tokens = Vec<(u32, Option<u32>)>;

/// A prompt with this token fails, where the model is told so. Prompts have it for no other reason.
pub const POISON: u32 = 62;

/// A model, and what a request says to it alone.
pub trait World {
    fn name(&self) -> String;

    /// Loads it on the engine's thread.
    fn loader(&self) -> Box<dyn FnOnce() -> Loaded + Send>;

    /// What a request says alone: all of it, whoever cancels it.
    fn alone(&mut self, request: &Request, prompt: &[u32]) -> Tokens;

    /// Prompts are made of ids below this.
    fn vocabulary(&self) -> usize;

    /// Requests of a wave.
    fn requests(&self) -> usize;

    /// The most tokens of most prompts.
    fn prompt(&self) -> usize;

    /// Whether draws and log-probabilities are known of a request alone.
    fn samples(&self) -> bool;

    /// Whether forwards are told to fail.
    fn fails(&self) -> bool;

    /// Whether prompts with [`POISON`] fail.
    fn poisoned(&self) -> bool;

    /// Whether prompts must be fed whole: what one forward appends to an empty quantized layer attends in full.
    fn whole_prompts(&self) -> bool {
        false
    }

    /// How large its caches get.
    fn plan(&self) -> &CachePlan;
}

struct Hashing {
    options: HashingOptions,
    plan: CachePlan,
}

/// A hashing model: in some rounds forwards fail, or some prompts do.
pub fn hashing(seed: u64, layout: KvLayout, layers: &[HashingLayer]) -> Box<dyn World> {
    let mut dice = Dice(seed ^ 0x5EED);
    Backend::Cpu.enter();
    let mut often = |one_in: usize, below: usize| (dice.below(one_in) == 0).then(|| dice.below(below) as u64);
    let options = HashingOptions {
        layout,
        layers: layers.to_vec(),
        eos_one_in: 40,
        fail_decode: often(4, 120),
        fail_prefill: often(4, 60),
        poison: often(3, 1).map(|_| POISON),
        ..HashingOptions::default()
    };
    let plan = HashingModel::new(options.clone()).plan().clone();
    Box::new(Hashing { options, plan })
}

impl World for Hashing {
    fn name(&self) -> String {
        format!("{:?}", self.options)
    }

    fn loader(&self) -> Box<dyn FnOnce() -> Loaded + Send> {
        let options = self.options.clone();
        Box::new(move || {
            Backend::Cpu.enter();
            let model = HashingModel::new(options);
            Loaded {
                eos: model.eos().into_iter().collect(),
                model: Box::new(model),
                name: "hashing".into(),
            }
        })
    }

    fn alone(&mut self, request: &Request, prompt: &[u32]) -> Tokens {
        let model = HashingModel::new(self.options.clone());
        let mut tokens = model.continuation(prompt, request.max_tokens);
        if tokens.last().copied() == model.eos() {
            tokens.pop();
        }
        tokens.into_iter().map(|token| (token, None)).collect()
    }

    fn vocabulary(&self) -> usize {
        POISON as usize
    }

    fn requests(&self) -> usize {
        14
    }

    fn prompt(&self) -> usize {
        60
    }

    fn samples(&self) -> bool {
        false
    }

    fn fails(&self) -> bool {
        self.options.fail_decode.is_some() || self.options.fail_prefill.is_some()
    }

    fn poisoned(&self) -> bool {
        self.options.poison.is_some()
    }

    fn plan(&self) -> &CachePlan {
        &self.plan
    }
}

/// One of the oracle's models, by kernels.
pub struct Tiny {
    name: &'static str,
    kv: KvSchemes,
    plan: CachePlan,
    alone: Alone,
}

impl Tiny {
    pub fn new(name: &'static str) -> Self {
        Self::holding(name, KvSchemes::default())
    }

    /// With keys and values held as asked.
    pub fn holding(name: &'static str, kv: KvSchemes) -> Self {
        Self {
            name,
            plan: load_tiny_holding(name, 1, kv.clone()).model.plan().clone(),
            alone: Alone::holding(name, kv.clone()),
            kv,
        }
    }
}

impl World for Tiny {
    fn name(&self) -> String {
        format!("{}, {:?}", self.name, self.kv.uniform)
    }

    fn loader(&self) -> Box<dyn FnOnce() -> Loaded + Send> {
        let (name, kv) = (self.name, self.kv.clone());
        Box::new(move || load_tiny_holding(name, 2, kv))
    }

    fn alone(&mut self, request: &Request, _: &[u32]) -> Tokens {
        let Said { tokens, .. } = self.alone.says(request);
        tokens
    }

    fn vocabulary(&self) -> usize {
        crate::workload::IDS
    }

    fn requests(&self) -> usize {
        9
    }

    fn prompt(&self) -> usize {
        90
    }

    fn samples(&self) -> bool {
        true
    }

    fn fails(&self) -> bool {
        false
    }

    fn poisoned(&self) -> bool {
        false
    }

    fn whole_prompts(&self) -> bool {
        self.kv != KvSchemes::default()
    }

    fn plan(&self) -> &CachePlan {
        &self.plan
    }
}
