//! Attention, with the normalization before it and the residual around it.

use super::Assembler;
use crate::model::ModelError;
use crate::model::architecture::{AttentionParts, NormNames};
use crate::model::weights::Matrix;
use crate::nn::kernels::{AttentionWeights, Gate, KernelAttention};
use crate::nn::{Attending, Attention, AttentionOps, Heads};

/// Rows that a matrix puts out, and what is added to them.
struct Outputs {
    name: String,
    matrix: Matrix,
    bias: Option<Vec<f32>>,
}

impl Assembler<'_> {
    /// The attention of a layer; `mask` is which of a span's masks it goes by.
    pub fn attention(
        &mut self,
        layer: usize,
        norms: NormNames,
        parts: &AttentionParts,
        mask: usize,
    ) -> Result<Attention, ModelError> {
        let Heads { queries, kv, dim } = parts.heads;
        self.check_features("head_dim", dim)?;
        let attending = Attending {
            heads: parts.heads,
            scale: parts.scale,
            rope: parts.rope,
            window: parts.window,
            mask,
        };
        let block = |name: &str| format!("layers.{layer}.{name}");
        let inside = |name: &str| format!("layers.{layer}.self_attn.{name}");
        let hidden = self.common.hidden;
        let (wide, narrow) = (queries * dim, kv * dim);
        let [query_norm, key_norm] = ["q_norm", "k_norm"].map(|name| self.module(&inside(name)));
        let output = self.module(&inside("o_proj"));
        let norm = self.module(&block(norms.mixer));
        let output_norm = norms.mixer_output.map(|name| self.module(&block(name)));
        let modules = match parts.joined {
            true => vec![("qkv_proj", wide + 2 * narrow)],
            false => {
                let queries = if parts.gated { 2 * wide } else { wide };
                vec![("q_proj", queries), ("k_proj", narrow), ("v_proj", narrow)]
            }
        };
        let modules = modules
            .into_iter()
            .map(|(name, outputs)| (self.module(&inside(name)), outputs));
        let mut projections = self.projections(modules.collect())?;
        let gate = match projections.first_mut() {
            Some(queries) if parts.gated => Some(queries.take_gates(dim)),
            _ => None,
        };
        let Some(kernels) = self.kernels.clone() else {
            let gated = gate.is_some();
            projections.extend(gate);
            let bias = Outputs::biases(&projections);
            let name = projections
                .first()
                .map_or_else(String::new, |part| part.name.clone());
            let matrices = projections.into_iter().map(|part| part.matrix).collect();
            return Ok(Attention::ops(AttentionOps {
                norm: self.norm(&norm, hidden)?,
                qkv: self.map(&name, matrices, bias)?,
                head_norms: match parts.head_norms {
                    true => Some([self.norm(&query_norm, dim)?, self.norm(&key_norm, dim)?]),
                    false => None,
                },
                gated,
                output: self.linear(&[(&output, hidden)], wide)?,
                output_norm: output_norm.map(|norm| self.norm(&norm, hidden)).transpose()?,
                attending,
            }));
        };
        let head_norm = |assembler: &mut Self, name: &str| match parts.head_norms {
            true => assembler.host_norm(name, dim).map(Some),
            false => Ok(None),
        };
        let gate = match gate {
            None => None,
            Some(gate) => Some(Gate {
                weights: self.pack(&kernels, &gate.name, gate.matrix)?,
                bias: gate.bias,
            }),
        };
        let bias = Outputs::biases(&projections);
        let weights = AttentionWeights {
            norm: self.host_norm(&norm, hidden)?,
            projections: projections
                .into_iter()
                .map(|part| self.pack(&kernels, &part.name, part.matrix))
                .collect::<Result<_, _>>()?,
            bias,
            query_norm: head_norm(self, &query_norm)?,
            key_norm: head_norm(self, &key_norm)?,
            gate,
            output_bias: self.bias(&[(&output, hidden)])?,
            output: self.packed(&kernels, &output, hidden, wide)?,
            output_norm: output_norm
                .map(|norm| self.host_norm(&norm, hidden))
                .transpose()?,
            attending,
        };
        Ok(Attention::kernels(KernelAttention::new(&kernels, weights)))
    }

    /// Modules that take the residual stream.
    fn projections(&mut self, modules: Vec<(String, usize)>) -> Result<Vec<Outputs>, ModelError> {
        let named: Vec<(&str, usize)> = modules
            .iter()
            .map(|(name, outputs)| (name.as_str(), *outputs))
            .collect();
        let mut biases = self.biases(&named)?.map(Vec::into_iter);
        let mut all = Vec::new();
        for (module, outputs) in modules {
            let name = format!("{module}.weight");
            all.push(Outputs {
                bias: biases.as_mut().and_then(Iterator::next),
                matrix: self.matrix(&name, outputs, self.common.hidden)?,
                name,
            });
        }
        Ok(all)
    }
}

impl Outputs {
    /// Of heads of `dim` queries and `dim` gates each, leaves the queries.
    fn take_gates(&mut self, dim: usize) -> Self {
        let half = self.matrix.shape().0 / 2;
        let from = |row: usize| {
            let (gate, row) = (row / half.max(1), row % half.max(1));
            row / dim * 2 * dim + gate * dim + row % dim
        };
        let apart = |both: Matrix| both.with_rows(from).split_rows(half);
        let none = Matrix::column(Vec::new());
        let [queries, gates] = apart(std::mem::replace(&mut self.matrix, none));
        self.matrix = queries;
        let bias = self.bias.take().map(|bias| {
            let [queries, gates] = apart(Matrix::column(bias)).map(Matrix::into_dense);
            self.bias = Some(queries);
            gates
        });
        Self {
            name: self.name.clone(),
            matrix: gates,
            bias,
        }
    }

    /// What is added to the rows of all, one after the other.
    fn biases(parts: &[Self]) -> Option<Vec<f32>> {
        let all: Option<Vec<&[f32]>> = parts.iter().map(|part| part.bias.as_deref()).collect();
        all.filter(|all| !all.is_empty()).map(|all| all.concat())
    }
}
