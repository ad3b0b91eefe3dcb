//! Loading: what is wrong with a model is named, with what was found and what was expected.

#[path = "model_loading/families.rs"]
mod families;
#[path = "support/fuzz.rs"]
mod fuzz;
#[path = "model_loading/fuzzing.rs"]
mod fuzzing;
#[path = "support/gguf_writer.rs"]
mod gguf_writer;
#[path = "model_loading/hybrids.rs"]
mod hybrids;
#[path = "model_loading/messages.rs"]
mod messages;
#[path = "model_loading/stored.rs"]
mod stored;
#[path = "model_loading/vanishing.rs"]
mod vanishing;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mlx_chat::cache::BatchCache;
use mlx_chat::model::{LanguageModel, LoadOptions, LoadProgress, Loaded, ModelError, load};
use mlx_chat::nn::Backend;
use mlx_rs::Array;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};

const HIDDEN: usize = 32;
const VOCAB: usize = 20;

/// A tensor on the host.
#[derive(Clone)]
struct Tensor {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Tensor {
    fn f32(shape: &[usize], seed: u32) -> Self {
        let mut state = seed;
        let n: usize = shape.iter().product();
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Multiples of 2⁻⁶ in a small range: exact in every float type.
            (state >> 28) as f32 / 64.0 - 0.125
        };
        let bytes = (0..n).flat_map(|_| next().to_le_bytes()).collect();
        Self {
            dtype: Dtype::F32,
            shape: shape.to_vec(),
            bytes,
        }
    }

    fn floats(&self) -> Vec<f32> {
        self.bytes
            .as_chunks()
            .0
            .iter()
            .map(|b| f32::from_le_bytes(*b))
            .collect()
    }

    fn as_f16(&self) -> Self {
        let bytes = self
            .floats()
            .iter()
            .flat_map(|x| half::f16::from_f32(*x).to_le_bytes())
            .collect();
        Self {
            dtype: Dtype::F16,
            shape: self.shape.clone(),
            bytes,
        }
    }

    fn as_bf16(&self) -> Self {
        let bytes = self
            .floats()
            .iter()
            .flat_map(|x| half::bf16::from_f32(*x).to_le_bytes())
            .collect();
        Self {
            dtype: Dtype::BF16,
            shape: self.shape.clone(),
            bytes,
        }
    }
}

type Weights = BTreeMap<String, Tensor>;

/// A model of one layer, two heads that share one key head of 16 features.
fn weights() -> Weights {
    let mut seed = 0;
    let mut all = Weights::new();
    let mut add = |name: &str, shape: &[usize]| {
        seed += 1;
        all.insert(name.to_owned(), Tensor::f32(shape, seed));
    };
    add("model.embed_tokens.weight", &[VOCAB, HIDDEN]);
    add("model.norm.weight", &[HIDDEN]);
    for (name, shape) in [
        ("input_layernorm", vec![HIDDEN]),
        ("post_attention_layernorm", vec![HIDDEN]),
        ("self_attn.q_proj", vec![32, HIDDEN]),
        ("self_attn.k_proj", vec![16, HIDDEN]),
        ("self_attn.v_proj", vec![16, HIDDEN]),
        ("self_attn.o_proj", vec![HIDDEN, 32]),
        ("mlp.gate_proj", vec![48, HIDDEN]),
        ("mlp.up_proj", vec![48, HIDDEN]),
        ("mlp.down_proj", vec![HIDDEN, 48]),
    ] {
        add(&format!("model.layers.0.{name}.weight"), &shape);
    }
    all
}

fn config() -> Value {
    json!({
        "model_type": "llama", "num_hidden_layers": 1, "hidden_size": HIDDEN, "intermediate_size": 48,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": VOCAB,
        "rms_norm_eps": 1e-5, "max_position_embeddings": 128, "eos_token_id": 7
    })
}

fn save(weights: &Weights, file: &Path) {
    let views = weights.iter().map(|(name, t)| {
        (
            name.clone(),
            TensorView::new(t.dtype, t.shape.clone(), &t.bytes).unwrap(),
        )
    });
    std::fs::write(file, safetensors::serialize(views, None).unwrap()).unwrap();
}

