//! The hashing model: its device arithmetic equals its host reference, and notices whatever happens to a row.

use mlx_chat::cache::{BatchCache, KvLayout};
use mlx_chat::model::hashing::{HashingLayer, HashingModel, HashingOptions};
use mlx_chat::model::{LanguageModel, ModelError};
use mlx_chat::nn::Backend;
use mlx_rs::Array;
use mlx_rs::ops::indexing::argmax_axis;

fn model(options: HashingOptions) -> HashingModel {
    Backend::Cpu.enter();
    HashingModel::new(options)
}

fn tokens(ids: &[u32]) -> Array {
    Array::from_slice(ids, &[ids.len() as i32])
}

/// Feeds one token to each row; the most likely next ones.
fn step(model: &HashingModel, batch: &mut BatchCache, ids: &[u32]) -> Vec<u32> {
    let logits = model.decode(&tokens(ids), batch).unwrap();
    assert_eq!(logits.shape(), [ids.len() as i32, model.info().vocab_size as i32]);
    argmax_axis(&logits, -1, false).unwrap().to_vec_exact().unwrap()
}

/// A lone batch that holds all of `prompt` but the last token.
fn prepared(model: &HashingModel, prompt: &[u32], chunk: usize) -> BatchCache {
    let mut row = model.new_row();
    for piece in prompt[..prompt.len() - 1].chunks(chunk) {
        model.prefill(piece, &mut row).unwrap();
    }
    BatchCache::adopt(row)
}

fn prompt(seed: u32, len: u32) -> Vec<u32> {
    (0..len).map(|i| (seed * 31 + i * i * 7 + i * 13) % 60).collect()
}

#[test]
fn a_lone_row_follows_the_reference_however_its_prompt_is_cut() {
    let model = model(HashingOptions::default());
    let prompt = prompt(1, 40);
    for chunk in [1, 7, 64] {
        let mut batch = prepared(&model, &prompt, chunk);
        let mut next = *prompt.last().unwrap();
        let mut out = Vec::new();
        for _ in 0..20 {
            next = step(&model, &mut batch, &[next])[0];
            out.push(next);
        }
        assert_eq!(out, model.continuation(&prompt, 20), "chunks of {chunk}");
    }
}

#[test]
fn rows_that_join_late_and_leave_early_follow_the_reference() {
    let model = model(HashingOptions {
        eos_one_in: 50,
        ..HashingOptions::default()
    });
    let prompts: Vec<Vec<u32>> = [(1, 5), (2, 300), (3, 17), (4, 70)]
        .map(|(s, l)| prompt(s, l))
        .into();
    let joins = [0, 3, 9, 12];
    let mut contexts = prompts.clone();
    let mut running: Vec<usize> = Vec::new();
    let mut batch: Option<BatchCache> = None;
    for at in 0..30 {
        for (id, _) in joins.iter().enumerate().filter(|(_, join)| **join == at) {
            let row = prepared(&model, &prompts[id], 7).into_lone().unwrap();
            match &mut batch {
                None => batch = Some(BatchCache::adopt(row)),
                Some(batch) => batch.extend(row).unwrap(),
            }
            running.push(id);
        }
        if at == 20 {
            batch.as_mut().unwrap().filter(&[0, 2, 3]).unwrap();
            running.remove(1);
        }
        let ids: Vec<u32> = running.iter().map(|&id| *contexts[id].last().unwrap()).collect();
        for (&id, next) in running.iter().zip(step(&model, batch.as_mut().unwrap(), &ids)) {
            assert_eq!(next, model.next_token(&contexts[id]), "row {id} at step {at}");
            contexts[id].push(next);
        }
    }
}

#[test]
fn any_two_contexts_that_differ_get_different_logits() {
    let model = model(HashingOptions::default());
    let logits = |context: &[u32]| -> Vec<f32> {
        let mut batch = prepared(&model, context, 64);
        model
            .decode(&tokens(&context[context.len() - 1..]), &mut batch)
            .unwrap()
            .to_vec_exact()
            .unwrap()
    };
    let whole = prompt(1, 12);
    let base = logits(&whole);
    let mut swapped = whole.clone();
    swapped.swap(3, 4);
    let mut doubled = whole.clone();
    doubled.insert(5, whole[5]);
    let shifted: Vec<u32> = whole[1..].to_vec();
    let padded: Vec<u32> = std::iter::once(0).chain(whole.iter().copied()).collect();
    for other in [swapped, doubled, shifted, padded] {
        assert_ne!(logits(&other), base, "{other:?}");
    }
}

#[test]
fn tokens_fed_to_the_wrong_rows_are_noticed() {
    let model = model(HashingOptions::default());
    let (long, short) = (prompt(1, 30), prompt(2, 10));
    let mut batch = prepared(&model, &long, 64);
    batch
        .extend(prepared(&model, &short, 64).into_lone().unwrap())
        .unwrap();
    // Each row is fed the other's token.
    let (a, b) = (*long.last().unwrap(), *short.last().unwrap());
    assert_ne!(a, b);
    let next = step(&model, &mut batch, &[b, a]);
    assert_ne!(next, [model.next_token(&long), model.next_token(&short)]);
}

