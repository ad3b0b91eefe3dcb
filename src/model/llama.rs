//! The Llama family: `h = x + attention(norm(x))`, `out = h + mlp(norm(h))`.

use std::rc::Rc;

use mlx_rs::Array;

use super::assemble::{Assembler, AttentionParts, MlpParts, VocabularyParts};
use super::config::LlamaConfig;
use super::error::Doing;
use super::load::{LoadProgress, Means};
use super::weights::WeightSource;
use super::{LanguageModel, ModelError, ModelInfo, check_tokens};
use crate::cache::{BatchCache, CachePlan, KvShape, Layers, RowCache};
use crate::nn::{Attention, Embedding, Head, Heads, Mask, Positions, Rope, Span, SwiGlu};

/// A Llama-family model.
pub(super) struct Llama {
    info: ModelInfo,
    plan: CachePlan,
    embedding: Embedding,
    blocks: Vec<Block>,
    head: Head,
    rope: Rc<Rope>,
}

struct Block {
    attention: Attention,
    mlp: SwiGlu,
}

impl Llama {
    pub fn assemble(
        config: &LlamaConfig,
        source: &dyn WeightSource,
        means: &Means,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<Self, ModelError> {
        let mut parts = Assembler::new(source, means, progress);
        let tied = config.tied.unwrap_or(!parts.has(HEAD));
        let (vocab, hidden) = (config.vocab_size, config.hidden);
        let (embedding, head) = parts.vocabulary(&VocabularyParts {
            embedding: "model.embed_tokens".to_owned(),
            norm: "model.norm".to_owned(),
            head: (!tied).then(|| "lm_head".to_owned()),
            vocab,
            hidden,
            eps: config.eps,
        })?;
        if tied {
            parts.skip(HEAD);
        }
        let heads = Heads {
            queries: config.heads,
            kv: config.kv_heads,
            dim: config.head_dim,
        };
        let backend = means.backend;
        let rope = Rc::new(Rope::new(
            heads.dim,
            config.rope_base,
            &config.rope_scaling,
            backend,
        ));
        let block = |layer| Block::assemble(config, heads, layer, &rope, &mut parts);
        let blocks = (0..config.layers).map(block).collect::<Result<Vec<_>, _>>()?;
        parts.skip(super::config::ROPE_FACTORS);
        parts.check_all_taken()?;
        let dtype = backend.dtype();
        let kv = KvShape {
            heads: heads.kv,
            key_dim: heads.dim,
            value_dim: heads.dim,
            dtype,
        };
        let info = ModelInfo {
            family: config.family.clone(),
            layers: config.layers,
            hidden,
            heads: heads.queries,
            kv_heads: heads.kv,
            head_dim: heads.dim,
            intermediate: config.intermediate,
            vocab_size: vocab,
            max_positions: config.max_positions,
            parameters: parts.parameters(),
            quantization: source.quantization(),
            dtype: format!("{dtype:?}").to_lowercase(),
            device: means.device(),
            brisk_prefill: backend.brisk_prefill(parts.parameters()),
            weight_bytes: parts.weight_bytes(),
        };
        let layers = vec![kv; config.layers];
        let plan = if means.kernels.is_some() {
            CachePlan::own_buffers(layers)
        } else {
            CachePlan::new(layers)
        };
        Ok(Self {
            info,
            plan,
            embedding,
            blocks,
            head,
            rope,
        })
    }

    /// Runs all blocks over `[tokens, hidden]`, writing keys and values to `caches`. Without `outputs`, ends once the
    /// last layer's are written; the result then says no more than that.
    fn blocks(
        &self,
        tokens: &Array,
        span: &Span,
        outputs: bool,
        caches: &mut dyn Layers,
    ) -> Result<Array, ModelError> {
        let mut x = self.embedding.lookup(tokens).doing("look up embeddings")?;
        for (layer, block) in self.blocks.iter().enumerate() {
            let cache = caches.layer(layer);
            if !outputs && layer + 1 == self.blocks.len() {
                x = block
                    .attention
                    .write(&x, cache, span)
                    .doing("write to the cache")?;
                break;
            }
            x = block.attention.forward(&x, cache, span).doing("attend")?;
            x = block.mlp.forward(&x).doing("run the MLP")?;
        }
        caches.wrote(&x)?;
        Ok(x)
    }
}

/// All layers see everything.
fn mask(caches: &dyn Layers, added: usize) -> Mask {
    caches.sight(None, added).as_ref().map_or(Mask::None, Mask::of)
}

const HEAD: &str = "lm_head.weight";

impl Block {
    fn assemble(
        config: &LlamaConfig,
        heads: Heads,
        layer: usize,
        rope: &Rc<Rope>,
        parts: &mut Assembler<'_>,
    ) -> Result<Self, ModelError> {
        let name = |module: &str| format!("model.layers.{layer}.{module}");
        let attention = AttentionParts {
            norm: name("input_layernorm"),
            projections: ["q_proj", "k_proj", "v_proj"].map(|module| name(&format!("self_attn.{module}"))),
            output: name("self_attn.o_proj"),
            hidden: config.hidden,
            heads,
            eps: config.eps,
        };
        let mlp = MlpParts {
            norm: name("post_attention_layernorm"),
            gate: name("mlp.gate_proj"),
            up: name("mlp.up_proj"),
            down: name("mlp.down_proj"),
            hidden: config.hidden,
            intermediate: config.intermediate,
            eps: config.eps,
        };
        Ok(Self {
            attention: parts.attention(&attention, rope)?,
            mlp: parts.swiglu(&mlp)?,
        })
    }
}

impl LanguageModel for Llama {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn plan(&self) -> &CachePlan {
        &self.plan
    }