/// A model folder that is gone when this is dropped.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new(config: &Value, weights: &Weights) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        std::fs::write(folder.file("config.json"), config.to_string()).unwrap();
        save(weights, &folder.file("model.safetensors"));
        folder
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn load(&self) -> Result<Loaded, ModelError> {
        load(
            self.0.path(),
            &LoadOptions {
                backend: Backend::Cpu,
                threads: None,
                ..LoadOptions::default()
            },
            &mut |_| (),
        )
    }

    fn error(&self) -> String {
        self.load().err().expect("it loaded").to_string()
    }

    fn logits(&self) -> Vec<f32> {
        logits(&*self.load().unwrap().model)
    }
}

fn logits(model: &dyn LanguageModel) -> Vec<f32> {
    let mut row = model.new_row();
    model.prefill(&[3, 1, 4, 1, 5], &mut row).unwrap();
    let token = Array::from_slice(&[9u32], &[1]);
    model
        .decode(&token, &mut BatchCache::adopt(row))
        .unwrap()
        .to_vec_exact()
        .unwrap()
}

#[test]
fn every_float_type_gives_the_same_model() {
    let full = Folder::new(&config(), &weights()).logits();
    assert!(full.iter().all(|x| x.is_finite()) && full.iter().any(|x| *x != 0.0));
    let halves: Weights = weights().iter().map(|(n, t)| (n.clone(), t.as_f16())).collect();
    let brains: Weights = weights().iter().map(|(n, t)| (n.clone(), t.as_bf16())).collect();
    assert_eq!(Folder::new(&config(), &halves).logits(), full);
    assert_eq!(Folder::new(&config(), &brains).logits(), full);
}

#[test]
fn a_model_in_several_files_is_the_same_model() {
    let whole = Folder::new(&config(), &weights());
    let split = Folder::new(&config(), &weights());
    std::fs::remove_file(split.file("model.safetensors")).unwrap();
    let mut map = serde_json::Map::new();
    for (at, (name, tensor)) in weights().into_iter().enumerate() {
        let file = format!("model-{:05}-of-00002.safetensors", at % 2 + 1);
        map.insert(name, json!(file));
        let _ = tensor;
    }
    for file in [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ] {
        let part: Weights = weights()
            .into_iter()
            .filter(|(name, _)| map[name] == file)
            .collect();
        save(&part, &split.file(file));
    }
    // A file that the index does not name is no part of the model.
    std::fs::write(split.file("other.safetensors"), "not weights").unwrap();
    let index = json!({"weight_map": map}).to_string();
    std::fs::write(split.file("model.safetensors.index.json"), index).unwrap();
    assert_eq!(split.logits(), whole.logits());

    let index = json!({"weight_map": {"a": "../elsewhere.safetensors"}}).to_string();
    std::fs::write(split.file("model.safetensors.index.json"), index).unwrap();
    assert!(split.error().contains("outside the folder"), "{}", split.error());
}

#[test]
fn the_same_weights_in_another_layout_beside_a_model_are_left_alone() {
    let folder = Folder::new(&config(), &weights());
    let alone = folder.logits();
    save(&weights(), &folder.file("consolidated.safetensors"));
    assert_eq!(folder.logits(), alone);
}

#[test]
fn a_head_of_its_own_is_used_unless_the_embeddings_are_tied() {
    let tied = Folder::new(&config(), &weights()).logits();
    let mut all = weights();
    all.insert("lm_head.weight".to_owned(), Tensor::f32(&[VOCAB, HIDDEN], 99));
    assert_ne!(Folder::new(&config(), &all).logits(), tied);
    let mut settings = config();
    settings["tie_word_embeddings"] = json!(true);
    assert_eq!(Folder::new(&settings, &all).logits(), tied);
    settings["tie_word_embeddings"] = json!(false);
    let error = Folder::new(&settings, &weights()).error();
    assert_eq!(error, "the weights lack lm_head.weight (shape [20, 32])");
}

