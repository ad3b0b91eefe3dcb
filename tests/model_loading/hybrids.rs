//! Models of the gated delta rule from a GGUF file: as converters write them, names and order of rows are their own.

use std::collections::BTreeMap;

use safetensors::tensor::Dtype;
use serde_json::{Value, json};

use super::families::{logits, open};
use super::gguf_writer::{Writer, text};
use super::{Folder, Tensor, Weights};

const HIDDEN: usize = 32;
const VOCAB: usize = 20;
const LAYERS: usize = 4;
/// Of attention, which is every fourth layer's.
const HEADS: usize = 2;
const DIM: usize = 16;
/// Of the delta rule: each key head has three value heads.
const KEYS: usize = 2;
const PER_KEY: usize = 3;
const VALUES: usize = KEYS * PER_KEY;
const KEY_DIM: usize = 16;
const VALUE_DIM: usize = 8;
const TAPS: usize = 4;
const EXPERTS: usize = 3;
const INSIDE: usize = 16;

/// What one is called in files of either kind.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Kind {
    architecture: &'static str,
    model_type: &'static str,
    /// Projections of the delta rule by key head, in two matrices: as Qwen3-Next was published.
    joined: bool,
    experts: bool,
}

const KINDS: [Kind; 3] = [
    Kind {
        architecture: "qwen3next",
        model_type: "qwen3_next",
        joined: true,
        experts: true,
    },
    Kind {
        architecture: "qwen35",
        model_type: "qwen3_5_text",
        joined: false,
        experts: false,
    },
    Kind {
        architecture: "qwen35moe",
        model_type: "qwen3_5_moe_text",
        joined: false,
        experts: true,
    },
];

/// A tensor of a GGUF file: its shape, and its elements.
type Stored = (Vec<usize>, Vec<f32>);

/// Both files of one model in the making.
#[derive(Default)]
struct Both {
    folder: Weights,
    file: BTreeMap<String, Stored>,
}

impl Both {
    /// A tensor of the folder alone.
    fn ours(&mut self, name: &str, shape: &[usize]) -> Vec<f32> {
        let seed = u32::try_from(self.folder.len()).unwrap() + 1;
        let tensor = Tensor::f32(shape, seed);
        let floats = tensor.floats();
        self.folder.insert(name.to_owned(), tensor);
        floats
    }

    fn theirs(&mut self, name: &str, shape: &[usize], elements: Vec<f32>) {
        assert_eq!(elements.len(), shape.iter().product::<usize>(), "{name}");
        self.file.insert(name.to_owned(), (shape.to_vec(), elements));
    }

    /// One that both hold alike.
    fn same(&mut self, ours: &str, theirs: &str, shape: &[usize]) {
        let elements = self.ours(ours, shape);
        self.theirs(theirs, shape, elements);
    }
}

/// `rows` of a matrix, by their numbers.
fn take(elements: &[f32], cols: usize, rows: impl IntoIterator<Item = usize>) -> Vec<f32> {
    let row = |row: usize| elements[row * cols..(row + 1) * cols].to_vec();
    rows.into_iter().flat_map(row).collect()
}

/// The value heads as Qwen3.5's files have them: the first of every key head, then the second of every one, and so on; each of
/// `dim` rows, the first at `from`.
fn tiled(from: usize, dim: usize) -> Vec<usize> {
    let mut rows = Vec::new();
    for value in 0..PER_KEY {
        for key in 0..KEYS {
            let head = key * PER_KEY + value;
            rows.extend(from + head * dim..from + (head + 1) * dim);
        }
    }
    rows
}

