//! A model without weights, for tests of whatever runs models: its logits hash every token that its cache
//! holds, position by position. A row mixed up with another, shifted, cut, doubled or read through a wrong
//! mask changes its output. Its layers may be of any kind, and its caches lie as columns or in own buffers.

mod arithmetic;
mod columns;
mod own;

use std::cell::Cell;

use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::ops::{concatenate, multiply, remainder, select};
use mlx_rs::{Array, Dtype};

use super::error::Doing;
use super::{Feed, LanguageModel, ModelError, ModelInfo, Piece};
use crate::cache::{CachePlan, KvLayout, KvScheme, KvShape, LayerPlan, Layers, RecurrentShape};
use crate::nn::Mask;
use arithmetic::{CONV, LATE, MIX, fold};
use columns::{constant, extent};
use own::OwnKernels;

/// What one layer of a [`HashingModel`] hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashingLayer {
    /// Every position: keys hold `token + 1` and values the position, one head of one feature.
    Full,
    /// The last so many positions, in the same way.
    Sliding(usize),
    /// Every position in a running hash, in halves of 16 bits, and the last two tokens as the convolution's input.
    Recurrent,
}

/// How a [`HashingModel`] behaves.
#[derive(Debug, Clone, PartialEq)]
pub struct HashingOptions {
    /// Logits per token; the last id is the end of sequence, if there is one.
    pub vocab_size: usize,
    /// One in this many contexts ends the sequence; 0: none does, and the last id is a token like others.
    pub eos_one_in: u32,
    /// The logit of the chosen token; all others lie between 0 and 1.
    pub peak: f32,
    /// The most positions it claims to take.
    pub max_positions: usize,
    /// The decode forward, counted from 0, that fails half-way.
    pub fail_decode: Option<u64>,
    /// The prefill forward, counted from 0, that fails half-way.
    pub fail_prefill: Option<u64>,
    /// Every prefill forward of this token fails half-way.
    pub poison: Option<u32>,
    /// How its caches lie: columns by MLX's operations, own buffers by kernels.
    pub layout: KvLayout,
    /// Its layers, from the first to the last.
    pub layers: Vec<HashingLayer>,
}

impl Default for HashingOptions {
    fn default() -> Self {
        Self {
            vocab_size: 64,
            eos_one_in: 0,
            peak: 8.0,
            max_positions: 4096,
            fail_decode: None,
            fail_prefill: None,
            poison: None,
            layout: KvLayout::Columns,
            layers: vec![HashingLayer::Full; 2],
        }
    }
}

/// The model.
pub struct HashingModel {
    options: HashingOptions,
    info: ModelInfo,
    plan: CachePlan,
    /// For each layer.
    kernels: Vec<OwnKernels>,
    decodes: Cell<u64>,
    prefills: Cell<u64>,
}

impl HashingModel {
    /// A model of these options; a vocabulary of at least 2.
    pub fn new(options: HashingOptions) -> Self {
        let options = HashingOptions {
            vocab_size: options.vocab_size.max(2),
            ..options
        };
        let info = ModelInfo {
            family: "hashing".to_owned(),
            layers: options.layers.len(),
            hidden: 1,
            heads: 1,
            kv_heads: 1,
            head_dim: 1,
            intermediate: 0,
            vocab_size: options.vocab_size,
            max_positions: options.max_positions,
            parameters: 0,
            quantization: "none".to_owned(),
            dtype: "uint32".to_owned(),
            device: "cpu".to_owned(),
            on_gpu: false,
            brisk_prefill: usize::MAX,
            weight_bytes: 0,
        };
        let layers: Vec<LayerPlan> = options.layers.iter().map(|&layer| planned(layer)).collect();
        let plan = match options.layout {
            KvLayout::Columns => CachePlan::new(layers),
            KvLayout::OwnBuffers => CachePlan::own_buffers(layers),
        };
        Self {
            kernels: options
                .layers
                .iter()
                .map(|&layer| OwnKernels::new(layer))
                .collect(),
            options,
            info,
            plan,
            decodes: Cell::new(0),
            prefills: Cell::new(0),
        }
    }

    /// The id that ends a sequence, if any does.
    pub fn eos(&self) -> Option<u32> {
        (self.options.eos_one_in > 0).then(|| self.last_id())
    }

    fn last_id(&self) -> u32 {
        u32::try_from(self.options.vocab_size - 1).unwrap_or(u32::MAX)
    }