#[test]
fn sequences_end_now_and_then_if_asked_to() {
    let ending = model(HashingOptions {
        eos_one_in: 10,
        ..HashingOptions::default()
    });
    let eos = ending.eos().unwrap();
    let lengths: Vec<usize> = (0..20)
        .map(|s| ending.continuation(&prompt(s, 5), 100).len())
        .collect();
    assert!(
        lengths.iter().any(|&n| n < 20) && lengths.iter().any(|&n| n > 3),
        "{lengths:?}"
    );
    for seed in 0..20 {
        let out = ending.continuation(&prompt(seed, 5), 100);
        assert!(!out[..out.len() - 1].contains(&eos));
    }
    let endless = model(HashingOptions::default());
    assert_eq!(endless.eos(), None);
    assert_eq!(endless.continuation(&[1, 2], 500).len(), 500);
}

#[test]
fn the_chosen_token_stands_out() {
    let model = model(HashingOptions {
        peak: 5.0,
        vocab_size: 10,
        ..HashingOptions::default()
    });
    let mut batch = prepared(&model, &[1, 2, 3], 64);
    let logits: Vec<f32> = model
        .decode(&tokens(&[3]), &mut batch)
        .unwrap()
        .to_vec_exact()
        .unwrap();
    let chosen = model.next_token(&[1, 2, 3]) as usize;
    for (id, logit) in logits.iter().enumerate() {
        if id == chosen {
            assert_eq!(*logit, 5.0);
        } else {
            assert!((0.0..1.0).contains(logit), "{id}: {logit}");
        }
    }
}

#[test]
fn the_forward_that_is_told_to_fails_half_way() {
    let options = HashingOptions {
        fail_decode: Some(1),
        fail_prefill: Some(1),
        ..HashingOptions::default()
    };
    let model = model(options);
    let mut row = model.new_row();
    model.prefill(&[1, 2], &mut row).unwrap();
    let mut bad = row.clone();
    assert!(matches!(
        model.prefill(&[3], &mut bad),
        Err(ModelError::Told { forward: 1 })
    ));
    assert_eq!(bad.len(), None);
    assert!(matches!(
        model.prefill(&[3], &mut bad),
        Err(ModelError::Misuse(_))
    ));
    let mut batch = BatchCache::adopt(row);
    model.decode(&tokens(&[3]), &mut batch).unwrap();
    assert!(matches!(
        model.decode(&tokens(&[4]), &mut batch),
        Err(ModelError::Told { forward: 1 })
    ));
    assert!(batch.extract(0).is_err());
    assert_eq!(model.forwards(), (3, 2));
}

#[test]
fn a_step_of_the_wrong_number_of_tokens_is_refused() {
    let model = model(HashingOptions::default());
    let mut batch = prepared(&model, &[1, 2, 3], 64);
    let message = model
        .decode(&tokens(&[1, 2]), &mut batch)
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("a step of 1 rows was given tokens of shape [2]"),
        "{message}"
    );
    assert_eq!(batch.lengths(), [2]);
}

const WINDOW: usize = 12;

/// Models with layers of these kinds, in both layouts.
fn models(layers: &[HashingLayer]) -> [HashingModel; 2] {
    [KvLayout::Columns, KvLayout::OwnBuffers].map(|layout| {
        model(HashingOptions {
            layout,
            layers: layers.to_vec(),
            ..HashingOptions::default()
        })
    })
}

#[test]
fn layers_of_all_kinds_follow_the_reference_at_every_edge_of_a_window() {
    use HashingLayer::{Full, Recurrent, Sliding};
    for layers in [
        vec![Sliding(WINDOW)],
        vec![Recurrent],
        vec![Sliding(1), Full, Sliding(WINDOW), Recurrent, Sliding(3)],
    ] {
        for model in models(&layers) {
            let lengths = [2, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW, 2 * WINDOW + 1, 300];
            for chunk in [1, 7, 400] {
                let mut contexts: Vec<Vec<u32>> =
                    (1..).zip(lengths).map(|(s, l)| prompt(s, l as u32)).collect();
                let mut rows = contexts.iter().map(|context| prepared(&model, context, chunk));
                let mut batch = rows.next().unwrap();
                rows.for_each(|row| batch.extend(row.into_lone().unwrap()).unwrap());
                for at in 0..WINDOW + 2 {
                    if at == 5 {
                        // The longest leaves, and what was padding for the others only.
                        let keep: Vec<usize> = (0..lengths.len() - 1).rev().collect();
                        batch.filter(&keep).unwrap();
                        contexts.pop();
                        contexts.reverse();
                    }
                    let ids: Vec<u32> = contexts.iter().map(|context| *context.last().unwrap()).collect();
                    let next = step(&model, &mut batch, &ids);
                    for (context, next) in contexts.iter_mut().zip(next) {
                        assert_eq!(next, model.next_token(context), "{layers:?} at {}", context.len());
                        context.push(next);
                    }
                }
            }
        }
    }
}

#[test]
fn a_window_hides_what_is_too_old_and_nothing_else() {
    let logits = |model: &HashingModel, context: &[u32]| -> Vec<f32> {
        let mut batch = prepared(model, context, 7);
        model
            .decode(&tokens(&context[context.len() - 1..]), &mut batch)
            .unwrap()
            .to_vec_exact()
            .unwrap()
    };
    let context = prompt(3, 40);
    for model in models(&[HashingLayer::Sliding(WINDOW)]) {
        let base = logits(&model, &context);
        for at in 0..context.len() {
            let mut other = context.clone();
            other[at] += 1;
            let seen = at >= context.len() - WINDOW;
            assert_eq!(logits(&model, &other) != base, seen, "position {at}");
        }
    }
    for model in models(&[HashingLayer::Recurrent]) {
        let base = logits(&model, &context);
        let mut other = context.clone();
        other[0] += 1;
        assert_ne!(logits(&model, &other), base, "nothing is forgotten");
    }
}
