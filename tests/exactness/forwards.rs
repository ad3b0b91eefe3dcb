//! The model by itself: logits of rows in batches, compared by their bits with those of the row alone.

use mlx_chat::cache::{BatchCache, RowCache};
use mlx_chat::model::{Feed, LanguageModel, Piece, Step};
use mlx_rs::Array;

use crate::support::Dice;
use crate::tiny::{feed, load_tiny, logits_of};
use crate::workload::IDS;
use crate::{FAMILIES, MODELS};

/// A row by itself: what it was fed, and the logits after each token from the prompt's last one on.
struct Reference {
    tokens: Vec<u32>,
    prompt: usize,
    logits: Vec<Vec<u32>>,
}

const STEPS: usize = 10;

impl Reference {
    /// Fed whole, decoded alone, greedily.
    fn new(model: &dyn LanguageModel, prompt: Vec<u32>) -> Self {
        let mut row = model.new_row();
        feed(model, &mut row, std::iter::once(&prompt[..prompt.len() - 1]));
        let mut batch = BatchCache::adopt(row);
        let mut reference = Self {
            prompt: prompt.len(),
            tokens: prompt,
            logits: Vec::new(),
        };
        for _ in 0..STEPS {
            let last = reference.tokens[reference.tokens.len() - 1];
            let logits: Vec<f32> = logits_of(model, &mut batch, &[last]).to_vec_exact().unwrap();
            let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]).then(b.cmp(&a)));
            reference.tokens.push(best.unwrap() as u32);
            reference.logits.push(bits(&logits));
        }
        reference
    }

    /// The logits that follow when `held` positions are there and one more is fed.
    fn after(&self, held: usize) -> &[u32] {
        &self.logits[held + 1 - self.prompt]
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Pieces of random lengths, many of them small.
fn cut<'a>(dice: &mut Dice, mut tokens: &'a [u32]) -> Vec<&'a [u32]> {
    let mut pieces = Vec::new();
    while !tokens.is_empty() {
        let most = [1, 7, 64, 512][dice.below(4)];
        let (piece, rest) = tokens.split_at((1 + dice.below(most)).min(tokens.len()));
        pieces.push(piece);
        tokens = rest;
    }
    pieces
}

/// A row that holds the first `held` tokens, fed in random pieces.
fn prepared(model: &dyn LanguageModel, dice: &mut Dice, reference: &Reference, held: usize) -> RowCache {
    let mut row = model.new_row();
    feed(model, &mut row, cut(dice, &reference.tokens[..held]).into_iter());
    row
}

/// One step of a batch of these rows; each one's logits are what they are alone.
fn step(model: &dyn LanguageModel, batch: &mut BatchCache, rows: &[&Reference], what: &str) {
    let held = batch.lengths();
    let ids: Vec<u32> = rows
        .iter()
        .zip(&held)
        .map(|(row, &held)| row.tokens[held])
        .collect();
    let logits = logits_of(model, batch, &ids);
    assert_eq!(logits.shape(), [rows.len() as i32, IDS as i32]);
    let logits = bits(&logits.to_vec_exact::<f32>().unwrap());
    for ((row, held), logits) in rows.iter().zip(held).zip(logits.chunks(IDS)) {
        let expected = row.after(held);
        let differ = logits.iter().zip(expected).filter(|(a, b)| a != b).count();
        assert!(
            differ == 0,
            "{what}: {differ} of {IDS} logits of a row at position {held} in a batch of {} differ from those alone",
            rows.len()
        );
    }
}

fn references(model: &dyn LanguageModel, dice: &mut Dice, count: usize, longest: usize) -> Vec<Reference> {
    (0..count)
        .map(|_| {
            let length = 1 + dice.below(longest);
            Reference::new(model, dice.prompt(length, IDS))
        })
        .collect()
}

