//! GGUF files, under the names of Hugging Face checkpoints and in their order of rows.

use std::collections::BTreeMap;
use std::ops::Range;

use super::gguf_names::{self, Names};
use super::{Affine, Holding, Matrix, Microscaled, WeightSource};
use crate::gguf::{Gguf, Kind, Tensor, mixed};
use crate::model::ModelError;
use crate::nn::{Backend, Microscaling};

/// The weights of a GGUF file of any architecture that has names.
#[derive(Debug)]
pub struct GgufWeights<'a> {
    file: &'a Gguf,
    names: &'static Names,
    order: Order,
}

/// How the file orders rows that Hugging Face orders otherwise.
#[derive(Debug, Clone, Copy)]
enum Order {
    Same,
    /// Rows of a head's queries and keys, whose two halves are interleaved.
    Interleaved {
        heads: usize,
        kv_heads: usize,
    },
    /// Value heads of linear attention: the first of each key head, then the second of each.
    Tiled(ValueHeads),
}

/// The heads of linear attention.
#[derive(Debug, Clone, Copy)]
struct ValueHeads {
    /// Key heads, and features of one.
    keys: usize,
    key_dim: usize,
    /// Value heads of each key head, and features of one.
    per_key: usize,
    value_dim: usize,
}

impl ValueHeads {
    /// Row `row` of our order in the file's, where each value head has `dim` rows.
    fn tiled(self, row: usize, dim: usize) -> usize {
        let (head, within) = (row / dim, row % dim);
        let (key, value) = (head / self.per_key, head % self.per_key);
        (value * self.keys + key) * dim + within
    }

    /// The same for queries, keys and values of all heads, one above the other.
    fn tiled_values(self, row: usize) -> usize {
        let before = 2 * self.keys * self.key_dim;
        match row.checked_sub(before) {
            Some(row) => before + self.tiled(row, self.value_dim),
            None => row,
        }
    }
}

/// Row `row` of our order in the file's: heads of `dim` rows, whose two halves the file interleaves.
fn interleaved(row: usize, dim: usize) -> usize {
    let (head, within) = (row / dim, row % dim);
    let (half, pair) = (within / (dim / 2), within % (dim / 2));
    head * dim + 2 * pair + half
}

impl<'a> GgufWeights<'a> {
    /// The weights of `file`. Fails for an architecture whose names aren't known, or where the metadata lacks what the
    /// order of rows depends on.
    pub fn new(file: &'a Gguf) -> Result<Self, ModelError> {
        let metadata = file.metadata();
        let architecture = metadata.str("general.architecture")?;
        let names = gguf_names::of(architecture).ok_or_else(|| ModelError::UnsupportedType {
            found: architecture.to_owned(),
            supported: gguf_names::supported(),
        })?;
        let size = |name: &str| -> Result<Option<usize>, ModelError> {
            let key = format!("{architecture}.{name}");
            let Some(value) = metadata.opt_u64(&key)? else {
                return Ok(None);
            };
            let size = usize::try_from(value)
                .ok()
                .filter(|size| (1..1 << 31).contains(size));
            size.map(Some).ok_or_else(|| ModelError::Config {
                name: key,
                value: value.to_string(),
                allowed: "a positive integer below 2^31".to_owned(),
            })
        };
        let needed = |name: &str| {
            size(name)?.ok_or_else(|| ModelError::Config {
                name: format!("{architecture}.{name}"),
                value: "absent".to_owned(),
                allowed: "a positive integer".to_owned(),
            })
        };
        let mut order = Order::Same;
        if names.interleaved {
            let heads = needed("attention.head_count")?;
            let kv_heads = size("attention.head_count_kv")?.unwrap_or(heads);
            order = Order::Interleaved { heads, kv_heads };
        }
        if names.tiled {
            let (keys, values) = (needed("ssm.group_count")?, needed("ssm.time_step_rank")?);
            let features = needed("ssm.inner_size")?;
            if !values.is_multiple_of(keys) || !features.is_multiple_of(values) {
                return Err(ModelError::Config {
                    name: format!("{architecture}.ssm.time_step_rank"),
                    value: values.to_string(),
                    allowed: format!(
                        "a multiple of the {keys} key heads that divides the {features} features"
                    ),
                });
            }
            if keys != values {
                order = Order::Tiled(ValueHeads {
                    keys,
                    key_dim: needed("ssm.state_size")?,
                    per_key: values / keys,
                    value_dim: features / values,
                });
            }
        }
        Ok(Self { file, names, order })
    }

