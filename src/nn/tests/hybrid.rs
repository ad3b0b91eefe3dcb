//! The gated delta rule and experts: kernels against MLX's operations, of the same weights.

use super::*;
use crate::cache::{LayerPlan, RecurrentShape};
use crate::nn::kernels::{DeltaWeights, ExpertWeights, ExpertsWeights, KernelDeltaNet, KernelExperts};

const SHAPE: DeltaShape = DeltaShape {
    key_heads: 2,
    value_heads: 4,
    key_dim: 16,
    value_dim: 24,
    kernel: 4,
};

fn joined(parts: &[[Array; 3]]) -> [Array; 3] {
    [0, 1, 2].map(|part| {
        let parts: Vec<&Array> = parts.iter().map(|arrays| &arrays[part]).collect();
        concatenate(&parts, 0).unwrap()
    })
}

impl Pair {
    fn delta_net(&mut self) -> [DeltaNet; 2] {
        let (conv, heads) = (SHAPE.conv_features(), SHAPE.value_heads);
        let outputs = [conv, SHAPE.value_features(), heads, heads];
        let (packed, arrays): (Vec<_>, Vec<_>) = outputs
            .map(|outputs| self.matrix(outputs, FEATURES))
            .into_iter()
            .unzip();
        let (output, o) = self.matrix(FEATURES, SHAPE.value_features());
        let (norm, ops_norm) = self.norm(FEATURES);
        let (head_norm, ops_head_norm) = self.norm(SHAPE.value_dim);
        let taps = self.noise(&[SHAPE.kernel, conv]);
        let (a_log, dt_bias) = (self.noise(&[heads]), self.noise(&[heads]));
        let ops = DeltaNet::ops(DeltaOps {
            norm: ops_norm,
            projection: Linear::affine(joined(&arrays), 4, 32, None),
            shape: SHAPE,
            conv: taps.clone(),
            rate: a_log.exp().unwrap().negative().unwrap(),
            dt_bias: dt_bias.clone(),
            head_norm: ops_head_norm,
            output: Linear::affine(o, 4, 32, None),
        });
        let weights = DeltaWeights {
            norm,
            projections: packed,
            shape: SHAPE,
            conv: floats(&taps),
            a_log: floats(&a_log),
            dt_bias: floats(&dt_bias),
            head_norm,
            output,
        };
        [
            DeltaNet::kernels(KernelDeltaNet::new(&self.kernels, weights)),
            ops,
        ]
    }

    /// With the weights of experts in four bits, or dense for MLX's operations.
    fn moe(&mut self, renormalize: bool, shared: bool, dense: bool) -> [Moe; 2] {
        const EXPERTS: usize = 5;
        const INNER: usize = 32;
        let (norm, ops_norm) = self.norm(FEATURES);
        let (router, r) = self.matrix(EXPERTS, FEATURES);
        let mut stacks: [Vec<[Array; 3]>; 3] = Default::default();
        let expert = |pair: &mut Self, stacks: &mut [Vec<[Array; 3]>; 3]| {
            let shapes = [(INNER, FEATURES), (INNER, FEATURES), (FEATURES, INNER)];
            let [gate, up, down] = [0, 1, 2].map(|part| {
                let (outputs, inputs) = shapes[part];
                let (packed, arrays) = pair.matrix(outputs, inputs);
                stacks[part].push(arrays);
                packed
            });
            ExpertWeights { gate, up, down }
        };
        let experts = (0..EXPERTS).map(|_| expert(self, &mut stacks)).collect();
        let stack = |parts: &[[Array; 3]]| {
            let [packed, scales, biases] = joined(parts);
            if !dense {
                let all = Quantized::affine([packed, scales, biases], 4, 32);
                return ExpertLinear::quantized(all.stacked(EXPERTS).unwrap());
            }
            let all = dequantize(packed, scales, &biases, 32, 4).unwrap();
            let inputs = all.shape()[1];
            let apart = all.reshape(&[extent(EXPERTS), -1, inputs]).unwrap();
            ExpertLinear::dense(apart.swap_axes(1, 2).unwrap())
        };
        let [gate, up, down] = stacks.each_ref().map(|parts| stack(parts));
        let mut of_shared: [Vec<[Array; 3]>; 3] = Default::default();
        let (shared, ops_shared) = shared
            .then(|| {
                let weights = expert(self, &mut of_shared);
                let (router, r) = self.matrix(1, FEATURES);
                let [mut pair, up, down] = std::mem::take(&mut of_shared);
                pair.extend(up);
                let ops = SharedOps {
                    gate_up: Linear::affine(joined(&pair), 4, 32, None),
                    down: Linear::affine(joined(&down), 4, 32, None),
                    intermediate: INNER,
                    router: Linear::affine(r, 4, 32, None),
                };
                ((weights, router), ops)
            })
            .unzip();
        let ops = Moe::ops(MoeOps {
            norm: ops_norm,
            router: Linear::affine(r, 4, 32, None),
            gate,
            up,
            down,
            experts: EXPERTS,
            chosen: 2,
            renormalize,
            shared: ops_shared,
        });
        let weights = ExpertsWeights {
            norm,
            router,
            experts,
            chosen: 2,
            renormalize,
            shared,
        };
        [Moe::kernels(KernelExperts::new(&self.kernels, weights)), ops]
    }
}

