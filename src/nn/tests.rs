mod hybrid;

use std::sync::Arc;

use cpu_kernels::{Affine, Weights};
use mlx_rs::ops::{concatenate, dequantize, quantize};
use mlx_rs::{Array, Dtype};

use super::kernels::{
    AttentionWeights, Gate, HostNorm, KernelAttention, KernelEmbedding, KernelHead, KernelMlp, Kernels,
    MlpWeights,
};
use super::*;
use crate::cache::{BatchCache, CachePlan, KvLayout, KvScheme, KvShape, Layers, RowCache, Sight};

/// Reproducible numbers between -1 and 1.
fn noise(shape: &[i32], seed: u32) -> Array {
    Backend::Cpu.enter();
    let mut state = seed;
    let n: i32 = shape.iter().product();
    let data: Vec<f32> = (0..n)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 8_388_608.0 - 1.0
        })
        .collect();
    Array::from_slice(&data, shape)
}

fn floats(array: &Array) -> Vec<f32> {
    array.contiguous().unwrap().to_vec_exact().unwrap()
}

fn assert_close(found: &Array, expected: &Array, within: f32, what: &str) {
    assert_eq!(found.shape(), expected.shape());
    let apart = floats(found)
        .iter()
        .zip(floats(expected))
        .fold(0f32, |m, (a, b)| m.max((a - b).abs()));
    assert!(apart <= within, "{what}: {apart} apart");
}

const LLAMA3: RopeScaling = RopeScaling::Llama3 {
    factor: 8.0,
    low_freq_factor: 1.0,
    high_freq_factor: 4.0,
    original_max_positions: 64.0,
};

const YARN: RopeScaling = RopeScaling::Yarn {
    factor: 4.0,
    original_max_positions: 64.0,
    beta_fast: 32.0,
    beta_slow: 1.0,
    magnitude: 1.25,
};

#[test]
fn factors_divide_each_frequency() {
    let tables = |scaling: &RopeScaling| {
        let rope = Rope::new(4, 4, 100.0, scaling, Backend::Cpu);
        let RopeStep::Tables { cos, sin } = rope.step(Positions::Run { start: 9, len: 2 }) else {
            panic!("no tables");
        };
        assert_eq!(cos.shape(), [2, 2]);
        (floats(&cos), floats(&sin))
    };
    let factors = |magnitude| {
        tables(&RopeScaling::Factors {
            factors: vec![2.0, 2.0],
            magnitude,
        })
    };
    assert_eq!(factors(1.0), tables(&RopeScaling::Linear { factor: 2.0 }));
    let doubled: Vec<f32> = factors(1.0).0.iter().map(|cos| 2.0 * cos).collect();
    assert_eq!(factors(2.0).0, doubled);
}

#[test]
fn a_quantized_map_is_the_map_of_its_dequantized_weight() {
    let x = noise(&[3, 64], 4);
    let bias = noise(&[5], 5);
    let (packed, scales, biases) = quantize(noise(&[5, 64], 6), 32, 4).unwrap();
    let weight = dequantize(&packed, &scales, &biases, 32, 4).unwrap();
    let dense = Linear::dense(weight.transpose().unwrap(), Some(bias.clone()));
    let affine = Linear::affine([packed, scales, biases], 4, 32, Some(bias));
    assert_close(
        &affine.forward(&x).unwrap(),
        &dense.forward(&x).unwrap(),
        1e-4,
        "maps",
    );
}

/// Layers by kernels and by MLX's operations, of the same weights.
struct Pair {
    kernels: Arc<Kernels>,
    seed: u32,
    /// The largest weight of a matrix.
    largest: f32,
}

const HEADS: Heads = Heads {
    queries: 6,
    kv: 2,
    dim: 16,
};
const FEATURES: usize = 64;
const EPS: f32 = 1e-5;

impl Pair {
    fn new(largest: f32) -> Self {
        Self {
            kernels: Kernels::new(Some(2)).unwrap(),
            seed: 100,
            largest,
        }
    }

    fn noise(&mut self, shape: &[usize]) -> Array {
        self.seed += 1;
        noise(&shape.iter().map(|&n| extent(n)).collect::<Vec<_>>(), self.seed)
    }

    /// The same weight `[outputs, inputs]` twice, in four bits.
    fn matrix(&mut self, outputs: usize, inputs: usize) -> (Arc<Weights>, [Array; 3]) {
        let (packed, scales, biases) = quantize(
            self.noise(&[outputs, inputs])
                .multiply(Array::from_f32(self.largest))
                .unwrap(),
            32,
            4,
        )
        .unwrap();
        let host = packed.to_vec_exact::<u32>().unwrap();
        let matrix = Affine {
            outputs,
            inputs,
            bits: 4,
            group: 32,
            packed: &host,
            scales: &floats(&scales),
            biases: &floats(&biases),
        };
        (self.kernels.affine(matrix).unwrap(), [packed, scales, biases])
    }