impl Kind {
    fn both(self) -> Both {
        let mut both = Both::default();
        both.same("model.embed_tokens.weight", "token_embd.weight", &[VOCAB, HIDDEN]);
        both.same("model.norm.weight", "output_norm.weight", &[HIDDEN]);
        both.same("lm_head.weight", "output.weight", &[VOCAB, HIDDEN]);
        for layer in 0..LAYERS {
            let ours = |name: &str| format!("model.layers.{layer}.{name}");
            let theirs = |name: &str| format!("blk.{layer}.{name}");
            let mut same = |a: &str, b: &str, shape: &[usize]| both.same(&ours(a), &theirs(b), shape);
            same("input_layernorm.weight", "attn_norm.weight", &[HIDDEN]);
            same(
                "post_attention_layernorm.weight",
                "post_attention_norm.weight",
                &[HIDDEN],
            );
            if layer % 4 == 3 {
                // Each head's queries and gates, one after the other: alike in both.
                same(
                    "self_attn.q_proj.weight",
                    "attn_q.weight",
                    &[2 * HEADS * DIM, HIDDEN],
                );
                same("self_attn.k_proj.weight", "attn_k.weight", &[DIM, HIDDEN]);
                same("self_attn.v_proj.weight", "attn_v.weight", &[DIM, HIDDEN]);
                same(
                    "self_attn.o_proj.weight",
                    "attn_output.weight",
                    &[HIDDEN, HEADS * DIM],
                );
                same("self_attn.q_norm.weight", "attn_q_norm.weight", &[DIM]);
                same("self_attn.k_norm.weight", "attn_k_norm.weight", &[DIM]);
            } else {
                same("linear_attn.norm.weight", "ssm_norm.weight", &[VALUE_DIM]);
                self.delta_rule(&mut both, &ours, &theirs);
            }
            self.feed_forward(&mut both, &ours, &theirs);
        }
        both
    }

    fn delta_rule(self, both: &mut Both, ours: &dyn Fn(&str) -> String, theirs: &dyn Fn(&str) -> String) {
        let (keys, values) = (KEYS * KEY_DIM, VALUES * VALUE_DIM);
        let reordered = !self.joined;
        let heads = |dim: usize, from: usize| match reordered {
            true => tiled(from, dim),
            false => (from..from + VALUES * dim).collect(),
        };
        let channels = || (0..2 * keys).chain(heads(VALUE_DIM, 2 * keys));
        if self.joined {
            let within = PER_KEY * VALUE_DIM;
            let each = 2 * KEY_DIM + 2 * within;
            let whole = both.ours(&ours("linear_attn.in_proj_qkvz.weight"), &[KEYS * each, HIDDEN]);
            let part = |from: usize, len: usize| {
                (0..KEYS).flat_map(move |key| key * each + from..key * each + from + len)
            };
            let qkv = part(0, KEY_DIM)
                .chain(part(KEY_DIM, KEY_DIM))
                .chain(part(2 * KEY_DIM, within));
            let qkv = take(&whole, HIDDEN, qkv);
            both.theirs(&theirs("attn_qkv.weight"), &[2 * keys + values, HIDDEN], qkv);
            let z = take(&whole, HIDDEN, part(2 * KEY_DIM + within, within));
            both.theirs(&theirs("attn_gate.weight"), &[values, HIDDEN], z);
            both.same(
                &ours("linear_attn.in_proj_ba.weight"),
                &theirs("ssm_ba.weight"),
                &[2 * VALUES, HIDDEN],
            );
        } else {
            let qkv = both.ours(
                &ours("linear_attn.in_proj_qkv.weight"),
                &[2 * keys + values, HIDDEN],
            );
            let qkv = take(&qkv, HIDDEN, channels());
            both.theirs(&theirs("attn_qkv.weight"), &[2 * keys + values, HIDDEN], qkv);
            for (name, other, dim) in [
                ("linear_attn.in_proj_z.weight", "attn_gate.weight", VALUE_DIM),
                ("linear_attn.in_proj_a.weight", "ssm_alpha.weight", 1),
                ("linear_attn.in_proj_b.weight", "ssm_beta.weight", 1),
            ] {
                let whole = both.ours(&ours(name), &[VALUES * dim, HIDDEN]);
                let whole = take(&whole, HIDDEN, heads(dim, 0));
                both.theirs(&theirs(other), &[VALUES * dim, HIDDEN], whole);
            }
        }
        let conv = both.ours(&ours("linear_attn.conv1d.weight"), &[2 * keys + values, TAPS, 1]);
        let conv = take(&conv, TAPS, channels());
        both.theirs(&theirs("ssm_conv1d.weight"), &[2 * keys + values, TAPS], conv);
        let bias = both.ours(&ours("linear_attn.dt_bias"), &[VALUES]);
        both.theirs(&theirs("ssm_dt.bias"), &[VALUES], take(&bias, 1, heads(1, 0)));
        // Such as the file's -exp(A_log) gives it back, to the bit.
        let decays: Vec<f32> = (0..VALUES).map(|head| 0.25 + head as f32 / 8.0).collect();
        let logs = decays.iter().flat_map(|decay| decay.ln().to_le_bytes());
        both.folder.insert(
            ours("linear_attn.A_log"),
            Tensor {
                dtype: Dtype::F32,
                shape: vec![VALUES],
                bytes: logs.collect(),
            },
        );
        let decays: Vec<f32> = decays.iter().map(|decay| -decay).collect();
        both.theirs(&theirs("ssm_a"), &[VALUES], take(&decays, 1, heads(1, 0)));
        let out = both.ours(&ours("linear_attn.out_proj.weight"), &[HIDDEN, values]);
        let columns = heads(VALUE_DIM, 0);
        let out = out
            .chunks_exact(values)
            .flat_map(|row| take(row, 1, columns.iter().copied()))
            .collect();
        both.theirs(&theirs("ssm_out.weight"), &[HIDDEN, values], out);
    }

