//! Blocks of a decoder for one token of one row, some at a time by one kernel: their matrices stream through nearly without a pause.

use std::cell::RefCell;

use mlx_rs::error::Exception;
use mlx_rs::{Array, Dtype};
use mlx_sys::cuda;

use super::kernel::Constant::{Count, Float};
use super::kernel::{Kernel, Start};
use super::{Activation, Cuda, Heads, count, extent};

/// The kernel, in the order in which its parts build on each other.
pub(super) const SOURCE: &str = concat!(
    include_str!("lone/shape.cuh"),
    include_str!("lone/ring.cuh"),
    include_str!("lone/rows.cuh"),
    include_str!("lone/attention.cuh"),
    include_str!("lone/blocks.cu"),
);

/// Threads of a block that compute; one warp more fetches. Fewer warps wait for each other less.
const THREADS: usize = 256;

/// The most layers that a kernel takes at once.
const MOST_LAYERS: usize = 8;

/// The most elements of a matrix that a warp takes at a time.
const CHUNK: usize = 4096;

/// Stages of what is fetched: as many as there is room for, and as many for each warp; fewer than this are of no use.
const MOST_STAGES: usize = 64;
const WARPS: usize = THREADS / 32;

/// Bytes that a block has under way at once: what keeps an H200's memory busy. With more it takes longer.
const UNDER_WAY: usize = 48 * 1024;

/// Shared memory that the kernel has by itself, at most.
const OWN: usize = 4096;

/// Counters by which blocks wait for each other in a layer: where all do, and one for each key head.
const COUNTERS: usize = 64;
const MEETINGS: usize = 5;

/// The least positions that are worth a block of their own.
const SHARE: usize = 32;

/// GPUs from Hopper on copy in bulk.
const LEAST_GENERATION: u32 = 90;

/// The kernel, and what orders its starts: two at once would wait for each other for ever, so that each waits for the one before.
#[derive(Debug)]
pub(super) struct Lone {
    kernel: Kernel,
    /// Blocks that run at once, and the bytes of shared memory of each.
    room: Option<(usize, usize)>,
    turns: RefCell<Option<Array>>,
}

/// Of what shape a block is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoneShape {
    /// Features of the residual stream.
    pub hidden: usize,
    /// Features inside the MLP.
    pub inner: usize,
    /// How many heads, and how wide.
    pub heads: Heads,
    /// What scores are multiplied by.
    pub scale: f32,
    /// What the gate goes through.
    pub activation: Activation,
    /// What keeps norms of the stream finite.
    pub eps: f32,
}

/// Its weights, all bfloat16; matrices are `[outputs, inputs]`.
#[derive(Debug)]
pub struct LoneWeights {
    /// Before attention, `[hidden]`.
    pub norm: Array,
    /// Queries, keys, values.
    pub qkv: Array,
    /// Of these.
    pub qkv_bias: Option<Array>,
    /// Of query and key heads, `[dim]`, and what keeps them finite.
    pub head_norms: Option<([Array; 2], f32)>,
    /// Of attention.
    pub output: Array,
    /// Before the MLP, `[hidden]`.
    pub inner_norm: Array,
    /// The gate, then what it is for.
    pub gate_up: Array,
    /// To the stream.
    pub down: Array,
}

/// A layer, and what it holds.
pub struct LoneLayer<'a> {
    /// The layer's.
    pub weights: &'a LoneWeights,
    /// Keys and values `[1, kv, columns, dim]`, as many columns in all layers.
    pub held: [&'a Array; 2],
}

/// Where the token is.
pub struct LonePlace<'a> {
    /// The first column that counts, and how many do: as many as there are positions before the token.
    pub columns: (usize, usize),
    /// Features of a head that turn, positions per radian `[turned / 2]`, and what turned features are multiplied by.
    pub rope: (usize, &'a Array, f32),
}

/// How a shape is spread over a GPU.
struct Spread {
    blocks: usize,
    chunks: [usize; 3],
    stages: usize,
    stage: usize,
    work: usize,
    shared: usize,
    scratch: usize,
    shares: usize,
}