    /// How many ids can be chosen but by ending the sequence.
    fn choices(&self) -> u32 {
        if self.options.eos_one_in > 0 {
            self.last_id()
        } else {
            self.last_id().saturating_add(1)
        }
    }

    /// Forwards so far: prefill chunks, decode steps.
    pub fn forwards(&self) -> (u64, u64) {
        (self.prefills.get(), self.decodes.get())
    }

    /// The token that a lone row which holds `context` is most likely to get, computed without MLX: what
    /// greedy decoding must give, whatever else runs.
    pub fn next_token(&self, context: &[u32]) -> u32 {
        let state = arithmetic::state_of(&self.options.layers, context);
        if self.options.eos_one_in > 0 && state.is_multiple_of(self.options.eos_one_in) {
            return self.last_id();
        }
        fold(state.wrapping_mul(MIX)) % self.choices()
    }

    /// The greedy continuation of `prompt`: `tokens` of them, or up to the end of sequence, which is
    /// included.
    pub fn continuation(&self, prompt: &[u32], tokens: usize) -> Vec<u32> {
        let mut context = prompt.to_vec();
        for _ in 0..tokens {
            let next = self.next_token(&context);
            context.push(next);
            if self.eos() == Some(next) {
                break;
            }
        }
        context.split_off(prompt.len())
    }
}

fn planned(layer: HashingLayer) -> LayerPlan {
    let kv = KvShape {
        heads: 1,
        key_dim: 1,
        value_dim: 1,
        dtype: Dtype::Uint32,
        scheme: KvScheme::Full,
    };
    match layer {
        HashingLayer::Full => LayerPlan::Full(kv),
        HashingLayer::Sliding(window) => LayerPlan::Sliding { kv, window },
        HashingLayer::Recurrent => LayerPlan::Recurrent(RecurrentShape {
            conv: CONV,
            conv_features: 1,
            heads: 1,
            value_dim: 1,
            key_dim: 2,
            dtype: Dtype::Uint32,
        }),
    }
}

impl LanguageModel for HashingModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn plan(&self) -> &CachePlan {
        &self.plan
    }

    fn packed(&self, feed: &mut Feed<'_>) -> Result<Array, ModelError> {
        let told = self.told_to_fail(feed);
        let tokens = feed.tokens(self.info.vocab_size)?;
        let starts = feed
            .pieces
            .iter()
            .map(Piece::start)
            .collect::<Result<Vec<_>, _>>()?;
        let failing = self.options.layers.len() / 2;
        let stop = |layer: usize| match told {
            Some(forward) if layer == failing => Err(ModelError::Told { forward }),
            _ => Ok(()),
        };
        let rows = feed.steps.iter().map(|step| step.batch.rows()).sum::<usize>();
        match self.options.layout {
            KvLayout::OwnBuffers => self.packed_own(feed, &tokens, rows, stop),
            KvLayout::Columns => self.packed_columns(feed, &starts, rows, stop),
        }
    }

    fn head(&self, state: &Array) -> Result<Array, ModelError> {
        self.logits(state)
    }
}

impl HashingModel {
    /// All in one node a layer.
    fn packed_own(
        &self,
        feed: &mut Feed<'_>,
        tokens: &Array,
        rows: usize,
        stop: impl Fn(usize) -> Result<(), ModelError>,
    ) -> Result<Array, ModelError> {
        let all = extent(rows + feed.pieces.len());
        let lens: Vec<usize> = feed.pieces.iter().map(|piece| piece.tokens.len()).collect();
        let mut state = mlx_rs::ops::zeros_dtype(&[all], Dtype::Uint32).doing("hash")?;
        for (layer, kernels) in self.kernels.iter().enumerate() {
            stop(layer)?;
            let steps = feed.steps.len();
            let mut rooms = Vec::new();
            for (at, cache) in feed.layer(layer).into_iter().enumerate() {
                let added = at.checked_sub(steps).map_or(1, |piece| lens[piece]);
                rooms.extend(cache.rooms(added)?);
            }
            let output = [(&[all][..], Dtype::Uint32)];
            [state] = kernels
                .see
                .apply(&[tokens, &state], &rooms, output)
                .doing("hash")?;
        }
        feed.wrote(&state)?;
        state.try_index(..extent(rows)).doing("hash")
    }

