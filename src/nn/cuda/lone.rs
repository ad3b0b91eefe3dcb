//! Blocks of a decoder for one token of one row, some at a time by one kernel: their matrices stream through nearly without a pause.

use std::cell::RefCell;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};

use mlx_rs::error::Exception;
use mlx_rs::{Array, Dtype};
use mlx_sys::cuda;

use super::kernel::Constant::{Count, Each, Float};
use super::kernel::{Kernel, Start};
use super::{AHEAD, Activation, Cuda, Heads, count, extent};

/// The kernel, in the order in which its parts build on each other.
pub(super) const SOURCE: &str = concat!(
    include_str!("lone/shape.cuh"),
    include_str!("seen.cuh"),
    include_str!("lone/ring.cuh"),
    include_str!("lone/rows.cuh"),
    include_str!("lone/attention.cuh"),
    include_str!("lone/blocks.cu"),
);

/// Threads of a block that compute; one warp more fetches. Fewer warps wait for each other less.
const THREADS: usize = 256;

/// The most layers that a kernel takes at once: as many as its parameters (4 KiB) have room for, and some less.
const MOST_LAYERS: usize = 40;

/// The most elements of a matrix that a warp takes at a time.
const CHUNK: usize = 4096;

/// Stages of what is fetched: as many as there is room for, and as many for each warp; fewer than this are of no use.
const MOST_STAGES: usize = 64;
const WARPS: usize = THREADS / 32;

/// Bytes that a block has under way at once: what keeps an H200's memory busy. With more it takes longer.
const UNDER_WAY: usize = 48 * 1024;

/// Bytes of what the kernel knows of a layer: eleven pointers.
const LAYER_BYTES: usize = 88;

/// Counters by which blocks wait for each other in a layer: where all do, and one for each key head.
const COUNTERS: usize = 64;
const MEETINGS: usize = 5;

/// The least positions that are worth a block of their own.
const SHARE: usize = 32;

/// Floats beside the features of what a warp has seen of a query.
const OF_HEAD: usize = 4;

/// GPUs from Hopper on copy in bulk.
const LEAST_GENERATION: u32 = 90;

/// The kernel, and what orders its starts: two at once would wait for each other for ever, so that each waits for the one before, and one thread at a
/// time starts any.
#[derive(Debug)]
pub(super) struct Lone {
    kernel: Kernel,
    /// Blocks that run at once, and the bytes of shared memory of each.
    room: Option<(usize, usize)>,
    turns: RefCell<Option<Array>>,
    _leave: Option<Leave>,
}

/// Leave to start the kernel.
#[derive(Debug)]
struct Leave {
    given: &'static Given,
}

/// The thread that has leave, and how often.
type Given = Mutex<Option<(ThreadId, usize)>>;

static LEAVE: Given = Mutex::new(None);

impl Leave {
    fn ask(of: &'static Given) -> Option<Self> {
        let mut given = of.lock().unwrap_or_else(PoisonError::into_inner);
        let here = thread::current().id();
        let before = match *given {
            Some((thread, _)) if thread != here => return None,
            Some((_, count)) => count,
            None => 0,
        };
        *given = Some((here, before + 1));
        drop(given);
        Some(Self { given: of })
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        *given = given.and_then(|(thread, count)| (count > 1).then_some((thread, count - 1)));
    }
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
    /// Keys and values `[1, kv, columns, dim]`, as many columns in all layers. The token's are written to them, after those that count: they are to be nobody else's.
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
        let room = cuda::multiprocessors().filter(|_| generation >= LEAST_GENERATION);
        let leave = room.and_then(|_| Leave::ask(&LEAVE));
        Self {
            kernel,
            room: room.filter(|_| leave.is_some()),
            turns: RefCell::default(),
            _leave: leave,
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
        let attention = (group + 2) * dim + (WARPS + 1) * group * (dim + OF_HEAD);
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
        // What it has by itself: layers, barriers, what a block adds to, angles, some numbers, and what aligns the rest.
        let own = MOST_LAYERS * LAYER_BYTES
            + 16 * MOST_STAGES
            + 4 * (hidden.div_ceil(blocks) + dim + 2 + WARPS + 1)
            + 128;
        // A stage is always for the same warp: it has taken what was there before.
        let stages = (most.checked_sub(own + rest)? / stage).min(MOST_STAGES) / WARPS * WARPS;
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

    /// Of `x` `[1, hidden]` bfloat16, the last layer's output. The token's key and value of each layer are written to what it holds, of which MLX
    /// knows nothing: evaluate the output before any other use of that.
    pub fn lone_blocks(
        &self,
        x: &Array,
        shape: &LoneShape,
        layers: &[LoneLayer<'_>],
        place: &LonePlace<'_>,
    ) -> Result<Array, Exception> {
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
        let [hidden, counters, scratch] = [shape.hidden, MOST_LAYERS * COUNTERS, spread.scratch].map(extent);
        let whole = [1, hidden];
        let outputs = [
            (whole.as_slice(), Dtype::Bfloat16),
            (&[counters], Dtype::Int32),
            (&[scratch], Dtype::Float32),
        ];
        let [hidden_chunk, wide_chunk, inner_chunk] = spread.chunks;
        let head_norms = first.weights.head_norms.as_ref();
        let [y, turns, _] = self.lone.kernel.apply(
            &inputs,
            outputs,
            Start {
                blocks: [spread.blocks, 1, 1],
                threads: THREADS + 32,
                shared: spread.shared,
                constants: &[
                    Count("LAYERS", layers.len()),
                    Each("EACH_LAYER", layers.len()),
                    Count("HIDDEN", shape.hidden),
                    Count("INNER", shape.inner),
                    Count("QUERIES", queries),
                    Count("KV", kv),
                    Count("DIM", dim),
                    Count("TURNED", turned),
                    Count("NORMS", head_norms.is_some().into()),
                    Count("BIAS", first.weights.qkv_bias.is_some().into()),
                    Count("GELU", (shape.activation == Activation::GeluTanh).into()),
                    Count("AHEAD", AHEAD),
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
        self.lone.turns.replace(Some(turns));
        Ok(y)
    }
}

/// The largest part of so many inputs that a warp takes at a time: rows are cut in equal ones, of whole 16 bytes.
fn chunk_of(inputs: usize) -> Option<usize> {
    let least = inputs.div_ceil(CHUNK).max(1);
    (least..=4 * least)
        .map(|parts| inputs / parts)
        .find(|&chunk| chunk >= 8 && chunk.is_multiple_of(8) && inputs.is_multiple_of(chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_has_leave_to_start_the_kernel() {
        static GIVEN: Given = Mutex::new(None);
        let elsewhere = || thread::spawn(|| Leave::ask(&GIVEN).is_some()).join();
        let [first, second] = [Leave::ask(&GIVEN), Leave::ask(&GIVEN)];
        assert!(first.is_some() && second.is_some());
        drop(first);
        assert!(matches!(elsewhere(), Ok(false)));
        drop(second);
        assert!(matches!(elsewhere(), Ok(true)));
    }
}
