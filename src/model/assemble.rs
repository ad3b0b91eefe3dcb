//! Puts a model's parts together from its weights, as the backend wants them.

use std::collections::HashSet;

use mlx_rs::{Array, Dtype};

use super::ModelError;
use super::error::Doing;
use super::load::LoadProgress;
use super::weights::{Affine, Matrix, WeightSource};
use crate::nn::{Backend, Embedding, Linear, RmsNorm};

/// Takes weights from a source one by one, and keeps count.
pub(super) struct Assembler<'a> {
    source: &'a dyn WeightSource,
    backend: Backend,
    progress: &'a mut dyn FnMut(LoadProgress),
    taken: HashSet<String>,
    done: u64,
    total: u64,
    parameters: u64,
    weight_bytes: u64,
}

impl<'a> Assembler<'a> {
    pub fn new(
        source: &'a dyn WeightSource,
        backend: Backend,
        progress: &'a mut dyn FnMut(LoadProgress),
    ) -> Self {
        let total = source.names().iter().map(|name| source.bytes(name)).sum();
        progress(LoadProgress {
            done_bytes: 0,
            total_bytes: total,
        });
        Self {
            source,
            backend,
            progress,
            taken: HashSet::new(),
            done: 0,
            total,
            parameters: 0,
            weight_bytes: 0,
        }
    }

    /// Weights taken so far, counted before quantization.
    pub fn parameters(&self) -> u64 {
        self.parameters
    }

