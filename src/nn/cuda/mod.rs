//! Kernels of our own for NVIDIA's GPUs, where MLX's operations take longer or are many: each is one node in the graph.
//! MLX compiles them when they first run.
//!
//! Sums are float32. Shapes are the callers' business, within this room.

mod kernel;
mod lone;

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use mlx_rs::error::Exception;
use mlx_rs::{Array, Dtype};
use mlx_sys::cuda;

use super::{Activation, Heads, extent};
use crate::cache::Seen;
use kernel::Constant::{Count, Float, Type};
use kernel::{Kernel, Start};
use lone::Lone;
pub use lone::{LoneLayer, LonePlace, LoneShape, LoneWeights};

/// The most rows that [`Cuda::few_rows`] takes one by one; more of them take as long as MLX's product, or go through tensor cores.
const FEW_ROWS: usize = 4;

/// Rows of a product with a matrix of 4 bits from which tensor cores take less time, and the most that [`Cuda::few_rows`] takes.
const TENSOR_FROM: usize = 3;
const TENSOR_ROWS: usize = 32;

/// Rows up to which MLX's product with a quantized matrix goes by them one by one.
const PADDED_TO: usize = 8;

/// Rows of a product with a quantized matrix from which it pays to dequantize that first.
const DENSE_FROM: usize = 128;

/// Threads of a block, where nothing else follows from the work.
const THREADS: usize = 256;

/// Blocks that keep the GPUs that these were measured on busy: two for each multiprocessor of an H200.
const BLOCKS: usize = 264;

/// The least positions that are worth a block of their own.
const SHARE: usize = 64;

/// Keys that a lane has under way at a time.
const AHEAD: usize = 2;

/// Outputs from which a warp takes four of them, not two: fewer warps would leave multiprocessors idle.
const MANY_OUTPUTS: i32 = 8192;

/// Rows up to which registers hold the sums of four outputs.
const MANY_ROWS: usize = 4;

/// The GPUs that the kernels are for have bfloat16: Ampere and later.
const LEAST_GENERATION: u32 = 80;

thread_local! {
    static HERE: RefCell<Option<Rc<Cuda>>> = const { RefCell::new(None) };
}

/// The kernels.
#[derive(Debug)]
pub struct Cuda {
    heads: Kernel,
    attend: Kernel,
    attend_shares: Kernel,
    gate: Kernel,
    add_norm: Kernel,
    few_rows: Kernel,
    some_rows: Kernel,
    lone: Lone,
}

