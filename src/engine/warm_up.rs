//! What a GPU compiles when it first runs an operation, done before anybody waits for it.

use mlx_rs::{Array, transforms};

use super::batch::{BatchError, check_fault};
use crate::cache::BatchCache;
use crate::model::LanguageModel;

/// What people are told meanwhile.
pub(super) const STAGE: &str = "compiling for the GPU (the first time: up to half a minute)";

/// Positions of a prompt that is long enough for all that a step may use.
const POSITIONS: usize = 160;

/// Runs a piece of a prompt, and steps of one, two and four rows, no more than there may be.
pub(super) fn warm_up(model: &dyn LanguageModel, max_batch: usize) -> Result<(), BatchError> {
    let vocabulary = u32::try_from(model.info().vocab_size).unwrap_or(u32::MAX).max(1);
    let positions = POSITIONS.min(model.info().max_positions.saturating_sub(4)).max(1);
    let tokens: Vec<u32> = (0..).map(|at| at % vocabulary).take(positions).collect();
    let mut row = model.new_row();
    model.prefill(&tokens, &mut row)?;
    transforms::eval(row.arrays())?;
    let mut batch = BatchCache::adopt(row.clone());
    for rows in [1, 2, 4] {
        if rows > max_batch {
            break;
        }
        while batch.rows() < rows {
            batch.extend(row.clone())?;
        }
        let last = vec![0u32; rows];
        let logits = model.decode(
            &Array::from_slice(&last, &[i32::try_from(rows).unwrap_or(1)]),
            &mut batch,
        )?;
        let best = model.most_likely(&logits)?;
        transforms::eval([&best.tokens, &best.logits])?;
        // The next of them joins as long as they have become.
        row = batch.extract(0)?;
    }
    check_fault()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{LoadOptions, RandomModel, load_random};

    #[test]
    fn a_model_is_as_it_was_afterwards() {
        let random = RandomModel::named("random:tiny").unwrap().unwrap();
        let options = LoadOptions {
            threads: Some(1),
            ..LoadOptions::default()
        };
        let model = load_random(&random, &options, &mut |_| ()).unwrap().model;
        let logits = || {
            let mut batch = BatchCache::adopt(model.new_row());
            let logits = model
                .decode(&Array::from_slice(&[7u32], &[1]), &mut batch)
                .unwrap();
            logits.to_vec_exact::<f32>().unwrap()
        };
        let before = logits();
        for most in [1, 3, 8] {
            warm_up(&*model, most).unwrap();
        }
        assert_eq!(logits(), before);
    }
}