    /// Where our row `row` of the tensor `name` lies in the file, if rows are ordered otherwise there.
    fn row_order(&self, name: &str, rows: usize) -> Option<Box<dyn Fn(usize) -> usize>> {
        match self.order {
            Order::Same => None,
            Order::Interleaved { heads, kv_heads } => {
                let heads = if name.contains(".q_proj.") {
                    heads
                } else if name.contains(".k_proj.") {
                    kv_heads
                } else {
                    return None;
                };
                let dim = rows / heads;
                let halves = rows.is_multiple_of(heads) && dim > 0 && dim.is_multiple_of(2);
                halves.then(|| Box::new(move |row| interleaved(row, dim)) as Box<_>)
            }
            Order::Tiled(heads) => {
                let (_, part) = name.split_once(".linear_attn.")?;
                Some(match part {
                    "in_proj_qkv.weight" | "conv1d.weight" => Box::new(move |row| heads.tiled_values(row)),
                    "in_proj_z.weight" => Box::new(move |row| heads.tiled(row, heads.value_dim)),
                    "in_proj_a.weight" | "in_proj_b.weight" | "A_log" | "dt_bias" => {
                        Box::new(move |row| heads.tiled(row, 1))
                    }
                    _ => return None,
                })
            }
        }
    }

    /// Columns that stay together, and where they lie in the file, if they are ordered otherwise there.
    fn column_order(&self, name: &str) -> Option<ValueHeads> {
        match self.order {
            Order::Tiled(heads) if name.ends_with(".linear_attn.out_proj.weight") => Some(heads),
            _ => None,
        }
    }

    fn tensor(&self, name: &str, expected: &[usize]) -> Result<Tensor<'a>, ModelError> {
        let theirs = self.names.theirs(name);
        if !self.file.has(&theirs) {
            return Err(ModelError::MissingTensor {
                name: theirs,
                expected: expected.to_vec(),
            });
        }
        let tensor = self.file.tensor(&theirs)?;
        // A matrix of one row is a vector in some files.
        let row = matches!(expected, [1, cols] if tensor.info.shape == [*cols]);
        if tensor.info.shape != expected && !row {
            let found = tensor.info.shape.clone();
            return Err(ModelError::WrongShape {
                name: theirs,
                found,
                expected: expected.to_vec(),
            });
        }
        Ok(tensor)
    }

    /// A matrix in the file's order.
    fn stored(&self, tensor: Tensor<'_>, rows: usize, cols: usize) -> Result<Matrix, ModelError> {
        let matrix = if let Some((packed, scales)) = tensor.to_mxfp4() {
            Matrix::Microscaled(Microscaled {
                rows,
                cols,
                mode: Microscaling::Mxfp4,
                packed,
                scales,
            })
        } else if let Some(affine) = tensor.to_affine() {
            Matrix::Affine(Affine {
                rows,
                cols,
                bits: affine.bits,
                group_size: affine.group_size,
                packed: affine.weight,
                scales: affine.scales,
                biases: affine.biases,
            })
        } else {
            Matrix::Dense {
                rows,
                cols,
                elements: tensor.to_f32()?,
            }
        };
        // Copied, it is not to be in memory twice.
        self.file.release(&tensor);
        Ok(matrix)
    }
}