    /// Each step and each piece by itself.
    fn packed_columns(
        &self,
        feed: &mut Feed<'_>,
        starts: &[usize],
        rows: usize,
        stop: impl Fn(usize) -> Result<(), ModelError>,
    ) -> Result<Array, ModelError> {
        let windows = self.plan.windows();
        let mut steps: Vec<(Vec<usize>, Vec<Mask>, Array)> = Vec::new();
        for step in &feed.steps {
            let masks = Mask::each(&*step.batch, &windows, 1);
            let state = mlx_rs::ops::zeros_dtype(&[extent(step.batch.rows())], Dtype::Uint32);
            steps.push((step.batch.lengths(), masks, state.doing("hash")?));
        }
        for (layer, plan) in self.plan.layers().iter().enumerate() {
            stop(layer)?;
            let mask = windows.iter().position(|window| plan.sees() == Some(*window));
            for (step, (positions, masks, state)) in feed.steps.iter_mut().zip(&mut steps) {
                let cache = step.batch.layer(layer);
                let sum = match mask.and_then(|mask| masks.get(mask)) {
                    Some(mask) => columns::see(step.tokens, positions, cache, mask)?,
                    None => columns::run_on(step.tokens, positions, cache.recurrent(1)?)?,
                };
                *state = columns::layered(state, &sum)?;
            }
            for (piece, &start) in feed.pieces.iter_mut().zip(starts) {
                let (tokens, cache) = (piece.tokens, piece.row.layer(layer));
                match mask {
                    Some(_) => columns::write(tokens, start, cache)?,
                    None => columns::take_in(tokens, start, cache.recurrent(tokens.len())?)?,
                }
            }
        }
        let states: Vec<&Array> = steps.iter().map(|(_, _, state)| state).collect();
        match states.as_slice() {
            [] => mlx_rs::ops::zeros_dtype(&[extent(rows)], Dtype::Uint32).doing("hash"),
            [whole] => Ok((*whole).clone()),
            parts => concatenate(parts, 0).doing("hash"),
        }
    }

    /// Counts what is fed; the number of the forward that is to fail, if one is. Each piece counts as a forward.
    fn told_to_fail(&self, feed: &Feed<'_>) -> Option<u64> {
        let pieces = self.prefills.get();
        self.prefills.set(pieces + feed.pieces.len() as u64);
        let told = |told: Option<u64>, from: u64, count: u64| {
            told.filter(|told| (from..from + count).contains(told))
        };
        let poisoned = self.options.poison.is_some_and(|poison| {
            let mut tokens = feed.pieces.iter().flat_map(|piece| piece.tokens);
            tokens.any(|&token| token == poison)
        });
        let mut failing = told(self.options.fail_prefill, pieces, feed.pieces.len() as u64);
        failing = failing.or(poisoned.then_some(pieces));
        if !feed.steps.is_empty() {
            let step = self.decodes.replace(self.decodes.get() + 1);
            failing = failing.or(told(self.options.fail_decode, step, 1));
        }
        failing
    }

    /// `[B, V]` logits of `[B]` states: the chosen token at the peak, the others a hash between 0 and 1.
    fn logits(&self, state: &Array) -> Result<Array, ModelError> {
        let chosen = columns::fold(&multiply(state, constant(MIX)).doing("hash")?)?;
        let mut chosen = remainder(chosen, constant(self.choices())).doing("hash")?;
        if self.options.eos_one_in > 0 {
            let rest = remainder(state, constant(self.options.eos_one_in)).doing("hash")?;
            let ends = rest.eq(constant(0)).doing("hash")?;
            chosen = select(ends, constant(self.last_id()), chosen).doing("hash")?;
        }
        let ids: Vec<u32> = (0..=self.last_id()).collect();
        let ids = Array::from_slice(&ids, &[1, i32::try_from(ids.len()).unwrap_or(i32::MAX)]);
        let column = |x: &Array| x.expand_dims(-1).doing("hash");
        let spread = multiply(column(state)?.add(&ids).doing("hash")?, constant(LATE)).doing("hash")?;
        let noise = remainder(columns::fold(&spread)?, constant(1024)).doing("hash")?;
        let noise = noise.as_type::<f32>().doing("hash")?;
        let noise = multiply(noise, Array::from_f32(1.0 / 1024.0)).doing("hash")?;
        let is_chosen = column(&chosen)?.eq(&ids).doing("hash")?;
        select(is_chosen, Array::from_f32(self.options.peak), noise).doing("hash")
    }
}