    fn norm(&mut self, features: usize) -> (HostNorm, RmsNorm) {
        let weight = self.noise(&[features]);
        let host = HostNorm {
            weight: floats(&weight),
            eps: EPS,
        };
        (host, RmsNorm::new(weight, EPS))
    }

    fn maybe_norm(&mut self, there: bool, features: usize) -> (Option<HostNorm>, Option<RmsNorm>) {
        there.then(|| self.norm(features)).unzip()
    }

    fn attention(&mut self, variant: &Variant) -> [(Attention, Rope); 2] {
        let rope = |backend| Rope::new(HEADS.dim, variant.turned, 500.0, &variant.scaling, backend);
        let (host, norm) = self.norm(FEATURES);
        let (wide, narrow) = (HEADS.queries * HEADS.dim, HEADS.kv * HEADS.dim);
        let parts = [wide, narrow, narrow].map(|outputs| self.matrix(outputs, FEATURES));
        let [(queries, q), (keys, k), (values, v)] = parts;
        let (output, o) = self.matrix(FEATURES, wide);
        let mut arrays = vec![q, k, v];
        let mut bias = self.noise(&[wide + 2 * narrow]);
        let host_bias = floats(&bias);
        let gate = variant.gated.then(|| {
            let (weights, arrays_of_gate) = self.matrix(wide, FEATURES);
            arrays.push(arrays_of_gate);
            let of_gate = self.noise(&[wide]);
            bias = concatenate(&[&bias, &of_gate], 0).unwrap();
            Gate {
                weights,
                bias: Some(floats(&of_gate)),
            }
        });
        let joined = [0, 1, 2].map(|part| {
            let parts: Vec<&Array> = arrays.iter().map(|arrays| &arrays[part]).collect();
            concatenate(&parts, 0).unwrap()
        });
        let (query_norm, ops_query_norm) = self.maybe_norm(variant.head_norms, HEADS.dim);
        let (key_norm, ops_key_norm) = self.maybe_norm(variant.head_norms, HEADS.dim);
        let (output_norm, ops_output_norm) = self.maybe_norm(variant.output_norm, FEATURES);
        let attending = Attending {
            heads: HEADS,
            scale: variant.scale,
            rope: variant.rope.then_some(0),
            window: None,
            mask: 0,
        };
        let ops = Attention::ops(AttentionOps {
            norm,
            qkv: Linear::affine(joined, 4, 32, Some(bias)),
            head_norms: ops_query_norm.zip(ops_key_norm).map(Into::into),
            gated: variant.gated,
            output: Linear::affine(o, 4, 32, None),
            output_norm: ops_output_norm,
            attending,
        });
        let weights = AttentionWeights {
            norm: host,
            projections: vec![queries, keys, values],
            bias: Some(host_bias),
            query_norm,
            key_norm,
            gate,
            output,
            output_bias: None,
            output_norm,
            attending,
        };
        let kernels = Attention::kernels(KernelAttention::new(&self.kernels, weights));
        [(kernels, rope(Backend::Cpu)), (ops, rope(Backend::Gpu))]
    }
}

/// What one layer of attention has that another has not.
#[derive(Debug, Clone)]
struct Variant {
    rope: bool,
    turned: usize,
    scaling: RopeScaling,
    scale: f32,
    head_norms: bool,
    gated: bool,
    output_norm: bool,
}

fn variants() -> Vec<Variant> {
    let plain = Variant {
        rope: true,
        turned: HEADS.dim,
        scaling: RopeScaling::None,
        scale: 0.25,
        head_norms: false,
        gated: false,
        output_norm: false,
    };
    let scalings = [RopeScaling::Linear { factor: 2.5 }, LLAMA3, YARN];
    let mut variants: Vec<Variant> = scalings
        .map(|scaling| Variant {
            scaling,
            ..plain.clone()
        })
        .into();
    variants.extend([
        Variant {
            turned: 4,
            scaling: RopeScaling::Factors {
                factors: vec![1.5, 3.0],
                magnitude: 1.25,
            },
            ..plain.clone()
        },
        Variant {
            rope: false,
            scale: 0.1,
            ..plain.clone()
        },
        Variant {
            head_norms: true,
            output_norm: true,
            ..plain.clone()
        },
        Variant {
            turned: 8,
            head_norms: true,
            gated: true,
            ..plain.clone()
        },
        plain,
    ]);
    variants
}

fn plans() -> [CachePlan; 2] {
    let shape = KvShape {
        heads: HEADS.kv,
        key_dim: HEADS.dim,
        value_dim: HEADS.dim,
        dtype: Dtype::Float32,
        scheme: KvScheme::Full,
    };
    [CachePlan::own_buffers(vec![shape]), CachePlan::new(vec![shape])]
}

