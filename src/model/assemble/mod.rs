//! Puts a model's parts together from its weights, as the backend wants them.

mod attention;
mod delta_net;
mod gated;
mod moe;

use std::collections::HashSet;
use std::sync::Arc;

use cpu_kernels::attention::MOST_FEATURES;
use cpu_kernels::{PackError, Weights};
use mlx_rs::ops::quantize;
use mlx_rs::{Array, Dtype, random};

use super::ModelError;
use super::architecture::Architecture;
use super::error::Doing;
use super::load::{LoadProgress, Means};
use super::settings::FACTOR_TENSORS;
use super::weights::{Affine, Matrix, Noise, WeightSource};
use crate::nn::kernels::{HostNorm, KernelEmbedding, KernelHead, Kernels};
use crate::nn::{Backend, Embedding, Head, Linear, Quantized, RmsNorm};

/// Where a checkpoint keeps the text model, and where its head. Larger models keep it beside other parts.
const PLACES: [(&str, &str); 3] = [
    ("model", "lm_head"),
    ("language_model.model", "language_model.lm_head"),
    ("model.language_model", "lm_head"),
];

/// What every part of a model needs to know.
#[derive(Debug, Clone, Copy)]
struct Common {
    hidden: usize,
    eps: f32,
    norm_offset: f32,
}