#[test]
fn a_row_among_64_gets_the_logits_that_it_gets_alone_however_its_prompt_was_cut() {
    for name in MODELS {
        let alone = load_tiny(name, Some(1)).model;
        let mut dice = Dice(3);
        let rows = references(&*alone, &mut dice, 64, 300);
        for threads in [1, 2, 3] {
            let model = load_tiny(name, Some(threads)).model;
            let mut batch: Option<BatchCache> = None;
            for row in &rows {
                let cache = prepared(&*model, &mut dice, row, row.prompt - 1);
                match &mut batch {
                    None => batch = Some(BatchCache::adopt(cache)),
                    Some(batch) => batch.extend(cache).unwrap(),
                }
            }
            let mut batch = batch.unwrap();
            let mut running: Vec<&Reference> = rows.iter().collect();
            for round in 0..4 {
                step(
                    &*model,
                    &mut batch,
                    &running,
                    &format!("{name}, {threads} threads, round {round}"),
                );
                let keep: Vec<usize> = (0..running.len()).filter(|_| dice.below(3) > 0).collect();
                batch.filter(&keep).unwrap();
                running = keep.iter().map(|&row| running[row]).collect();
            }
        }
    }
}

/// Steps of a batch, last tokens of prompts and pieces of prompts, all in one forward.
#[test]
fn what_goes_through_one_forward_together_gets_the_logits_that_it_gets_alone() {
    for (name, seed) in FAMILIES.into_iter().zip(40..) {
        let model = load_tiny(name, Some(2)).model;
        let mut dice = Dice(seed);
        let rows = references(&*load_tiny(name, Some(1)).model, &mut dice, 9, 330);
        let mut batch = BatchCache::adopt(prepared(&*model, &mut dice, &rows[0], rows[0].prompt - 1));
        let second = prepared(&*model, &mut dice, &rows[1], rows[1].prompt - 1);
        batch.extend(second).unwrap();
        let running = [&rows[0], &rows[1]];
        // The others, with what they hold.
        let mut joining: Vec<(&Reference, RowCache)> =
            rows[2..].iter().map(|row| (row, model.new_row())).collect();
        let mut round = 0;
        while !joining.is_empty() {
            round += 1;
            let what = format!("{name}, round {round}");
            let held = |row: &RowCache| row.len().unwrap();
            let (lasts, rest): (Vec<_>, Vec<_>) = joining
                .into_iter()
                .partition(|(row, cache)| held(cache) + 1 == row.prompt);
            joining = rest;
            let with_steps =
                dice.below(4) > 0 && (0..2).all(|at| batch.lengths()[at] + 1 < rows[at].prompt + STEPS);
            let of_steps = batch.lengths();
            let ids: Vec<u32> = running
                .iter()
                .zip(&of_steps)
                .map(|(row, &held)| row.tokens[held])
                .collect();
            let ids = Array::from_slice(&ids, &[ids.len() as i32]);
            let last_ids: Vec<Array> = lasts
                .iter()
                .map(|(row, _)| Array::from_slice(&row.tokens[row.prompt - 1..row.prompt], &[1]))
                .collect();
            let mut lone: Vec<BatchCache> = lasts
                .iter()
                .map(|(_, cache)| BatchCache::adopt(cache.clone()))
                .collect();
            let mut feed = Feed::default();
            if with_steps {
                feed.steps.push(Step {
                    tokens: &ids,
                    batch: &mut batch,
                });
            }
            feed.steps.extend(
                last_ids
                    .iter()
                    .zip(&mut lone)
                    .map(|(tokens, batch)| Step { tokens, batch }),
            );
            for (row, cache) in &mut joining {
                let held = cache.len().unwrap();
                let most = [1, 7, 300][dice.below(3)];
                let end = (held + 1 + dice.below(most)).min(row.prompt - 1);
                feed.pieces.push(Piece {
                    tokens: &row.tokens[held..end],
                    row: cache,
                });
            }
            if feed.steps.is_empty() && feed.pieces.is_empty() {
                continue;
            }
            let steps = feed.steps.len();
            let hidden = model.packed(&mut feed).unwrap();
            for piece in &feed.pieces {
                mlx_rs::transforms::eval(piece.row.arrays()).unwrap();
            }
            if steps == 0 {
                continue;
            }
            let logits = bits(&model.head(&hidden).unwrap().to_vec_exact::<f32>().unwrap());
            let mut logits = logits.chunks(IDS);
            if with_steps {
                for (row, held) in running.iter().zip(&of_steps) {
                    assert!(
                        logits.next() == Some(row.after(*held)),
                        "{what}: a step's logits differ"
                    );
                }
            }
            for ((row, _), lone) in lasts.into_iter().zip(lone) {
                assert!(
                    logits.next() == Some(row.after(row.prompt - 1)),
                    "{what}: a last token's logits differ"
                );
                step(
                    &*model,
                    &mut BatchCache::adopt(lone.into_lone().unwrap()),
                    &[row],
                    &what,
                );
            }
            assert!(logits.next().is_none());
        }
    }
}