impl WeightSource for GgufWeights<'_> {
    fn names(&self) -> Vec<String> {
        self.file
            .tensors()
            .map(|info| self.names.ours(&info.name))
            .collect()
    }

    fn has(&self, name: &str) -> bool {
        self.file.has(&self.names.theirs(name))
    }

    fn bytes(&self, name: &str) -> u64 {
        let tensor = self.file.tensor(&self.names.theirs(name)).ok();
        tensor.map_or(0, |tensor| tensor.bytes.len() as u64)
    }

    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, ModelError> {
        let tensor = self.tensor(name, &[len])?;
        let mut elements = tensor.to_f32()?;
        if name.ends_with(".A_log") {
            // Stored as what it is used for: −exp of it.
            if let Some(wrong) = elements.iter().find(|decay| decay.is_nan() || **decay >= 0.0) {
                return Err(ModelError::Config {
                    name: tensor.info.name.clone(),
                    value: wrong.to_string(),
                    allowed: "negative everywhere".to_owned(),
                });
            }
            elements.iter_mut().for_each(|decay| *decay = (-*decay).ln());
        }
        Ok(match self.row_order(name, len) {
            Some(from) => Matrix::column(elements).with_rows(from).into_dense(),
            None => elements,
        })
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        let tensor = self.file.tensor(&self.names.theirs(name)).ok();
        tensor.map(|tensor| tensor.info.shape.clone())
    }

    fn rows(&self, name: &str, [all, cols]: [usize; 2], rows: Range<usize>) -> Result<Matrix, ModelError> {
        let tensor = self.tensor(name, &[all, cols])?;
        let (count, missing) = (rows.len(), super::no_rows(name, &rows, all));
        let mut matrix = match self.row_order(name, all) {
            None => self.stored(tensor.part(rows, all).ok_or(missing)?, count, cols)?,
            Some(from) => {
                // The file's bytes, in our order.
                let parts = rows.map(|row| Some(tensor.part(from(row)..from(row) + 1, all)?.bytes));
                let bytes = parts.collect::<Option<Vec<_>>>().ok_or(missing)?.concat();
                self.file.release(&tensor);
                self.stored(
                    Tensor {
                        bytes: &bytes,
                        ..tensor
                    },
                    count,
                    cols,
                )?
            }
        };
        if let Some(heads) = self.column_order(name) {
            matrix = matrix.with_columns(heads.value_dim, |head| heads.tiled(head, 1));
        }
        Ok(matrix)
    }

    fn expert(
        &self,
        name: &str,
        expert: usize,
        experts: usize,
        rows: usize,
        cols: usize,
    ) -> Result<Matrix, ModelError> {
        let stack = self.tensor(name, &[experts, rows, cols])?;
        let slice = stack
            .part(expert..expert + 1, experts)
            .ok_or_else(|| super::no_expert(name, expert, experts))?;
        self.stored(slice, rows, cols)
    }

    fn quantization(&self) -> String {
        let mut elements: BTreeMap<Kind, u64> = BTreeMap::new();
        for info in self.file.tensors() {
            *elements.entry(info.kind).or_default() += info.elements() as u64;
        }
        let mostly = match elements.into_iter().max_by_key(|(_, elements)| *elements) {
            Some((kind, _)) if kind.is_float() => format!("none ({kind})"),
            Some((kind, _)) => kind.to_string(),
            None => "none".to_owned(),
        };
        // In a small model with many tokens, most weights are those of the embeddings, which a mixture holds finer.
        let file_type = self.file.metadata().opt_u64("general.file_type").ok().flatten();
        match file_type.and_then(mixed) {
            Some(name) if name.starts_with(&mostly) => name.to_owned(),
            Some(name) => format!("{name}, mostly {mostly}"),
            None => mostly,
        }
    }

    fn holdings(&self, backend: Backend) -> Vec<Holding> {
        let mut kinds: BTreeMap<Kind, (usize, u64)> = BTreeMap::new();
        for info in self.file.tensors() {
            let (tensors, elements) = kinds.entry(info.kind).or_default();
            *tensors += 1;
            *elements += info.elements() as u64;
        }
        let holding = |(kind, (tensors, elements)): (Kind, (usize, u64))| {
            let held = match (kind, kind.affine_widths()) {
                (Kind::MXFP4, Some(_)) if backend.is_gpu() => "mxfp4".to_owned(),
                (_, Some((bits, group))) => Holding::affine(bits, group, backend),
                (kind, None) if kind.is_read() => Holding::dense(kind == Kind::F32, backend),
                (_, None) => "not supported".to_owned(),
            };
            Holding {
                stored: kind.to_string(),
                tensors,
                elements,
                held,
            }
        };
        kinds.into_iter().map(holding).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interleaved_rows_are_put_back_into_halves() {
        // Two heads of four rows: the file has a0 b0 a1 b1 where we want a0 a1 b0 b1.
        let order: Vec<usize> = (0..8).map(|row| interleaved(row, 4)).collect();
        assert_eq!(order, [0, 2, 1, 3, 4, 6, 5, 7]);
    }

    #[test]
    fn tiled_value_heads_are_put_back_beside_their_key_heads() {
        let heads = ValueHeads {
            keys: 2,
            key_dim: 1,
            per_key: 3,
            value_dim: 2,
        };
        // The file has k0v0 k1v0 k0v1 k1v1 k0v2 k1v2 where we want k0v0 k0v1 k0v2 k1v0 …
        let order: Vec<usize> = (0..6).map(|row| heads.tiled(row, 1)).collect();
        assert_eq!(order, [0, 2, 4, 1, 3, 5]);
        let order: Vec<usize> = (0..16).map(|row| heads.tiled_values(row)).collect();
        assert_eq!(order, [0, 1, 2, 3, 4, 5, 8, 9, 12, 13, 6, 7, 10, 11, 14, 15]);
    }
}