/// One span by itself, with rotations for those who take them.
fn alone(plan: &CachePlan, rows: usize, added: usize, ropes: Vec<RopeStep>, masks: Vec<Mask>) -> Packed {
    let (of_all, of_span) = match plan.layout() {
        KvLayout::OwnBuffers => (ropes, Vec::new()),
        KvLayout::Columns => (Vec::new(), ropes),
    };
    Packed {
        spans: vec![Span {
            rows,
            added,
            ropes: of_span,
            masks,
        }],
        ropes: of_all,
    }
}

#[test]
fn attention_by_kernels_is_attention_by_operations() {
    Backend::Cpu.enter();
    for variant in variants() {
        // As in trained models, scores of a few units: a softmax over hundreds magnifies the last bits of both ways.
        let mut pair = Pair::new(0.125);
        let ways = pair.attention(&variant);
        let prompts = [3, 300].map(|len| pair.noise(&[len, FEATURES]));
        let step = pair.noise(&[2, FEATURES]);
        let run = |(attention, rope): &(Attention, Rope), plan: &CachePlan| {
            let mut outputs = Vec::new();
            let mut rows = prompts.each_ref().map(|prompt| {
                let mut row = RowCache::new(plan);
                let len = prompt.shape()[0].unsigned_abs() as usize;
                let ropes = vec![rope.step(Positions::Run { start: 0, len })];
                let packed = alone(plan, 1, len, ropes, vec![Mask::Causal]);
                let y = attention
                    .forward(prompt.clone().into(), vec![row.layer(0)], &packed, 1)
                    .unwrap()
                    .whole()
                    .unwrap();
                row.wrote(&y).unwrap();
                outputs.push(y);
                row
            });
            let mut batch = BatchCache::adopt(std::mem::replace(&mut rows[0], RowCache::new(plan)));
            batch
                .extend(std::mem::replace(&mut rows[1], RowCache::new(plan)))
                .unwrap();
            let ropes = vec![rope.step(Positions::Each(&batch.lengths()))];
            let packed = alone(plan, 2, 1, ropes, Mask::each(&batch, &[None], 1));
            let y = attention
                .forward(step.clone().into(), vec![batch.layer(0)], &packed, 1)
                .unwrap()
                .whole()
                .unwrap();
            batch.wrote(&y).unwrap();
            outputs.push(y);
            outputs
        };
        let [kernels, ops] = [0, 1].map(|way| run(&ways[way], &plans()[way]));
        for (kernels, ops) in kernels.iter().zip(&ops) {
            assert_close(kernels, ops, 2e-5, &format!("{variant:?}"));
        }
    }
}

#[test]
fn the_gated_mlp_by_kernels_is_the_one_by_operations() {
    Backend::Cpu.enter();
    let inner = 96;
    for (activation, normed) in [
        (Activation::Silu, false),
        (Activation::GeluTanh, false),
        (Activation::GeluTanh, true),
    ] {
        let mut pair = Pair::new(1.0);
        let (host, norm) = pair.norm(FEATURES);
        let [(gate, g), (up, u)] = [(); 2].map(|()| pair.matrix(inner, FEATURES));
        let (down, d) = pair.matrix(FEATURES, inner);
        let (bias, down_bias) = (pair.noise(&[2 * inner]), pair.noise(&[FEATURES]));
        let joined = [0, 1, 2].map(|part| concatenate(&[&g[part], &u[part]], 0).unwrap());
        let (output_norm, ops_output_norm) = pair.maybe_norm(normed, FEATURES);
        let ops = GatedMlp::ops(MlpOps {
            norm,
            gate_up: Linear::affine(joined, 4, 32, Some(bias.clone())),
            activation,
            down: Linear::affine(d, 4, 32, Some(down_bias.clone())),
            output_norm: ops_output_norm,
            intermediate: inner,
        });
        let weights = MlpWeights {
            norm: host,
            gate,
            up,
            bias: Some(floats(&bias)),
            activation,
            down,
            down_bias: Some(floats(&down_bias)),
            output_norm,
        };
        let kernels = GatedMlp::kernels(KernelMlp::new(&pair.kernels, weights));
        // More rows than run through at once.
        for rows in [1, 7, 300] {
            let x = pair.noise(&[rows, FEATURES]);
            let [by_kernels, by_ops] =
                [&kernels, &ops].map(|mlp| mlp.forward(x.clone().into()).unwrap().whole().unwrap());
            assert_close(
                &by_kernels,
                &by_ops,
                1e-4,
                &format!("{activation:?}, {rows} rows"),
            );
        }
    }
}

