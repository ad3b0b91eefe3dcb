//! Nodes that know the vocabulary: embeddings, logits, the most likely token.

use std::sync::Arc;

use cpu_kernels::linear::{Output, project};
use cpu_kernels::{Input, Weights, argmax, embed};
use mlx_rs::error::Exception;
use mlx_rs::{Array, Dtype};

use super::team::Kernels;
use super::{HostNorm, Node, input, output};
use crate::nn::{MostLikely, extent};

/// A vector of features for each token; the table is never unpacked.
#[derive(Debug)]
pub struct KernelEmbedding {
    node: Node,
    features: usize,
}

/// Logits and what is most likely by them.
#[derive(Debug)]
pub struct KernelHead {
    logits: Node,
    most_likely: Node,
    vocab: usize,
}

fn rows(x: &Array) -> i32 {
    x.shape().first().copied().unwrap_or(0)
}

impl KernelEmbedding {
    /// Of a table `[vocab, features]`, which the head may share; vectors are multiplied by `scale`.
    pub fn new(kernels: &Arc<Kernels>, table: Arc<Weights>, scale: Option<f32>) -> Self {
        let (kernels, features) = (Arc::clone(kernels), table.inputs());
        let node = Node::new("Embed", move |inputs, outputs| {
            let (tokens, y) = (input::<u32>(&inputs[0]), output::<f32>(&mut outputs[0]));
            embed(&kernels.team, &table, tokens, scale, y);
        });
        Self { node, features }
    }

    pub(in crate::nn) fn lookup(&self, tokens: &Array) -> Result<Array, Exception> {
        let shape = [rows(tokens), extent(self.features)];
        let [y] = self.node.apply(&[tokens], [(&shape, Dtype::Float32)])?;
        Ok(y)
    }
}

impl KernelHead {
    /// Of the last normalization and a projection `[vocab, features]`.
    pub fn new(kernels: &Arc<Kernels>, norm: HostNorm, weights: Arc<Weights>) -> Self {
        let vocab = weights.outputs();
        let (team, others) = (Arc::clone(kernels), Arc::clone(kernels));
        let logits = Node::new("Head", move |inputs, outputs| {
            let (x, y) = (input::<f32>(&inputs[0]), output::<f32>(&mut outputs[0]));
            let x = Input::new(x, weights.inputs(), Some(norm.as_norm()));
            let workspace = &mut team.workspace().rows;
            project(&team.team, workspace, x, &[&weights], None, Output::Store(y));
        });
        let most_likely = Node::new("MostLikely", move |inputs, outputs| {
            let [ids, largest] = outputs else {
                panic!("two outputs are asked for");
            };
            let logits = input::<f32>(&inputs[0]);
            argmax(
                &others.team,
                logits,
                vocab,
                output::<u32>(ids),
                output::<f32>(largest),
            );
        });
        Self {
            logits,
            most_likely,
            vocab,
        }
    }

    pub(in crate::nn) fn logits(&self, x: &Array) -> Result<Array, Exception> {
        let shape = [rows(x), extent(self.vocab)];
        let [y] = self.logits.apply(&[x], [(&shape, Dtype::Float32)])?;
        Ok(y)
    }

    pub(in crate::nn) fn most_likely(&self, logits: &Array) -> Result<MostLikely, Exception> {
        let shape = [rows(logits)];
        let outputs = [(&shape[..], Dtype::Uint32), (&shape[..], Dtype::Float32)];
        let [tokens, logits] = self.most_likely.apply(&[logits], outputs)?;
        Ok(MostLikely { tokens, logits })
    }
}
