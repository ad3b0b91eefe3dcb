//! The one forward of all families: embeddings, blocks, the head.

use mlx_rs::Array;

use super::architecture::{Architecture, FeedForwardParts, LayerParts, MixerParts};
use super::assemble::Assembler;
use super::error::Doing;
use super::load::{LoadProgress, Means};
use super::weights::WeightSource;
use super::{LanguageModel, ModelError, ModelInfo, MostLikely, check_tokens};
use crate::cache::{BatchCache, CachePlan, LayerCache, Layers, RowCache};
use crate::nn::{Attention, DeltaNet, Embedding, GatedMlp, Head, Mask, Moe, Positions, Rope, Span};

/// A decoder: `h = x + mixer(norm(x))`, `out = h + feed_forward(norm(h))` in each block, with what a family varies inside.
pub(super) struct Decoder {
    info: ModelInfo,
    plan: CachePlan,
    embedding: Embedding,
    blocks: Vec<Block>,
    head: Head,
    ropes: Vec<Rope>,
    /// The windows of its attention layers, each once: a forward has a mask for each.
    windows: Vec<Option<usize>>,
}

struct Block {
    mixer: Mixer,
    feed_forward: FeedForward,
}

/// Where positions meet.
enum Mixer {
    Attention(Attention),
    DeltaNet(DeltaNet),
}

/// Where each position is by itself.
enum FeedForward {
    Gated(GatedMlp),
    Moe(Moe),
}

impl Decoder {
    pub fn assemble(
        architecture: &Architecture,
        source: &dyn WeightSource,
        means: &Means,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<Self, ModelError> {
        let backend = means.backend;
        let mut parts = Assembler::new(architecture, source, means, progress);
        let (embedding, head) = parts.vocabulary(architecture)?;
        let plan = architecture.plan(backend, means.kernels.is_some());
        let windows = plan.windows();
        let mut blocks = Vec::new();
        for (layer, of_layer) in architecture.layers.iter().enumerate() {
            blocks.push(Block::assemble(layer, of_layer, &windows, &mut parts)?);
        }
        parts.check_all_taken(architecture)?;
        let ropes = architecture
            .ropes
            .iter()
            .map(|rope| Rope::new(rope.features, rope.turned, rope.base, &rope.scaling, backend));
        let heads = architecture.heads();
        let info = ModelInfo {
            family: architecture.family.clone(),
            layers: architecture.layers.len(),
            hidden: architecture.hidden,
            heads: heads.queries,
            kv_heads: heads.kv,
            head_dim: heads.dim,
            intermediate: architecture.intermediate(),
            vocab_size: architecture.vocab_size,
            max_positions: architecture.max_positions,
            parameters: parts.parameters(),
            quantization: source.quantization(),
            dtype: format!("{:?}", backend.dtype()).to_lowercase(),
            device: means.device(),
            brisk_prefill: backend.brisk_prefill(parts.parameters()),
            weight_bytes: parts.weight_bytes(),
        };
        Ok(Self {
            info,
            plan,
            embedding,
            blocks,
            head,
            ropes: ropes.collect(),
            windows,
        })
    }

    /// Runs all blocks over `[tokens, hidden]`, writing to `caches`. Without `outputs`, ends once the last layer has
    /// written; the result then says no more than that.
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
                x = block.mixer.write(&x, cache, span)?;
                break;
            }
            x = block.mixer.forward(&x, cache, span)?;
            x = block.feed_forward.forward(&x)?;
        }
        caches.wrote(&x)?;
        Ok(x)
    }

    /// What the layers of a forward share: of `rows` rows, `added` new tokens each.
    fn span(&self, rows: usize, added: usize, positions: Positions<'_>, caches: &dyn Layers) -> Span {
        Span {
            rows,
            ropes: self.ropes.iter().map(|rope| rope.step(positions)).collect(),
            masks: Mask::each(caches, &self.windows, added),
        }
    }
}

impl Block {
    fn assemble(
        layer: usize,
        of_layer: &LayerParts,
        windows: &[Option<usize>],
        parts: &mut Assembler<'_>,
    ) -> Result<Self, ModelError> {
        let norms = of_layer.norms;
        Ok(Self {
            mixer: match &of_layer.mixer {
                MixerParts::Attention(attention) => {
                    let mask = windows.iter().position(|window| *window == attention.window);
                    Mixer::Attention(parts.attention(layer, norms, attention, mask.unwrap_or(0))?)
                }
                MixerParts::DeltaNet(shape) => Mixer::DeltaNet(parts.delta_net(layer, norms, *shape)?),
            },
            feed_forward: match &of_layer.feed_forward {
                FeedForwardParts::Gated(gated) => FeedForward::Gated(parts.gated(layer, norms, gated)?),
                FeedForwardParts::Moe(moe) => FeedForward::Moe(parts.moe(layer, norms, moe)?),
            },
        })
    }
}

impl Mixer {
    fn forward(&self, x: &Array, cache: LayerCache<'_>, span: &Span) -> Result<Array, ModelError> {
        match self {
            Self::Attention(attention) => attention.forward(x, cache, span).doing("attend"),
            Self::DeltaNet(delta) => delta.forward(x, cache, span).doing("update states"),
        }
    }

    /// Only writes to the cache.
    fn write(&self, x: &Array, cache: LayerCache<'_>, span: &Span) -> Result<Array, ModelError> {
        match self {
            Self::Attention(attention) => attention.write(x, cache, span).doing("write to the cache"),
            Self::DeltaNet(delta) => delta.write(x, cache, span).doing("write to the cache"),
        }
    }
}

impl FeedForward {
    fn forward(&self, x: &Array) -> Result<Array, ModelError> {
        match self {
            Self::Gated(gated) => gated.forward(x).doing("run the MLP"),
            Self::Moe(moe) => moe.forward(x).doing("run the experts"),
        }
    }
}

impl LanguageModel for Decoder {
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
        let span = self.span(1, len, Positions::Run { start, len }, row);
        self.blocks(&array, &span, false, row)?;
        Ok(())
    }

    fn forward(&self, tokens: &Array, batch: &mut BatchCache) -> Result<Array, ModelError> {
        check_tokens(tokens, batch)?;
        let lengths = batch.lengths();
        let positions = match lengths.as_slice() {
            &[start] if batch.is_lone() => Positions::Run { start, len: 1 },
            each => Positions::Each(each),
        };
        let span = self.span(batch.rows(), 1, positions, batch);
        self.blocks(tokens, &span, true, batch)
    }

    fn head(&self, hidden: &Array) -> Result<Array, ModelError> {
        self.head.forward(hidden, &self.embedding).doing("compute logits")
    }

    fn most_likely(&self, logits: &Array) -> Result<MostLikely, ModelError> {
        self.head.most_likely(logits).doing("choose tokens")
    }
}

#[cfg(test)]
mod tests;