    fn feed_forward(self, both: &mut Both, ours: &dyn Fn(&str) -> String, theirs: &dyn Fn(&str) -> String) {
        if !self.experts {
            for (name, shape) in [
                ("gate", [INSIDE, HIDDEN]),
                ("up", [INSIDE, HIDDEN]),
                ("down", [HIDDEN, INSIDE]),
            ] {
                both.same(
                    &ours(&format!("mlp.{name}_proj.weight")),
                    &theirs(&format!("ffn_{name}.weight")),
                    &shape,
                );
            }
            return;
        }
        both.same(
            &ours("mlp.gate.weight"),
            &theirs("ffn_gate_inp.weight"),
            &[EXPERTS, HIDDEN],
        );
        for (name, shape) in [
            ("gate", [INSIDE, HIDDEN]),
            ("up", [INSIDE, HIDDEN]),
            ("down", [HIDDEN, INSIDE]),
        ] {
            both.same(
                &ours(&format!("mlp.switch_mlp.{name}_proj.weight")),
                &theirs(&format!("ffn_{name}_exps.weight")),
                &[EXPERTS, shape[0], shape[1]],
            );
            both.same(
                &ours(&format!("mlp.shared_expert.{name}_proj.weight")),
                &theirs(&format!("ffn_{name}_shexp.weight")),
                &shape,
            );
        }
        // A row here, a vector there.
        let router = both.ours(&ours("mlp.shared_expert_gate.weight"), &[1, HIDDEN]);
        both.theirs(&theirs("ffn_gate_inp_shexp.weight"), &[HIDDEN], router);
    }

    fn config(self) -> Value {
        let mut config = json!({
            "model_type": self.model_type, "num_hidden_layers": LAYERS, "hidden_size": HIDDEN,
            "num_attention_heads": HEADS, "num_key_value_heads": 1, "head_dim": DIM, "vocab_size": VOCAB,
            "rms_norm_eps": 1e-6, "max_position_embeddings": 64, "rope_theta": 1e6, "partial_rotary_factor": 0.5,
            "linear_num_value_heads": VALUES, "linear_num_key_heads": KEYS, "linear_key_head_dim": KEY_DIM,
            "linear_value_head_dim": VALUE_DIM, "linear_conv_kernel_dim": TAPS, "full_attention_interval": 4,
            "intermediate_size": INSIDE, "eos_token_id": 7
        });
        if self.experts {
            for (name, value) in [
                ("num_experts", EXPERTS),
                ("num_experts_per_tok", 2),
                ("moe_intermediate_size", INSIDE),
                ("shared_expert_intermediate_size", INSIDE),
            ] {
                config[name] = json!(value);
            }
        }
        config
    }

    fn writer(self, file: &BTreeMap<String, Stored>) -> Writer {
        let mut settings = vec![
            ("block_count", LAYERS),
            ("embedding_length", HIDDEN),
            ("attention.head_count", HEADS),
            ("attention.head_count_kv", 1),
            ("attention.key_length", DIM),
            ("attention.value_length", DIM),
            ("context_length", 64),
            ("rope.dimension_count", DIM / 2),
            ("ssm.conv_kernel", TAPS),
            ("ssm.state_size", KEY_DIM),
            ("ssm.group_count", KEYS),
            ("ssm.time_step_rank", VALUES),
            ("ssm.inner_size", VALUES * VALUE_DIM),
            ("full_attention_interval", 4),
        ];
        match self.experts {
            true => settings.extend([
                ("expert_count", EXPERTS),
                ("expert_used_count", 2),
                ("expert_feed_forward_length", INSIDE),
                ("expert_shared_feed_forward_length", INSIDE),
            ]),
            false => settings.push(("feed_forward_length", INSIDE)),
        }
        let mut writer = Writer::new().entry("general.architecture", 8, &text(self.architecture));
        let key = |name: &str| format!("{}.{name}", self.architecture);
        for (name, value) in settings {
            let value = u32::try_from(value).unwrap().to_le_bytes();
            writer = writer.entry(&key(name), 4, &value);
        }
        writer = writer
            .entry(
                &key("attention.layer_norm_rms_epsilon"),
                6,
                &1e-6f32.to_le_bytes(),
            )
            .entry(&key("rope.freq_base"), 6, &1e6f32.to_le_bytes())
            .entry("tokenizer.ggml.eos_token_id", 4, &7u32.to_le_bytes());
        for (name, (shape, elements)) in file {
            let dims: Vec<u64> = shape.iter().rev().map(|&dim| dim as u64).collect();
            let bytes: Vec<u8> = elements.iter().flat_map(|x| x.to_le_bytes()).collect();
            writer = writer.tensor(name, &dims, 0, &bytes);
        }
        writer
    }
}

