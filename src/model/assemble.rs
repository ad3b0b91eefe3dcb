//! Puts a model's parts together from its weights, as the backend wants them.

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use cpu_kernels::Weights;
use cpu_kernels::attention::MOST_FEATURES;
use mlx_rs::{Array, Dtype};

use super::ModelError;
use super::error::Doing;
use super::load::{LoadProgress, Means};
use super::weights::{Affine, Matrix, WeightSource};
use crate::nn::kernels::{
    AttentionWeights, HostNorm, KernelAttention, KernelEmbedding, KernelHead, KernelMlp, Kernels, MlpWeights,
};
use crate::nn::{Attention, Backend, Embedding, Head, Heads, Linear, Quantized, RmsNorm, Rope, SwiGlu};

/// The modules of the attention half of a block.
pub(super) struct AttentionParts {
    pub norm: String,
    /// Queries, keys, values.
    pub projections: [String; 3],
    pub output: String,
    pub hidden: usize,
    pub heads: Heads,
    pub eps: f32,
}

/// The modules of the feed-forward half of a block.
pub(super) struct MlpParts {
    pub norm: String,
    pub gate: String,
    pub up: String,
    pub down: String,
    pub hidden: usize,
    pub intermediate: usize,
    pub eps: f32,
}

/// The modules before the first block and after the last.
pub(super) struct VocabularyParts {
    pub embedding: String,
    pub norm: String,
    /// `None`: the embeddings.
    pub head: Option<String>,
    pub vocab: usize,
    pub hidden: usize,
    pub eps: f32,
}

