//! The gated delta rule (Yang, Kautz and Hatamizadeh 2024): `x + output(delta(projections(norm(x))))`, a layer whose rows
//! remember what they have seen in a state of fixed size.

use mlx_rs::error::Exception;
use mlx_rs::fast::rms_norm;
use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::ops::{concatenate, logaddexp, sigmoid, stack};
use mlx_rs::{Array, Dtype};

pub use cpu_kernels::delta::DeltaShape;

use super::kernels::KernelDeltaNet;
use super::packed::{cut, joined};
use super::{Linear, NnError, Packed, RmsNorm, Span, extent, features};
use crate::cache::LayerCache;

/// What keeps the length of a query or a key of zeros finite, added to the sum of its squares.
const LENGTH_EPS: f32 = 1e-6;

/// The gated delta rule, with the normalization before it and the residual around it.
#[derive(Debug)]
pub struct DeltaNet(Way);

#[derive(Debug)]
enum Way {
    Ops(DeltaOps),
    Kernels(KernelDeltaNet),
}

/// The layer by MLX's operations.
#[derive(Debug)]
pub struct DeltaOps {
    /// Before it.
    pub norm: RmsNorm,
    /// `[in, width]`: queries, keys, values, `z`, `b` and `a`.
    pub projection: Linear,
    /// How many heads, and how wide.
    pub shape: DeltaShape,
    /// `[kernel, conv_features]`, the tap of the oldest token first.
    pub conv: Array,
    /// `-exp(A_log)` of each value head, `[value_heads]` float32.
    pub rate: Array,
    /// `[value_heads]` float32.
    pub dt_bias: Array,
    /// Of each head's output, `[value_dim]`.
    pub head_norm: RmsNorm,
    /// `[value_heads · value_dim, in]`.
    pub output: Linear,
}

impl DeltaNet {
    /// By MLX's operations.
    pub fn ops(ops: DeltaOps) -> Self {
        Self(Way::Ops(ops))
    }

    /// By kernels.
    pub fn kernels(kernels: KernelDeltaNet) -> Self {
        Self(Way::Kernels(kernels))
    }

    /// `[tokens, features]` to the same, of the first `put_out` spans: a last layer has to do no more for the others than
    /// to take them in. The caches, one for each span, come to hold the states after the new positions. Of no span, the
    /// result is nothing but what says that they do.
    pub fn forward(
        &self,
        x: &Array,
        caches: Vec<LayerCache<'_>>,
        packed: &Packed,
        put_out: usize,
    ) -> Result<Array, NnError> {
        match &self.0 {
            Way::Ops(ops) => ops.forward(x, caches, packed, put_out),
            Way::Kernels(kernels) => kernels.forward(x, caches, packed, put_out),
        }
    }
}

/// What the recurrence takes of some tokens, float32. `Hk` are the key heads, `G` the value heads of each.
struct Steps {
    /// `[rows, L, Hk, 1, 1, key_dim]`.
    queries: Array,
    /// `[rows, L, Hk, 1, 1, key_dim]`.
    keys: Array,
    /// `[rows, L, Hk, G, value_dim]`.
    values: Array,
    /// `[rows, L, Hk, G, 1, 1]`.
    decay: Array,
    /// `[rows, L, Hk, G, 1]`.
    beta: Array,
}

impl DeltaOps {
    /// As [`DeltaNet::forward`]: all tokens together, but for each span's by itself where they meet a state.
    fn forward(
        &self,
        x: &Array,
        caches: Vec<LayerCache<'_>>,
        packed: &Packed,
        put_out: usize,
    ) -> Result<Array, NnError> {
        let projected = self.projection.forward(&self.norm.forward(x)?)?;
        let (mut seen, mut at) = (Vec::new(), 0);
        for (cache, span) in caches.into_iter().zip(&packed.spans) {
            let tokens = cut(&projected, at, at + span.tokens())?;
            seen.push(self.update(&tokens, cache, span)?);
            at += span.tokens();
        }
        if put_out == 0 {
            return Ok(joined(&seen)?);
        }
        seen.truncate(put_out);
        let (conv, wide) = (self.shape.conv_features(), self.shape.value_features());
        let tokens = packed.tokens(put_out);
        let z = features(&cut(&projected, 0, tokens)?, conv, conv + wide)?;
        Ok(cut(x, 0, tokens)?.add(self.finish(&joined(&seen)?, &z)?)?)
    }

