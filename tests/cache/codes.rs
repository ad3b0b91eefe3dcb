//! The kernels' codes are those of MLX's `quantize`, in own buffers as in columns.

use cpu_kernels::Team;
use cpu_kernels::attention::{Attention, CodeLayout, KvCodes, KvLayout, KvMut, Scratch, Segment, attend};
use mlx_chat::nn::Backend;
use mlx_rs::Array;
use mlx_rs::ops::quantize;

use crate::Random;

const DIM: usize = 128;

/// Keys of all sizes; some with groups of zeros, of one value, of one sign.
fn keys(random: &mut Random, count: usize) -> Vec<f32> {
    let mut all = Vec::new();
    for at in 0..count * DIM / 32 {
        let size = 10f32.powi(random.below(9) as i32 - 5);
        let noise = |random: &mut Random| random.below(20_001) as f32 / 10_000.0 - 1.0;
        let group: Vec<f32> = (0..32).map(|_| noise(random) * size).collect();
        all.extend(group.into_iter().map(|x| match at % 7 {
            0 => 0.0,
            1 => size,
            2 => x.abs(),
            3 => -x.abs() - size,
            _ => x,
        }));
    }
    all
}

/// What MLX's codes, scales and biases stand for, each element rounded once.
fn by_mlx(keys: &[f32], bits: usize, group: usize) -> Vec<f32> {
    let array = Array::from_slice(keys, &[(keys.len() / DIM) as i32, DIM as i32]);
    let (codes, scales, biases) = quantize(&array, group as i32, bits as i32).unwrap();
    let codes: Vec<u32> = codes.to_vec_exact().unwrap();
    let [scales, biases]: [Vec<f32>; 2] = [scales, biases].map(|array| array.to_vec_exact().unwrap());
    let per_word = 32 / bits;
    let element = |at: usize| {
        let code = codes[at / per_word] >> (at % per_word * bits) & ((1 << bits) - 1);
        (code as f32).mul_add(scales[at / group], biases[at / group])
    };
    (0..keys.len()).map(element).collect()
}

#[test]
fn what_kernels_quantize_mlx_quantizes_so_too() {
    Backend::Cpu.enter();
    let mut random = Random(3);
    let count = 70;
    let kv = KvLayout {
        heads: 1,
        key_dim: DIM,
        value_dim: DIM,
    };
    for (bits, group) in [(4, 32), (4, 64), (4, 128), (8, 32), (8, 64), (8, 128)] {
        let layout = CodeLayout {
            kv,
            codes: KvCodes { bits, group },
        };
        let (given_keys, given_values) = (keys(&mut random, count), keys(&mut random, count));
        let attention = Attention {
            heads: 1,
            kv,
            codes: Some(layout.codes),
            scale: 1.0,
            window: Some(1),
            query_norm: None,
            key_norm: None,
            rope: None,
        };
        let mut words = vec![0; layout.words(256)];
        // A first piece, which goes by floats, and one that does not.
        for positions in [0..50, 50..count] {
            let mut qkv = Vec::new();
            for position in positions.clone() {
                qkv.extend([0.0; DIM]);
                qkv.extend(&given_keys[position * DIM..][..DIM]);
                qkv.extend(&given_values[position * DIM..][..DIM]);
            }
            let (start, tokens) = (positions.start, positions.len());
            let kv = KvMut::Codes(&mut words);
            let mut out = vec![0.0; tokens * DIM];
            let team = Team::new(2).unwrap();
            let segments = &mut [Segment { kv, start, tokens }];
            attend(
                &team,
                &mut Scratch::default(),
                &attention,
                &qkv,
                segments,
                &mut out,
            );
        }
        let (mut found_keys, mut found_values) = (Vec::new(), Vec::new());
        for position in 0..count {
            let (mut key, mut value) = ([0.0; DIM], [0.0; DIM]);
            layout.copy_key(&words, 0, position, &mut key);
            layout.copy_value(&words, 0, position, &mut value);
            found_keys.extend(key);
            found_values.extend(value);
        }
        assert!(
            found_keys == by_mlx(&given_keys, bits, group),
            "{bits} bits, groups of {group}"
        );
        assert!(
            found_values == by_mlx(&given_values, bits, group),
            "{bits} bits, groups of {group}"
        );
    }
}
