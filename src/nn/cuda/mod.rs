//! Kernels of our own for NVIDIA's GPUs, where MLX's operations take longer or are many: each is one node in the graph.
//! MLX compiles them when they first run.
//!
//! Sums are float32. Shapes are the callers' business, within this room.

mod kernel;

use std::cell::RefCell;
use std::rc::Rc;

use mlx_rs::error::Exception;
use mlx_rs::{Array, Dtype};

use super::{Activation, Heads, extent};
use kernel::{Kernel, Of, Start};

/// The most rows of a product that [`Cuda::few_rows`] takes.
const FEW_ROWS: usize = 8;

/// The least rows of a product with a dense matrix for which it takes less time than MLX's.
const FEW_ROWS_DENSE: usize = 2;

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

/// A matrix as [`Cuda::few_rows`] takes it, `[outputs, inputs]`.
pub enum FewRows<'a> {
    /// Of the type of what it is multiplied by, 16 bits each.
    Dense(&'a Array),
    /// Affine: packed, scales, biases, bits, group size.
    Affine([&'a Array; 3], usize, usize),
}

impl Cuda {
    /// Has this thread's layers use the kernels, where MLX computes by CUDA.
    pub fn enter() {
        let kernels = mlx_sys::cuda::is_available().then(|| Rc::new(Self::new()));
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

    fn new() -> Self {
        Self {
            heads: Kernel::new(
                "heads",
                &["x", "positions", "periods", "query_norm", "key_norm"],
                &["queries", "keys", "values"],
                include_str!("heads.cu"),
            ),
            attend: Kernel::new(
                "attend",
                &["queries", "keys", "values", "seen"],
                &["out", "sums", "tops"],
                include_str!("attend.cu"),
            ),
            attend_shares: Kernel::new(
                "attend_shares",
                &["sums", "tops"],
                &["out"],
                include_str!("attend_shares.cu"),
            ),
            gate: Kernel::new("gate", &["x"], &["y"], include_str!("gate.cu")),
            add_norm: Kernel::new(
                "add_norm",
                &["x", "more", "weight"],
                &["sum", "normed"],
                include_str!("add_norm.cu"),
            ),
            few_rows: Kernel::new(
                "few_rows",
                &["x", "weights", "scales", "biases"],
                &["y"],
                include_str!("few_rows.cu"),
            ),
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
                constants: &[
                    (c"T", Of::Type(x.dtype())),
                    (c"QUERIES", Of::Count(queries)),
                    (c"KV", Of::Count(kv)),
                    (c"DIM", Of::Count(dim)),
                    (c"TURNED", Of::Count(cut.turned)),
                    (c"NORMS", Of::Count(cut.norms.is_some().into())),
                    (c"EPS", Of::Float(eps)),
                    (c"MAGNITUDE", Of::Float(cut.magnitude)),
                ],
            },
        )
    }

    /// Whether [`attend`](Self::attend) knows heads like these.
    pub fn can_attend(heads: Heads) -> bool {
        heads.dim.is_power_of_two() && (16..=256).contains(&heads.dim)
    }

    /// What one query of each head sees: queries `[rows, heads, 1, dim]`, whole buffers of keys and values `[rows, kv heads,
    /// capacity, dim]`; for each row, in `seen` `[rows, 3]` int32, the first column, how many, and after how many columns they
    /// go on at the start; no row has more than `most`. To `[rows, heads · dim]`.
    pub fn attend(
        &self,
        queries: &Array,
        [keys, values]: [&Array; 2],
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
        let rows = queries.shape().first().copied().map_or(0, count);
        let group = group_of(wide / kv.max(1), dim);
        let blocks = wide / group * rows;
        let shares = BLOCKS.div_ceil(blocks.max(1)).min(most.div_ceil(SHARE)).max(1);
        let whole = [rows, wide * dim].map(extent);
        let [parts, tops] = [dim, 2].map(|each| [rows, wide, shares, each].map(extent));
        let none = [1];
        let outputs: [(&[i32], Dtype); 3] = match shares {
            1 => [(&whole, dtype), (&none, Dtype::Float32), (&none, Dtype::Float32)],
            _ => [(&none, dtype), (&parts, Dtype::Float32), (&tops, Dtype::Float32)],
        };
        let [out, sums, tops] = self.attend.apply(
            &[queries, keys, values, seen],
            outputs,
            Start {
                blocks: [shares, wide / group, rows],
                threads: THREADS,
                constants: &[
                    (c"T", Of::Type(dtype)),
                    (c"QUERIES", Of::Count(wide)),
                    (c"KV", Of::Count(kv)),
                    (c"DIM", Of::Count(dim)),
                    (c"GROUP", Of::Count(group)),
                    (c"AHEAD", Of::Count(AHEAD)),
                    (c"THREADS", Of::Count(THREADS)),
                    (c"SCALE", Of::Float(scale)),
                ],
            },
        )?;
        if shares == 1 {
            return Ok(out);
        }
        let [out] = self.attend_shares.apply(
            &[&sums, &tops],
            [(&whole, dtype)],
            Start {
                blocks: [rows * wide, 1, 1],
                threads: dim,
                constants: &[(c"T", Of::Type(dtype)), (c"DIM", Of::Count(dim))],
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
                constants: &[
                    (c"T", Of::Type(x.dtype())),
                    (c"WIDTH", Of::Count(count(both) / 2)),
                    (c"GELU", Of::Count((activation == Activation::GeluTanh).into())),
                ],
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
                constants: &[
                    (c"T", Of::Type(x.dtype())),
                    (c"WIDTH", Of::Count(count(features))),
                    (c"THREADS", Of::Count(threads)),
                    (c"EPS", Of::Float(eps)),
                ],
            },
        )
    }

    /// Whether [`few_rows`](Self::few_rows) knows matrices of so many bits and inputs, in groups of this size.
    pub fn knows_few_rows(bits: usize, group_size: usize, inputs: usize) -> bool {
        matches!(bits, 4 | 8 | 16) && group_size >= 32 && inputs.is_multiple_of(128 / bits)
    }

    /// Whether rows `[rows, inputs]` are so few that [`few_rows`](Self::few_rows) takes less time than MLX's product does.
    pub fn prefers_few_rows(x: &Array, bits: usize) -> bool {
        let least = if bits == 16 { FEW_ROWS_DENSE } else { 1 };
        matches!(x.shape(), &[rows, _] if (least..=FEW_ROWS).contains(&count(rows)))
    }

    /// Whether rows are so many that a dequantized matrix takes less time than a quantized one.
    pub fn prefers_dense(x: &Array) -> bool {
        matches!(x.shape(), &[rows, _] if count(rows) >= DENSE_FROM)
    }

    /// `[rows, inputs]` by a matrix, to `[rows, outputs]`; no more than [`FEW_ROWS`].
    pub fn few_rows(&self, x: &Array, matrix: &FewRows<'_>) -> Result<Array, Exception> {
        let ([weights, scales, biases], bits, group_size) = match *matrix {
            FewRows::Dense(weights) => ([weights; 3], 16, 1 << 24),
            FewRows::Affine(arrays, bits, group_size) => (arrays, bits, group_size),
        };
        let (&[rows, _], Some(&outputs)) = (x.shape(), weights.shape().first()) else {
            return Err(Exception::custom("expected rows and features"));
        };
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
                constants: &[
                    (c"T", Of::Type(x.dtype())),
                    (c"BITS", Of::Count(bits)),
                    (c"GROUP_SIZE", Of::Count(group_size)),
                    (c"ROWS", Of::Count(count(rows).next_power_of_two())),
                    (c"OUTPUTS", Of::Count(of_warp)),
                ],
            },
        )?;
        Ok(y)
    }
}

/// Query heads that a block takes at once: of the same key head, and as many as registers hold.
fn group_of(of_key_head: usize, dim: usize) -> usize {
    let most = (1024 / dim.max(1)).clamp(1, 8);
    let fits = |group: &usize| of_key_head.is_multiple_of(*group);
    (1..=most).rev().find(fits).unwrap_or(1)
}

/// An extent of an array.
fn count(extent: i32) -> usize {
    extent.unsigned_abs() as usize
}

#[cfg(test)]
mod tests;
