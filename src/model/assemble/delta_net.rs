//! The gated delta rule, with the normalization before it and the residual around it.

use super::Assembler;
use crate::model::ModelError;
use crate::model::architecture::NormNames;
use crate::model::weights::Matrix;
use crate::nn::kernels::{DeltaWeights, HostNorm, KernelDeltaNet};
use crate::nn::{DeltaNet, DeltaOps, DeltaShape, RmsNorm};

impl Assembler<'_> {
    /// The gated delta rule of a layer.
    pub fn delta_net(
        &mut self,
        layer: usize,
        norms: NormNames,
        shape: DeltaShape,
    ) -> Result<DeltaNet, ModelError> {
        self.check_features("linear_key_head_dim", shape.key_dim)?;
        self.check_features("linear_value_head_dim", shape.value_dim)?;
        let hidden = self.common.hidden;
        let module = |name: &str| self.module(&format!("layers.{layer}.linear_attn.{name}"));
        let [conv, a_log, dt_bias, head_norm, output] =
            ["conv1d.weight", "A_log", "dt_bias", "norm.weight", "out_proj"].map(module);
        let norm = self.module(&format!("layers.{layer}.{}", norms.mixer));
        let projections = self.delta_projections(layer, shape)?;
        let conv = self.taps(&conv, shape)?;
        let a_log = self.vector(&a_log, shape.value_heads)?;
        let dt_bias = self.vector(&dt_bias, shape.value_heads)?;
        // Stored as it is, whatever holds for the other norms.
        let head_weight = self.vector(&head_norm, shape.value_dim)?;
        let Some(kernels) = self.kernels.clone() else {
            let name = projections
                .first()
                .map_or_else(String::new, |(name, _)| name.clone());
            let matrices = projections.into_iter().map(|(_, matrix)| matrix).collect();
            let rate: Vec<f32> = a_log.iter().map(|a_log| -a_log.exp()).collect();
            let heads = [shape.value_heads];
            let head_weight = self.upload(&head_weight, &[shape.value_dim], &head_norm)?;
            let ops = DeltaOps {
                norm: self.norm(&norm, hidden)?,
                projection: self.map(&name, matrices, None)?,
                shape,
                conv: self.upload(&conv, &[shape.kernel, shape.conv_features()], "the convolution")?,
                rate: Self::floats(&rate, &heads, "A_log")?,
                dt_bias: Self::floats(&dt_bias, &heads, "dt_bias")?,
                head_norm: RmsNorm::new(head_weight.clone(), self.common.eps),
                output: self.linear(&[(&output, hidden)], shape.value_features())?,
            };
            self.finish(&[&ops.conv, &ops.rate, &ops.dt_bias, &head_weight], &name)?;
            return Ok(DeltaNet::ops(ops));
        };
        let floats = conv.len() + a_log.len() + dt_bias.len() + head_weight.len();
        self.weight_bytes += 4 * floats as u64;
        let weights = DeltaWeights {
            norm: self.host_norm(&norm, hidden)?,
            projections: projections
                .into_iter()
                .map(|(name, matrix)| self.pack(&kernels, &name, matrix))
                .collect::<Result<_, _>>()?,
            shape,
            conv,
            a_log,
            dt_bias,
            head_norm: HostNorm {
                weight: head_weight,
                eps: self.common.eps,
            },
            output: self.packed(&kernels, &output, hidden, shape.value_features())?,
        };
        Ok(DeltaNet::kernels(KernelDeltaNet::new(&kernels, weights)))
    }

    /// Matrices whose outputs are queries, keys, values, `z`, `b` and `a`, one after the other. Checkpoints of Qwen3-Next
    /// hold them by key head: each one's query, key, values and `z` in one matrix, its `b` and `a` in another.
    fn delta_projections(
        &mut self,
        layer: usize,
        shape: DeltaShape,
    ) -> Result<Vec<(String, Matrix)>, ModelError> {
        let name = |name: &str| self.module(&format!("layers.{layer}.linear_attn.{name}.weight"));
        let [joined, qkv, z] = ["in_proj_qkvz", "in_proj_qkv", "in_proj_z"].map(name);
        let [gates, b, a] = ["in_proj_ba", "in_proj_b", "in_proj_a"].map(name);
        let (hidden, heads) = (self.common.hidden, shape.value_heads);
        let (conv, wide) = (shape.conv_features(), shape.value_features());
        let group = heads / shape.key_heads.max(1);
        let mut all = Vec::new();
        if self.source.has(&joined) {
            let matrix = self.matrix(&joined, conv + wide, hidden)?;
            let values = group * shape.value_dim;
            let parts = [shape.key_dim, shape.key_dim, values, values];
            all.push((
                joined,
                matrix.with_rows(|row| by_part(row, shape.key_heads, &parts)),
            ));
        } else {
            all.push((qkv.clone(), self.matrix(&qkv, conv, hidden)?));
            all.push((z.clone(), self.matrix(&z, wide, hidden)?));
        }
        if self.source.has(&gates) {
            let matrix = self.matrix(&gates, 2 * heads, hidden)?;
            let parts = [group, group];
            all.push((
                gates,
                matrix.with_rows(|row| by_part(row, shape.key_heads, &parts)),
            ));
        } else {
            all.push((b.clone(), self.matrix(&b, heads, hidden)?));
            all.push((a.clone(), self.matrix(&a, heads, hidden)?));
        }
        Ok(all)
    }

    /// The convolution's weights, `[kernel, conv_features]`.
    fn taps(&mut self, name: &str, shape: DeltaShape) -> Result<Vec<f32>, ModelError> {
        let kernel = shape.kernel;
        let stored = self.matrix(name, shape.conv_features(), kernel)?.into_dense();
        let tap = |tap: usize| stored.iter().skip(tap).step_by(kernel).copied();
        Ok((0..kernel).flat_map(tap).collect())
    }
}

/// Where row `row` of what is sorted by parts, then key heads, is in what is sorted by key heads, then parts; a key head has as
/// many rows of each part.
fn by_part(row: usize, key_heads: usize, parts: &[usize]) -> usize {
    let each: usize = parts.iter().sum();
    let (mut row, mut before) = (row, 0);
    for part in parts {
        if row < part * key_heads {
            return row / part.max(&1) * each + before + row % part.max(&1);
        }
        row -= part * key_heads;
        before += part;
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_by_key_heads_are_put_in_order_of_their_parts() {
        // Two key heads of a query, a key of one row, and two values of one.
        let held = ["q0", "k0", "v0", "v1", "q1", "k1", "v2", "v3"];
        let sorted: Vec<&str> = (0..8).map(|row| held[by_part(row, 2, &[1, 1, 2])]).collect();
        assert_eq!(sorted, ["q0", "q1", "k0", "k1", "v0", "v1", "v2", "v3"]);
        let held = ["q0", "Q0", "z0", "q1", "Q1", "z1"];
        let sorted: Vec<&str> = (0..6).map(|row| held[by_part(row, 2, &[2, 1])]).collect();
        assert_eq!(sorted, ["q0", "Q0", "q1", "Q1", "z0", "z1"]);
    }
}
