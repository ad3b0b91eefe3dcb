//! A model without weights, for tests of whatever runs models: its logits hash every token that its cache
//! holds, position by position. A row mixed up with another, shifted, cut, doubled or read through a wrong
//! mask changes its output. Its caches lie as columns or in own buffers.

use std::cell::Cell;

use mlx_rs::ops::{floor_divide, multiply, remainder, select, sum_axes};
use mlx_rs::{Array, Dtype};

use super::error::Doing;
use super::{LanguageModel, ModelError, ModelInfo};
use crate::cache::{BatchCache, CachePlan, KvLayout, KvShape, Layers, PANEL, RowCache};
use crate::nn::Mask;
use crate::nn::kernels::{InPlaceNode, RoomMut, TensorView};

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
    /// How its caches lie: columns by MLX's operations, own buffers by kernels.
    pub layout: KvLayout,
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
            layout: KvLayout::Columns,
        }
    }
}

/// The model. Keys hold `token + 1` and values the position, one head of one feature, in two layers.
pub struct HashingModel {
    options: HashingOptions,
    info: ModelInfo,
    plan: CachePlan,
    kernels: OwnKernels,
    decodes: Cell<u64>,
    prefills: Cell<u64>,
}

const LAYERS: usize = 2;
/// Odd constants, so that multiplying by them modulo 2³² loses nothing.
const GOLDEN: u32 = 0x9E37_79B1;
const MIX: u32 = 0x85EB_CA6B;
const LATE: u32 = 0xC2B2_AE35;
/// Keeps an empty column that a mask fails to hide from counting as nothing.
const PRESENT: u32 = 0x27D4_EB2F;

