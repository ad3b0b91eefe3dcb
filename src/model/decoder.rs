//! The one forward of all families: embeddings, blocks, the head.

use mlx_rs::Array;

use super::architecture::{Architecture, FeedForwardParts, LayerParts, MixerParts};
use super::assemble::Assembler;
use super::error::Doing;
use super::load::{LoadProgress, Means};
use super::weights::WeightSource;
use super::{Feed, LanguageModel, ModelError, ModelInfo, MostLikely, Step};
use crate::cache::{CachePlan, KvLayout, LayerCache};
use crate::nn::{
    Attention, DeltaNet, Embedding, GatedMlp, Head, LoneBlocks, Mask, Moe, Packed, Positions, Residual, Rope,
    Span,
};

/// A decoder: `h = x + mixer(norm(x))`, `out = h + feed_forward(norm(h))` in each block, with what a family varies inside.
pub(super) struct Decoder {
    info: ModelInfo,
    plan: CachePlan,
    embedding: Embedding,
    blocks: Vec<Block>,
    /// All of them, for one token of one row, where a kernel computes several at once.
    lone: Option<LoneBlocks>,
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
        let plan = architecture
            .plan(backend, means.kernels.is_some())
            .with_schemes(&means.kv)?;
        let mut parts = Assembler::new(architecture, source, means, progress);
        let (embedding, head) = parts.vocabulary(architecture)?;
        let windows = plan.windows();
        let mut blocks = Vec::new();
        for (layer, of_layer) in architecture.layers.iter().enumerate() {
            blocks.push(Block::assemble(layer, of_layer, &windows, &mut parts)?);
        }
        parts.check_all_taken(architecture)?;
        let plain: Option<Vec<_>> = blocks.iter().map(Block::plain).collect();
        let lone = plain.and_then(|plain| LoneBlocks::of(&plain));
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
            on_gpu: backend.is_gpu(),
            brisk_prefill: backend.brisk_prefill(parts.parameters()),
            weight_bytes: parts.weight_bytes(),
        };
        Ok(Self {
            info,
            plan,
            embedding,
            blocks,
            lone,
            head,
            ropes: ropes.collect(),
            windows,
        })
    }

    /// What the layers of a forward share.
    fn spans(&self, feed: &Feed<'_>) -> Result<Packed, ModelError> {
        let mut positions = Vec::new();
        let mut spans = Vec::new();
        let own = self.plan.layout() == KvLayout::OwnBuffers;
        let ropes = |of: Positions<'_>| {
            let ropes = self.ropes.iter().filter(|_| !own);
            ropes.map(|rope| rope.step(of)).collect()
        };
        for Step { batch, .. } in &feed.steps {
            let lengths = batch.lengths();
            let each = match lengths.as_slice() {
                &[start] if batch.is_lone() => Positions::Run { start, len: 1 },
                each => Positions::Each(each),
            };
            spans.push(Span {
                rows: batch.rows(),
                added: 1,
                ropes: ropes(each),
                masks: Mask::each(&**batch, &self.windows, 1),
            });
            positions.extend(lengths);
        }
        for piece in &feed.pieces {
            let (start, len) = (piece.start()?, piece.tokens.len());
            spans.push(Span {
                rows: 1,
                added: len,
                ropes: ropes(Positions::Run { start, len }),
                masks: Mask::each(&*piece.row, &self.windows, len),
            });
            positions.extend(start..start + len);
        }
        let tables = self.ropes.iter().filter(|_| own);
        Ok(Packed {
            spans,
            ropes: tables
                .map(|rope| rope.step(Positions::Each(&positions)))
                .collect(),
        })
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

impl Block {
    /// Its halves, where they are attention and one MLP.
    fn plain(&self) -> Option<(&Attention, &GatedMlp)> {
        match (&self.mixer, &self.feed_forward) {
            (Mixer::Attention(attention), FeedForward::Gated(mlp)) => Some((attention, mlp)),
            _ => None,
        }
    }
}

impl Mixer {
    fn forward(
        &self,
        x: Residual,
        caches: Vec<LayerCache<'_>>,
        packed: &Packed,
        put_out: usize,
    ) -> Result<Residual, ModelError> {
        match self {
            Self::Attention(attention) => attention.forward(x, caches, packed, put_out).doing("attend"),
            Self::DeltaNet(delta) => {
                let x = x.whole().doing("update states")?;
                let x = delta.forward(&x, caches, packed, put_out);
                x.map(Residual::from).doing("update states")
            }
        }
    }
}

impl FeedForward {
    fn forward(&self, x: Residual) -> Result<Residual, ModelError> {
        match self {
            Self::Gated(gated) => gated.forward(x).doing("run the MLP"),
            Self::Moe(moe) => {
                let x = x.whole().and_then(|x| moe.forward(&x));
                x.map(Residual::from).doing("run the experts")
            }
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

    fn packed(&self, feed: &mut Feed<'_>) -> Result<Array, ModelError> {
        let tokens = feed.tokens(self.info.vocab_size)?;
        let packed = self.spans(feed)?;
        let x = self.embedding.lookup(&tokens).doing("look up embeddings")?;
        if let (Some(lone), Some(caches), [span]) = (&self.lone, feed.lone_step(), packed.spans.as_slice())
            && let Some(x) = lone.forward(&x, caches, span).doing("run the blocks")?
        {
            feed.wrote(&x)?;
            return Ok(x);
        }
        let mut x = Residual::from(x);
        for (layer, block) in self.blocks.iter().enumerate() {
            // Nothing but what the head takes is wanted of the last layer.
            let last = layer + 1 == self.blocks.len();
            let put_out = if last {
                feed.steps.len()
            } else {
                packed.spans.len()
            };
            x = block.mixer.forward(x, feed.layer(layer), &packed, put_out)?;
            if put_out > 0 {
                x = block.feed_forward.forward(x)?;
            }
        }
        let x = x.whole().doing("add the last block")?;
        feed.wrote(&x)?;
        Ok(x)
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