#[test]
fn every_width_of_a_batch_gives_the_same_logits() {
    let model = load_tiny("llama-4bit", Some(2)).model;
    let mut dice = Dice(4);
    let rows = references(&*model, &mut dice, 20, 60);
    for width in 1..=rows.len() {
        let mut batch = BatchCache::adopt(prepared(&*model, &mut dice, &rows[0], rows[0].prompt - 1));
        for row in &rows[1..width] {
            batch
                .extend(prepared(&*model, &mut dice, row, row.prompt - 1))
                .unwrap();
        }
        let running: Vec<&Reference> = rows[..width].iter().collect();
        step(&*model, &mut batch, &running, "first");
        step(&*model, &mut batch, &running, "second");
    }
}

/// Rows join, step, leave, are taken out, cut, fed again and put back, at random.
#[test]
fn joined_extracted_cut_and_refed_rows_get_the_logits_that_they_get_alone() {
    for (name, seed) in MODELS.into_iter().zip(20..) {
        let model = load_tiny(name, Some(2)).model;
        let mut dice = Dice(seed);
        let rows = references(&*load_tiny(name, Some(1)).model, &mut dice, 12, 600);
        let start = |dice: &mut Dice| {
            let row = &rows[dice.below(rows.len())];
            (row, prepared(&*model, dice, row, row.prompt - 1))
        };
        let (first, cache) = start(&mut dice);
        let (mut running, mut batch) = (vec![first], BatchCache::adopt(cache));
        for round in 0..150 {
            let what = format!("{name}, round {round}");
            // Those that have nothing left to say leave; a fresh one keeps the batch from being empty.
            let lengths = batch.lengths();
            let ended = |at: usize| lengths[at] + 1 >= running[at].prompt + STEPS;
            let keep: Vec<usize> = (0..running.len()).filter(|&at| !ended(at)).collect();
            if keep.len() < 2 {
                let (row, cache) = start(&mut dice);
                batch.extend(cache).unwrap();
                running.push(row);
                let keep: Vec<usize> = keep.into_iter().chain([running.len() - 1]).collect();
                batch.filter(&keep).unwrap();
                running = keep.iter().map(|&at| running[at]).collect();
            } else {
                batch.filter(&keep).unwrap();
                running = keep.iter().map(|&at| running[at]).collect();
            }
            match dice.below(6) {
                0 if running.len() < 10 => {
                    let (row, cache) = start(&mut dice);
                    batch.extend(cache).unwrap();
                    running.push(row);
                }
                1 => {
                    // A snapshot is cut, fed again, and goes on beside its original.
                    let at = dice.below(running.len());
                    let mut copy = batch.extract(at).unwrap();
                    let (row, held) = (running[at], batch.lengths()[at]);
                    let mut kept = dice.below(held + 1);
                    if !copy.trimmable_to(kept) {
                        // A window has let go of what it would need.
                        kept = held;
                    }
                    copy.trim_to(kept).unwrap();
                    let least = (row.prompt - 1).max(kept);
                    let again = least + dice.below(held - least + 1);
                    feed(
                        &*model,
                        &mut copy,
                        cut(&mut dice, &row.tokens[kept..again]).into_iter(),
                    );
                    step(
                        &*model,
                        &mut BatchCache::adopt(copy.clone()),
                        &[row],
                        &format!("{what}, cut to {kept}"),
                    );
                    batch.extend(copy).unwrap();
                    running.push(row);
                }
                2 => {
                    // In another order.
                    let mut order: Vec<usize> = (0..running.len()).rev().collect();
                    order.rotate_left(dice.below(running.len()));
                    batch.filter(&order).unwrap();
                    running = order.iter().map(|&at| running[at]).collect();
                }
                _ => step(&*model, &mut batch, &running, &what),
            }
        }
    }
}
