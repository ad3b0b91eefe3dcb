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
    let mut seen = vec![false; rows * sight.added * sight.columns];
    let queries = (0..rows).flat_map(|row| (0..sight.added).map(move |token| (row, token)));
    for ((row, token), seen) in queries.zip(seen.chunks_exact_mut(sight.columns)) {
        sight.seen(row, token).for_each(|column| seen[column] = true);
    }
    Array::from_slice(&seen, &[rows, 1, sight.added, sight.columns].map(extent))
}
