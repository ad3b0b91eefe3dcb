//! Kernels beside MLX's operations, on the GPU that these need: `cargo test --lib nn::cuda -- --ignored`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use mlx_rs::ops::{dequantize, matmul, quantize, sigmoid};
use mlx_rs::transforms::eval;
use mlx_rs::{Array, Dtype, fast, random};

use super::*;
use crate::cache::KvQuantization;
use crate::nn::{Backend, Offset, Positions, Rope, RopeScaling, RopeStep};

const FLOATS: [Dtype; 2] = [Dtype::Float32, Dtype::Bfloat16];

/// A test's turn at the GPU: a kernel that one thread alone may start is that one's.
struct Turn(#[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl Drop for Turn {
    fn drop(&mut self) {
        Cuda::leave();
    }
}

fn kernels() -> (Turn, Rc<Cuda>) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = Turn(TURN.lock().unwrap_or_else(PoisonError::into_inner));
    Backend::Gpu.enter();
    (turn, Cuda::here().expect("a GPU of NVIDIA's, and MLX for CUDA"))
}

fn noise(shape: &[i32], seed: u64, dtype: Dtype) -> Array {
    let key = random::key(seed).unwrap();
    let floats = random::uniform::<_, f32>(-1.0f32, 1.0f32, shape, &key).unwrap();
    floats.as_dtype(dtype).unwrap()
}

fn wide(x: &Array) -> Array {
    x.as_dtype(Dtype::Float32).unwrap()
}

/// The norm of the difference over the norm of what is expected.
fn apart(found: &Array, expected: &Array) -> f32 {
    assert_eq!(found.shape(), expected.shape());
    let [found, expected] = [found, expected].map(wide);
    let norm = |x: &Array| x.square().unwrap().sum(None).unwrap().item_exact::<f32>().sqrt();
    let error = norm(&found.subtract(&expected).unwrap()) / norm(&expected).max(1e-9);
    assert!(error.is_finite());
    error
}

fn assert_near(found: &Array, expected: &Array, dtype: Dtype, what: &str) {
    let allowed = if dtype == Dtype::Float32 { 2e-5 } else { 6e-3 };
    let error = apart(found, expected);
    assert!(error <= allowed, "{what} in {dtype:?}: {error}");
}

#[test]
#[ignore = "needs a GPU of NVIDIA's"]
fn gated_activations_are_those_of_operations() {
    let (_turn, cuda) = kernels();
    for dtype in FLOATS {
        for (tokens, features) in [(1, 8), (3, 88), (130, 1024)] {
            let x = noise(&[tokens, 2 * features], 1, dtype)
                .multiply(Array::from_f32(4.0).as_dtype(dtype).unwrap())
                .unwrap();
            let halves = wide(&x).split_equal(2, -1).unwrap();
            let silu = halves[0]
                .multiply(sigmoid(&halves[0]).unwrap())
                .unwrap()
                .multiply(&halves[1])
                .unwrap();
            let found = cuda.gate(&x, Activation::Silu).unwrap();
            assert_near(&found, &silu, dtype, "silu");
            let gelu = crate::nn::mlp::activate(&halves[0], Activation::GeluTanh).unwrap();
            let found = cuda.gate(&x, Activation::GeluTanh).unwrap();
            assert_near(&found, &gelu.multiply(&halves[1]).unwrap(), dtype, "gelu");
        }
    }
}

#[test]
#[ignore = "needs a GPU of NVIDIA's"]
fn a_sum_is_normalized_along() {
    let (_turn, cuda) = kernels();
    for dtype in FLOATS {
        for (tokens, features) in [(1, 64), (5, 1000), (70, 4096), (2, 8192)] {
            let [x, more] = [2, 3].map(|seed| noise(&[tokens, features], seed, dtype));
            let weight = noise(&[features], 4, dtype);
            let [sum, normed] = cuda.add_norm(&x, &more, &weight, 1e-5).unwrap();
            let expected = x.add(&more).unwrap();
            assert_near(&sum, &expected, dtype, "sum");
            let expected = fast::rms_norm(&expected, Some(&weight), 1e-5).unwrap();
            assert_near(&normed, &expected, dtype, "norm");
        }
    }
}

