//! A mixture of experts, with the normalization before it and the residual around it.

use std::sync::Arc;

use super::{Assembler, Uploaded};
use crate::model::ModelError;
use crate::model::architecture::{MoeParts, NormNames};
use crate::model::error::Doing;
use crate::model::weights::Matrix;
use crate::nn::kernels::{ExpertWeights, ExpertsWeights, KernelExperts, Kernels};
use crate::nn::{ExpertLinear, Moe, MoeOps, SharedOps};

impl Assembler<'_> {
    /// The experts of a layer.
    pub fn moe(&mut self, layer: usize, norms: NormNames, parts: &MoeParts) -> Result<Moe, ModelError> {
        let (hidden, experts) = (self.common.hidden, parts.experts);
        let module = |name: &str| self.module(&format!("layers.{layer}.mlp.{name}"));
        let norm = self.module(&format!("layers.{layer}.{}", norms.feed_forward));
        let router = module("gate");
        let shared_router = module("shared_expert_gate");
        let [gate, up, down] =
            ["gate_proj", "up_proj", "down_proj"].map(|name| module(&format!("shared_expert.{name}")));
        let Some(kernels) = self.kernels.clone() else {
            let [gates, ups, downs] = self.stacks(layer, parts)?;
            let shared = match parts.shared {
                None => None,
                Some(intermediate) => Some(SharedOps {
                    gate_up: self.linear(&[(&gate, intermediate), (&up, intermediate)], hidden)?,
                    down: self.linear(&[(&down, hidden)], intermediate)?,
                    intermediate,
                    router: self.linear(&[(&shared_router, 1)], hidden)?,
                }),
            };
            return Ok(Moe::ops(MoeOps {
                norm: self.norm(&norm, hidden)?,
                router: self.linear(&[(&router, experts)], hidden)?,
                gate: gates,
                up: ups,
                down: downs,
                experts,
                chosen: parts.chosen,
                renormalize: parts.renormalize,
                shared,
            }));
        };
        let mut each = Vec::new();
        for expert in 0..experts {
            let [gate, up, down] = self.expert(layer, expert, parts)?;
            each.push(ExpertWeights {
                gate: self.pack_expert(&kernels, layer, gate)?,
                up: self.pack_expert(&kernels, layer, up)?,
                down: self.pack_expert(&kernels, layer, down)?,
            });
        }
        let shared = match parts.shared {
            None => None,
            Some(intermediate) => Some((
                ExpertWeights {
                    gate: self.packed(&kernels, &gate, intermediate, hidden)?,
                    up: self.packed(&kernels, &up, intermediate, hidden)?,
                    down: self.packed(&kernels, &down, hidden, intermediate)?,
                },
                self.packed(&kernels, &shared_router, 1, hidden)?,
            )),
        };
        let weights = ExpertsWeights {
            norm: self.host_norm(&norm, hidden)?,
            router: self.packed(&kernels, &router, experts, hidden)?,
            experts: each,
            chosen: parts.chosen,
            renormalize: parts.renormalize,
            shared,
        };
        Ok(Moe::kernels(KernelExperts::new(&kernels, weights)))
    }

    fn pack_expert(
        &mut self,
        kernels: &Kernels,
        layer: usize,
        matrix: Matrix,
    ) -> Result<Arc<cpu_kernels::Weights>, ModelError> {
        let name = self.module(&format!("layers.{layer}.mlp.switch_mlp"));
        self.pack(kernels, &name, matrix)
    }

    /// The gate, up and down of one expert: from the stacks of all, from tensors of its own, or, as Qwen3.5 was published,
    /// from a stack of gates and ups and one of downs.
    fn expert(&mut self, layer: usize, expert: usize, parts: &MoeParts) -> Result<[Matrix; 3], ModelError> {
        let (hidden, intermediate) = (self.common.hidden, parts.intermediate);
        let mlp = self.module(&format!("layers.{layer}.mlp"));
        let joined = format!("{mlp}.experts.gate_up_proj");
        if self.source.has(&joined) {
            let both = self.one_of(&joined, expert, parts.experts, 2 * intermediate, hidden)?;
            let down = format!("{mlp}.experts.down_proj");
            let down = self.one_of(&down, expert, parts.experts, hidden, intermediate)?;
            let [gate, up] = both.split_rows(intermediate);
            return Ok([gate, up, down]);
        }
        let [gate, up, down] =
            ["gate_proj", "up_proj", "down_proj"].map(|name| format!("{mlp}.switch_mlp.{name}.weight"));
        Ok([
            self.one_of(&gate, expert, parts.experts, intermediate, hidden)?,
            self.one_of(&up, expert, parts.experts, intermediate, hidden)?,
            self.one_of(&down, expert, parts.experts, hidden, intermediate)?,
        ])
    }

    /// One expert's matrix of a stack, whatever the file has in its place.
    fn one_of(
        &mut self,
        stack: &str,
        expert: usize,
        experts: usize,
        rows: usize,
        cols: usize,
    ) -> Result<Matrix, ModelError> {
        let matrix = self.source.expert(stack, expert, experts, rows, cols)?;
        if expert + 1 == experts {
            self.take(stack, experts * rows * cols);
        }
        Ok(matrix)
    }

    /// All experts' gates, ups and downs as MLX's operations take them.
    fn stacks(&mut self, layer: usize, parts: &MoeParts) -> Result<[ExpertLinear; 3], ModelError> {
        let mut all: [Vec<Matrix>; 3] = Default::default();
        for expert in 0..parts.experts {
            for (stack, matrix) in all.iter_mut().zip(self.expert(layer, expert, parts)?) {
                stack.push(matrix);
            }
        }
        let name = self.module(&format!("layers.{layer}.mlp.switch_mlp"));
        let [gates, ups, downs] = all;
        Ok([
            self.stack(&name, gates)?,
            self.stack(&name, ups)?,
            self.stack(&name, downs)?,
        ])
    }

    /// Maps of all experts.
    fn stack(&mut self, name: &str, each: Vec<Matrix>) -> Result<ExpertLinear, ModelError> {
        let experts = each.len();
        let joined = match Matrix::stacked(each) {
            one if one.len() == 1 => one.into_iter().next(),
            // No operation takes experts that are stored in different ways.
            many => {
                let cols = many.first().map_or(0, |matrix| matrix.shape().1);
                let rows = many.iter().map(|matrix| matrix.shape().0).sum();
                let elements = many.into_iter().flat_map(Matrix::into_dense).collect();
                Some(Matrix::Dense { rows, cols, elements })
            }
        };
        let joined = joined.unwrap_or_else(|| Matrix::column(Vec::new()));
        let linear = match self.quantized(joined, name)? {
            Uploaded::Quantized(weight) => {
                ExpertLinear::quantized(weight.stacked(experts).doing("load weights")?)
            }
            Uploaded::Dense(weight) => {
                let inputs = weight.shape().last().copied().unwrap_or(0);
                let count = i32::try_from(experts).unwrap_or(i32::MAX);
                let apart = weight.reshape(&[count, -1, inputs]).doing("load weights")?;
                ExpertLinear::dense(apart.swap_axes(1, 2).doing("load weights")?)
            }
        };
        self.finish(&linear.arrays(), name)?;
        Ok(linear)
    }
}