/// How heads are cut out of a projection: see [`Cuda::heads`].
pub struct HeadCut<'a> {
    /// How many heads.
    pub heads: Heads,
    /// Features of a head that turn.
    pub turned: usize,
    /// Positions per radian, `[turned / 2]` float32.
    pub periods: &'a Array,
    /// What turned features are multiplied by.
    pub magnitude: f32,
    /// Of queries and of keys, `[dim]`, and what keeps them finite.
    pub norms: Option<([&'a Array; 2], f32)>,
    /// Of the tokens, `[rows, L]` int32.
    pub positions: &'a Array,
}

/// An affine-quantized matrix `[outputs, inputs]`.
pub struct Affine<'a> {
    /// Packed quants, scales and biases.
    pub arrays: [&'a Array; 3],
    /// Bits of a quant: 4 or 8.
    pub bits: usize,
    /// Inputs that share a scale and a bias.
    pub group_size: usize,
}

impl Cuda {
    /// Has compiled kernels, MLX's own among them, kept in a folder, unless `MLX_PTX_CACHE_DIR` names one, and graphs. Call it before MLX's first
    /// use, and before there is any other thread.
    pub fn set_up(folder: &Path) {
        cuda::set_up(folder);
    }

    /// Has this thread's layers use the kernels, where MLX computes by CUDA.
    pub fn enter() {
        let architecture = cuda::architecture().filter(|_| cuda::is_available());
        let known = architecture.filter(|architecture| generation(architecture) >= LEAST_GENERATION);
        let kernels = known.map(|architecture| Rc::new(Self::new(&architecture.into())));
        HERE.with(|here| *here.borrow_mut() = kernels);
    }

    /// Has them not.
    pub fn leave() {
        HERE.with(|here| *here.borrow_mut() = None);
    }

    /// The kernels, where this thread's layers use them.
    pub fn here() -> Option<Rc<Self>> {
        HERE.with(|here| here.borrow().clone())
    }

    fn new(architecture: &Rc<str>) -> Self {
        let kernel = |name, source| Kernel::new(name, source, architecture);
        Self {
            heads: kernel("heads", include_str!("heads.cu")),
            attend: kernel(
                "attend",
                concat!(include_str!("seen.cuh"), include_str!("attend.cu")),
            ),
            attend_shares: kernel("attend_shares", include_str!("attend_shares.cu")),
            gate: kernel("gate", include_str!("gate.cu")),
            add_norm: kernel("add_norm", include_str!("add_norm.cu")),
            few_rows: kernel("few_rows", include_str!("few_rows.cu")),
            some_rows: kernel("some_rows", include_str!("some_rows.cu")),
            lone: Lone::new(kernel("lone_blocks", lone::SOURCE), generation(architecture)),
        }
    }

    /// Queries, keys and values `[rows, heads, L, dim]` of a projection `[rows · L, …]` that has them one after the other;
    /// the first two normalized and turned.
    pub fn heads(&self, x: &Array, cut: &HeadCut<'_>) -> Result<[Array; 3], Exception> {
        let Heads { queries, kv, dim } = cut.heads;
        let &[rows, len] = cut.positions.shape() else {
            return Err(Exception::custom("positions are for rows and tokens"));
        };
        let shape = |heads: usize| [rows, extent(heads), len, extent(dim)];
        let (wide, narrow) = (shape(queries), shape(kv));
        let ([query_norm, key_norm], eps) = cut.norms.unwrap_or(([x, x], 0.0));
        let warps = THREADS / 32;
        self.heads.apply(
            &[x, cut.positions, cut.periods, query_norm, key_norm],
            [(&wide, x.dtype()), (&narrow, x.dtype()), (&narrow, x.dtype())],
            Start {
                blocks: [count(rows * len), (queries + 2 * kv).div_ceil(warps), 1],
                threads: THREADS,
                shared: 0,
                constants: &[
                    Type(x.dtype()),
                    Count("QUERIES", queries),
                    Count("KV", kv),
                    Count("DIM", dim),
                    Count("TURNED", cut.turned),
                    Count("NORMS", cut.norms.is_some().into()),
                    Float("EPS", (eps).to_bits()),
                    Float("MAGNITUDE", (cut.magnitude).to_bits()),
                ],
                numbers: &[count(len), count(x.shape().last().copied().unwrap_or(0))],
            },
        )
    }

    /// Whether [`attend`](Self::attend) knows heads like these.
    pub fn can_attend(heads: Heads) -> bool {
        heads.dim.is_power_of_two() && (16..=256).contains(&heads.dim)
    }

    /// What one query of each head sees of what is held: queries `[rows, heads, 1, dim]`; for each row, in `seen` `[rows, 3]` int32, the first column, how many, and after how many columns they
    /// go on at the start; no row has more than `most`. To `[rows, heads · dim]`.
    pub fn attend(
        &self,
        queries: &Array,
        held: &Seen,
        (seen, most): (&Array, usize),
        heads: Heads,
        scale: f32,
    ) -> Result<Array, Exception> {
        let Heads {
            queries: wide,
            kv,
            dim,
        } = heads;
        let dtype = queries.dtype();
        let mut inputs = vec![queries];
        let (bits, code_group) = match held {
            Seen::Full { keys, values, .. } => {
                inputs.extend([keys, values]);
                (0, 1)
            }
            Seen::Quantized { keys, values, by, .. } => {
                inputs.extend(keys.iter().chain(values));
                (by.bits, by.group_size)
            }
        };
        let rows = queries.shape().first().copied().map_or(0, count);
        let group = group_of(wide / kv.max(1), dim);
        let blocks = wide / group * rows;
        let shares = BLOCKS.div_ceil(blocks.max(1)).min(most.div_ceil(SHARE)).max(1);
        let whole = [rows, wide * dim].map(extent);
        let [parts, tops] = [dim, 2].map(|each| [rows, wide, shares, each].map(extent));
        let constants = [
            Type(dtype),
            Count("QUERIES", wide),
            Count("KV", kv),
            Count("DIM", dim),
            Count("GROUP", group),
            Count("AHEAD", AHEAD),
            Count("THREADS", THREADS),
            Count("SHARED", usize::from(shares > 1)),
            Float("SCALE", scale.to_bits()),
            Count("BITS", bits),
            Count("CODE_GROUP", code_group),
        ];
        let start = Start {
            blocks: [shares, wide / group, rows],
            threads: THREADS,
            shared: 0,
            constants: &constants,
            numbers: &[held.written().shape().get(2).copied().map_or(0, count)],
        };
        inputs.push(seen);
        if shares == 1 {
            let [out] = self.attend.apply(&inputs, [(&whole, dtype)], start)?;
            return Ok(out);
        }
        let partial: [(&[i32], Dtype); 2] = [(&parts, Dtype::Float32), (&tops, Dtype::Float32)];
        let [sums, tops] = self.attend.apply(&inputs, partial, start)?;
        let [out] = self.attend_shares.apply(
            &[&sums, &tops],
            [(&whole, dtype)],
            Start {
                blocks: [rows * wide, 1, 1],
                threads: dim,
                shared: 0,
                constants: &[Type(dtype), Count("DIM", dim)],
                numbers: &[shares],
            },
        )?;
        Ok(out)
    }

    /// Whether [`gate`](Self::gate) and [`add_norm`](Self::add_norm) know rows of so many features.
    pub fn can_take(features: usize) -> bool {
        features.is_multiple_of(8) && features <= 1 << 16
    }

    /// The activation of the first half of `[tokens, 2 · features]` times the second.
    pub fn gate(&self, x: &Array, activation: Activation) -> Result<Array, Exception> {
        let &[tokens, both] = x.shape() else {
            return Err(Exception::custom("expected tokens and features"));
        };
        let shape = [tokens, both / 2];
        let eights = count(tokens) * count(both) / 16;
        let [y] = self.gate.apply(
            &[x],
            [(&shape, x.dtype())],
            Start {
                blocks: [eights.div_ceil(THREADS), 1, 1],
                threads: THREADS,
                shared: 0,
                constants: &[
                    Type(x.dtype()),
                    Count("WIDTH", count(both) / 2),
                    Count("GELU", (activation == Activation::GeluTanh).into()),
                ],
                numbers: &[count(tokens)],
            },
        )?;
        Ok(y)
    }

    /// `x + more` and its normalization, `[tokens, features]` all.
    pub fn add_norm(
        &self,
        x: &Array,
        more: &Array,
        weight: &Array,
        eps: f32,
    ) -> Result<[Array; 2], Exception> {
        let &[tokens, features] = x.shape() else {
            return Err(Exception::custom("expected tokens and features"));
        };
        let shape = [tokens, features];
        let threads = (count(features) / 8).next_multiple_of(32).clamp(32, 512);
        self.add_norm.apply(
            &[x, more, weight],
            [(&shape, x.dtype()), (&shape, x.dtype())],
            Start {
                blocks: [count(tokens), 1, 1],
                threads,
                shared: 0,
                constants: &[
                    Type(x.dtype()),
                    Count("WIDTH", count(features)),
                    Count("THREADS", threads),
                    Float("EPS", (eps).to_bits()),
                ],
                numbers: &[],
            },
        )
    }

    /// Whether [`few_rows`](Self::few_rows) knows matrices of so many bits and inputs, in groups of this size.
    pub fn knows_few_rows(bits: usize, group_size: usize, inputs: usize) -> bool {
        matches!(bits, 4 | 8) && group_size >= 32 && inputs.is_multiple_of(128 / bits)
    }

    /// Whether rows `[rows, inputs]` are so few that [`few_rows`](Self::few_rows) takes less time than MLX's product does.
    pub fn prefers_few_rows(x: &Array, bits: usize) -> bool {
        let tensors = bits == 4 && x.dtype() == Dtype::Bfloat16;
        let most = if tensors { TENSOR_ROWS } else { FEW_ROWS };
        matches!(x.shape(), &[rows, _] if (1..=most).contains(&count(rows)))
    }

    /// Whether rows are more than [`few_rows`](Self::few_rows) takes, and too few for MLX's product with a quantized matrix to take them
    /// together: to how many it is worth to pad them.
    pub fn padded_to(x: &Array) -> Option<usize> {
        matches!(x.shape(), &[rows, _] if (FEW_ROWS + 1..PADDED_TO).contains(&count(rows)))
            .then_some(PADDED_TO)
    }

    /// Whether rows are so many that a dequantized matrix takes less time than a quantized one.
    pub fn prefers_dense(x: &Array) -> bool {
        matches!(x.shape(), &[rows, _] if count(rows) >= DENSE_FROM)
    }

    /// `[rows, inputs]` by a matrix, to `[rows, outputs]`; of rows that it [prefers](Self::prefers_few_rows), or no more than eight.
    pub fn few_rows(&self, x: &Array, matrix: &Affine<'_>) -> Result<Array, Exception> {
        let Affine {
            arrays: [weights, scales, biases],
            bits,
            group_size,
        } = *matrix;
        let (&[rows, inputs], Some(&outputs)) = (x.shape(), weights.shape().first()) else {
            return Err(Exception::custom("expected rows and features"));
        };
        if bits == 4 && count(rows) >= TENSOR_FROM && x.dtype() == Dtype::Bfloat16 {
            return self.some_rows(x, [weights, scales, biases], group_size);
        }
        let of_warp = if outputs < MANY_OUTPUTS || count(rows) > MANY_ROWS {
            2
        } else {
            4
        };
        let shape = [rows, outputs];
        let [y] = self.few_rows.apply(
            &[x, weights, scales, biases],
            [(&shape, x.dtype())],
            Start {
                blocks: [count(outputs).div_ceil(of_warp * THREADS / 32), 1, 1],
                threads: THREADS,
                shared: 0,
                constants: &[
                    Type(x.dtype()),
                    Count("BITS", bits),
                    Count("GROUP_SIZE", group_size),
                    Count("ROWS", count(rows).next_power_of_two()),
                    Count("OUTPUTS", of_warp),
                ],
                numbers: &[rows, inputs, outputs].map(count),
            },
        )?;
        Ok(y)
    }

    /// The same by tensor cores, of bfloat16 and a matrix of 4 bits.
    fn some_rows(&self, x: &Array, matrix: [&Array; 3], group_size: usize) -> Result<Array, Exception> {
        let [weights, scales, biases] = matrix;
        let (&[rows, inputs], Some(&outputs)) = (x.shape(), weights.shape().first()) else {
            return Err(Exception::custom("expected rows and features"));
        };
        let tiles = count(rows).div_ceil(8);
        let blocks = count(outputs).div_ceil(32);
        let threads = tensor_threads(tiles, blocks);
        let [y] = self.some_rows.apply(
            &[x, weights, scales, biases],
            [(&[rows, outputs], x.dtype())],
            Start {
                blocks: [blocks, 1, 1],
                threads,
                shared: 0,
                constants: &[
                    Count("GROUP_SIZE", group_size),
                    Count("TILES", tiles),
                    Count("THREADS", threads),
                ],
                numbers: &[rows, inputs, outputs].map(count),
            },
        )?;
        Ok(y)
    }
}

/// Threads of a block of `some_rows`, by tiles of eight rows: twice as many where there are few blocks, and as long as registers suffice.
const fn tensor_threads(tiles: usize, blocks: usize) -> usize {
    if tiles > 3 || blocks > BLOCKS { 256 } else { 512 }
}

/// Query heads that a block takes at once: of the same key head, and as many as registers hold.
fn group_of(of_key_head: usize, dim: usize) -> usize {
    let most = (1024 / dim.max(1)).clamp(1, 8);
    let fits = |group: &usize| of_key_head.is_multiple_of(*group);
    (1..=most).rev().find(fits).unwrap_or(1)
}

/// The number in `sm_90`; 0 where there is none.
fn generation(architecture: &str) -> u32 {
    let digits: String = architecture.chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

/// An extent of an array.
fn count(extent: i32) -> usize {
    extent.unsigned_abs() as usize
}

#[cfg(test)]
mod tests;