    /// Bytes of the arrays made so far.
    pub fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }

    pub fn has(&self, name: &str) -> bool {
        self.source.has(name)
    }

    /// Leaves a tensor out on purpose.
    pub fn skip(&mut self, name: &str) {
        self.taken.insert(name.to_owned());
    }

    fn take(&mut self, name: &str, parameters: usize) {
        self.taken.insert(name.to_owned());
        self.parameters += parameters as u64;
        self.done += self.source.bytes(name);
        (self.progress)(LoadProgress {
            done_bytes: self.done,
            total_bytes: self.total,
        });
    }

    /// Counts the arrays of a finished part and has them computed, so that what they came from can be freed.
    fn finish(&mut self, arrays: &[&Array], name: &str) -> Result<(), ModelError> {
        self.weight_bytes += arrays.iter().map(|array| array.nbytes() as u64).sum::<u64>();
        mlx_rs::transforms::eval(arrays.iter().copied()).doing(&format!("load {name}"))
    }

    fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<Matrix, ModelError> {
        let matrix = self.source.matrix(name, rows, cols)?;
        self.take(name, rows * cols);
        Ok(matrix)
    }

    fn vector(&mut self, name: &str, len: usize) -> Result<Vec<f32>, ModelError> {
        let vector = self.source.vector(name, len)?;
        self.take(name, len);
        Ok(vector)
    }

    pub fn norm(&mut self, module: &str, features: usize, eps: f32) -> Result<RmsNorm, ModelError> {
        let name = format!("{module}.weight");
        let weight = self.vector(&name, features)?;
        let weight = self.upload(&weight, &[features], &name)?;
        self.finish(&[&weight], &name)?;
        Ok(RmsNorm::new(weight, eps))
    }

    /// One map whose outputs are those of `modules`, one after the other: each a module and its outputs.
    pub fn linear(&mut self, modules: &[(String, usize)], inputs: usize) -> Result<Linear, ModelError> {
        let biased = modules
            .iter()
            .any(|(module, _)| self.source.has(&format!("{module}.bias")));
        let (mut parts, mut bias) = (Vec::new(), Vec::new());
        for (module, outputs) in modules {
            parts.push(self.matrix(&format!("{module}.weight"), *outputs, inputs)?);
            if biased {
                bias.extend(self.vector(&format!("{module}.bias"), *outputs)?);
            }
        }
        let name = modules.first().map_or("", |(module, _)| module.as_str());
        let outputs = modules.iter().map(|(_, outputs)| outputs).sum();
        let bias = if biased {
            Some(self.upload(&bias, &[outputs], name)?)
        } else {
            None
        };
        let linear = match Matrix::stacked(parts) {
            Matrix::Affine(affine) if self.backend.keeps_quantized() => {
                let (bits, group_size) = widths(&affine);
                Linear::affine(self.upload_affine(&affine, name)?, bits, group_size, bias)
            }
            matrix => {
                let weight = match self.backend {
                    Backend::Cpu => self.upload(&matrix.into_transposed(), &[inputs, outputs], name)?,
                    Backend::Gpu => {
                        let stored = self.upload(&matrix.into_dense(), &[outputs, inputs], name)?;
                        stored.transpose().doing("load weights")?
                    }
                };
                Linear::dense(weight, bias)
            }
        };
        self.finish(&linear.arrays(), name)?;
        Ok(linear)
    }

    /// Token embeddings; `tied` if they are the head, too.
    pub fn embedding(
        &mut self,
        module: &str,
        vocab: usize,
        features: usize,
        tied: bool,
    ) -> Result<Embedding, ModelError> {
        let name = format!("{module}.weight");
        let embedding = match self.matrix(&name, vocab, features)? {
            Matrix::Affine(affine) if self.backend.keeps_quantized() => {
                let (bits, group_size) = widths(&affine);
                let arrays = self.upload_affine(&affine, &name)?;
                Embedding::affine(arrays, bits, group_size, self.backend.dtype())
            }
            matrix if tied && self.backend == Backend::Cpu => {
                Embedding::columns(self.upload(&matrix.into_transposed(), &[features, vocab], &name)?)
            }
            matrix => Embedding::rows(self.upload(&matrix.into_dense(), &[vocab, features], &name)?),
        };
        self.finish(&embedding.arrays(), &name)?;
        Ok(embedding)
    }

    /// An array of the backend's type.
    fn upload(&self, elements: &[f32], shape: &[usize], name: &str) -> Result<Array, ModelError> {
        let array = Array::from_slice(elements, &extents(shape, elements.len(), name)?);
        match self.backend.dtype() {
            Dtype::Float32 => Ok(array),
            dtype => array.as_dtype(dtype).doing(&format!("convert {name}")),
        }
    }

    fn upload_affine(&self, affine: &Affine, name: &str) -> Result<[Array; 3], ModelError> {
        let packed = [affine.rows, affine.cols * affine.bits / 32];
        let groups = [affine.rows, affine.cols / affine.group_size.max(1)];
        let shape = extents(&packed, affine.packed.len(), name)?;
        Ok([
            Array::from_slice(&affine.packed, &shape),
            self.upload(&affine.scales, &groups, name)?,
            self.upload(&affine.biases, &groups, name)?,
        ])
    }

    /// Checks that every weight has found its place.
    pub fn check_all_taken(&self) -> Result<(), ModelError> {
        let names = self.source.names();
        // Old checkpoints carry RoPE's frequencies, which follow from the settings.
        let left = |name: &&String| !self.taken.contains(*name) && !name.ends_with("rotary_emb.inv_freq");
        let mut left: Vec<&String> = names.iter().filter(left).collect();
        left.sort();
        match left.first() {
            None => Ok(()),
            Some(first) => Err(ModelError::UnknownTensors {
                count: left.len(),
                first: (*first).clone(),
            }),
        }
    }
}

/// Bits and group size as MLX takes them; both are small.
fn widths(affine: &Affine) -> (i32, i32) {
    (
        i32::try_from(affine.bits).unwrap_or(0),
        i32::try_from(affine.group_size).unwrap_or(0),
    )
}

/// A shape as MLX takes it, checked against the number of elements.
fn extents(shape: &[usize], elements: usize, name: &str) -> Result<Vec<i32>, ModelError> {
    let fits = i32::try_from(elements).is_ok() && shape.iter().product::<usize>() == elements;
    let extents = shape
        .iter()
        .map(|&n| i32::try_from(n))
        .collect::<Result<Vec<i32>, _>>();
    match extents {
        Ok(extents) if fits => Ok(extents),
        _ => Err(ModelError::Misuse(format!(
            "{name}: {elements} elements can't be an array of shape {shape:?}"
        ))),
    }
}