#[test]
fn biases_of_projections_are_used_where_there_are_some() {
    let plain = Folder::new(&config(), &weights()).logits();
    let mut all = weights();
    let mut zeros = all.clone();
    for (name, len) in [("q_proj", 32), ("k_proj", 16), ("v_proj", 16)] {
        let name = format!("model.layers.0.self_attn.{name}.bias");
        all.insert(name.clone(), Tensor::f32(&[len], 7));
        let bytes = vec![0; 4 * len];
        zeros.insert(
            name,
            Tensor {
                dtype: Dtype::F32,
                shape: vec![len],
                bytes,
            },
        );
    }
    assert_ne!(Folder::new(&config(), &all).logits(), plain);
    assert_eq!(Folder::new(&config(), &zeros).logits(), plain);
}

#[test]
fn old_checkpoints_rotary_frequencies_are_passed_over() {
    let mut all = weights();
    all.insert(
        "model.layers.0.self_attn.rotary_emb.inv_freq".to_owned(),
        Tensor::f32(&[8], 1),
    );
    Folder::new(&config(), &all).load().unwrap();
}

#[test]
fn heads_wider_than_the_kernels_take_are_refused_at_load() {
    let mut settings = config();
    settings["head_dim"] = json!(300);
    let error = Folder::new(&settings, &weights()).error();
    assert!(
        error.contains("head_dim") && error.contains("300") && error.contains("256"),
        "{error}"
    );
}

#[test]
fn each_fault_of_the_weights_is_named() {
    let key = "model.layers.0.mlp.up_proj.weight";
    let faulty = |change: &dyn Fn(&mut Weights)| {
        let mut all = weights();
        change(&mut all);
        Folder::new(&config(), &all).error()
    };
    let missing = faulty(&|all| {
        all.remove(key);
    });
    assert_eq!(missing, format!("the weights lack {key} (shape [48, 32])"));
    let shape = faulty(&|all| {
        all.insert(key.to_owned(), Tensor::f32(&[32, 48], 1));
    });
    assert_eq!(shape, format!("{key} has shape [32, 48], expected [48, 32]"));
    let dtype = faulty(&|all| {
        let tensor = all.get_mut(key).unwrap();
        tensor.dtype = Dtype::I32;
    });
    assert_eq!(dtype, format!("{key} is of type I32, expected F32, F16 or BF16"));
    let unknown = faulty(&|all| {
        all.insert(
            "model.layers.1.mlp.up_proj.weight".to_owned(),
            Tensor::f32(&[48, 32], 1),
        );
        all.insert("vision.weight".to_owned(), Tensor::f32(&[1], 1));
    });
    assert_eq!(
        unknown,
        "the weights hold 2 tensors that this model has no place for, \
         the first is model.layers.1.mlp.up_proj.weight"
    );
}