    /// What the heads get of one span's projections `[rows · L, width]`: `[rows · L · value_heads, value_dim]` float32.
    fn update(&self, projected: &Array, cache: LayerCache<'_>, span: &Span) -> Result<Array, NnError> {
        let shape = self.shape;
        let (rows, len, tokens) = (extent(span.rows), extent(span.added), extent(span.tokens()));
        let (conv, wide) = (shape.conv_features(), shape.value_features());
        let gates = features(projected, conv + wide, shape.width())?.as_dtype(Dtype::Float32)?;
        let cache = cache.recurrent(span.added)?;
        let new = features(projected, 0, conv)?.reshape(&[rows, len, extent(conv)])?;
        let window = concatenate(&[cache.conv(), &new], 1)?;
        let kept = window.try_index((.., len.., ..))?.contiguous()?;
        let steps = self.steps(&window, &gates, rows, len)?;
        let (state, seen) = self.recur(cache.state(), &steps, rows, len)?;
        cache.store(kept, state)?;
        Ok(seen.reshape(&[tokens * extent(shape.value_heads), extent(shape.value_dim)])?)
    }

    /// Of the convolution's inputs `[rows, kernel - 1 + L, conv_features]` and the gates `[rows · L, 2 · value_heads]`.
    fn steps(&self, window: &Array, gates: &Array, rows: i32, len: i32) -> Result<Steps, Exception> {
        let shape = self.shape;
        let mut sum: Option<Array> = None;
        for tap in 0..extent(shape.kernel) {
            let inputs = window.try_index((.., tap..tap + len, ..))?;
            let term = inputs.multiply(self.conv.try_index(tap)?)?;
            sum = Some(match sum {
                Some(sum) => sum.add(term)?,
                None => term,
            });
        }
        let sum = sum.ok_or_else(|| Exception::custom("a convolution of no tokens".to_owned()))?;
        let convolved = sum.multiply(sigmoid(&sum)?)?.as_dtype(Dtype::Float32)?;
        let [key_heads, key_dim, value_dim] = [shape.key_heads, shape.key_dim, shape.value_dim].map(extent);
        let group = extent(shape.value_heads) / key_heads.max(1);
        let joined = key_heads * key_dim;
        let unit = |start: i32, factor: f32| {
            let x = convolved.try_index((.., .., start..start + joined))?;
            let x = x.reshape(&[rows, len, key_heads, 1, 1, key_dim])?;
            // The mean of squares is 1 / key_dim of their sum.
            let dim = shape.key_dim as f32;
            let factor = Array::from_f32(factor / dim.sqrt());
            rms_norm(&x, None, LENGTH_EPS / dim)?.multiply(factor)
        };
        let heads = extent(shape.value_heads);
        let each = |from: i32, extra: &[i32]| {
            let part = gates.try_index((.., from..from + heads))?;
            Ok::<_, Exception>((part, [&[rows, len, key_heads, group], extra].concat()))
        };
        let (b, beta_shape) = each(0, &[1])?;
        let (a, decay_shape) = each(heads, &[1, 1])?;
        let softplus = logaddexp(a.add(&self.dt_bias)?, Array::from_f32(0.0))?;
        Ok(Steps {
            queries: unit(0, (shape.key_dim as f32).sqrt().recip())?,
            keys: unit(joined, 1.0)?,
            values: convolved
                .try_index((.., .., 2 * joined..))?
                .reshape(&[rows, len, key_heads, group, value_dim])?,
            decay: self.rate.multiply(softplus)?.exp()?.reshape(&decay_shape)?,
            beta: sigmoid(b)?.reshape(&beta_shape)?,
        })
    }

    /// The state after some tokens, and what each got of it, `[rows, L, Hk, G, value_dim]`.
    fn recur(&self, state: &Array, steps: &Steps, rows: i32, len: i32) -> Result<(Array, Array), Exception> {
        let shape = self.shape;
        let [key_heads, key_dim, value_dim] = [shape.key_heads, shape.key_dim, shape.value_dim].map(extent);
        let group = extent(shape.value_heads) / key_heads.max(1);
        let held = state.shape().to_vec();
        let mut state = state.reshape(&[rows, key_heads, group, value_dim, key_dim])?;
        let mut seen = Vec::new();
        for token in 0..len {
            let at = |x: &Array| x.try_index((.., token));
            let key = at(&steps.keys)?;
            state = state.multiply(at(&steps.decay)?)?;
            let known = state.multiply(&key)?.sum_axis(-1, false)?;
            let taken = at(&steps.values)?.subtract(known)?.multiply(at(&steps.beta)?)?;
            state = state.add(taken.expand_dims(-1)?.multiply(&key)?)?;
            seen.push(state.multiply(at(&steps.queries)?)?.sum_axis(-1, false)?);
        }
        Ok((state.reshape(&held)?, stack(&seen, 1)?))
    }

    /// From what the heads get to the layer's output.
    fn finish(&self, seen: &Array, z: &Array) -> Result<Array, Exception> {
        let normed = self.head_norm.forward(&seen.as_dtype(z.dtype())?)?;
        let wide = z.as_dtype(Dtype::Float32)?;
        let silu = wide.multiply(sigmoid(&wide)?)?;
        let gated = normed
            .reshape(z.shape())?
            .as_dtype(Dtype::Float32)?
            .multiply(silu)?;
        self.output.forward(&gated.as_dtype(z.dtype())?)
    }
}
