//! Models of random weights, of the shapes of known ones: for measuring without a file.

use std::ops::Range;

use serde_json::{Value, json};

use super::decoder::Decoder;
use super::load::Means;
use super::settings::Settings;
use super::weights::{Holding, Matrix, Noise, WeightSource};
use super::{LoadOptions, LoadProgress, Loaded, ModelError, families};
use crate::nn::Backend;

/// What names of such models begin with.
const PREFIX: &str = "random:";

/// Elements that share a scale where weights are quantized.
const GROUP_SIZE: usize = 64;

/// A model of random weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RandomModel {
    name: String,
    shape: &'static str,
    bits: Option<usize>,
}

/// The shapes: a name, and what config.json says of it.
const SHAPES: [&str; 5] = ["tiny", "qwen3-0.6b", "llama-1b", "qwen3-8b", "llama-8b"];

fn config(shape: &str) -> Value {
    let of = |family: &str,
              [hidden, layers, ffn, heads, kv, dim, vocab]: [usize; 7],
              theta: f64,
              tied: bool| {
        json!({
            "model_type": family, "hidden_size": hidden, "num_hidden_layers": layers, "intermediate_size": ffn,
            "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": dim, "vocab_size": vocab,
            "rope_theta": theta, "rms_norm_eps": 1e-5, "tie_word_embeddings": tied, "max_position_embeddings": 8192,
        })
    };
    match shape {
        "tiny" => of("llama", [64, 2, 128, 4, 2, 16, 512], 1e4, false),
        "qwen3-0.6b" => of("qwen3", [1024, 28, 3072, 16, 8, 128, 151_936], 1e6, true),
        "qwen3-8b" => of("qwen3", [4096, 36, 12288, 32, 8, 128, 151_936], 1e6, false),
        "llama-1b" => of("llama", [2048, 16, 8192, 32, 8, 64, 128_256], 5e5, true),
        _ => of("llama", [4096, 32, 14336, 32, 8, 128, 128_256], 5e5, false),
    }
}

impl RandomModel {
    /// Reads `random:SHAPE[:BITS]`; nothing where the name is of another kind, an error where it is of this one and wrong.
    pub fn named(name: &str) -> Option<Result<Self, String>> {
        let rest = name.strip_prefix(PREFIX)?;
        let (shape, bits) = match rest.split_once(':') {
            Some((shape, bits)) => (shape, Some(bits)),
            None => (rest, None),
        };
        let found = SHAPES.into_iter().find(|known| *known == shape);
        let bits = match bits {
            None => Some(None),
            Some("4") => Some(Some(4)),
            Some("8") => Some(Some(8)),
            Some(_) => None,
        };
        Some(match (found, bits) {
            (Some(shape), Some(bits)) => Ok(Self {
                name: name.to_owned(),
                shape,
                bits,
            }),
            _ => Err(format!(
                "{name}: models of random weights are random:SHAPE or random:SHAPE:BITS, SHAPE one of {}, BITS 4 or 8",
                SHAPES.join(", ")
            )),
        })
    }

    /// What the user called it.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Makes such a model, on the device. As [`load`](super::load()): on the thread that will run it.
pub fn load_random(
    model: &RandomModel,
    options: &LoadOptions,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<Loaded, ModelError> {
    options.backend.enter();
    let config = config(model.shape);
    let architecture = families::read(&Settings::from_json(&config)?)?;
    let weights = RandomWeights {
        tied: config["tie_word_embeddings"] == true,
        bits: model.bits,
    };
    let decoder = Decoder::assemble(&architecture, &weights, &Means::new(options)?, progress)?;
    Ok(Loaded {
        model: Box::new(decoder),
        eos: Vec::new(),
        name: model.name.clone(),
    })
}

struct RandomWeights {
    tied: bool,
    bits: Option<usize>,
}

impl WeightSource for RandomWeights {
    fn names(&self) -> Vec<String> {
        // None that must be taken: all are made when they are.
        Vec::new()
    }

    fn has(&self, name: &str) -> bool {
        name == "model.embed_tokens.weight" || (name == "lm_head.weight" && !self.tied)
    }

    fn bytes(&self, _name: &str) -> u64 {
        0
    }

    fn vector(&self, _name: &str, len: usize) -> Result<Vec<f32>, ModelError> {
        Ok(vec![1.0; len])
    }

    fn shape(&self, _name: &str) -> Option<Vec<usize>> {
        None
    }

    fn rows(&self, name: &str, [_, cols]: [usize; 2], rows: Range<usize>) -> Result<Matrix, ModelError> {
        // Of its name and place, so that two of a model differ and those of two runs don't.
        let first = (rows.start as u64).wrapping_mul(0xD134_2543_DE82_EF95);
        let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let affine = self.bits.map(|bits| (bits, GROUP_SIZE));
        Ok(Matrix::Noise(Noise {
            rows: rows.len(),
            cols,
            seed: seed.wrapping_add(first),
            affine,
        }))
    }

    fn expert(
        &self,
        name: &str,
        expert: usize,
        _experts: usize,
        rows: usize,
        cols: usize,
    ) -> Result<Matrix, ModelError> {
        self.matrix(&format!("{name}.{expert}"), rows, cols)
    }

    fn quantization(&self) -> String {
        match self.bits {
            None => "random, not quantized".to_owned(),
            Some(bits) => format!("random, affine {bits}-bit, group {GROUP_SIZE}"),
        }
    }

    fn holdings(&self, _backend: Backend) -> Vec<Holding> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::BatchCache;
    use mlx_rs::Array;

    #[test]
    fn names_are_of_known_shapes_and_bits() {
        assert!(RandomModel::named("smollm2").is_none());
        for fine in ["random:tiny", "random:llama-8b:4", "random:qwen3-0.6b:8"] {
            assert_eq!(RandomModel::named(fine).unwrap().unwrap().name(), fine);
        }
        for wrong in ["random:", "random:gpt", "random:tiny:3", "random:tiny:4:4"] {
            let error = RandomModel::named(wrong).unwrap().unwrap_err();
            assert!(error.contains(wrong) && error.contains("qwen3-0.6b"), "{error}");
        }
    }

    #[test]
    fn two_of_the_same_name_are_the_same_and_give_numbers() {
        for name in ["random:tiny", "random:tiny:4", "random:tiny:8"] {
            let logits = || {
                let options = LoadOptions {
                    backend: Backend::Cpu,
                    threads: Some(1),
                    ..LoadOptions::default()
                };
                let random = RandomModel::named(name).unwrap().unwrap();
                let model = load_random(&random, &options, &mut |_| ()).unwrap().model;
                let mut row = model.new_row();
                model.prefill(&[1, 2, 3], &mut row).unwrap();
                let mut batch = BatchCache::adopt(row);
                let logits = model
                    .decode(&Array::from_slice(&[4u32], &[1]), &mut batch)
                    .unwrap();
                logits.to_vec_exact::<f32>().unwrap()
            };
            let [once, again] = [logits(), logits()];
            assert_eq!(once, again);
            let spread = once.iter().fold(0.0f32, |most, logit| most.max(logit.abs()));
            assert!(spread > 0.01 && spread.is_finite(), "{name}: {spread}");
        }
    }
}
