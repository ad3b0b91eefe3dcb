//! A GGUF file of the llama architecture, under the names of Hugging Face checkpoints.

use std::collections::HashMap;

use super::{Affine, Matrix, WeightSource};
use crate::gguf::{Gguf, Kind};
use crate::model::ModelError;

/// The weights of a llama-architecture GGUF file.
#[derive(Debug)]
pub struct GgufLlama<'a> {
    file: &'a Gguf,
    heads: usize,
    kv_heads: usize,
}

/// Modules of a block, theirs and ours.
const BLOCK: [(&str, &str); 9] = [
    ("attn_norm", "input_layernorm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

/// Modules outside of blocks, theirs and ours.
const OUTSIDE: [(&str, &str); 3] = [
    ("token_embd", "model.embed_tokens"),
    ("output_norm", "model.norm"),
    ("output", "lm_head"),
];

impl<'a> GgufLlama<'a> {
    /// The weights of `file`, whose query and key rows are permuted by these head counts.
    pub fn new(file: &'a Gguf, heads: usize, kv_heads: usize) -> Self {
        Self {
            file,
            heads,
            kv_heads,
        }
    }

    /// Our name of the file's tensor; its own if it has no counterpart, so that it is reported.
    fn ours(theirs: &str) -> String {
        let renamed = || {
            if let Some(rest) = theirs.strip_prefix("blk.") {
                let (layer, rest) = rest.split_once('.')?;
                let (module, kind) = rest.rsplit_once('.')?;
                let (_, ours) = BLOCK.iter().find(|(name, _)| *name == module)?;
                return Some(format!("model.layers.{layer}.{ours}.{kind}"));
            }
            let (module, kind) = theirs.rsplit_once('.')?;
            let (_, ours) = OUTSIDE.iter().find(|(name, _)| *name == module)?;
            Some(format!("{ours}.{kind}"))
        };
        renamed().unwrap_or_else(|| theirs.to_owned())
    }

    /// The file's name of our tensor.
    fn theirs(ours: &str) -> String {
        let renamed = || {
            let (module, kind) = ours.rsplit_once('.')?;
            if let Some(rest) = module.strip_prefix("model.layers.") {
                let (layer, module) = rest.split_once('.')?;
                let (theirs, _) = BLOCK.iter().find(|(_, name)| *name == module)?;
                return Some(format!("blk.{layer}.{theirs}.{kind}"));
            }
            let (theirs, _) = OUTSIDE.iter().find(|(_, name)| *name == module)?;
            Some(format!("{theirs}.{kind}"))
        };
        renamed().unwrap_or_else(|| ours.to_owned())
    }

    /// Heads whose rows the file interleaves for the RoPE that pairs neighbours.
    fn permuted_heads(&self, ours: &str) -> Option<usize> {
        if ours.contains(".q_proj.") {
            Some(self.heads)
        } else if ours.contains(".k_proj.") {
            Some(self.kv_heads)
        } else {
            None
        }
    }

    fn tensor(&self, name: &str, expected: &[usize]) -> Result<crate::gguf::Tensor<'a>, ModelError> {
        let theirs = Self::theirs(name);
        if !self.file.has(&theirs) {
            return Err(ModelError::MissingTensor {
                name: theirs,
                expected: expected.to_vec(),
            });
        }
        let tensor = self.file.tensor(&theirs)?;
        if tensor.info.shape != expected {
            let found = tensor.info.shape.clone();
            return Err(ModelError::WrongShape {
                name: theirs,
                found,
                expected: expected.to_vec(),
            });
        }
        Ok(tensor)
    }
}

/// Row `row` of our order in the file's: heads of `dim` rows, whose two halves the file interleaves.
fn interleaved(row: usize, dim: usize) -> usize {
    let (head, within) = (row / dim, row % dim);
    let (half, pair) = (within / (dim / 2), within % (dim / 2));
    head * dim + 2 * pair + half
}

impl WeightSource for GgufLlama<'_> {
    fn names(&self) -> Vec<String> {
        self.file.tensors().map(|info| Self::ours(&info.name)).collect()
    }

    fn has(&self, name: &str) -> bool {
        self.file.has(&Self::theirs(name))
    }

    fn bytes(&self, name: &str) -> u64 {
        let tensor = self.file.tensor(&Self::theirs(name)).ok();
        tensor.map_or(0, |tensor| tensor.bytes.len() as u64)
    }

    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, ModelError> {
        let elements = self.tensor(name, &[len])?.to_f32()?;
        let Some(heads) = self.permuted_heads(name) else {
            return Ok(elements);
        };
        let column = Matrix::Dense {
            rows: len,
            cols: 1,
            elements,
        };
        Ok(column
            .with_rows(|row| interleaved(row, (len / heads.max(1)).max(2)))
            .into_dense())
    }

    fn matrix(&self, name: &str, rows: usize, cols: usize) -> Result<Matrix, ModelError> {
        let tensor = self.tensor(name, &[rows, cols])?;
        let matrix = match tensor.to_affine() {
            Some(affine) => Matrix::Affine(Affine {
                rows,
                cols,
                bits: affine.bits as usize,
                group_size: affine.group_size,
                packed: affine.weight,
                scales: affine.scales.iter().map(|scale| scale.to_f32()).collect(),
                biases: affine.biases.iter().map(|bias| bias.to_f32()).collect(),
            }),
            None => Matrix::Dense {
                rows,
                cols,
                elements: tensor.to_f32()?,
            },
        };
        // Copied, it is not to be in memory twice.
        self.file.release(&Self::theirs(name));
        Ok(match self.permuted_heads(name) {
            Some(heads) => {
                let dim = (rows / heads.max(1)).max(2);
                matrix.with_rows(|row| interleaved(row, dim))
            }
            None => matrix,
        })
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        let tensor = self.file.tensor(&Self::theirs(name)).ok();
        tensor.map(|tensor| tensor.info.shape.clone())
    }

    fn expert(
        &self,
        name: &str,
        _: usize,
        experts: usize,
        rows: usize,
        cols: usize,
    ) -> Result<Matrix, ModelError> {
        let tensor = self.tensor(name, &[experts, rows, cols])?;
        Err(ModelError::UnknownTensors {
            count: 1,
            first: tensor.info.name.clone(),
        })
    }

    fn quantization(&self) -> String {
        let mut bytes: HashMap<Kind, u64> = HashMap::new();
        for info in self.file.tensors() {
            *bytes.entry(info.kind).or_default() += info.elements() as u64;
        }
        match bytes.into_iter().max_by_key(|(_, elements)| *elements) {
            Some((kind @ (Kind::F32 | Kind::F16 | Kind::BF16), _)) => format!("none ({kind})"),
            Some((kind, _)) => kind.to_string(),
            None => "none".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_map_both_ways() {
        for (theirs, ours) in [
            ("token_embd.weight", "model.embed_tokens.weight"),
            ("output_norm.weight", "model.norm.weight"),
            ("output.weight", "lm_head.weight"),
            ("blk.7.attn_q.weight", "model.layers.7.self_attn.q_proj.weight"),
            (
                "blk.12.ffn_norm.weight",
                "model.layers.12.post_attention_layernorm.weight",
            ),
            ("blk.0.attn_k.bias", "model.layers.0.self_attn.k_proj.bias"),
        ] {
            assert_eq!(GgufLlama::ours(theirs), ours);
            assert_eq!(GgufLlama::theirs(ours), theirs);
        }
        assert_eq!(
            GgufLlama::ours("blk.0.ffn_gate_inp.weight"),
            "blk.0.ffn_gate_inp.weight"
        );
    }

    #[test]
    fn interleaved_rows_are_put_back_into_halves() {
        // Two heads of four rows: the file has a0 b0 a1 b1 where we want a0 a1 b0 b1.
        let order: Vec<usize> = (0..8).map(|row| interleaved(row, 4)).collect();
        assert_eq!(order, [0, 2, 1, 3, 4, 6, 5, 7]);
    }
}
