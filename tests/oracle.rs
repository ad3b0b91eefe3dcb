//! A tiny model of each family against what mlx-lm computes for them (tests/fixtures/oracle, made by make_oracle.py
//! with seed 1).

#[path = "oracle/quantized_kv.rs"]
mod quantized_kv;
#[path = "support/tiny.rs"]
mod tiny;

use mlx_chat::cache::BatchCache;
use mlx_chat::model::LanguageModel;
use mlx_rs::Array;
use mlx_rs::ops::indexing::{TryIndexOp, argmax_axis};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use tiny::{feed, folder, load_tiny, logits_of};

#[derive(Deserialize)]
struct Expected {
    prompts: Vec<Vec<u32>>,
    serial: Vec<Serial>,
    batch_joins_after_steps: Vec<usize>,
    batch_joined: Vec<Vec<u32>>,
}

#[derive(Deserialize)]
struct Serial {
    last_logits: Vec<f32>,
    greedy: Vec<u32>,
    margins: Vec<f32>,
}

/// Every stored model.
const MODELS: [&str; 15] = [
    "llama",
    "llama-4bit",
    "llama3-rope-4bit",
    "llama-yarn-4bit",
    "mistral-sliding-4bit",
    "smollm3-4bit",
    "qwen2-4bit",
    "qwen3-4bit",
    "phi3-4bit",
    "gemma3",
    "gemma3-4bit",
    "qwen3_moe-4bit",
    "qwen3_next-4bit",
    "qwen3_5",
    "qwen3_5-4bit",
];

/// Below this margin between the two best, another order of summing may choose the other.
const CLOSE: f32 = 1e-3;

fn open(name: &str) -> (Box<dyn LanguageModel>, Expected) {
    let expected = std::fs::read(folder(name).join("expected.json")).unwrap();
    (
        load_tiny(name, None).model,
        serde_json::from_slice(&expected).unwrap(),
    )
}

/// A lone batch that holds all of `prompt` but the last token.
fn prepared(model: &dyn LanguageModel, prompt: &[u32], chunk: usize) -> BatchCache {
    let mut row = model.new_row();
    feed(model, &mut row, prompt[..prompt.len() - 1].chunks(chunk));
    BatchCache::adopt(row)
}

fn best(logits: &Array) -> Vec<u32> {
    argmax_axis(logits, -1, false).unwrap().to_vec_exact().unwrap()
}

fn greedy(model: &dyn LanguageModel, prompt: &[u32], chunk: usize, tokens: usize) -> Vec<u32> {
    let mut batch = prepared(model, prompt, chunk);
    let mut out = vec![*prompt.last().unwrap()];
    for _ in 0..tokens {
        out.push(best(&logits_of(model, &mut batch, &out[out.len() - 1..]))[0]);
    }
    out.split_off(1)
}

/// The largest difference is at most 1e-4 of the largest logit.
fn assert_close(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(0f32, |m, x| m.max(x.abs()));
    let apart = found
        .iter()
        .zip(expected)
        .fold(0f32, |m, (a, b)| m.max((a - b).abs()));
    assert!(
        apart <= 1e-4 * largest,
        "{what}: {apart} apart where the largest logit is {largest}"
    );
}

/// The tokens agree up to the first that was chosen by a hair.
fn assert_tokens(found: &[u32], expected: &[u32], margins: &[f32], what: &str) {
    let sure = margins
        .iter()
        .position(|&margin| margin < CLOSE)
        .unwrap_or(margins.len());
    assert!(sure > 5, "{what}: the oracle has nothing to say");
    assert_eq!(found[..sure], expected[..sure], "{what}");
}

#[test]
fn last_logits_equal_the_oracles() {
    for name in MODELS {
        let (model, expected) = open(name);
        for (prompt, serial) in expected.prompts.iter().zip(&expected.serial) {
            let mut batch = prepared(&*model, prompt, 2048);
            let logits = logits_of(&*model, &mut batch, &prompt[prompt.len() - 1..]);
            let found: Vec<f32> = logits.to_vec_exact().unwrap();
            assert_close(
                &found,
                &serial.last_logits,
                &format!("{name}, {} tokens", prompt.len()),
            );
        }
    }
}

