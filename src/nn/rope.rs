//! Rotary position embeddings (Su et al. 2021), halves paired: feature `i` turns with feature `i + turned / 2`; features
//! from `turned` on stay as they are.

mod scaling;

use std::rc::Rc;

use mlx_rs::error::Exception;
use mlx_rs::{Array, fast};

pub use scaling::RopeScaling;

use super::{Backend, Cuda, extent};

/// Rotations of heads.
#[derive(Debug)]
pub struct Rope {
    /// Radians per position of each pair.
    frequencies: Vec<f64>,
    /// What turned features are multiplied by.
    magnitude: f64,
    /// How MLX turns; absent where kernels do, by tables.
    fast: Option<Rc<FastRope>>,
}

/// Rotations as `fast::rope` takes them.
#[derive(Debug)]
pub struct FastRope {
    turned: i32,
    /// Positions per radian, `[turned / 2]` float32.
    periods: Array,
    /// What a head's features are multiplied by before, `[features]`, if by anything.
    magnitudes: Option<Array>,
    magnitude: f32,
}

/// The positions of a forward's tokens.
#[derive(Debug, Clone, Copy)]
pub enum Positions<'a> {
    /// One row's consecutive positions.
    Run {
        /// The first.
        start: usize,
        /// How many.
        len: usize,
    },
    /// One position for each row.
    Each(&'a [usize]),
}

/// The rotations of one forward, shared by the layers that turn alike.
#[derive(Debug)]
pub enum RopeStep {
    /// Cosines and sines of each token's pairs, times the magnitude, `[tokens, turned / 2]` float32, for kernels.
    Tables {
        /// Cosines.
        cos: Array,
        /// Sines.
        sin: Array,
    },
    /// For MLX's operation.
    Fast {
        /// The rotations.
        rope: Rc<FastRope>,
        /// Where.
        offset: Offset,
    },
}

/// Where MLX's operation starts.
#[derive(Debug)]
pub enum Offset {
    /// The first position of one row.
    Run(i32),
    /// `[B]` int32, one position for each row.
    Each(Array),
    /// `[rows, L]` int32, each token's position, for kernels of CUDA.
    Tokens(Array),
}

impl Rope {
    /// For heads of `features`, the first `turned` (even) of which turn: pair `i` by `base^(-2i / turned)` radians per
    /// position, scaled.
    pub fn new(features: usize, turned: usize, base: f64, scaling: &RopeScaling, backend: Backend) -> Self {
        let mut frequencies: Vec<f64> = (0..turned / 2)
            .map(|i| base.powf(-2.0 * i as f64 / turned as f64))
            .collect();
        scaling.apply(&mut frequencies, base);
        let magnitude = scaling.magnitude();
        let fast = backend.is_gpu().then(|| {
            let periods: Vec<f32> = frequencies.iter().map(|f| (1.0 / f) as f32).collect();
            let magnitudes = (magnitude != 1.0).then(|| {
                let each: Vec<f32> = (0..features)
                    .map(|i| if i < turned { magnitude as f32 } else { 1.0 })
                    .collect();
                Array::from_slice(&each, &[extent(features)])
            });
            Rc::new(FastRope {
                turned: extent(turned),
                periods: Array::from_slice(&periods, &[extent(periods.len())]),
                magnitudes,
                magnitude: magnitude as f32,
            })
        });
        Self {
            frequencies,
            magnitude,
            fast,
        }
    }

    /// What the layers of a forward over these positions need.
    pub fn step(&self, positions: Positions<'_>) -> RopeStep {
        let Some(fast) = &self.fast else {
            return match positions {
                Positions::Run { start, len } => self.tables(start..start + len),
                Positions::Each(each) => self.tables(each.iter().copied()),
            };
        };
        let offset = match positions {
            Positions::Run { start, len } if Cuda::here().is_some() => {
                let all: Vec<i32> = (start..start + len).map(extent).collect();
                Offset::Tokens(Array::from_slice(&all, &[1, extent(len)]))
            }
            Positions::Each(each) if Cuda::here().is_some() => {
                let all: Vec<i32> = each.iter().map(|&position| extent(position)).collect();
                Offset::Tokens(Array::from_slice(&all, &[extent(each.len()), 1]))
            }
            Positions::Run { start, .. } => Offset::Run(extent(start)),
            Positions::Each(each) => {
                let offsets: Vec<i32> = each.iter().map(|&position| extent(position)).collect();
                Offset::Each(Array::from_slice(&offsets, &[extent(offsets.len())]))
            }
        };
        RopeStep::Fast {
            rope: Rc::clone(fast),
            offset,
        }
    }

    fn tables(&self, positions: impl Iterator<Item = usize>) -> RopeStep {
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        let mut tokens = 0;
        for position in positions {
            let angles = self.frequencies.iter().map(|f| (f * position as f64).sin_cos());
            for (s, c) in angles {
                cos.push((c * self.magnitude) as f32);
                sin.push((s * self.magnitude) as f32);
            }
            tokens += 1;
        }
        let shape = [tokens, extent(self.frequencies.len())];
        RopeStep::Tables {
            cos: Array::from_slice(&cos, &shape),
            sin: Array::from_slice(&sin, &shape),
        }
    }
}

impl RopeStep {
    /// Turns heads, `[rows, heads, L, features]`.
    pub fn apply(&self, x: &Array) -> Result<Array, Exception> {
        let Self::Fast { rope, offset } = self else {
            return Err(Exception::custom(
                "tables of rotations are for kernels".to_owned(),
            ));
        };
        let scaled;
        let x = match &rope.magnitudes {
            None => x,
            Some(magnitudes) => {
                scaled = x.multiply(magnitudes.as_dtype(x.dtype())?)?;
                &scaled
            }
        };
        let periods = Some(&rope.periods);
        match offset {
            Offset::Run(start) => fast::rope(x, rope.turned, false, None, 1.0, *start, periods),
            Offset::Each(offsets) => fast::rope_dynamic(x, rope.turned, false, None, 1.0, offsets, periods),
            Offset::Tokens(_) => Err(Exception::custom(
                "positions of tokens are for kernels".to_owned(),
            )),
        }
    }

    /// How heads turn, for kernels of CUDA: features, periods, magnitude, and the positions of tokens.
    pub(super) fn of_tokens(&self) -> Option<(usize, &Array, f32, &Array)> {
        match self {
            Self::Fast {
                rope,
                offset: Offset::Tokens(positions),
            } => {
                let turned = rope.turned.unsigned_abs() as usize;
                Some((turned, &rope.periods, rope.magnitude, positions))
            }
            Self::Fast { .. } | Self::Tables { .. } => None,
        }
    }
}

/// `[rows · L, heads, dim]` to `[rows, heads, L, dim]`.
pub(super) fn to_heads(x: &Array, rows: usize) -> Result<Array, Exception> {
    let &[tokens, heads, dim] = x.shape() else {
        return Err(Exception::custom(format!(
            "expected [tokens, heads, dim], found {:?}",
            x.shape()
        )));
    };
    let rows = extent(rows);
    if tokens == rows {
        return x.reshape(&[rows, heads, 1, dim]);
    }
    x.reshape(&[rows, tokens / rows.max(1), heads, dim])?
        .transpose_axes(&[0, 2, 1, 3])
}
