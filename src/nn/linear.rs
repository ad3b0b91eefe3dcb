//! Linear maps.

use mlx_rs::Array;
use mlx_rs::error::Exception;
use mlx_rs::ops::{concatenate, matmul};

use super::Quantized;

/// `y = x · W + b` over `[tokens, in]`.
#[derive(Debug)]
pub struct Linear {
    /// Whose outputs follow one another; mostly one.
    weights: Vec<Weight>,
    bias: Option<Array>,
}

#[derive(Debug)]
enum Weight {
    /// `[in, out]`.
    Dense(Array),
    /// `[out, in]`.
    Quantized(Quantized),
}

impl Linear {
    /// A dense map of a weight `[in, out]` (contiguous or a view) and a bias `[out]`.
    pub fn dense(weight: Array, bias: Option<Array>) -> Self {
        Self {
            weights: vec![Weight::Dense(weight)],
            bias,
        }
    }

    /// A map of a quantized weight `[out, in]`, and a bias `[out]`.
    pub fn quantized(weight: Quantized, bias: Option<Array>) -> Self {
        Self {
            weights: vec![Weight::Quantized(weight)],
            bias,
        }
    }

    /// A map of an affine-quantized weight `[out, in]`: see [`Quantized::affine`]; and a bias `[out]`.
    pub fn affine(arrays: [Array; 3], bits: i32, group_size: i32, bias: Option<Array>) -> Self {
        Self::quantized(Quantized::affine(arrays, bits, group_size), bias)
    }

    /// One map of several whose weights are stored in different ways: its outputs are theirs, one after the other. They have
    /// no biases; `bias` is for all outputs.
    pub fn joined(parts: Vec<Self>, bias: Option<Array>) -> Self {
        Self {
            weights: parts.into_iter().flat_map(|part| part.weights).collect(),
            bias,
        }
    }

    /// `[tokens, in]` to `[tokens, out]`.
    pub fn forward(&self, x: &Array) -> Result<Array, Exception> {
        let product = |weight: &Weight| match weight {
            Weight::Dense(weight) => matmul(x, weight),
            Weight::Quantized(weight) => weight.product(x),
        };
        let y = match self.weights.as_slice() {
            [weight] => product(weight)?,
            weights => {
                let parts = weights.iter().map(product).collect::<Result<Vec<_>, _>>()?;
                concatenate(&parts, -1)?
            }
        };
        match &self.bias {
            Some(bias) => y.add(bias),
            None => Ok(y),
        }
    }

    /// Its one dense weight as `[out, in]`, and its bias; nothing where it has another kind, or several.
    pub fn as_rows(&self) -> Option<(Array, Option<&Array>)> {
        let [Weight::Dense(weight)] = self.weights.as_slice() else {
            return None;
        };
        Some((weight.transpose().ok()?, self.bias.as_ref()))
    }

    /// Its arrays, for evaluation.
    pub fn arrays(&self) -> Vec<&Array> {
        let arrays = self.weights.iter().flat_map(|weight| match weight {
            Weight::Dense(weight) => vec![weight],
            Weight::Quantized(weight) => weight.arrays(),
        });
        arrays.chain(&self.bias).collect()
    }
}