#[test]
fn a_quantized_matrix_must_fit_its_settings() {
    let module = "model.layers.0.mlp.up_proj";
    let mut all = weights();
    let words = Tensor {
        dtype: Dtype::U32,
        shape: vec![48, 4],
        bytes: vec![0x21; 48 * 16],
    };
    all.insert(format!("{module}.weight"), words);
    all.insert(format!("{module}.scales"), Tensor::f32(&[48, 1], 1));
    all.insert(format!("{module}.biases"), Tensor::f32(&[48, 1], 2));
    let error = Folder::new(&config(), &all).error();
    assert!(error.contains("quantization is absent"), "{error}");
    let with = |quantization: Value| {
        let mut settings = config();
        settings["quantization"] = quantization;
        Folder::new(&settings, &all)
    };
    with(json!({"bits": 4, "group_size": 32})).load().unwrap();
    // The widths of one module differ from the others'.
    with(json!({"bits": 8, "group_size": 64, module: {"bits": 4, "group_size": 32}}))
        .load()
        .unwrap();
    for (quantization, part) in [
        (
            json!({"bits": 8, "group_size": 32}),
            "up_proj.weight has shape [48, 4], expected [48, 8]",
        ),
        (
            json!({"bits": 4, "group_size": 64}),
            "group size of model.layers.0.mlp.up_proj is 64",
        ),
        (json!({"bits": 7, "group_size": 32}), "quantization.bits is 7"),
        (
            json!({"bits": 4, "group_size": 32, "mode": "fp3"}),
            "quantization.mode is \"fp3\"",
        ),
        (json!({"group_size": 32}), "quantization.bits is null"),
        (json!({"quant_method": "gptq"}), "only MLX's own quantization"),
    ] {
        let error = with(quantization).error();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn damaged_files_are_refused_with_the_files_name() {
    let good = std::fs::read(Folder::new(&config(), &weights()).file("model.safetensors")).unwrap();
    let with_weights = |bytes: &[u8]| {
        let folder = Folder::new(&config(), &weights());
        std::fs::write(folder.file("model.safetensors"), bytes).unwrap();
        folder.error()
    };
    let mut cuts: Vec<usize> = (0..good.len()).step_by(97).collect();
    cuts.extend([1, 7, 8, 9, good.len() - 1]);
    for cut in cuts {
        let error = with_weights(&good[..cut]);
        assert!(error.contains("model.safetensors"), "cut at {cut}: {error}");
    }
    let mut longer = good.clone();
    longer.push(0);
    assert!(with_weights(&longer).contains("is damaged"));
    let mut huge = good;
    huge[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(with_weights(&huge).contains("is damaged"));

    let folder = Folder::new(&config(), &weights());
    std::fs::write(folder.file("config.json"), "{\"model_type\": ").unwrap();
    let error = folder.error();
    assert!(
        error.contains("config.json is not what it should be: EOF"),
        "{error}"
    );
}

#[test]
fn what_is_no_model_is_called_so() {
    let empty = tempfile::tempdir().unwrap();
    let error = |path: &Path| {
        load(
            path,
            &LoadOptions {
                backend: Backend::Cpu,
                threads: None,
                ..LoadOptions::default()
            },
            &mut |_| (),
        )
        .err()
        .unwrap()
        .to_string()
    };
    assert!(error(empty.path()).contains("expected a folder with config.json and *.safetensors, or a .gguf"));
    std::fs::write(empty.path().join("config.json"), config().to_string()).unwrap();
    assert!(error(empty.path()).contains("is not a model"));
    assert!(error(&empty.path().join("nothing.gguf")).contains("can't read"));
    std::fs::write(empty.path().join("fake.gguf"), "hello").unwrap();
    assert!(error(&empty.path().join("fake.gguf")).contains("is not a GGUF file"));
    let mut settings = config();
    settings["model_type"] = json!("mamba");
    let error = Folder::new(&settings, &weights()).error();
    let start = "the model type \"mamba\" is not supported; supported are: llama, mistral, ";
    assert!(error.starts_with(start), "{error}");
}

#[test]
fn ends_of_sequence_come_from_the_generation_settings_first() {
    let folder = Folder::new(&config(), &weights());
    assert_eq!(folder.load().unwrap().eos, [7]);
    std::fs::write(
        folder.file("generation_config.json"),
        r#"{"eos_token_id": [9, 3, 9]}"#,
    )
    .unwrap();
    assert_eq!(folder.load().unwrap().eos, [3, 9]);
    std::fs::write(folder.file("generation_config.json"), "{}").unwrap();
    assert_eq!(folder.load().unwrap().eos, [7]);
}

#[test]
fn a_token_outside_of_the_vocabulary_is_refused() {
    let model = Folder::new(&config(), &weights()).load().unwrap().model;
    let mut row = model.new_row();
    let error = model
        .prefill(&[1, VOCAB as u32], &mut row)
        .unwrap_err()
        .to_string();
    assert_eq!(error, "there is no token 20: the vocabulary has 20");
    assert_eq!(row.len(), Some(0));
}

#[test]
fn progress_counts_every_byte_of_weights_once() {
    let folder = Folder::new(&config(), &weights());
    let mut seen: Vec<LoadProgress> = Vec::new();
    load(
        folder.0.path(),
        &LoadOptions {
            backend: Backend::Cpu,
            threads: None,
            ..LoadOptions::default()
        },
        &mut |p| seen.push(p),
    )
    .unwrap();
    let total: usize = weights().values().map(|t| t.bytes.len()).sum();
    assert!(seen.iter().all(|p| p.total_bytes == total as u64));
    assert!(seen.is_sorted_by(|a, b| a.done_bytes < b.done_bytes));
    assert_eq!(seen.first().unwrap().done_bytes, 0);
    assert_eq!(seen.last().unwrap().done_bytes, total as u64);
}
