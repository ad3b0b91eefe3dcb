//! The Llama family: `h = x + attention(norm(x))`, `out = h + mlp(norm(h))`.

use mlx_rs::Array;

use super::assemble::Assembler;
use super::config::LlamaConfig;
use super::error::Doing;
use super::load::LoadProgress;
use super::weights::WeightSource;
use super::{LanguageModel, ModelError, ModelInfo, check_tokens};
use crate::cache::{BatchCache, CachePlan, KvShape, Layers, RowCache};
use crate::nn::{Attention, Backend, Embedding, Linear, Mask, Positions, RmsNorm, Rope, Span, SwiGlu, mask};

/// A Llama-family model.
pub(super) struct Llama {
    info: ModelInfo,
    plan: CachePlan,
    embedding: Embedding,
    blocks: Vec<Block>,
    norm: RmsNorm,
    /// `None`: the embeddings.
    head: Option<Linear>,
    rope: Rope,
}

struct Block {
    attention_norm: RmsNorm,
    attention: Attention,
    mlp_norm: RmsNorm,
    mlp: SwiGlu,
}

impl Llama {
    pub fn assemble(
        config: &LlamaConfig,
        source: &dyn WeightSource,
        backend: Backend,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<Self, ModelError> {
        let mut parts = Assembler::new(source, backend, progress);
        let tied = config.tied.unwrap_or(!parts.has(HEAD));
        let (vocab, hidden) = (config.vocab_size, config.hidden);
        let embedding = parts.embedding("model.embed_tokens", vocab, hidden, tied)?;
        let blocks = (0..config.layers).map(|layer| Block::assemble(config, layer, &mut parts));
        let blocks = blocks.collect::<Result<Vec<_>, _>>()?;
        let norm = parts.norm("model.norm", hidden, config.eps)?;
        let head = if tied {
            parts.skip(HEAD);
            None
        } else {
            Some(parts.linear(&[("lm_head".to_owned(), vocab)], hidden)?)
        };
        parts.skip(super::config::ROPE_FACTORS);
        parts.check_all_taken()?;
        let dtype = backend.dtype();
        let (heads, dim) = (config.kv_heads, config.head_dim);
        let kv = KvShape {
            heads,
            key_dim: dim,
            value_dim: dim,
            dtype,
        };
        let info = ModelInfo {
            family: config.family.clone(),
            layers: config.layers,
            hidden,
            heads: config.heads,
            kv_heads: heads,
            head_dim: dim,
            intermediate: config.intermediate,
            vocab_size: vocab,
            max_positions: config.max_positions,
            parameters: parts.parameters(),
            quantization: source.quantization(),
            dtype: format!("{dtype:?}").to_lowercase(),
            brisk_prefill: backend.brisk_prefill(parts.parameters()),
            weight_bytes: parts.weight_bytes(),
        };
        let rope = Rope::new(dim, config.rope_base, &config.rope_scaling, backend);
        let plan = CachePlan::new(vec![kv; config.layers]);
        Ok(Self {
            info,
            plan,
            embedding,
            blocks,
            norm,
            head,
            rope,
        })
    }

    /// Runs all blocks over `[tokens, hidden]`, writing keys and values to `caches`. Without `outputs`, ends once the
    /// last layer's are written.
    fn blocks(
        &self,
        tokens: &Array,
        span: &Span,
        outputs: bool,
        caches: &mut dyn Layers,
    ) -> Result<Option<Array>, ModelError> {
        let mut x = self.embedding.lookup(tokens).doing("look up embeddings")?;
        for (layer, block) in self.blocks.iter().enumerate() {
            let normed = block.attention_norm.forward(&x).doing("normalize")?;
            let [queries, keys, values] = block
                .attention
                .project(&normed, &self.rope, span)
                .doing("project to queries, keys, values")?;
            let (keys, values) = caches.layer(layer).append(&keys, &values)?;
            if !outputs && layer + 1 == self.blocks.len() {
                return Ok(None);
            }
            let attended = block
                .attention
                .attend(&queries, &keys, &values, &span.mask)
                .doing("attend")?;
            x = x.add(attended).doing("add attention")?;
            let normed = block.mlp_norm.forward(&x).doing("normalize")?;
            x = x
                .add(block.mlp.forward(&normed).doing("run the MLP")?)
                .doing("add the MLP")?;
        }
        Ok(Some(x))
    }
}

const HEAD: &str = "lm_head.weight";

impl Block {
    fn assemble(config: &LlamaConfig, layer: usize, parts: &mut Assembler<'_>) -> Result<Self, ModelError> {
        let name = |module: &str| format!("model.layers.{layer}.{module}");
        let (hidden, dim) = (config.hidden, config.head_dim);
        let (queries, keys) = (config.heads * dim, config.kv_heads * dim);
        let qkv = [
            (name("self_attn.q_proj"), queries),
            (name("self_attn.k_proj"), keys),
            (name("self_attn.v_proj"), keys),
        ];
        let gate_up = [
            (name("mlp.gate_proj"), config.intermediate),
            (name("mlp.up_proj"), config.intermediate),
        ];
        let attention_norm = parts.norm(&name("input_layernorm"), hidden, config.eps)?;
        let qkv = parts.linear(&qkv, hidden)?;
        let output = parts.linear(&[(name("self_attn.o_proj"), hidden)], queries)?;
        let mlp_norm = parts.norm(&name("post_attention_layernorm"), hidden, config.eps)?;
        let gate_up = parts.linear(&gate_up, hidden)?;
        let down = parts.linear(&[(name("mlp.down_proj"), hidden)], config.intermediate)?;
        Ok(Self {
            attention_norm,
            attention: Attention::new(qkv, output, config.heads, config.kv_heads, dim),
            mlp_norm,
            mlp: SwiGlu::new(gate_up, down, config.intermediate),
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
        let mask = if len == 1 { Mask::None } else { Mask::Causal };
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
        let padding = mask::padding(&batch.left_pads(), batch.width() + 1);
        let span = Span {
            rows: batch.rows(),
            rope,
            mask: padding.map_or(Mask::None, Mask::Padding),
        };
        let x = self.blocks(tokens, &span, true, batch)?;
        let x = x.ok_or_else(|| ModelError::Misuse("a model without layers has no output".to_owned()))?;
        self.norm.forward(&x).doing("normalize")
    }

    fn head(&self, hidden: &Array) -> Result<Array, ModelError> {
        let logits = match &self.head {
            Some(head) => head.forward(hidden),
            None => self.embedding.as_head(hidden),
        };
        logits
            .and_then(|logits| logits.as_type::<f32>())
            .doing("compute logits")
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
        let model = Llama::assemble(&config, &weights, Backend::Gpu, &mut |_| ()).unwrap();
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