fn recurrent_plans() -> [CachePlan; 2] {
    let layer = LayerPlan::Recurrent(RecurrentShape {
        conv: SHAPE.kernel - 1,
        conv_features: SHAPE.conv_features(),
        heads: SHAPE.value_heads,
        value_dim: SHAPE.value_dim,
        key_dim: SHAPE.key_dim,
        dtype: Dtype::Float32,
    });
    [CachePlan::own_buffers(vec![layer]), CachePlan::new(vec![layer])]
}

#[test]
fn the_delta_rule_by_kernels_is_that_by_operations() {
    Backend::Cpu.enter();
    let mut pair = Pair::new(0.25);
    let ways = pair.delta_net();
    // Two prompts, the second in pieces, one of which is longer than kernels take at once; then steps of both together.
    let pieces: [&[usize]; 2] = [&[1], &[9, 2, 300]];
    let prompts = pieces.map(|lens| {
        lens.iter()
            .map(|&len| pair.noise(&[len, FEATURES]))
            .collect::<Vec<_>>()
    });
    let steps = [0, 1, 2].map(|_| pair.noise(&[2, FEATURES]));
    let run = |layer: &DeltaNet, plan: &CachePlan, written: bool| {
        let mut outputs = Vec::new();
        let rows = prompts.each_ref().map(|pieces| {
            let mut row = RowCache::new(plan);
            for piece in pieces {
                let packed = alone(plan, 1, piece.shape()[0] as usize, Vec::new(), Vec::new());
                let put_out = usize::from(!written);
                let y = layer
                    .forward(piece, vec![row.layer(0)], &packed, put_out)
                    .unwrap();
                row.wrote(&y).unwrap();
                outputs.push(y);
            }
            row
        });
        if written {
            outputs.clear();
        }
        let [first, second] = rows;
        let mut batch = BatchCache::adopt(first);
        batch.extend(second).unwrap();
        for step in &steps {
            let packed = alone(plan, 2, 1, Vec::new(), Vec::new());
            let y = layer.forward(step, vec![batch.layer(0)], &packed, 1).unwrap();
            batch.wrote(&y).unwrap();
            outputs.push(y);
        }
        outputs
    };
    let plans = recurrent_plans();
    let [kernels, ops] = [0, 1].map(|way| run(&ways[way], &plans[way], false));
    for (at, (kernels, ops)) in kernels.iter().zip(&ops).enumerate() {
        assert_close(kernels, ops, 5e-5, &format!("output {at}"));
    }
    for way in [0, 1] {
        let whole = [&kernels, &ops][way];
        let written = run(&ways[way], &plans[way], true);
        for (found, expected) in written.iter().zip(&whole[whole.len() - steps.len()..]) {
            assert_eq!(floats(found), floats(expected), "what is only written is there");
        }
    }
}

#[test]
fn experts_by_kernels_are_those_by_operations() {
    Backend::Cpu.enter();
    for (renormalize, shared, dense) in [(true, false, false), (false, true, false), (true, true, true)] {
        let mut pair = Pair::new(0.25);
        let [kernels, ops] = pair.moe(renormalize, shared, dense);
        // The last is enough to be sorted by experts.
        for rows in [1, 7, 80] {
            let x = pair.noise(&[rows, FEATURES]);
            let (kernels, ops) = (kernels.forward(&x).unwrap(), ops.forward(&x).unwrap());
            let what = format!("{renormalize}, {shared}, {dense}, {rows} rows");
            assert_close(&kernels, &ops, 5e-5, &what);
        }
    }
}