/// Takes weights from a source one by one, and keeps count.
pub(super) struct Assembler<'a> {
    source: &'a dyn WeightSource,
    backend: Backend,
    /// On the CPU.
    kernels: Option<Arc<Kernels>>,
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
        means: &Means,
        progress: &'a mut dyn FnMut(LoadProgress),
    ) -> Self {
        let total = source.names().iter().map(|name| source.bytes(name)).sum();
        progress(LoadProgress {
            done_bytes: 0,
            total_bytes: total,
        });
        Self {
            source,
            backend: means.backend,
            kernels: means.kernels.clone(),
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

    /// The attention half of a block.
    pub fn attention(&mut self, parts: &AttentionParts, rope: &Rc<Rope>) -> Result<Attention, ModelError> {
        let AttentionParts {
            norm,
            projections: [queries, keys, values],
            output,
            hidden,
            heads,
            eps,
        } = parts;
        if self.kernels.is_some() && heads.dim > MOST_FEATURES {
            return Err(ModelError::Config {
                name: "head_dim".to_owned(),
                value: heads.dim.to_string(),
                allowed: format!("no more than {MOST_FEATURES} on the CPU"),
            });
        }
        let (wide, narrow) = (heads.queries * heads.dim, heads.kv * heads.dim);
        let qkv = [(queries.as_str(), wide), (keys, narrow), (values, narrow)];
        let output = [(output.as_str(), *hidden)];
        let Some(kernels) = self.kernels.clone() else {
            let norm = self.norm(norm, *hidden, *eps)?;
            let qkv = self.linear(&qkv, *hidden)?;
            let output = self.linear(&output, wide)?;
            return Ok(Attention::ops(norm, qkv, output, *heads, Rc::clone(rope)));
        };
        let weights = AttentionWeights {
            norm: self.host_norm(norm, *hidden, *eps)?,
            bias: self.bias(&qkv)?,
            output_bias: self.bias(&output)?,
            queries: self.packed(&kernels, queries, wide, *hidden)?,
            keys: self.packed(&kernels, keys, narrow, *hidden)?,
            values: self.packed(&kernels, values, narrow, *hidden)?,
            output: self.packed(&kernels, output[0].0, *hidden, wide)?,
            heads: *heads,
        };
        Ok(Attention::kernels(KernelAttention::new(&kernels, weights)))
    }

    /// The feed-forward half of a block.
    pub fn swiglu(&mut self, parts: &MlpParts) -> Result<SwiGlu, ModelError> {
        let MlpParts {
            norm,
            gate,
            up,
            down,
            hidden,
            intermediate,
            eps,
        } = parts;
        let pair = [(gate.as_str(), *intermediate), (up, *intermediate)];
        let Some(kernels) = self.kernels.clone() else {
            let norm = self.norm(norm, *hidden, *eps)?;
            let gate_up = self.linear(&pair, *hidden)?;
            let down = self.linear(&[(down, *hidden)], *intermediate)?;
            return Ok(SwiGlu::ops(norm, gate_up, down, *intermediate));
        };
        let weights = MlpWeights {
            norm: self.host_norm(norm, *hidden, *eps)?,
            bias: self.bias(&pair)?,
            down_bias: self.bias(&[(down, *hidden)])?,
            gate: self.packed(&kernels, gate, *intermediate, *hidden)?,
            up: self.packed(&kernels, up, *intermediate, *hidden)?,
            down: self.packed(&kernels, down, *hidden, *intermediate)?,
        };
        Ok(SwiGlu::kernels(KernelMlp::new(&kernels, weights)))
    }

    /// Embeddings, and the head with the normalization before it; `head` names its own weights, if it has some.
    pub fn vocabulary(&mut self, parts: &VocabularyParts) -> Result<(Embedding, Head), ModelError> {
        let VocabularyParts {
            embedding,
            norm,
            head,
            vocab,
            hidden,
            eps,
        } = parts;
        let Some(kernels) = self.kernels.clone() else {
            let embedding = self.embedding(embedding, *vocab, *hidden)?;
            let norm = self.norm(norm, *hidden, *eps)?;
            let linear = head.as_ref().map(|head| self.linear(&[(head, *vocab)], *hidden));
            return Ok((embedding, Head::ops(norm, linear.transpose()?)));
        };
        let table = self.packed(&kernels, embedding, *vocab, *hidden)?;
        let norm = self.host_norm(norm, *hidden, *eps)?;
        let weights = match head {
            Some(head) => self.packed(&kernels, head, *vocab, *hidden)?,
            None => Arc::clone(&table),
        };
        let embedding = Embedding::kernel(KernelEmbedding::new(&kernels, table));
        Ok((embedding, Head::kernel(KernelHead::new(&kernels, norm, weights))))
    }

    /// A matrix as kernels read it.
    fn packed(
        &mut self,
        kernels: &Kernels,
        module: &str,
        outputs: usize,
        inputs: usize,
    ) -> Result<Arc<Weights>, ModelError> {
        let name = format!("{module}.weight");
        let matrix = self.matrix(&name, outputs, inputs)?;
        let packed = match matrix.for_kernels() {
            Matrix::Affine(affine) => kernels.affine(cpu_kernels::Affine {
                outputs,
                inputs,
                bits: affine.bits,
                group: affine.group_size,
                packed: &affine.packed,
                scales: &affine.scales,
                biases: &affine.biases,
            }),
            matrix => kernels.dense(outputs, inputs, &matrix.into_dense()),
        };
        let packed = packed.map_err(|error| ModelError::Misuse(format!("{name}: {error}")))?;
        self.weight_bytes += packed.bytes() as u64;
        Ok(packed)
    }

    fn host_norm(&mut self, module: &str, features: usize, eps: f32) -> Result<HostNorm, ModelError> {
        let weight = self.vector(&format!("{module}.weight"), features)?;
        self.weight_bytes += 4 * weight.len() as u64;
        Ok(HostNorm { weight, eps })
    }

    fn norm(&mut self, module: &str, features: usize, eps: f32) -> Result<RmsNorm, ModelError> {
        let name = format!("{module}.weight");
        let weight = self.vector(&name, features)?;
        let weight = self.upload(&weight, &[features], &name)?;
        self.finish(&[&weight], &name)?;
        Ok(RmsNorm::new(weight, eps))
    }

    /// The biases of `modules`, one after the other, if any of them has one.
    fn bias(&mut self, modules: &[(&str, usize)]) -> Result<Option<Vec<f32>>, ModelError> {
        let name = |module: &str| format!("{module}.bias");
        if !modules.iter().any(|(module, _)| self.source.has(&name(module))) {
            return Ok(None);
        }
        let mut bias = Vec::new();
        for (module, outputs) in modules {
            bias.extend(self.vector(&name(module), *outputs)?);
        }
        Ok(Some(bias))
    }

    /// One map whose outputs are those of `modules`, one after the other: each a module and its outputs.
    fn linear(&mut self, modules: &[(&str, usize)], inputs: usize) -> Result<Linear, ModelError> {
        let bias = self.bias(modules)?;
        let mut parts = Vec::new();
        for (module, outputs) in modules {
            parts.push(self.matrix(&format!("{module}.weight"), *outputs, inputs)?);
        }
        let name = modules.first().map_or("", |(module, _)| *module);
        let outputs = modules.iter().map(|(_, outputs)| outputs).sum();
        let bias = bias
            .map(|bias| self.upload(&bias, &[outputs], name))
            .transpose()?;
        let parts = Matrix::stacked(parts).into_iter();
        let parts = parts.map(|matrix| match self.quantized(matrix, name)? {
            Uploaded::Quantized(weight) => Ok(Linear::quantized(weight, None)),
            Uploaded::Dense(weight) => Ok(Linear::dense(weight.transpose().doing("load weights")?, None)),
        });
        let linear = Linear::joined(parts.collect::<Result<_, ModelError>>()?, bias);
        self.finish(&linear.arrays(), name)?;
        Ok(linear)
    }

    fn embedding(&mut self, module: &str, vocab: usize, features: usize) -> Result<Embedding, ModelError> {
        let name = format!("{module}.weight");
        let matrix = self.matrix(&name, vocab, features)?;
        let embedding = match self.quantized(matrix, &name)? {
            Uploaded::Quantized(table) => Embedding::quantized(table, self.backend.dtype()),
            Uploaded::Dense(table) => Embedding::dense(table),
        };
        self.finish(&embedding.arrays(), &name)?;
        Ok(embedding)
    }

    /// A matrix `[rows, cols]` as MLX's operations take it.
    fn quantized(&self, matrix: Matrix, name: &str) -> Result<Uploaded, ModelError> {
        let (rows, cols) = matrix.shape();
        let words = |packed: &[u32], bits: usize| -> Result<Array, ModelError> {
            let shape = extents(&[rows, cols * bits / 32], packed.len(), name)?;
            Ok(Array::from_slice(packed, &shape))
        };
        Ok(Uploaded::Quantized(match matrix.for_mlx() {
            Matrix::Affine(affine) => {
                let (bits, group_size) = widths(&affine);
                let groups = [rows, cols / affine.group_size.max(1)];
                let arrays = [
                    words(&affine.packed, affine.bits)?,
                    self.upload(&affine.scales, &groups, name)?,
                    self.upload(&affine.biases, &groups, name)?,
                ];
                Quantized::affine(arrays, bits, group_size)
            }
            Matrix::Microscaled(scaled) => {
                let groups = [rows, cols / scaled.mode.group_size()];
                let shape = extents(&groups, scaled.scales.len(), name)?;
                let scales = Array::from_slice(&scaled.scales, &shape);
                Quantized::microscaled([words(&scaled.packed, scaled.mode.bits())?, scales], scaled.mode)
            }
            Matrix::Dense { elements, .. } => {
                return Ok(Uploaded::Dense(self.upload(&elements, &[rows, cols], name)?));
            }
        }))
    }

    /// An array of the backend's type.
    fn upload(&self, elements: &[f32], shape: &[usize], name: &str) -> Result<Array, ModelError> {
        let array = Array::from_slice(elements, &extents(shape, elements.len(), name)?);
        match self.backend.dtype() {
            Dtype::Float32 => Ok(array),
            dtype => array.as_dtype(dtype).doing(&format!("convert {name}")),
        }
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

/// A matrix `[rows, cols]` for MLX's operations.
enum Uploaded {
    Dense(Array),
    Quantized(Quantized),
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