impl Lone {
    pub fn new(kernel: Kernel, generation: u32) -> Self {
        Self {
            kernel,
            room: cuda::multiprocessors().filter(|_| generation >= LEAST_GENERATION),
            turns: RefCell::default(),
        }
    }

    fn spread(&self, shape: &LoneShape) -> Option<Spread> {
        let (blocks, most) = self.room?;
        let LoneShape {
            hidden,
            inner,
            heads: Heads { queries, kv, dim },
            ..
        } = *shape;
        let group = queries.checked_div(kv)?;
        let wide = queries * dim;
        let fits = Cuda::can_attend(shape.heads)
            && queries == group * kv
            && (1..=1024).contains(&(group * dim))
            && kv <= blocks.min(COUNTERS - MEETINGS);
        if !fits {
            return None;
        }
        let [of_hidden, of_wide, of_inner] = [hidden, wide, inner].map(chunk_of);
        let (of_hidden, of_wide, of_inner) = (of_hidden?, of_wide?, of_inner?);
        let stage = 2 * of_hidden.max(of_wide).max(of_inner).next_multiple_of(64);
        let attention = (group + 2) * dim + (WARPS + 1) * group * (dim + 2);
        let work = (2 * hidden.max(wide).max(inner))
            .max(4 * attention)
            .next_multiple_of(128);
        let units = |outputs: usize, of_output: usize| outputs.div_ceil(blocks) * of_output;
        let sums = [
            units(wide + 2 * kv * dim, hidden / of_hidden),
            units(hidden, wide / of_wide),
            units(inner, 2 * hidden / of_hidden),
            units(hidden, inner / of_inner),
        ];
        let rest = work + 4 * sums.into_iter().max()?.next_multiple_of(4);
        // A stage is always for the same warp: it has taken what was there before.
        let stages = (most.checked_sub(OWN + rest)? / stage).min(MOST_STAGES) / WARPS * WARPS;
        let shares = blocks / kv.max(1);
        (stages > 0).then_some(Spread {
            blocks,
            chunks: [of_hidden, of_wide, of_inner],
            stages,
            stage,
            work,
            shared: stages * stage + rest,
            scratch: 2 * wide + 2 * kv * dim + 2 * hidden + inner + shares * queries * (dim + 2),
            shares,
        })
    }
}

impl Cuda {
    /// Whether [`lone_blocks`](Self::lone_blocks) knows this shape, here.
    pub fn knows_lone(&self, shape: &LoneShape) -> bool {
        self.lone.spread(shape).is_some()
    }

    /// How many layers [`lone_blocks`](Self::lone_blocks) takes at most.
    pub const MOST_LONE: usize = MOST_LAYERS;

