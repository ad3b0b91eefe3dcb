//! Which positions attention may see.

use std::cell::OnceCell;

use mlx_rs::Array;

use super::{Cuda, extent};
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
    /// One new token per row, for kernels.
    Rows(Rows),
}

/// Which columns the one new token of each row sees.
#[derive(Debug)]
pub struct Rows {
    sight: Sight,
    /// `[B, 3]` int32: the first column, how many, and after how many columns they go on at the start.
    seen: OnceCell<Array>,
    mask: OnceCell<Box<Mask>>,
}

impl Mask {
    /// What a forward of `added` tokens for each row needs, for each of a plan's [windows](crate::cache::CachePlan::windows).
    pub fn each(caches: &dyn Layers, windows: &[Option<usize>], added: usize) -> Vec<Self> {
        let by_rows = added == 1 && Cuda::here().is_some();
        let sights = windows.iter().map(|&window| caches.sight(window, added));
        sights
            .map(|sight| match sight {
                None => Self::None,
                Some(sight) if by_rows => Self::Rows(Rows::new(sight)),
                Some(sight) => Self::of(&sight),
            })
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

impl Rows {
    fn new(sight: Sight) -> Self {
        Self {
            sight,
            seen: OnceCell::new(),
            mask: OnceCell::new(),
        }
    }

    /// Of one row alone: the first column, and how many, the new one's among them; where they follow each other.
    pub fn of_one(&self) -> Option<(usize, usize)> {
        match self.sight.hidden.as_slice() {
            &[hidden] if self.sight.oldest == 0 => Some((hidden, self.sight.columns.checked_sub(hidden)?)),
            _ => None,
        }
    }

    /// The columns `[B, 3]`, and the most of any row.
    pub fn seen(&self) -> (&Array, usize) {
        let Sight {
            columns,
            oldest,
            ref hidden,
            ..
        } = self.sight;
        let most = columns - hidden.iter().copied().min().unwrap_or(0).min(columns);
        let seen = self.seen.get_or_init(|| {
            let places = hidden.iter().flat_map(|hidden| {
                [(oldest + hidden) % columns.max(1), columns - hidden, columns].map(extent)
            });
            let places: Vec<i32> = places.collect();
            Array::from_slice(&places, &[extent(hidden.len()), 3])
        });
        (seen, most)
    }

    /// The same for MLX's operations.
    pub fn mask(&self) -> &Mask {
        self.mask.get_or_init(|| Box::new(Mask::of(&self.sight)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_of_rows_are_what_their_new_tokens_see() {
        let sight = |columns, oldest, hidden: &[usize], window| Sight {
            added: 1,
            columns,
            oldest,
            hidden: hidden.to_vec(),
            window,
        };
        for sight in [
            sight(1, 0, &[0], None),
            sight(9, 0, &[0, 8, 3], None),
            sight(4, 3, &[0, 2, 3], Some(4)),
        ] {
            let rows = Rows::new(sight.clone());
            let (places, most) = rows.seen();
            let places: Vec<i32> = places.to_vec_exact().unwrap();
            let found = places.chunks_exact(3).map(|place| {
                let &[start, count, round] = place else {
                    unreachable!("threes")
                };
                (start..start + count)
                    .map(|column| column % round)
                    .collect::<Vec<_>>()
            });
            let each = (0..sight.hidden.len()).map(|row| sight.seen(row, 0));
            let expected: Vec<Vec<i32>> = each.map(|seen| seen.map(extent).collect()).collect();
            assert_eq!(found.collect::<Vec<_>>(), expected);
            assert_eq!(most, expected.iter().map(Vec::len).max().unwrap());
        }
    }
}