    fn prefill(&self, tokens: &[u32], row: &mut RowCache) -> Result<(), ModelError> {
        let start = row.len().ok_or_else(|| {
            ModelError::Misuse("the row was left half-written by a forward that failed: drop it".to_owned())
        })?;
        if tokens.is_empty() {
            return Ok(());
        }
        // MLX would read past the table.
        if let Some(token) = tokens
            .iter()
            .find(|&&token| token as usize >= self.info.vocab_size)
        {
            let vocab = self.info.vocab_size;
            return Err(ModelError::Misuse(format!(
                "there is no token {token}: the vocabulary has {vocab}"
            )));
        }
        let len = tokens.len();
        let array = Array::from_slice(tokens, &[i32::try_from(len).unwrap_or(i32::MAX)]);
        let rope = self.rope.step(Positions::Run { start, len });
        let mask = mask(row, len);
        let span = Span { rows: 1, rope, mask };
        self.blocks(&array, &span, false, row)?;
        Ok(())
    }

    fn forward(&self, tokens: &Array, batch: &mut BatchCache) -> Result<Array, ModelError> {
        check_tokens(tokens, batch)?;
        let lengths = batch.lengths();
        let rope = match lengths.as_slice() {
            &[start] if batch.is_lone() => self.rope.step(Positions::Run { start, len: 1 }),
            each => self.rope.step(Positions::Each(each)),
        };
        let span = Span {
            rows: batch.rows(),
            rope,
            mask: mask(batch, 1),
        };
        self.blocks(tokens, &span, true, batch)
    }

    fn head(&self, hidden: &Array) -> Result<Array, ModelError> {
        self.head.forward(hidden, &self.embedding).doing("compute logits")
    }

    fn most_likely(&self, logits: &Array) -> Result<Array, ModelError> {
        self.head.most_likely(logits).doing("choose tokens")
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use mlx_rs::ops::indexing::TryIndexOp;
    use serde_json::Value;

    use super::*;
    use crate::model::json;
    use crate::model::weights::{Quantization, SafetensorsFolder};
    use crate::nn::Backend;

    /// Assembled as for a GPU: quantized products, fast RoPE, bfloat16. Computed by the CPU.
    fn as_for_a_gpu(name: &str) -> (Llama, Value) {
        Backend::Cpu.enter();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures/oracle")
            .join(name);
        let settings = json::read(&folder.join("config.json")).unwrap();
        let config = LlamaConfig::from_json(&settings).unwrap();
        let quantization = Quantization::from_config(&settings).unwrap();
        let weights = SafetensorsFolder::open(&folder, quantization).unwrap();
        let model = Llama::assemble(&config, &weights, &Means::ops(Backend::Gpu), &mut |_| ()).unwrap();
        (model, json::read(&folder.join("expected.json")).unwrap())
    }

    fn numbers<T: serde::de::DeserializeOwned>(value: &Value) -> Vec<T> {
        serde_json::from_value(value.clone()).unwrap()
    }

    /// Random weights of few features magnify bfloat16's rounding: the logits must point the same way.
    fn assert_alike(found: &Array, expected: &[f32]) {
        let found: Vec<f32> = found.contiguous().unwrap().to_vec_exact().unwrap();
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        let norms = (dot(&found, &found) * dot(expected, expected)).sqrt();
        let cosine = dot(&found, expected) / norms;
        assert!(cosine > 0.98, "the cosine is {cosine}");
    }

    #[test]
    fn what_a_gpu_would_run_gives_the_oracles_logits_too() {
        for name in ["llama", "llama-4bit", "llama3-rope-4bit"] {
            let (model, expected) = as_for_a_gpu(name);
            let quantized = name.ends_with("4bit");
            assert_eq!(
                model.info.weight_bytes < model.info.parameters,
                quantized,
                "{name}"
            );
            let prompts: Vec<Vec<u32>> = numbers(&expected["prompts"]);
            let row = |prompt: &[u32]| {
                let mut row = model.new_row();
                model.prefill(&prompt[..prompt.len() - 1], &mut row).unwrap();
                row
            };
            let mut batch = BatchCache::adopt(row(&prompts[0]));
            let token = |prompt: &[u32]| prompt[prompt.len() - 1];
            let logits = model
                .decode(&Array::from_slice(&[token(&prompts[0])], &[1]), &mut batch)
                .unwrap();
            assert_alike(&logits, &numbers::<f32>(&expected["serial"][0]["last_logits"]));
            let mut batch = BatchCache::adopt(row(&prompts[1]));
            batch.extend(row(&prompts[2])).unwrap();
            let tokens = Array::from_slice(&[token(&prompts[1]), token(&prompts[2])], &[2]);
            let logits = model.decode(&tokens, &mut batch).unwrap();
            for at in 0..2 {
                let expected = numbers::<f32>(&expected["serial"][at + 1]["last_logits"]);
                assert_alike(&logits.try_index(at as i32).unwrap(), &expected);
            }
        }
    }
}