#[test]
fn greedy_tokens_equal_the_oracles_however_the_prompt_is_cut() {
    for name in MODELS {
        let (model, expected) = open(name);
        for (prompt, serial) in expected.prompts.iter().zip(&expected.serial) {
            let whole = greedy(&*model, prompt, 2048, serial.greedy.len());
            let what = format!("{name}, {} tokens", prompt.len());
            assert_tokens(&whole, &serial.greedy, &serial.margins, &what);
            let cut = greedy(&*model, prompt, 7, serial.greedy.len());
            assert_tokens(
                &cut,
                &serial.greedy,
                &serial.margins,
                &format!("{what}, cut by 7"),
            );
        }
    }
}

#[test]
fn rows_that_join_late_get_the_oracles_batched_tokens() {
    for name in MODELS {
        let (model, expected) = open(name);
        let wanted = expected.batch_joined[0].len();
        let mut outs: Vec<Vec<u32>> = vec![Vec::new(); expected.prompts.len()];
        let mut running: Vec<usize> = Vec::new();
        let mut batch: Option<BatchCache> = None;
        let mut at = 0;
        while outs.iter().any(|out| out.len() < wanted) {
            let joining = expected.batch_joins_after_steps.iter().enumerate();
            for (id, _) in joining.filter(|(_, after)| **after == at) {
                // Token 0 comes from a step of its own, before the row joins.
                let prompt = &expected.prompts[id];
                let mut alone = prepared(&*model, prompt, 2048);
                outs[id].extend(best(&logits_of(&*model, &mut alone, &prompt[prompt.len() - 1..])));
                match &mut batch {
                    None => batch = Some(alone),
                    Some(batch) => batch.extend(alone.into_lone().unwrap()).unwrap(),
                }
                running.push(id);
            }
            if let Some(running_batch) = &mut batch {
                let ids: Vec<u32> = running.iter().map(|&id| *outs[id].last().unwrap()).collect();
                for (&id, next) in running.iter().zip(best(&logits_of(&*model, running_batch, &ids))) {
                    outs[id].push(next);
                }
                let keep: Vec<usize> = (0..running.len())
                    .filter(|&row| outs[running[row]].len() < wanted)
                    .collect();
                if keep.is_empty() {
                    batch = None;
                } else {
                    running_batch.filter(&keep).unwrap();
                }
                running = keep.iter().map(|&row| running[row]).collect();
            }
            at += 1;
        }
        for (id, (out, joined)) in outs.iter().zip(&expected.batch_joined).enumerate() {
            let what = format!("{name}, row {id}");
            assert_tokens(out, joined, &expected.serial[id].margins, &what);
        }
    }
}

#[test]
fn a_padded_rows_logits_are_those_of_a_lone_row() {
    for name in MODELS {
        let (model, expected) = open(name);
        let prompts = &expected.prompts;
        let mut batch = prepared(&*model, &prompts[0], 2048);
        for prompt in &prompts[1..] {
            batch
                .extend(prepared(&*model, prompt, 2048).into_lone().unwrap())
                .unwrap();
        }
        let mut alone: Vec<BatchCache> = prompts.iter().map(|p| prepared(&*model, p, 2048)).collect();
        let mut ids: Vec<u32> = prompts.iter().map(|p| *p.last().unwrap()).collect();
        for step in 0..5 {
            let together = logits_of(&*model, &mut batch, &ids);
            for (row, lone) in alone.iter_mut().enumerate() {
                let row_logits = together.try_index(row as i32).unwrap();
                let found: Vec<f32> = row_logits.contiguous().unwrap().to_vec_exact().unwrap();
                let expected: Vec<f32> = logits_of(&*model, lone, &[ids[row]]).to_vec_exact().unwrap();
                assert_close(&found, &expected, &format!("{name}, row {row}, step {step}"));
            }
            ids = best(&together);
        }
    }
}

#[test]
fn an_extracted_row_goes_on_as_if_it_had_run_alone() {
    let (model, expected) = open("llama");
    let prompts = &expected.prompts;
    let mut batch = prepared(&*model, &prompts[3], 2048);
    batch
        .extend(prepared(&*model, &prompts[0], 2048).into_lone().unwrap())
        .unwrap();
    let ids = [*prompts[3].last().unwrap(), *prompts[0].last().unwrap()];
    let next = best(&logits_of(&*model, &mut batch, &ids));
    let mut row = BatchCache::adopt(batch.extract(1).unwrap());
    assert_eq!(row.lengths(), [prompts[0].len()]);
    let mut out = vec![next[1]];
    while out.len() < 12 {
        out.push(best(&logits_of(&*model, &mut row, &out[out.len() - 1..]))[0]);
    }
    assert_tokens(
        &out,
        &expected.serial[0].greedy[..12],
        &expected.serial[0].margins[..12],
        "extracted",
    );
}