/// Takes weights from a source one by one, and keeps count.
pub(super) struct Assembler<'a> {
    source: &'a dyn WeightSource,
    common: Common,
    /// Where the text model's tensors are, and its head's.
    place: (&'static str, &'static str),
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
        architecture: &Architecture,
        source: &'a dyn WeightSource,
        means: &Means,
        progress: &'a mut dyn FnMut(LoadProgress),
    ) -> Self {
        let total = source.names().iter().map(|name| source.bytes(name)).sum();
        progress(LoadProgress {
            done_bytes: 0,
            total_bytes: total,
        });
        let holds = |(model, _): &(&str, &str)| source.has(&format!("{model}.embed_tokens.weight"));
        let place = PLACES.into_iter().find(holds).unwrap_or(PLACES[0]);
        let told = architecture.norms_tell && as_published(source, place.0, architecture.layers.len());
        Self {
            source,
            common: Common {
                hidden: architecture.hidden,
                eps: architecture.eps,
                norm_offset: if told { 1.0 } else { architecture.norm_offset },
            },
            place,
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

    /// The full name of a module of the text model.
    fn module(&self, name: &str) -> String {
        format!("{}.{name}", self.place.0)
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

    /// Embeddings, and the head with the normalization before it.
    pub fn vocabulary(&mut self, architecture: &Architecture) -> Result<(Embedding, Head), ModelError> {
        let (vocab, hidden) = (architecture.vocab_size, architecture.hidden);
        let [embedding, norm] = ["embed_tokens", "norm"].map(|name| self.module(name));
        let head = self.place.1;
        let weight = format!("{head}.weight");
        let tied = architecture.tied.unwrap_or(!self.source.has(&weight));
        let scale = architecture.embedding_scale;
        if tied {
            self.taken.insert(weight);
        }
        let Some(kernels) = self.kernels.clone() else {
            let mut embedding = self.embedding(&embedding, vocab, hidden)?;
            if let Some(scale) = scale {
                embedding = embedding.scaled(self.upload(&[scale], &[1], "the scale of embeddings")?);
            }
            let norm = self.norm(&norm, hidden)?;
            let linear = match tied {
                true => None,
                false => Some(self.linear(&[(head, vocab)], hidden)?),
            };
            return Ok((embedding, Head::ops(norm, linear)));
        };
        let table = self.packed(&kernels, &embedding, vocab, hidden)?;
        let norm = self.host_norm(&norm, hidden)?;
        let weights = match tied {
            true => Arc::clone(&table),
            false => self.packed(&kernels, head, vocab, hidden)?,
        };
        let embedding = Embedding::kernel(KernelEmbedding::new(&kernels, table, scale));
        Ok((embedding, Head::kernel(KernelHead::new(&kernels, norm, weights))))
    }

    /// A matrix as kernels read it, packed as it is read.
    fn packed(
        &mut self,
        kernels: &Kernels,
        module: &str,
        outputs: usize,
        inputs: usize,
    ) -> Result<Arc<Weights>, ModelError> {
        let name = format!("{module}.weight");
        let wrong = |error: PackError| ModelError::Misuse(format!("{name}: {error}"));
        let mut packing = kernels.packing(outputs, inputs);
        while let Some(rows) = packing.next_rows() {
            let matrix = self.source.rows(&name, [outputs, inputs], rows)?.for_kernels();
            match &matrix {
                Matrix::Affine(affine) if !packing.is_dense() => packing.affine(affine.for_packing()),
                _ => packing.dense(&matrix.into_dense()),
            }
            .map_err(wrong)?;
        }
        let packed = packing.finish().map_err(wrong)?;
        self.take(&name, outputs * inputs);
        self.weight_bytes += packed.bytes() as u64;
        Ok(Arc::new(packed))
    }

    fn pack(&mut self, kernels: &Kernels, name: &str, matrix: Matrix) -> Result<Arc<Weights>, ModelError> {
        let (outputs, inputs) = matrix.shape();
        let packed = match matrix.for_kernels() {
            Matrix::Affine(affine) => kernels.affine(affine.for_packing()),
            matrix => kernels.dense(outputs, inputs, &matrix.into_dense()),
        };
        let packed = packed.map_err(|error| ModelError::Misuse(format!("{name}: {error}")))?;
        self.weight_bytes += packed.bytes() as u64;
        Ok(packed)
    }

    /// The weight of a normalization as it is used.
    fn norm_weight(&mut self, module: &str, features: usize) -> Result<Vec<f32>, ModelError> {
        let mut weight = self.vector(&format!("{module}.weight"), features)?;
        let offset = self.common.norm_offset;
        if offset != 0.0 {
            weight.iter_mut().for_each(|weight| *weight += offset);
        }
        Ok(weight)
    }

    fn host_norm(&mut self, module: &str, features: usize) -> Result<HostNorm, ModelError> {
        let weight = self.norm_weight(module, features)?;
        self.weight_bytes += 4 * weight.len() as u64;
        Ok(HostNorm {
            weight,
            eps: self.common.eps,
        })
    }

    fn norm(&mut self, module: &str, features: usize) -> Result<RmsNorm, ModelError> {
        let weight = self.norm_weight(module, features)?;
        let weight = self.upload(&weight, &[features], module)?;
        self.finish(&[&weight], module)?;
        Ok(RmsNorm::new(weight, self.common.eps))
    }

    /// The biases of `modules`: if one of them has one, all must.
    fn biases(&mut self, modules: &[(&str, usize)]) -> Result<Option<Vec<Vec<f32>>>, ModelError> {
        let name = |module: &str| format!("{module}.bias");
        if !modules.iter().any(|(module, _)| self.source.has(&name(module))) {
            return Ok(None);
        }
        let mut biases = Vec::new();
        for (module, outputs) in modules {
            biases.push(self.vector(&name(module), *outputs)?);
        }
        Ok(Some(biases))
    }

    /// The biases of `modules`, one after the other.
    fn bias(&mut self, modules: &[(&str, usize)]) -> Result<Option<Vec<f32>>, ModelError> {
        Ok(self.biases(modules)?.map(|biases| biases.concat()))
    }

    /// Refuses heads that are wider than kernels take.
    fn check_features(&self, setting: &str, features: usize) -> Result<(), ModelError> {
        if self.kernels.is_none() || features <= MOST_FEATURES {
            return Ok(());
        }
        Err(ModelError::Config {
            name: setting.to_owned(),
            value: features.to_string(),
            allowed: format!("no more than {MOST_FEATURES} on the CPU"),
        })
    }

    /// One map whose outputs are those of `modules`, one after the other: each a module and its outputs.
    fn linear(&mut self, modules: &[(&str, usize)], inputs: usize) -> Result<Linear, ModelError> {
        let bias = self.bias(modules)?;
        let mut parts = Vec::new();
        for (module, outputs) in modules {
            parts.push(self.matrix(&format!("{module}.weight"), *outputs, inputs)?);
        }
        let name = modules.first().map_or("", |(module, _)| *module);
        self.map(name, parts, bias)
    }

    /// A map whose outputs are those of matrices `[outputs, inputs]`, one after the other.
    fn map(&mut self, name: &str, parts: Vec<Matrix>, bias: Option<Vec<f32>>) -> Result<Linear, ModelError> {
        let outputs: usize = parts.iter().map(|matrix| matrix.shape().0).sum();
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
            Matrix::Noise(noise) => return self.noise(&noise, name),
            Matrix::Dense { elements, .. } => {
                return Ok(Uploaded::Dense(self.upload(&elements, &[rows, cols], name)?));
            }
        }))
    }

    /// A random matrix, made on the device.
    fn noise(&self, noise: &Noise, name: &str) -> Result<Uploaded, ModelError> {
        let doing = format!("make {name}");
        let shape = extents(&[noise.rows, noise.cols], noise.rows * noise.cols, name)?;
        let key = random::key(noise.seed).doing(&doing)?;
        let [low, high] = [-noise.largest(), noise.largest()].map(Array::from_f32);
        let dtype = self.backend.dtype();
        let elements = random::uniform::<_, f32>(low, high, shape.as_slice(), &key)
            .and_then(|elements| elements.as_dtype(dtype))
            .doing(&doing)?;
        let Some((bits, group_size)) = noise.affine else {
            return Ok(Uploaded::Dense(elements));
        };
        let (bits, group_size) = narrow(bits, group_size);
        let (packed, scales, biases) = quantize(&elements, group_size, bits).doing(&doing)?;
        Ok(Uploaded::Quantized(Quantized::affine(
            [packed, scales, biases],
            bits,
            group_size,
        )))
    }

    /// An array of the backend's type.
    fn upload(&self, elements: &[f32], shape: &[usize], name: &str) -> Result<Array, ModelError> {
        let array = Self::floats(elements, shape, name)?;
        match self.backend.dtype() {
            Dtype::Float32 => Ok(array),
            dtype => array.as_dtype(dtype).doing(&format!("convert {name}")),
        }
    }

    /// An array of float32, whatever the backend's type.
    fn floats(elements: &[f32], shape: &[usize], name: &str) -> Result<Array, ModelError> {
        let shape = extents(shape, elements.len(), name)?;
        Ok(Array::from_slice(elements, &shape))
    }

    /// Checks that every weight has found its place.
    pub fn check_all_taken(&self, architecture: &Architecture) -> Result<(), ModelError> {
        let names = self.source.names();
        let layers = architecture.layers.len();
        // A GGUF file's names are its own where we have none.
        let left_out: Vec<String> = (layers..layers + architecture.layers_left_out)
            .flat_map(|layer| [self.module(&format!("layers.{layer}.")), format!("blk.{layer}.")])
            .collect();
        // Old checkpoints carry RoPE's frequencies, which follow from the settings.
        let known = |name: &str| {
            name.ends_with("rotary_emb.inv_freq")
                || FACTOR_TENSORS.contains(&name)
                || architecture
                    .passed_over
                    .iter()
                    .any(|beginning| name.starts_with(beginning))
                || left_out.iter().any(|beginning| name.starts_with(beginning))
        };
        let left = |name: &&String| !self.taken.contains(*name) && !known(name);
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

/// Whether a checkpoint with convolutions is as it was published: `[channels, 1, kernel]`, where MLX's are `[channels, kernel, 1]`.
fn as_published(source: &dyn WeightSource, model: &str, layers: usize) -> bool {
    let conv = |layer| source.shape(&format!("{model}.layers.{layer}.linear_attn.conv1d.weight"));
    let first = (0..layers).find_map(conv);
    first.is_some_and(|shape| matches!(shape.as_slice(), [_, 1, kernel] if *kernel != 1))
}

/// A matrix `[rows, cols]` for MLX's operations.
enum Uploaded {
    Dense(Array),
    Quantized(Quantized),
}

/// Bits and group size as MLX takes them; both are small.
fn widths(affine: &Affine) -> (i32, i32) {
    narrow(affine.bits, affine.group_size)
}

fn narrow(bits: usize, group_size: usize) -> (i32, i32) {
    (
        i32::try_from(bits).unwrap_or(0),
        i32::try_from(group_size).unwrap_or(0),
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
