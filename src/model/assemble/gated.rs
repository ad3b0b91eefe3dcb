//! The gated MLP, with the normalization before it and the residual around it.

use super::Assembler;
use crate::model::ModelError;
use crate::model::architecture::{GatedParts, NormNames};
use crate::nn::kernels::{KernelMlp, MlpWeights};
use crate::nn::{GatedMlp, MlpOps};

impl Assembler<'_> {
    /// The feed-forward half of a layer.
    pub fn gated(
        &mut self,
        layer: usize,
        norms: NormNames,
        parts: &GatedParts,
    ) -> Result<GatedMlp, ModelError> {
        let module = |name: &str| self.module(&format!("layers.{layer}.{name}"));
        let [gate, up, joined, down] =
            ["gate_proj", "up_proj", "gate_up_proj", "down_proj"].map(|name| module(&format!("mlp.{name}")));
        let norm = module(norms.feed_forward);
        let output_norm = norms.feed_forward_output.map(module);
        let (hidden, intermediate) = (self.common.hidden, parts.intermediate);
        let pair = match parts.joined {
            true => vec![(joined.as_str(), 2 * intermediate)],
            false => vec![(gate.as_str(), intermediate), (up.as_str(), intermediate)],
        };
        let Some(kernels) = self.kernels.clone() else {
            return Ok(GatedMlp::ops(MlpOps {
                norm: self.norm(&norm, hidden)?,
                gate_up: self.linear(&pair, hidden)?,
                activation: parts.activation,
                down: self.linear(&[(&down, hidden)], intermediate)?,
                output_norm: output_norm.map(|norm| self.norm(&norm, hidden)).transpose()?,
                intermediate,
            }));
        };
        let norm = self.host_norm(&norm, hidden)?;
        let bias = self.bias(&pair)?;
        let [gate, up] = if parts.joined {
            let name = format!("{joined}.weight");
            let both = self.matrix(&name, 2 * intermediate, hidden)?;
            let [gate, up] = both.split_rows(intermediate);
            [self.pack(&kernels, &name, gate)?, self.pack(&kernels, &name, up)?]
        } else {
            [
                self.packed(&kernels, &gate, intermediate, hidden)?,
                self.packed(&kernels, &up, intermediate, hidden)?,
            ]
        };
        let weights = MlpWeights {
            norm,
            gate,
            up,
            bias,
            activation: parts.activation,
            down_bias: self.bias(&[(&down, hidden)])?,
            down: self.packed(&kernels, &down, hidden, intermediate)?,
            output_norm: output_norm
                .map(|norm| self.host_norm(&norm, hidden))
                .transpose()?,
        };
        Ok(GatedMlp::kernels(KernelMlp::new(&kernels, weights)))
    }
}