#[test]
#[ignore = "needs a GPU of NVIDIA's"]
fn heads_are_cut_normalized_and_turned() {
    let (_turn, cuda) = kernels();
    let heads = Heads {
        queries: 6,
        kv: 2,
        dim: 48,
    };
    for dtype in FLOATS {
        for (turned, rows, len) in [(48, 1, 7), (32, 3, 1), (48, 4, 1)] {
            let rope = Rope::new(48, turned, 1e4, &RopeScaling::None, Backend::Gpu);
            let each: Vec<usize> = (0..rows).map(|row| 1000 + 17 * row).collect();
            let positions = if rows == 1 {
                Positions::Run { start: 900, len }
            } else {
                Positions::Each(&each)
            };
            let step = rope.step(positions);
            let (_, periods, magnitude, positions) = step.of_tokens().unwrap();
            let tokens = extent(rows * len);
            let x = noise(&[tokens, 10 * 48 + 16], 5, dtype);
            let norms = [6, 7].map(|seed| noise(&[48], seed, dtype));
            for normed in [false, true] {
                let found = cuda
                    .heads(
                        &x,
                        &HeadCut {
                            heads,
                            turned,
                            periods,
                            magnitude,
                            norms: normed.then_some((norms.each_ref(), 1e-6)),
                            positions,
                        },
                    )
                    .unwrap();
                Cuda::leave();
                let plain = match rows {
                    1 => rope.step(Positions::Run { start: 900, len }),
                    _ => rope.step(Positions::Each(&each)),
                };
                Backend::Gpu.enter();
                assert!(matches!(
                    &plain,
                    RopeStep::Fast {
                        offset: Offset::Run(_) | Offset::Each(_),
                        ..
                    }
                ));
                for (at, (from, count)) in [(0, 6), (6, 2), (8, 2)].into_iter().enumerate() {
                    let part = crate::nn::features(&wide(&x), from * 48, (from + count) * 48).unwrap();
                    let mut part = part.reshape(&[tokens, extent(count), 48]).unwrap();
                    if normed && at < 2 {
                        part = fast::rms_norm(&part, Some(&wide(&norms[at])), 1e-6).unwrap();
                    }
                    let part = crate::nn::rope::to_heads(&part, rows).unwrap();
                    let part = if at < 2 { plain.apply(&part).unwrap() } else { part };
                    assert_near(
                        &found[at],
                        &part,
                        dtype,
                        &format!("{turned} {rows} {len} {normed} {at}"),
                    );
                }
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU of NVIDIA's"]
fn a_query_attends_to_what_its_row_sees() {
    let (_turn, cuda) = kernels();
    let shapes = [
        (8, 2, 128),
        (32, 8, 128),
        (9, 3, 64),
        (4, 1, 256),
        (2, 2, 16),
        (16, 1, 32),
    ];
    for dtype in FLOATS {
        for (queries, kv, dim) in shapes {
            let heads = Heads { queries, kv, dim };
            // Capacity, columns, the oldest, and what is hidden of each row.
            let cases: [(i32, i32, i32, &[i32]); 4] = [
                (256, 1, 0, &[0]),
                (512, 300, 0, &[0, 299, 100]),
                (512, 512, 77, &[0, 500]),
                (3072, 3000, 0, &[0, 2900]),
            ];
            for (capacity, columns, oldest, hidden) in cases {
                let rows = extent(hidden.len());
                let [key_heads, dims] = [extent(kv), extent(dim)];
                let q = noise(&[rows, extent(queries), 1, dims], 8, dtype);
                let [k, v] = [9, 10].map(|seed| noise(&[rows, key_heads, capacity, dims], seed, dtype));
                let seen: Vec<i32> = hidden
                    .iter()
                    .flat_map(|hidden| [(oldest + hidden) % columns, columns - hidden, columns])
                    .collect();
                let most = count(columns - hidden.iter().min().unwrap());
                let seen = Array::from_slice(&seen, &[rows, 3]);
                let columns = count(columns);
                let full = Seen::Full {
                    keys: k.clone(),
                    values: v.clone(),
                    columns,
                };
                let mask: Vec<bool> = hidden
                    .iter()
                    .flat_map(|hidden| {
                        (0..capacity).map(move |column| {
                            let age = (column - oldest).rem_euclid(extent(columns));
                            column < extent(columns) && age >= *hidden
                        })
                    })
                    .collect();
                let mask = Array::from_slice(&mask, &[rows, 1, 1, capacity]);
                let coded = |bits, group_size| {
                    let [keys, values] = [&k, &v].map(|x| {
                        let (codes, scales, biases) = quantize(x, extent(group_size), extent(bits)).unwrap();
                        [codes, scales, biases]
                    });
                    let by = KvQuantization { bits, group_size };
                    Seen::Quantized {
                        keys,
                        values,
                        by,
                        columns,
                    }
                };
                let mut holdings = vec![full];
                if dim >= 32 {
                    holdings.extend([coded(8, 32), coded(4, 32)]);
                }
                if dim >= 128 {
                    holdings.push(coded(4, 128));
                }
                for held in holdings {
                    let found = cuda.attend(&q, &held, (&seen, most), heads, 0.3).unwrap();
                    let [k, v] = match &held {
                        Seen::Full { .. } => [k.clone(), v.clone()],
                        Seen::Quantized { keys, values, by, .. } => {
                            [keys, values].map(|[codes, scales, biases]| {
                                let [group, bits] = [by.group_size, by.bits].map(extent);
                                dequantize(codes, scales, biases, group, bits).unwrap()
                            })
                        }
                    };
                    let repeat = |x: &Array| {
                        mlx_rs::ops::repeat_axis::<f32>(wide(x), extent(queries / kv), 1).unwrap()
                    };
                    let scores = matmul(wide(&q), repeat(&k).transpose_axes(&[0, 1, 3, 2]).unwrap()).unwrap();
                    let scores = scores.multiply(Array::from_f32(0.3)).unwrap();
                    let scores = mlx_rs::ops::select(&mask, &scores, Array::from_f32(-1e30)).unwrap();
                    let weights = mlx_rs::ops::softmax_axis(&scores, -1, true).unwrap();
                    let expected = matmul(weights, repeat(&v)).unwrap().reshape(&[rows, -1]).unwrap();
                    let what = format!("{heads:?}, {columns} columns from {oldest}");
                    assert_near(&found, &expected, dtype, &what);
                }
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU of NVIDIA's"]
fn few_rows_are_multiplied_by_what_is_stored() {
    let (_turn, cuda) = kernels();
    let dtype = Dtype::Bfloat16;
    for (outputs, inputs) in [(64, 128), (100, 4096), (8200, 512), (4096, 14336)] {
        let weights = noise(&[outputs, inputs], 11, dtype);
        for rows in (1..=8).chain([9, 16, 23, 32]) {
            let x = noise(&[rows, inputs], 12, dtype);
            let product = |weights: &Array| matmul(wide(&x), wide(weights).transpose().unwrap()).unwrap();
            for (bits, group_size) in [(4, 64), (4, 32), (4, 128), (8, 64), (8, 128)] {
                if bits == 8 && rows > 4 {
                    continue;
                }
                let (packed, scales, biases) = quantize(&weights, group_size, bits).unwrap();
                let arrays = [&packed, &scales, &biases];
                let matrix = Affine {
                    arrays,
                    bits: count(bits),
                    group_size: count(group_size),
                };
                let found = cuda.few_rows(&x, &matrix).unwrap();
                let elements = dequantize(&packed, wide(&scales), &wide(&biases), group_size, bits).unwrap();
                let what = format!("{bits} bits by {group_size}, {rows} × {outputs} × {inputs}");
                assert_near(&found, &product(&elements), dtype, &what);
            }
        }
    }
}

/// A block in float32, by MLX's operations: what it puts out, and the key and value of the token.
fn block_by_operations(
    x: &Array,
    shape: &LoneShape,
    weights: &LoneWeights,
    held: [&Array; 2],
    rope: &RopeStep,
) -> [Array; 3] {
    let Heads { queries, kv, dim } = shape.heads;
    let product = |x: &Array, matrix: &Array| matmul(x, wide(matrix).transpose().unwrap()).unwrap();
    let normed = |x: &Array, weight: &Array, eps| fast::rms_norm(x, Some(&wide(weight)), eps).unwrap();
    let x = wide(x);
    let mut qkv = product(&normed(&x, &weights.norm, shape.eps), &weights.qkv);
    if let Some(bias) = &weights.qkv_bias {
        qkv = qkv.add(wide(bias)).unwrap();
    }
    let heads = |from: usize, count: usize, norm: Option<usize>| {
        let part = crate::nn::features(&qkv, from * dim, (from + count) * dim).unwrap();
        let mut part = part.reshape(&[1, extent(count), 1, extent(dim)]).unwrap();
        if let (Some(norm), Some((norms, eps))) = (norm, &weights.head_norms) {
            part = normed(&part, &norms[norm], *eps);
        }
        if norm.is_some() {
            rope.apply(&part).unwrap()
        } else {
            part
        }
    };
    let [q, k, v] = [
        heads(0, queries, Some(0)),
        heads(queries, kv, Some(1)),
        heads(queries + kv, kv, None),
    ];
    let all = |held: &Array, new: &Array| mlx_rs::ops::concatenate(&[&wide(held), new], 2).unwrap();
    let seen =
        fast::scaled_dot_product_attention(&q, all(held[0], &k), all(held[1], &v), shape.scale, None, None)
            .unwrap();
    let seen = seen.reshape(&[1, extent(queries * dim)]).unwrap();
    let middle = x.add(product(&seen, &weights.output)).unwrap();
    let both = product(&normed(&middle, &weights.inner_norm, shape.eps), &weights.gate_up);
    let halves = both.split_equal(2, -1).unwrap();
    let inner = crate::nn::mlp::activate(&halves[0], shape.activation)
        .unwrap()
        .multiply(&halves[1])
        .unwrap();
    [middle.add(product(&inner, &weights.down)).unwrap(), k, v]
}

#[test]
#[ignore = "needs a GPU of NVIDIA's"]
fn a_block_by_one_kernel_is_the_block_by_operations() {
    let silu = Activation::Silu;
    let cases = [
        ([256, 512, 4, 2, 64], silu, [false, false], [1, 0]),
        ([1024, 3072, 16, 8, 128], silu, [true, false], [130, 0]),
        ([896, 4864, 14, 2, 64], silu, [false, true], [700, 5]),
        (
            [640, 2048, 4, 1, 256],
            Activation::GeluTanh,
            [true, false],
            [2000, 1],
        ),
        ([2048, 8192, 32, 8, 64], silu, [false, false], [63, 0]),
        ([4096, 14336, 32, 8, 128], silu, [false, false], [600, 0]),
    ];
    for ([hidden, inner, queries, kv, dim], activation, [norms, bias], [before, start]) in cases {
        let shape = LoneShape {
            hidden,
            inner,
            heads: Heads { queries, kv, dim },
            scale: 1.0 / (dim as f32).sqrt(),
            activation,
            eps: 1e-5,
        };
        let made = |shape: &[usize], seed: u64, scale: f32| {
            let shape: Vec<i32> = shape.iter().map(|&n| extent(n)).collect();
            let scale = Array::from_f32(scale).as_dtype(Dtype::Bfloat16).unwrap();
            noise(&shape, seed, Dtype::Bfloat16).multiply(scale).unwrap()
        };
        let of = |inputs: usize| 1.7 / (inputs as f32).sqrt();
        let (_turn, cuda) = kernels();
        let weights = LoneWeights {
            norm: made(&[hidden], 20, 1.0),
            qkv: made(&[(queries + 2 * kv) * dim, hidden], 21, of(hidden)),
            qkv_bias: bias.then(|| made(&[(queries + 2 * kv) * dim], 22, 1.0)),
            head_norms: norms.then(|| ([made(&[dim], 23, 1.0), made(&[dim], 24, 1.0)], 1e-6)),
            output: made(&[hidden, queries * dim], 25, of(queries * dim)),
            inner_norm: made(&[hidden], 26, 1.0),
            gate_up: made(&[2 * inner, hidden], 27, of(hidden)),
            down: made(&[hidden, inner], 28, of(inner)),
        };
        let capacity = start + before + 30;
        let held = || [29, 30].map(|seed| made(&[1, kv, capacity, dim], seed, 1.0));
        let columns = |held: &Array, from: usize, to: usize| {
            use mlx_rs::ops::indexing::TryIndexOp;
            held.try_index((.., .., extent(from)..extent(to))).unwrap()
        };
        let counted = held().map(|held| columns(&held, start, start + before));
        let rope = Rope::new(dim, dim, 1e4, &RopeScaling::None, Backend::Gpu);
        let position = Positions::Run {
            start: before,
            len: 1,
        };
        let step = rope.step(position);
        let (turned, periods, magnitude, _) = step.of_tokens().unwrap();
        Cuda::leave();
        let plain = rope.step(position);
        Backend::Gpu.enter();
        let mut x = made(&[1, hidden], 31, 1.0);
        // Once by itself, then some at once, as blocks of a model are; one call after the other.
        for layers in [1, 3, Cuda::MOST_LONE] {
            let held: Vec<[Array; 2]> = (0..layers).map(|_| held()).collect();
            eval(held.iter().flatten()).unwrap();
            let layer = |held| LoneLayer {
                weights: &weights,
                held: <[Array; 2]>::each_ref(held),
            };
            let all: Vec<LoneLayer<'_>> = held.iter().map(layer).collect();
            let place = LonePlace {
                columns: (start, before),
                rope: (turned, periods, magnitude),
            };
            let found = cuda.lone_blocks(&x, &shape, &all, &place).unwrap();
            found.eval().unwrap();
            let mut expected = x.clone();
            for (at, held) in held.iter().enumerate() {
                let [y, key, value] =
                    block_by_operations(&expected, &shape, &weights, counted.each_ref(), &plain);
                // What each block rounds adds up.
                let allowed = 4e-3 * (at + 1) as f32;
                for (what, held, counted, expected) in [
                    ("key", &held[0], &counted[0], &key),
                    ("value", &held[1], &counted[1], &value),
                ] {
                    let error = apart(&columns(held, start + before, start + before + 1), expected);
                    assert_eq!(
                        apart(&columns(held, start, start + before), counted),
                        0.0,
                        "{what}"
                    );
                    assert!(
                        error <= allowed,
                        "{what} of {shape:?} in layer {at} of {layers}: {error}"
                    );
                }
                expected = y.as_dtype(Dtype::Bfloat16).unwrap();
            }
            let error = apart(&found, &expected);
            assert!(
                error <= 4e-3 * layers as f32,
                "{shape:?}, {layers} layers: {error}"
            );
            let again = cuda.lone_blocks(&x, &shape, &all, &place).unwrap();
            assert_eq!(apart(&again, &found), 0.0);
            x = found;
        }
    }
}