impl HashingModel {
    /// A model of these options; a vocabulary of at least 2.
    pub fn new(options: HashingOptions) -> Self {
        let layer = KvShape {
            heads: 1,
            key_dim: 1,
            value_dim: 1,
            dtype: Dtype::Uint32,
        };
        let options = HashingOptions {
            vocab_size: options.vocab_size.max(2),
            ..options
        };
        let info = ModelInfo {
            family: "hashing".to_owned(),
            layers: LAYERS,
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
            brisk_prefill: usize::MAX,
            weight_bytes: 0,
        };
        let layers = vec![layer; LAYERS];
        let plan = match options.layout {
            KvLayout::Columns => CachePlan::new(layers),
            KvLayout::OwnBuffers => CachePlan::own_buffers(layers),
        };
        Self {
            options,
            info,
            plan,
            kernels: OwnKernels::new(),
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
        let state = self.state_of(context);
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

    fn state_of(&self, context: &[u32]) -> u32 {
        let term = |(position, &token): (usize, &u32)| {
            let position = u32::try_from(position).unwrap_or(u32::MAX);
            token
                .wrapping_add(1)
                .wrapping_add(PRESENT)
                .wrapping_mul(position_factor(position))
        };
        let sum = context.iter().enumerate().map(term).fold(0, u32::wrapping_add);
        // Every layer sees the same columns.
        (0..LAYERS).fold(0u32, |state, _| fold(state.wrapping_mul(LATE).wrapping_add(sum)))
    }
}

/// Spreads high bits to low ones; as MLX has no shifts here, by a division.
fn fold(x: u32) -> u32 {
    x.wrapping_add(x / 65_536).wrapping_mul(GOLDEN)
}

/// An odd number that differs for each position.
fn position_factor(position: u32) -> u32 {
    let x = position.wrapping_add(1).wrapping_mul(GOLDEN);
    fold(x).wrapping_mul(2).wrapping_add(1)
}

/// The same arithmetic on the device. Integers wrap there, too.
struct Device;

impl Device {
    fn constant(value: u32) -> Array {
        Array::from_slice(&[value], &[1])
    }

    fn fold(x: &Array) -> Result<Array, ModelError> {
        let high = floor_divide(x, Self::constant(65_536)).doing("hash")?;
        let sum = x.add(high).doing("hash")?;
        multiply(sum, Self::constant(GOLDEN)).doing("hash")
    }

    fn position_factor(position: &Array) -> Result<Array, ModelError> {
        let shifted = position.add(Self::constant(1)).doing("hash")?;
        let x = Self::fold(&multiply(shifted, Self::constant(GOLDEN)).doing("hash")?)?;
        let doubled = multiply(x, Self::constant(2)).doing("hash")?;
        doubled.add(Self::constant(1)).doing("hash")
    }
}

/// The same for own buffers: keys and values are small numbers, which floats hold exactly.
struct OwnKernels {
    /// Writes tokens `[L]` to the one room; the second input and the output only order layers.
    write: InPlaceNode,
    /// Writes tokens `[B]` to their rooms; states `[B]` to the next layer's.
    see: InPlaceNode,
}

/// From one position's value to the next one's.
const STRIDE: usize = 16;

/// Where a position's key and value are, with one head of one feature.
fn places(position: usize) -> [usize; 2] {
    let (panel, at) = (position / PANEL * PANEL * (1 + STRIDE), position % PANEL);
    [panel + at, panel + PANEL + at * STRIDE]
}

fn put(room: &mut RoomMut<'_>, position: usize, token: u32) {
    let [key, value] = places(position);
    room.buffer[key] = token.wrapping_add(1) as f32;
    room.buffer[value] = position as f32;
}

fn numbers<'a>(view: &'a TensorView<'_>) -> std::borrow::Cow<'a, [u32]> {
    view.to_row_major::<u32>().expect("ids and states are uint32")
}

impl OwnKernels {
    fn new() -> Self {
        let write = InPlaceNode::new("HashingPrefill", |inputs, rooms, outputs| {
            for (offset, &token) in numbers(&inputs[0]).iter().enumerate() {
                let position = rooms[0].start + offset;
                put(&mut rooms[0], position, token);
            }
            outputs[0].as_mut_slice::<u32>().expect("uint32").fill(0);
        });
        let see = InPlaceNode::new("HashingStep", |inputs, rooms, outputs| {
            let (tokens, states) = (numbers(&inputs[0]), numbers(&inputs[1]));
            let next = outputs[0].as_mut_slice::<u32>().expect("uint32");
            for (row, room) in rooms.iter_mut().enumerate() {
                let last = room.start;
                put(room, last, tokens[row]);
                let term = |position| {
                    let [key, value] = places(position).map(|at| room.buffer[at] as u32);
                    key.wrapping_add(PRESENT).wrapping_mul(position_factor(value))
                };
                let sum = (0..=last).map(term).fold(0, u32::wrapping_add);
                next[row] = fold(states[row].wrapping_mul(LATE).wrapping_add(sum));
            }
        });
        Self { write, see }
    }
}

impl LanguageModel for HashingModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn plan(&self) -> &CachePlan {
        &self.plan
    }

    fn prefill(&self, tokens: &[u32], row: &mut RowCache) -> Result<(), ModelError> {
        let forward = self.prefills.replace(self.prefills.get() + 1);
        let start = row
            .len()
            .ok_or_else(|| ModelError::Misuse("the row's layers differ".to_owned()))?;
        let extent = i32::try_from(tokens.len()).unwrap_or(i32::MAX);
        if tokens.is_empty() {
            return Ok(());
        }
        if self.options.layout == KvLayout::OwnBuffers {
            let mut fence = Array::from_slice(tokens, &[extent]);
            let tokens = fence.clone();
            for layer in 0..LAYERS {
                if layer == 1 && self.options.fail_prefill == Some(forward) {
                    return Err(ModelError::Told { forward });
                }
                let rooms = row.layer(layer).rooms(tokens.size())?;
                let output = [(&[1][..], Dtype::Uint32)];
                [fence] = self
                    .kernels
                    .write
                    .apply(&[&tokens, &fence], &rooms, output)
                    .doing("hash")?;
            }
            return Ok(row.wrote(&fence)?);
        }
        let shape = [1, 1, extent, 1];
        let keys: Vec<u32> = tokens.iter().map(|token| token.wrapping_add(1)).collect();
        let positions = (start..)
            .take(tokens.len())
            .map(|p| u32::try_from(p).unwrap_or(u32::MAX));
        let values: Vec<u32> = positions.collect();
        let (keys, values) = (
            Array::from_slice(&keys, &shape),
            Array::from_slice(&values, &shape),
        );
        for layer in 0..LAYERS {
            if layer == 1 && self.options.fail_prefill == Some(forward) {
                return Err(ModelError::Told { forward });
            }
            row.layer(layer).append(&keys, &values)?;
        }
        Ok(())
    }

    fn forward(&self, tokens: &Array, batch: &mut BatchCache) -> Result<Array, ModelError> {
        let forward = self.decodes.replace(self.decodes.get() + 1);
        super::check_tokens(tokens, batch)?;
        let rows = tokens.shape().first().copied().unwrap_or(0);
        if self.options.layout == KvLayout::OwnBuffers {
            let mut state = mlx_rs::ops::zeros_dtype(&[rows], Dtype::Uint32).doing("hash")?;
            for layer in 0..LAYERS {
                if layer == 1 && self.options.fail_decode == Some(forward) {
                    return Err(ModelError::Told { forward });
                }
                let rooms = batch.layer(layer).rooms(1)?;
                let output = [(&[rows][..], Dtype::Uint32)];
                [state] = self
                    .kernels
                    .see
                    .apply(&[tokens, &state], &rooms, output)
                    .doing("hash")?;
            }
            batch.wrote(&state)?;
            return Ok(state);
        }
        let shape = [rows, 1, 1, 1];
        let mask = Mask::each(batch, &[None], 1).pop();
        let positions: Vec<u32> = batch
            .lengths()
            .iter()
            .map(|&p| u32::try_from(p).unwrap_or(u32::MAX))
            .collect();
        let keys = tokens
            .add(Device::constant(1))
            .doing("hash")?
            .reshape(&shape)
            .doing("hash")?;
        let values = Array::from_slice(&positions, &shape);
        let mut state = Device::constant(0);
        for layer in 0..LAYERS {
            if layer == 1 && self.options.fail_decode == Some(forward) {
                return Err(ModelError::Told { forward });
            }
            let (keys, values) = batch.layer(layer).append(&keys, &values)?;
            let present = keys.add(Device::constant(PRESENT)).doing("hash")?;
            let mut terms = multiply(present, Device::position_factor(&values)?).doing("hash")?;
            if let Some(Mask::Array(mask)) = &mask {
                // [B, 1, 1, S] to the keys' [B, 1, S, 1]
                let mask = mask.swap_axes(2, 3).doing("hash")?;
                terms = select(mask, terms, Device::constant(0)).doing("hash")?;
            }
            let sum = sum_axes(&terms, &[1, 2, 3], false).doing("hash")?;
            let late = multiply(&state, Device::constant(LATE)).doing("hash")?;
            state = Device::fold(&late.add(sum).doing("hash")?)?;
        }
        Ok(state)
    }

    fn head(&self, state: &Array) -> Result<Array, ModelError> {
        self.logits(state)
    }
}

impl HashingModel {
    /// `[B, V]` logits of `[B]` states: the chosen token at the peak, the others a hash between 0 and 1.
    fn logits(&self, state: &Array) -> Result<Array, ModelError> {
        let chosen = Device::fold(&multiply(state, Device::constant(MIX)).doing("hash")?)?;
        let mut chosen = remainder(chosen, Device::constant(self.choices())).doing("hash")?;
        if self.options.eos_one_in > 0 {
            let rest = remainder(state, Device::constant(self.options.eos_one_in)).doing("hash")?;
            let ends = rest.eq(Device::constant(0)).doing("hash")?;
            chosen = select(ends, Device::constant(self.last_id()), chosen).doing("hash")?;
        }
        let ids: Vec<u32> = (0..=self.last_id()).collect();
        let ids = Array::from_slice(&ids, &[1, i32::try_from(ids.len()).unwrap_or(i32::MAX)]);
        let column = |x: &Array| x.expand_dims(-1).doing("hash");
        let spread =
            multiply(column(state)?.add(&ids).doing("hash")?, Device::constant(LATE)).doing("hash")?;
        let noise = remainder(Device::fold(&spread)?, Device::constant(1024)).doing("hash")?;
        let noise = noise.as_type::<f32>().doing("hash")?;
        let noise = multiply(noise, Array::from_f32(1.0 / 1024.0)).doing("hash")?;
        let is_chosen = column(&chosen)?.eq(&ids).doing("hash")?;
        select(is_chosen, Array::from_f32(self.options.peak), noise).doing("hash")
    }
}
