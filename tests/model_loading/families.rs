//! Each family from a folder and from a GGUF file of the same weights; and the places in which checkpoints keep them.

use std::path::Path;

use mlx_chat::cache::BatchCache;
use mlx_chat::model::{LanguageModel, LoadOptions, Loaded, load};
use mlx_chat::nn::Backend;
use mlx_rs::Array;
use serde_json::{Value, json};

use super::gguf_writer::{Writer, text};
use super::{Folder, Tensor, Weights};

const HIDDEN: usize = 32;
const INTERMEDIATE: usize = 48;
const VOCAB: usize = 20;
const HEADS: usize = 2;
const DIM: usize = 16;
const EXPERTS: usize = 3;

/// A family's tiny model.
struct Model {
    architecture: &'static str,
    layers: usize,
    /// Settings beside the sizes, for config.json.
    config: Value,
    /// The same for GGUF: after the architecture's name.
    metadata: Vec<(&'static str, Number)>,
    /// Modules of a block: theirs, ours, shape.
    modules: Vec<(&'static str, &'static str, Vec<usize>)>,
    /// Tensors that hold settings.
    factors: Vec<(&'static str, Vec<f32>)>,
}

#[derive(Clone, Copy)]
enum Number {
    Integer(u32),
    Float(f32),
}

fn apart() -> Vec<(&'static str, &'static str, Vec<usize>)> {
    vec![
        ("attn_norm.weight", "input_layernorm.weight", vec![HIDDEN]),
        (
            "attn_q.weight",
            "self_attn.q_proj.weight",
            vec![HEADS * DIM, HIDDEN],
        ),
        ("attn_k.weight", "self_attn.k_proj.weight", vec![DIM, HIDDEN]),
        ("attn_v.weight", "self_attn.v_proj.weight", vec![DIM, HIDDEN]),
        (
            "attn_output.weight",
            "self_attn.o_proj.weight",
            vec![HIDDEN, HEADS * DIM],
        ),
        (
            "ffn_gate.weight",
            "mlp.gate_proj.weight",
            vec![INTERMEDIATE, HIDDEN],
        ),
        ("ffn_up.weight", "mlp.up_proj.weight", vec![INTERMEDIATE, HIDDEN]),
        (
            "ffn_down.weight",
            "mlp.down_proj.weight",
            vec![HIDDEN, INTERMEDIATE],
        ),
    ]
}

/// Attention, then experts instead of an MLP.
fn experts() -> Vec<(&'static str, &'static str, Vec<usize>)> {
    let mut modules = apart();
    modules.retain(|(theirs, ..)| theirs.starts_with("attn"));
    modules.extend([
        ("ffn_gate_inp.weight", "mlp.gate.weight", vec![EXPERTS, HIDDEN]),
        (
            "ffn_gate_exps.weight",
            "mlp.switch_mlp.gate_proj.weight",
            vec![EXPERTS, DIM, HIDDEN],
        ),
        (
            "ffn_up_exps.weight",
            "mlp.switch_mlp.up_proj.weight",
            vec![EXPERTS, DIM, HIDDEN],
        ),
        (
            "ffn_down_exps.weight",
            "mlp.switch_mlp.down_proj.weight",
            vec![EXPERTS, HIDDEN, DIM],
        ),
    ]);
    modules
}

fn with(
    mut modules: Vec<(&'static str, &'static str, Vec<usize>)>,
    more: &[(&'static str, &'static str, usize)],
) -> Vec<(&'static str, &'static str, Vec<usize>)> {
    modules.extend(
        more.iter()
            .map(|(theirs, ours, len)| (*theirs, *ours, vec![*len])),
    );
    modules
}

const NORM_BEFORE_MLP: (&str, &str, usize) = ("ffn_norm.weight", "post_attention_layernorm.weight", HIDDEN);
const HEAD_NORMS: [(&str, &str, usize); 2] = [
    ("attn_q_norm.weight", "self_attn.q_norm.weight", DIM),
    ("attn_k_norm.weight", "self_attn.k_norm.weight", DIM),
];

fn models() -> Vec<Model> {
    let [query_norm, key_norm] = HEAD_NORMS;
    vec![
        Model {
            architecture: "llama",
            layers: 1,
            config: json!({"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
            metadata: vec![("rope.scaling.factor", Number::Float(4.0))],
            modules: with(apart(), &[NORM_BEFORE_MLP]),
            factors: Vec::new(),
        },
        Model {
            architecture: "qwen2",
            layers: 1,
            config: json!({"rope_theta": 1e6}),
            metadata: vec![("rope.freq_base", Number::Float(1e6))],
            modules: with(
                apart(),
                &[
                    NORM_BEFORE_MLP,
                    ("attn_q.bias", "self_attn.q_proj.bias", HEADS * DIM),
                    ("attn_k.bias", "self_attn.k_proj.bias", DIM),
                    ("attn_v.bias", "self_attn.v_proj.bias", DIM),
                ],
            ),
            factors: Vec::new(),
        },
        Model {
            architecture: "qwen3",
            layers: 1,
            config: json!({}),
            metadata: Vec::new(),
            modules: with(apart(), &[NORM_BEFORE_MLP, query_norm, key_norm]),
            factors: Vec::new(),
        },
        Model {
            architecture: "phi3",
            layers: 1,
            config: json!({
                "partial_rotary_factor": 0.75, "original_max_position_embeddings": 16, "sliding_window": 6,
                "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
                                 "long_factor": [1.0, 1.5, 2.0, 2.5, 3.0, 4.0]}
            }),
            metadata: vec![
                ("rope.dimension_count", Number::Integer(12)),
                ("rope.scaling.original_context_length", Number::Integer(16)),
                ("attention.sliding_window", Number::Integer(6)),
            ],
            modules: with(
                vec![
                    ("attn_norm.weight", "input_layernorm.weight", vec![HIDDEN]),
                    (
                        "attn_qkv.weight",
                        "self_attn.qkv_proj.weight",
                        vec![4 * DIM, HIDDEN],
                    ),
                    (
                        "attn_output.weight",
                        "self_attn.o_proj.weight",
                        vec![HIDDEN, HEADS * DIM],
                    ),
                    (
                        "ffn_up.weight",
                        "mlp.gate_up_proj.weight",
                        vec![2 * INTERMEDIATE, HIDDEN],
                    ),
                    (
                        "ffn_down.weight",
                        "mlp.down_proj.weight",
                        vec![HIDDEN, INTERMEDIATE],
                    ),
                ],
                &[NORM_BEFORE_MLP],
            ),
            factors: vec![
                ("rope_factors_short.weight", vec![1.0; 6]),
                ("rope_factors_long.weight", vec![1.0, 1.5, 2.0, 2.5, 3.0, 4.0]),
            ],
        },
        Model {
            architecture: "gemma3",
            layers: 6,
            // What GGUF files leave out is said here.
            config: json!({
                "model_type": "gemma3_text", "query_pre_attn_scalar": 16, "sliding_window": 4,
                "sliding_window_pattern": 6, "rope_local_base_freq": 10_000.0, "rope_theta": 1e6,
                "rope_scaling": {"rope_type": "linear", "factor": 8.0}
            }),
            metadata: vec![
                ("rope.freq_base", Number::Float(1e6)),
                ("rope.scaling.factor", Number::Float(8.0)),
                ("attention.sliding_window", Number::Integer(4)),
            ],
            modules: with(
                apart(),
                &[
                    query_norm,
                    key_norm,
                    (
                        "post_attention_norm.weight",
                        "post_attention_layernorm.weight",
                        HIDDEN,
                    ),
                    ("ffn_norm.weight", "pre_feedforward_layernorm.weight", HIDDEN),
                    (
                        "post_ffw_norm.weight",
                        "post_feedforward_layernorm.weight",
                        HIDDEN,
                    ),
                ],
            ),
            factors: Vec::new(),
        },
        Model {
            architecture: "smollm3",
            // The fourth knows no positions.
            layers: 5,
            config: json!({"rope_theta": 5e6}),
            metadata: vec![("rope.freq_base", Number::Float(5e6))],
            modules: with(apart(), &[NORM_BEFORE_MLP]),
            factors: Vec::new(),
        },
    ]
}

/// One with experts.
fn mixture() -> Model {
    let [query_norm, key_norm] = HEAD_NORMS;
    Model {
        architecture: "qwen3moe",
        layers: 2,
        config: json!({
            "model_type": "qwen3_moe", "num_experts": EXPERTS, "num_experts_per_tok": 2,
            "moe_intermediate_size": DIM, "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": []
        }),
        metadata: vec![
            ("expert_count", Number::Integer(EXPERTS as u32)),
            ("expert_used_count", Number::Integer(2)),
            ("expert_feed_forward_length", Number::Integer(DIM as u32)),
        ],
        modules: with(experts(), &[NORM_BEFORE_MLP, query_norm, key_norm]),
        factors: Vec::new(),
    }
}

impl Model {
    fn config(&self) -> Value {
        let mut config = json!({
            "model_type": self.architecture, "num_hidden_layers": self.layers, "hidden_size": HIDDEN,
            "intermediate_size": INTERMEDIATE, "num_attention_heads": HEADS, "num_key_value_heads": 1,
            "head_dim": DIM, "vocab_size": VOCAB, "rms_norm_eps": 1e-6, "max_position_embeddings": 64,
            "eos_token_id": [7, 9]
        });
        for (name, value) in self.config.as_object().unwrap() {
            config[name] = value.clone();
        }
        config
    }

    /// Our names, theirs, and what they hold.
    fn tensors(&self) -> Vec<(String, String, Tensor)> {
        let mut tensors = Vec::new();
        let mut add = |ours: String, theirs: String, shape: &[usize]| {
            let seed = u32::try_from(tensors.len()).unwrap() + 1;
            tensors.push((ours, theirs, Tensor::f32(shape, seed)));
        };
        let (table, norm) = ("model.embed_tokens.weight", "model.norm.weight");
        add(table.to_owned(), "token_embd.weight".to_owned(), &[VOCAB, HIDDEN]);
        add(norm.to_owned(), "output_norm.weight".to_owned(), &[HIDDEN]);
        for layer in 0..self.layers {
            for (theirs, ours, shape) in &self.modules {
                add(
                    format!("model.layers.{layer}.{ours}"),
                    format!("blk.{layer}.{theirs}"),
                    shape,
                );
            }
        }
        tensors
    }

    fn weights(&self) -> Weights {
        let tensors = self.tensors().into_iter();
        tensors.map(|(ours, _, tensor)| (ours, tensor)).collect()
    }

    /// The elements as a GGUF file of this architecture holds them.
    fn stored(&self, ours: &str, tensor: &Tensor) -> Vec<f32> {
        let elements = tensor.floats();
        if self.architecture == "gemma3" && ours.contains("norm") {
            return elements.iter().map(|weight| weight + 1.0).collect();
        }
        let permuted = ours.contains(".q_proj.weight") || ours.contains(".k_proj.weight");
        if matches!(self.architecture, "llama" | "smollm3") && permuted {
            // Halves of a head interleaved: row 2i is row i, row 2i + 1 is row i + dim / 2.
            let from = |row: usize| row / DIM * DIM + row % 2 * (DIM / 2) + row % DIM / 2;
            let row = |row: usize| &elements[from(row) * HIDDEN..(from(row) + 1) * HIDDEN];
            return (0..elements.len() / HIDDEN)
                .flat_map(|r| row(r).to_vec())
                .collect();
        }
        elements
    }

    fn gguf(&self) -> Vec<u8> {
        let name = self.architecture;
        let mut writer = Writer::new().entry("general.architecture", 8, &text(name));
        let sizes = [
            ("block_count", self.layers),
            ("embedding_length", HIDDEN),
            ("feed_forward_length", INTERMEDIATE),
            ("attention.head_count", HEADS),
            ("attention.head_count_kv", 1),
            ("attention.key_length", DIM),
            ("context_length", 64),
        ];
        let sizes = sizes.map(|(key, size)| (key, Number::Integer(u32::try_from(size).unwrap())));
        let eps = ("attention.layer_norm_rms_epsilon", Number::Float(1e-6));
        for (key, number) in sizes.iter().chain([&eps]).chain(&self.metadata) {
            let key = format!("{name}.{key}");
            writer = match number {
                Number::Integer(number) => writer.entry(&key, 4, &number.to_le_bytes()),
                Number::Float(number) => writer.entry(&key, 6, &number.to_le_bytes()),
            };
        }
        writer = writer
            .entry("tokenizer.ggml.eos_token_id", 4, &7u32.to_le_bytes())
            .entry("tokenizer.ggml.eot_token_id", 4, &9u32.to_le_bytes());
        let factors = self.factors.iter().map(|(name, factors)| {
            let dims = vec![factors.len() as u64];
            ((*name).to_owned(), dims, factors.clone())
        });
        let tensors = self.tensors().into_iter().map(|(ours, theirs, tensor)| {
            let dims = tensor.shape.iter().rev().map(|&dim| dim as u64).collect();
            (theirs, dims, self.stored(&ours, &tensor))
        });
        for (name, dims, elements) in tensors.chain(factors) {
            let bytes: Vec<u8> = elements.iter().flat_map(|x| x.to_le_bytes()).collect();
            writer = writer.tensor(&name, &dims, 0, &bytes);
        }
        writer.bytes()
    }
}

pub(super) fn open(path: &Path) -> Loaded {
    let options = LoadOptions {
        backend: Backend::Cpu,
        threads: Some(1),
        ..LoadOptions::default()
    };
    load(path, &options, &mut |_| ()).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Of a prompt that is longer than every window.
pub(super) fn logits(model: &dyn LanguageModel) -> Vec<f32> {
    let mut row = model.new_row();
    let prompt: Vec<u32> = (0..30).map(|i| i * i % 17 + 1).collect();
    model.prefill(&prompt, &mut row).unwrap();
    let token = Array::from_slice(&[9u32], &[1]);
    let logits = model.decode(&token, &mut BatchCache::adopt(row)).unwrap();
    logits.to_vec_exact().unwrap()
}

#[test]
fn a_gguf_file_is_the_same_model_as_a_folder_of_the_same_weights() {
    for model in models().into_iter().chain([mixture()]) {
        let folder = Folder::new(&model.config(), &model.weights());
        let from_folder = open(folder.0.path());
        let file = folder.file("model.gguf");
        std::fs::write(&file, model.gguf()).unwrap();
        let from_file = open(&file);
        let name = model.architecture;
        assert_eq!(from_file.eos, from_folder.eos, "{name}");
        let [a, b] = [&from_folder, &from_file].map(|loaded| loaded.model.info());
        assert_eq!(
            (a.parameters, a.max_positions),
            (b.parameters, b.max_positions),
            "{name}"
        );
        assert_eq!(from_folder.model.plan(), from_file.model.plan(), "{name}");
        let [a, b] = [&from_folder, &from_file].map(|loaded| logits(&*loaded.model));
        assert!(
            a.iter().all(|x| x.is_finite()) && a.iter().any(|x| *x != a[0]),
            "{name}"
        );
        assert_eq!(a, b, "{name}");
    }
}

#[test]
fn every_setting_of_a_gguf_file_counts() {
    for model in models() {
        let logits_of = |model: &Model| {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("model.gguf");
            std::fs::write(&file, model.gguf()).unwrap();
            logits(&*open(&file).model)
        };
        let whole = logits_of(&model);
        for left_out in 0..model.metadata.len() {
            let (key, number) = model.metadata[left_out];
            let mut metadata = model.metadata.clone();
            let other = match number {
                Number::Integer(number) => Number::Integer(number - 2),
                Number::Float(number) => Number::Float(number / 2.0),
            };
            metadata[left_out] = (key, other);
            let changed = Model {
                metadata,
                config: model.config.clone(),
                modules: model.modules.clone(),
                factors: model
                    .factors
                    .iter()
                    .map(|(name, factors)| match key {
                        // Fewer features turn, by fewer factors.
                        "rope.dimension_count" => (*name, factors[..factors.len() - 1].to_vec()),
                        _ => (*name, factors.clone()),
                    })
                    .collect(),
                ..model
            };
            assert_ne!(logits_of(&changed), whole, "{}: {key}", model.architecture);
        }
    }
}

#[test]
fn a_gguf_files_wrong_setting_is_named_by_its_key() {
    let error_of = |key: &'static str, number: Number| {
        let mut model = models().remove(3);
        assert_eq!(model.architecture, "phi3");
        model.metadata.retain(|(other, _)| *other != key);
        model.metadata.push((key, number));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("model.gguf");
        std::fs::write(&file, model.gguf()).unwrap();
        let options = LoadOptions {
            backend: Backend::Cpu,
            threads: Some(1),
            ..LoadOptions::default()
        };
        let error = load(&file, &options, &mut |_| ()).err().expect("it loaded");
        error.to_string()
    };
    for (key, number, part) in [
        (
            "rope.freq_base",
            Number::Float(-1.0),
            "phi3.rope.freq_base is -1.0, but must be a positive number",
        ),
        (
            "rope.freq_base",
            Number::Float(f32::NAN),
            "phi3.rope.freq_base is \"the float NaN\"",
        ),
        (
            "rope.dimension_count",
            Number::Integer(40),
            "phi3.rope.dimension_count is 2.5",
        ),
        (
            "rope.dimension_count",
            Number::Integer(8),
            "rope_factors_long.weight is [1.0,1.5,2.0,2.5,3.0,4.0], but must be 4 positive numbers",
        ),
        ("vocab_size", Number::Integer(0), "phi3.vocab_size is 0"),
    ] {
        let error = error_of(key, number);
        assert!(error.contains(part), "{error}");
    }
}

/// Rows of several tensors, one below the other.
fn stacked(weights: &mut Weights, names: &[&str], into: &str) {
    let parts: Vec<Tensor> = names
        .iter()
        .map(|name| weights.remove(&format!("model.layers.0.{name}.weight")).unwrap())
        .collect();
    let mut whole = parts[0].clone();
    for part in &parts[1..] {
        whole.shape[0] += part.shape[0];
        whole.bytes.extend(&part.bytes);
    }
    weights.insert(format!("model.layers.0.{into}.weight"), whole);
}

#[test]
fn joined_projections_are_those_that_lie_apart() {
    let llama = models().remove(0);
    let apart = Folder::new(&json!({"rope_scaling": null}), &llama.weights());
    let mut config = llama.config();
    config["rope_scaling"] = Value::Null;
    std::fs::write(apart.file("config.json"), config.to_string()).unwrap();
    let mut weights = llama.weights();
    let qkv = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"];
    stacked(&mut weights, &qkv, "self_attn.qkv_proj");
    stacked(
        &mut weights,
        &["mlp.gate_proj", "mlp.up_proj"],
        "mlp.gate_up_proj",
    );
    config["model_type"] = json!("phi3");
    let joined = Folder::new(&config, &weights);
    assert_eq!(joined.logits(), apart.logits());
}

#[test]
fn a_text_model_is_found_among_the_other_parts() {
    let gemma = models().remove(4);
    let alone = Folder::new(&gemma.config(), &gemma.weights()).logits();
    let mut text = gemma.config();
    text.as_object_mut().unwrap().remove("eos_token_id");
    let config = json!({"model_type": "gemma3", "eos_token_id": 5, "text_config": text});
    for (place, other) in [
        ("language_model.model", "vision_tower.weight"),
        ("model.language_model", "model.multi_modal_projector.weight"),
    ] {
        let renamed = gemma.weights().into_iter().map(|(name, tensor)| {
            let rest = name.strip_prefix("model").unwrap();
            (format!("{place}{rest}"), tensor)
        });
        let mut weights: Weights = renamed.collect();
        weights.insert(other.to_owned(), Tensor::f32(&[3], 1));
        let folder = Folder::new(&config, &weights);
        assert_eq!(folder.logits(), alone, "{place}");
        assert_eq!(folder.load().unwrap().eos, [5]);
        weights.insert("audio_tower.weight".to_owned(), Tensor::f32(&[3], 1));
        let error = Folder::new(&config, &weights).error();
        assert!(error.contains("audio_tower.weight"), "{error}");
    }
}
