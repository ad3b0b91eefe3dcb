use mlx_rs::ops::{dequantize, matmul, quantize};
use mlx_rs::{Array, Dtype};

use super::*;

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

fn assert_close(found: &Array, expected: &Array, within: f32) {
    assert_eq!(found.shape(), expected.shape());
    let apart = floats(found)
        .iter()
        .zip(floats(expected))
        .fold(0f32, |m, (a, b)| m.max((a - b).abs()));
    assert!(apart <= within, "{apart} apart");
}

const LLAMA3: RopeScaling = RopeScaling::Llama3 {
    factor: 8.0,
    low_freq_factor: 1.0,
    high_freq_factor: 4.0,
    original_max_positions: 64.0,
};

#[test]
fn tables_turn_as_mlxs_own_rope_does() {
    for scaling in [RopeScaling::None, RopeScaling::Linear { factor: 2.5 }, LLAMA3] {
        let ropes = [Backend::Cpu, Backend::Gpu].map(|backend| Rope::new(16, 500.0, &scaling, backend));
        let x = noise(&[6, 3, 16], 1);
        let turned = |rope: &Rope, positions: Positions<'_>, rows: usize| {
            rope.apply(&x, &rope.step(positions), rows).unwrap()
        };
        let run = Positions::Run { start: 41, len: 6 };
        let [tables, fast] = ropes.each_ref().map(|rope| turned(rope, run, 1));
        assert_eq!(tables.shape(), [1, 3, 6, 16]);
        assert_close(&tables, &fast, 1e-5);
        let each = Positions::Each(&[0, 7, 100, 3, 3, 64]);
        let [tables, fast] = ropes.each_ref().map(|rope| turned(rope, each, 6));
        assert_eq!(tables.shape(), [6, 3, 1, 16]);
        assert_close(&tables, &fast, 1e-5);
    }
}

#[test]
fn a_position_turns_alike_alone_and_among_others() {
    let rope = Rope::new(8, 1e4, &RopeScaling::None, Backend::Cpu);
    let x = noise(&[5, 2, 8], 2);
    let together = rope
        .apply(&x, &rope.step(Positions::Run { start: 10, len: 5 }), 1)
        .unwrap();
    let rows = rope
        .apply(&x, &rope.step(Positions::Each(&[10, 11, 12, 13, 14])), 5)
        .unwrap();
    // [1, heads, L, dim] and [L, heads, 1, dim]
    assert_eq!(
        floats(&together.transpose_axes(&[2, 1, 0, 3]).unwrap()),
        floats(&rows)
    );
}

#[test]
fn factors_divide_each_frequency() {
    let halved = Rope::new(4, 100.0, &RopeScaling::Factors(vec![2.0, 2.0]), Backend::Cpu);
    let linear = Rope::new(4, 100.0, &RopeScaling::Linear { factor: 2.0 }, Backend::Cpu);
    let x = noise(&[1, 1, 4], 3);
    let at = Positions::Run { start: 9, len: 1 };
    let [a, b] = [&halved, &linear].map(|rope| floats(&rope.apply(&x, &rope.step(at), 1).unwrap()));
    assert_eq!(a, b);
}

#[test]
fn a_quantized_map_is_the_map_of_its_dequantized_weight() {
    let x = noise(&[3, 64], 4);
    let bias = noise(&[5], 5);
    let (packed, scales, biases) = quantize(noise(&[5, 64], 6), 32, 4).unwrap();
    let weight = dequantize(&packed, &scales, &biases, 32, 4).unwrap();
    let dense = Linear::dense(weight.transpose().unwrap(), Some(bias.clone()));
    let affine = Linear::affine([packed, scales, biases], 4, 32, Some(bias));
    assert_close(&affine.forward(&x).unwrap(), &dense.forward(&x).unwrap(), 1e-4);
    assert!(affine.bytes() < dense.bytes());
}

#[test]
fn every_layout_of_embeddings_looks_up_and_projects_alike() {
    let (packed, scales, biases) = quantize(noise(&[10, 32], 7), 32, 8).unwrap();
    let table = dequantize(&packed, &scales, &biases, 32, 8).unwrap();
    let ids = Array::from_slice(&[3u32, 0, 9, 3], &[4]);
    let x = noise(&[2, 32], 8);
    let rows = Embedding::rows(table.clone());
    let looked_up = rows.lookup(&ids).unwrap();
    assert_eq!(floats(&looked_up)[..32], floats(&table)[3 * 32..4 * 32]);
    let columns = Embedding::columns(table.transpose().unwrap().contiguous().unwrap());
    let affine = Embedding::affine([packed, scales, biases], 8, 32, Dtype::Float32);
    for other in [columns, affine] {
        assert_close(&other.lookup(&ids).unwrap(), &looked_up, 1e-6);
        assert_close(&other.as_head(&x).unwrap(), &rows.as_head(&x).unwrap(), 1e-4);
    }
}

#[test]
fn the_gated_mlp_splits_its_product_in_gate_and_up() {
    let (gate_up, down) = (noise(&[4, 6], 9), noise(&[3, 4], 10));
    let mlp = SwiGlu::new(
        Linear::dense(gate_up.clone(), None),
        Linear::dense(down.clone(), None),
        3,
    );
    let x = noise(&[2, 4], 11);
    let both = floats(&matmul(&x, &gate_up).unwrap());
    let inner: Vec<f32> = (0..6)
        .map(|i| {
            let (gate, up) = (both[i / 3 * 6 + i % 3], both[i / 3 * 6 + 3 + i % 3]);
            gate / (1.0 + (-gate).exp()) * up
        })
        .collect();
    let expected = matmul(Array::from_slice(&inner, &[2, 3]), &down).unwrap();
    assert_close(&mlp.forward(&x).unwrap(), &expected, 1e-6);
}

#[test]
fn padding_hides_just_the_empty_columns() {
    Backend::Cpu.enter();
    assert!(mask::padding(&[0, 0], 4).is_none());
    let mask = mask::padding(&[2, 0], 3).unwrap();
    assert_eq!(mask.shape(), [2, 1, 1, 3]);
    assert_eq!(
        mask.to_vec_exact::<bool>().unwrap(),
        [false, false, true, true, true, true]
    );
}