#[test]
fn a_cut_row_that_is_fed_again_gives_the_same_logits() {
    let (model, expected) = open("llama-4bit");
    let prompt = &expected.prompts[3];
    let mut row = prepared(&*model, prompt, 2048).into_lone().unwrap();
    let snapshot = row.clone();
    row.trim_to(20).unwrap();
    model.prefill(&prompt[20..prompt.len() - 1], &mut row).unwrap();
    assert_eq!(row.len(), snapshot.len());
    let mut batch = BatchCache::adopt(row);
    let logits = logits_of(&*model, &mut batch, &prompt[prompt.len() - 1..]);
    assert_close(
        &logits.to_vec_exact::<f32>().unwrap(),
        &expected.serial[3].last_logits,
        "cut",
    );
}

/// Published checkpoints of Qwen3.5 hold norms less 1 but for those of the delta rule's heads, convolutions the other way round,
/// and more than the text, whose names have another beginning.
#[test]
fn a_checkpoint_as_it_was_published_gives_the_oracles_logits() {
    let name = "qwen3_5";
    let bytes = std::fs::read(folder(name).join("model.safetensors")).unwrap();
    let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
    for (name, view) in SafeTensors::deserialize(&bytes).unwrap().tensors() {
        let (mut shape, mut data) = (view.shape().to_vec(), view.data().to_vec());
        if name.ends_with("conv1d.weight") {
            shape.swap(1, 2);
        }
        if name.ends_with("norm.weight") && !name.ends_with("linear_attn.norm.weight") {
            for weight in data.as_chunks_mut::<4>().0 {
                *weight = (f32::from_le_bytes(*weight) - 1.0).to_le_bytes();
            }
        }
        let name = name.replace("language_model.model.", "model.language_model.");
        tensors.push((name, shape, data));
    }
    for beside in ["mtp.fc.weight", "model.visual.patch_embed.proj.weight"] {
        tensors.push((beside.to_owned(), vec![1], vec![0; 4]));
    }
    let views = tensors
        .iter()
        .map(|(name, shape, data)| (name, TensorView::new(Dtype::F32, shape.clone(), data).unwrap()));
    let published = tempfile::tempdir().unwrap();
    let bytes = safetensors::serialize(views, None).unwrap();
    std::fs::write(published.path().join("model.safetensors"), bytes).unwrap();
    let config = "config.json";
    std::fs::copy(folder(name).join(config), published.path().join(config)).unwrap();
    let model = load_tiny(published.path().to_str().unwrap(), None).model;
    let (_, expected) = open(name);
    for (prompt, serial) in expected.prompts.iter().zip(&expected.serial) {
        let mut batch = prepared(&*model, prompt, 2048);
        let logits = logits_of(&*model, &mut batch, &prompt[prompt.len() - 1..]);
        assert_close(
            &logits.to_vec_exact::<f32>().unwrap(),
            &serial.last_logits,
            "as published",
        );
    }
}

#[test]
fn the_model_says_what_it_is() {
    let (model, _) = open("llama-4bit");
    let info = model.info();
    assert_eq!(
        (info.family.as_str(), info.layers, info.vocab_size),
        ("llama", 4, 320)
    );
    assert_eq!((info.heads, info.kv_heads, info.head_dim), (6, 2, 32));
    assert_eq!(info.quantization, "affine 4-bit, group 32");
    assert_eq!(info.dtype, "float32");
    let block = 96 * (6 + 2 + 2) * 32 + 192 * 96 + 3 * 96 * 160 + 2 * 96;
    assert_eq!(info.parameters, 320 * 96 + 4 * block + 96);
    let norms = 9 * 96;
    let matrices = info.parameters - norms;
    assert_eq!(
        info.weight_bytes,
        matrices / 2 + matrices / 32 * (4 + 4) + norms * 4,
        "as the file holds them, in panels; the tied head shared"
    );
    assert_eq!(model.plan().bytes_per_token(), 4 * 2 * 2 * 32 * 4);
}