    /// Of `x` `[1, hidden]` bfloat16, the last layer's output, and the token's key and value `[1, kv, 1, dim]` of each layer, which are
    /// not yet among what is held.
    pub fn lone_blocks(
        &self,
        x: &Array,
        shape: &LoneShape,
        layers: &[LoneLayer<'_>],
        place: &LonePlace<'_>,
    ) -> Result<(Array, Vec<[Array; 2]>), Exception> {
        let unknown = || {
            Exception::custom(format!(
                "no kernel for a token through {} of {shape:?}",
                layers.len()
            ))
        };
        let first = layers
            .first()
            .filter(|_| layers.len() <= MOST_LAYERS)
            .ok_or_else(unknown)?;
        let spread = self.lone.spread(shape).ok_or_else(unknown)?;
        let Heads { queries, kv, dim } = shape.heads;
        let (start, before) = place.columns;
        let (turned, periods, magnitude) = place.rope;
        let capacity = first.held[0].shape().get(2).copied().map_or(0, count);
        let turns = match self.lone.turns.take() {
            Some(turns) => turns,
            None => Array::zeros::<i32>(&[extent(MOST_LAYERS * COUNTERS)])?,
        };
        let mut inputs = vec![x, periods, &turns];
        for LoneLayer { weights, held } in layers {
            let [query_norm, key_norm] = match &weights.head_norms {
                Some((norms, _)) => norms.each_ref(),
                None => [x, x],
            };
            inputs.extend([
                &weights.norm,
                &weights.qkv,
                weights.qkv_bias.as_ref().unwrap_or(x),
            ]);
            inputs.extend([
                query_norm,
                key_norm,
                held[0],
                held[1],
                &weights.output,
                &weights.inner_norm,
            ]);
            inputs.extend([&weights.gate_up, &weights.down]);
        }
        let one = [1, kv, 1, dim].map(extent);
        let [hidden, counters, scratch] = [shape.hidden, MOST_LAYERS * COUNTERS, spread.scratch].map(extent);
        let whole = [1, hidden];
        let mut outputs: Vec<(&[i32], Dtype)> = vec![
            (&whole, Dtype::Bfloat16),
            (std::slice::from_ref(&counters), Dtype::Int32),
            (std::slice::from_ref(&scratch), Dtype::Float32),
        ];
        outputs.extend(std::iter::repeat_n(
            (one.as_slice(), Dtype::Bfloat16),
            2 * layers.len(),
        ));
        let [hidden_chunk, wide_chunk, inner_chunk] = spread.chunks;
        let head_norms = first.weights.head_norms.as_ref();
        let made = self.lone.kernel.apply_all(
            &inputs,
            &outputs,
            Start {
                blocks: [spread.blocks, 1, 1],
                threads: THREADS + 32,
                shared: spread.shared,
                constants: &[
                    Count("LAYERS", layers.len()),
                    Count("HIDDEN", shape.hidden),
                    Count("INNER", shape.inner),
                    Count("QUERIES", queries),
                    Count("KV", kv),
                    Count("DIM", dim),
                    Count("TURNED", turned),
                    Count("NORMS", head_norms.is_some().into()),
                    Count("BIAS", first.weights.qkv_bias.is_some().into()),
                    Count("GELU", (shape.activation == Activation::GeluTanh).into()),
                    Count("THREADS", THREADS),
                    Count("BLOCKS", spread.blocks),
                    Count("COUNTERS", COUNTERS),
                    Count("ALL_COUNTERS", MOST_LAYERS * COUNTERS),
                    Count("STAGES", spread.stages),
                    Count("STAGE_BYTES", spread.stage),
                    Count("UNDER_WAY", (UNDER_WAY / spread.stage).max(1)),
                    Count("WORK_BYTES", spread.work),
                    Count("SHARES", spread.shares),
                    Count("HIDDEN_CHUNK", hidden_chunk),
                    Count("WIDE_CHUNK", wide_chunk),
                    Count("INNER_CHUNK", inner_chunk),
                    Float("EPS", shape.eps.to_bits()),
                    Float("HEAD_EPS", head_norms.map_or(0.0, |(_, eps)| *eps).to_bits()),
                    Float("MAGNITUDE", magnitude.to_bits()),
                    Float("SCALE", shape.scale.to_bits()),
                ],
                numbers: &[
                    before,
                    start,
                    capacity,
                    spread.shares.min((before + 1).div_ceil(SHARE)),
                ],
            },
        )?;
        let mut made = made.into_iter();
        let (Some(y), Some(turns), Some(_)) = (made.next(), made.next(), made.next()) else {
            return Err(unknown());
        };
        self.lone.turns.replace(Some(turns));
        let mut new = Vec::with_capacity(layers.len());
        while let (Some(key), Some(value)) = (made.next(), made.next()) {
            new.push([key, value]);
        }
        Ok((y, new))
    }
}

/// The largest part of so many inputs that a warp takes at a time: rows are cut in equal ones, of whole 16 bytes.
fn chunk_of(inputs: usize) -> Option<usize> {
    let least = inputs.div_ceil(CHUNK).max(1);
    (least..=4 * least)
        .map(|parts| inputs / parts)
        .find(|&chunk| chunk >= 8 && chunk.is_multiple_of(8) && inputs.is_multiple_of(chunk))
}
