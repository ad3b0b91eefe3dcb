//! Linear maps.

use mlx_rs::Array;
use mlx_rs::error::Exception;
use mlx_rs::ops::{matmul, quantized_matmul};

/// `y = x · W + b` over `[tokens, in]`.
#[derive(Debug)]
pub struct Linear {
    weight: Weight,
    bias: Option<Array>,
}

#[derive(Debug)]
enum Weight {
    /// `[in, out]`.
    Dense(Array),
    /// `[out, in]`, packed along `in`; scales and biases `[out, in / group_size]`.
    Affine {
        packed: Array,
        scales: Array,
        biases: Array,
        bits: i32,
        group_size: i32,
    },
}

impl Linear {
    /// A dense map of a weight `[in, out]` (contiguous or a view) and a bias `[out]`.
    pub fn dense(weight: Array, bias: Option<Array>) -> Self {
        Self {
            weight: Weight::Dense(weight),
            bias,
        }
    }

    /// A map of an affine-quantized weight `[out, in]`: `packed` `[out, in · bits / 32]` uint32, `scales`
    /// and `biases` `[out, in / group_size]`; and a bias `[out]`.
    pub fn affine(
        [packed, scales, biases]: [Array; 3],
        bits: i32,
        group_size: i32,
        bias: Option<Array>,
    ) -> Self {
        Self {
            weight: Weight::Affine {
                packed,
                scales,
                biases,
                bits,
                group_size,
            },
            bias,
        }
    }

    /// `[tokens, in]` to `[tokens, out]`.
    pub fn forward(&self, x: &Array) -> Result<Array, Exception> {
        let y = match &self.weight {
            Weight::Dense(weight) => matmul(x, weight)?,
            Weight::Affine {
                packed,
                scales,
                biases,
                bits,
                group_size,
            } => quantized_matmul(x, packed, scales, biases, true, *group_size, *bits)?,
        };
        match &self.bias {
            Some(bias) => y.add(bias),
            None => Ok(y),
        }
    }

    /// Its arrays, for evaluation.
    pub fn arrays(&self) -> Vec<&Array> {
        let mut arrays = match &self.weight {
            Weight::Dense(weight) => vec![weight],
            Weight::Affine {
                packed,
                scales,
                biases,
                ..
            } => vec![packed, scales, biases],
        };
        arrays.extend(&self.bias);
        arrays
    }
}