/// The logits by a GGUF file.
fn by_file(kind: Kind, file: &BTreeMap<String, Stored>) -> Vec<f32> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, kind.writer(file).bytes()).unwrap();
    logits(&*open(&path).model)
}

#[test]
fn a_gguf_file_of_the_delta_rule_is_the_same_model_as_a_folder_of_the_same_weights() {
    for kind in KINDS {
        let both = kind.both();
        let folder = Folder::new(&kind.config(), &both.folder);
        let from_folder = open(folder.0.path());
        let path = folder.file("model.gguf");
        std::fs::write(&path, kind.writer(&both.file).bytes()).unwrap();
        let from_file = open(&path);
        let name = kind.architecture;
        let [a, b] = [&from_folder, &from_file].map(|loaded| loaded.model.info());
        assert_eq!(
            (a.parameters, a.max_positions, &from_folder.eos),
            (b.parameters, b.max_positions, &from_file.eos),
            "{name}"
        );
        assert_eq!(from_folder.model.plan(), from_file.model.plan(), "{name}");
        let [a, b] = [&from_folder, &from_file].map(|loaded| logits(&*loaded.model));
        let differ = a.iter().any(|x| *x != a[0]);
        assert!(a.iter().all(|x| x.is_finite()) && differ, "{name}");
        assert_eq!(a, b, "{name}");
    }
}

#[test]
fn every_tensor_of_the_delta_rule_counts() {
    for kind in KINDS {
        let file = kind.both().file;
        let whole = by_file(kind, &file);
        for name in file.keys().filter(|name| name.starts_with("blk.1.")) {
            let mut changed = file.clone();
            let (_, elements) = changed.get_mut(name).unwrap();
            // The rows, or some of the columns, in another order.
            elements.reverse();
            assert_ne!(by_file(kind, &changed), whole, "{}: {name}", kind.architecture);
        }
    }
}

#[test]
fn early_files_of_qwen_3_next_hold_all_projections_in_one() {
    let kind = KINDS[0];
    let Both { folder, mut file } = kind.both();
    let whole = by_file(kind, &file);
    for layer in 0..LAYERS - 1 {
        file.remove(&format!("blk.{layer}.attn_qkv.weight"));
        file.remove(&format!("blk.{layer}.attn_gate.weight"));
        let joined = &folder[&format!("model.layers.{layer}.linear_attn.in_proj_qkvz.weight")];
        let stored = (joined.shape.clone(), joined.floats());
        file.insert(format!("blk.{layer}.ssm_in.weight"), stored);
    }
    assert_eq!(by_file(kind, &file), whole);
}

#[test]
fn blocks_that_guess_further_tokens_are_left_out() {
    let kind = KINDS[1];
    let mut file = kind.both().file;
    let whole = by_file(kind, &file);
    let (norm, matrix) = (vec![0.5; HIDDEN], vec![0.25; 2 * HIDDEN * HIDDEN]);
    file.insert("blk.4.attn_norm.weight".to_owned(), (vec![HIDDEN], norm.clone()));
    file.insert("blk.4.nextn.enorm.weight".to_owned(), (vec![HIDDEN], norm));
    let shape = vec![HIDDEN, 2 * HIDDEN];
    file.insert("blk.4.nextn.eh_proj.weight".to_owned(), (shape, matrix));
    let mut writer = kind.writer(&file);
    let blocks = text("qwen35.block_count");
    writer.entries.retain(|entry| !entry.starts_with(&blocks));
    let writer = writer.entry("qwen35.block_count", 4, &5u32.to_le_bytes()).entry(
        "qwen35.nextn_predict_layers",
        4,
        &1u32.to_le_bytes(),
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, writer.bytes()).unwrap();
    assert_eq!(logits(&*open(&path).model), whole);
}
