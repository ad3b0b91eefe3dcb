//! Which positions attention may see.

use mlx_rs::Array;

use super::extent;
use crate::cache::{Layers, Sight};

/// What hides keys from queries; built once per forward and window, and shared by layers.
#[derive(Debug)]
pub enum Mask {
    /// Every query sees every key: one new token per row, no padding. Or kernels, which know by themselves.
    None,
    /// Each of the last `L` positions sees those up to its own.
    Causal,
    /// Bool, true where a key is seen: `[B, 1, L, S]`.
    Array(Array),
}

impl Mask {
    /// What a forward of `added` tokens for each row needs, for each of a plan's [windows](crate::cache::CachePlan::windows).
    pub fn each(caches: &dyn Layers, windows: &[Option<usize>], added: usize) -> Vec<Self> {
        let sights = windows.iter().map(|&window| caches.sight(window, added));
        sights
            .map(|sight| sight.as_ref().map_or(Self::None, Self::of))
            .collect()
    }

    /// What hides the rest from those who see this.
    pub fn of(sight: &Sight) -> Self {
        match (sight.is_causal(), sight.added) {
            (true, 1) => Self::None,
            (true, _) => Self::Causal,
            (false, _) => Self::Array(seen(sight)),
        }
    }
}

/// `[B, 1, L, S]` bool: true where a new token sees a column.
fn seen(sight: &Sight) -> Array {
    let rows = sight.hidden.len();
    let mut seen = Vec::with_capacity(rows * sight.added * sight.columns);
    for row in 0..rows {
        for token in 0..sight.added {
            seen.extend((0..sight.columns).map(|column| sight.sees(row, token, column)));
        }
    }
    Array::from_slice(&seen, &[rows, 1, sight.added, sight.columns].map(extent))
}