#[test]
fn embeddings_and_head_by_kernels_are_those_by_operations() {
    Backend::Cpu.enter();
    let mut pair = Pair::new(1.0);
    let (host, norm) = pair.norm(FEATURES);
    let (table, arrays) = pair.matrix(70, FEATURES);
    let by_ops = Embedding::affine(arrays, 4, 32, Dtype::Float32).scaled(Array::from_f32(25.25));
    let by_kernels = KernelEmbedding::new(&pair.kernels, Arc::clone(&table), Some(25.25));
    let by_kernels = Embedding::kernel(by_kernels);
    let ids = Array::from_slice(&[3u32, 0, 69, 3], &[4]);
    let looked_up = by_ops.lookup(&ids).unwrap();
    assert_close(&by_kernels.lookup(&ids).unwrap(), &looked_up, 1e-5, "embeddings");
    let ops = Head::ops(norm, None);
    let kernels = Head::kernel(KernelHead::new(&pair.kernels, host, table));
    let x = pair.noise(&[3, FEATURES]);
    let [a, b] = [kernels.forward(&x, &by_kernels), ops.forward(&x, &by_ops)].map(Result::unwrap);
    assert_close(&a, &b, 1e-4, "logits");
    let [nan, infinity] = [f32::NAN, f32::INFINITY];
    let mut odd = a.to_vec_exact::<f32>().unwrap();
    odd[7] = nan;
    odd[70 + 69] = infinity;
    odd[140..].fill(nan);
    let odd = Array::from_slice(&odd, &[3, 70]);
    for logits in [&a, &odd] {
        let [a, b] = [kernels.most_likely(logits), ops.most_likely(logits)].map(Result::unwrap);
        let ids = |most: &MostLikely| most.tokens.to_vec_exact::<u32>().unwrap();
        let largest = |most: &MostLikely| most.logits.to_vec_exact::<f32>().unwrap();
        let numbers = |most: &MostLikely| largest(most).iter().map(|x| format!("{x}")).collect::<Vec<_>>();
        assert_eq!(numbers(&a), numbers(&b));
        assert!(ids(&a).iter().chain(&ids(&b)).all(|id| *id < 70));
        match largest(&a)[0].is_nan() {
            true => assert_eq!(numbers(&a), ["NaN", "inf", "NaN"]),
            false => assert_eq!(ids(&a), ids(&b)),
        }
    }
}

/// As `[row][token]`, a letter for each column: seen or hidden.
fn drawn(mask: &Mask) -> Vec<Vec<String>> {
    let Mask::Array(array) = mask else {
        panic!("{mask:?}");
    };
    let &[_, 1, tokens, columns] = array.shape() else {
        panic!("{:?}", array.shape());
    };
    let seen = array.to_vec_exact::<bool>().unwrap();
    let row = |row: &[bool]| row.iter().map(|&seen| if seen { 's' } else { '.' }).collect();
    let rows = seen.chunks((tokens * columns) as usize);
    rows.map(|tokens| tokens.chunks(columns as usize).map(row).collect())
        .collect()
}

fn sight(columns: usize, added: usize, window: Option<usize>) -> Sight {
    Sight {
        added,
        columns,
        oldest: 0,
        hidden: vec![0],
        window,
    }
}

#[test]
fn no_mask_is_made_where_none_is_needed() {
    assert!(matches!(Mask::of(&sight(9, 1, None)), Mask::None));
    assert!(matches!(Mask::of(&sight(4, 1, Some(4))), Mask::None));
    assert!(matches!(Mask::of(&sight(9, 5, None)), Mask::Causal));
    assert!(matches!(Mask::of(&sight(4, 4, Some(4))), Mask::Causal));
    let row = RowCache::new(&plans()[0]);
    let masks = Mask::each(&row, &[None, Some(2)], 7);
    assert!(
        matches!(masks.as_slice(), [Mask::None, Mask::None]),
        "kernels know"
    );
}

#[test]
fn padding_hides_just_the_empty_columns() {
    Backend::Cpu.enter();
    let padded = Sight {
        hidden: vec![2, 0],
        ..sight(3, 1, None)
    };
    assert_eq!(drawn(&Mask::of(&padded)), [["..s"], ["sss"]]);
    let wrapped = Sight {
        oldest: 2,
        hidden: vec![0, 3, 1],
        ..sight(4, 1, Some(4))
    };
    assert_eq!(drawn(&Mask::of(&wrapped)), [["ssss"], [".s.."], ["ss.s"]]);
}

#[test]
fn a_window_hides_what_is_too_old() {
    Backend::Cpu.enter();
    let mask = Mask::of(&sight(5, 3, Some(3)));
    assert_eq!(drawn(&mask), [["sss..", ".sss.", "..sss"]]);
    let mask = Mask::of(&sight(3, 3, Some(1)));
    assert_eq!(drawn(&mask), [["s..", ".s.", "..s"]]);
}
