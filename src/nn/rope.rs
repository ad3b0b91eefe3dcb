//! Rotary position embeddings (Su et al. 2021), halves paired: feature `i` turns with feature `i + dim / 2`.

use mlx_rs::error::Exception;
use mlx_rs::{Array, fast};

use super::{Backend, extent};

/// How positions beyond those of training are reached.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// Positions are divided by a factor.
    Linear {
        /// The factor.
        factor: f64,
    },
    /// Llama 3: slow frequencies are divided by a factor, fast ones kept, those between blended.
    Llama3 {
        /// The factor.
        factor: f64,
        /// Wavelengths above `original_max_positions / low_freq_factor` are slow.
        low_freq_factor: f64,
        /// Wavelengths below `original_max_positions / high_freq_factor` are fast.
        high_freq_factor: f64,
        /// The positions of training.
        original_max_positions: f64,
    },
    /// Each frequency is divided by its own factor, as GGUF files store it.
    Factors(Vec<f32>),
}

/// Rotations of heads of `dim` features.
#[derive(Debug)]
pub struct Rope {
    dim: usize,
    /// Radians per position of each pair.
    frequencies: Vec<f64>,
    /// Their reciprocals, as `fast::rope` takes them; absent where tables are used.
    periods: Option<Array>,
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

/// The rotations of one forward, shared by its layers.
#[derive(Debug)]
pub enum RopeStep {
    /// Cosines and sines of each token's pairs, `[tokens, dim / 2]` float32, for kernels.
    Tables {
        /// Cosines.
        cos: Array,
        /// Sines.
        sin: Array,
    },
    /// The first position of one row.
    Offset(i32),
    /// `[B]` int32, one position for each row.
    Offsets(Array),
}

impl Rope {
    /// For heads of `dim` features (even): pair `i` turns by `base^(-2i / dim)` radians per position, scaled.
    pub fn new(dim: usize, base: f64, scaling: &RopeScaling, backend: Backend) -> Self {
        let mut frequencies: Vec<f64> = (0..dim / 2)
            .map(|i| base.powf(-2.0 * i as f64 / dim as f64))
            .collect();
        scaling.apply(&mut frequencies);
        let periods = (backend == Backend::Gpu).then(|| {
            let periods: Vec<f32> = frequencies.iter().map(|f| (1.0 / f) as f32).collect();
            Array::from_slice(&periods, &[extent(periods.len())])
        });
        Self {
            dim,
            frequencies,
            periods,
        }
    }

    /// What the layers of a forward over these positions need.
    pub fn step(&self, positions: Positions<'_>) -> RopeStep {
        if self.periods.is_none() {
            return match positions {
                Positions::Run { start, len } => self.tables(start..start + len),
                Positions::Each(each) => self.tables(each.iter().copied()),
            };
        }
        match positions {
            Positions::Run { start, .. } => RopeStep::Offset(extent(start)),
            Positions::Each(each) => {
                let offsets: Vec<i32> = each.iter().map(|&position| extent(position)).collect();
                RopeStep::Offsets(Array::from_slice(&offsets, &[extent(offsets.len())]))
            }
        }
    }

    fn tables(&self, positions: impl Iterator<Item = usize>) -> RopeStep {
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        let mut tokens = 0;
        for position in positions {
            let angles = self.frequencies.iter().map(|f| (f * position as f64).sin_cos());
            for (s, c) in angles {
                cos.push(c as f32);
                sin.push(s as f32);
            }
            tokens += 1;
        }
        let shape = [tokens, extent(self.dim / 2)];
        RopeStep::Tables {
            cos: Array::from_slice(&cos, &shape),
            sin: Array::from_slice(&sin, &shape),
        }
    }

    /// Turns `[rows · L, heads, dim]` and lays it out as `[rows, heads, L, dim]`.
    pub fn apply(&self, x: &Array, step: &RopeStep, rows: usize) -> Result<Array, Exception> {
        match step {
            RopeStep::Tables { .. } => Err(Exception::custom(
                "tables of rotations are for kernels".to_owned(),
            )),
            RopeStep::Offset(offset) => {
                let (x, periods) = (to_heads(x, rows)?, self.periods.as_ref());
                fast::rope(x, extent(self.dim), false, None, 1.0, *offset, periods)
            }
            RopeStep::Offsets(offsets) => {
                let (x, periods) = (to_heads(x, rows)?, self.periods.as_ref());
                fast::rope_dynamic(x, extent(self.dim), false, None, 1.0, offsets, periods)
            }
        }
    }
}

impl RopeScaling {
    /// Scales frequencies in radians per position.
    fn apply(&self, frequencies: &mut [f64]) {
        match self {
            Self::None => {}
            Self::Linear { factor } => frequencies.iter_mut().for_each(|f| *f /= factor),
            Self::Factors(factors) => {
                frequencies
                    .iter_mut()
                    .zip(factors)
                    .for_each(|(f, factor)| *f /= f64::from(*factor));
            }
            Self::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_positions,
            } => {
                for f in frequencies {
                    let waves = original_max_positions * *f / std::f64::consts::TAU;
                    // 1 from the high factor up: kept; 0 from the low factor down: divided.
                    let kept = (waves - low_freq_factor) / (high_freq_factor - low_freq_factor);
                    let kept = kept.clamp(0.0, 1.0);
                    *f *= kept + (1.0 - kept) / factor;
                }
            }
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
