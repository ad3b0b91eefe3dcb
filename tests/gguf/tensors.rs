use half::{bf16, f16};
use mlx_chat::gguf::{Affine, Gguf, Kind};
use proptest::prelude::*;

use super::open;
use super::writer::{Writer, array, text};

const F32: u32 = 0;
const F16: u32 = 1;
const Q4_0: u32 = 2;
const Q4_1: u32 = 3;
const Q8_0: u32 = 8;
const Q4_K: u32 = 12;
const BF16: u32 = 30;

fn half(value: f32) -> [u8; 2] {
    f16::from_f32(value).to_le_bytes()
}

/// Element `j` of each row, by MLX's packing rule alone.
fn unpack(affine: &Affine, cols: usize) -> Vec<u32> {
    let words = cols * affine.bits as usize / 32;
    let row = |row: &[u32]| -> Vec<u32> {
        let bit = |j: usize| j * affine.bits as usize;
        (0..cols)
            .map(|j| row[bit(j) / 32] >> (bit(j) % 32) & ((1 << affine.bits) - 1))
            .collect()
    };
    affine.weight.chunks(words).flat_map(row).collect()
}

/// What MLX computes from the triple, in single precision.
fn dequantize(affine: &Affine, cols: usize) -> Vec<f32> {
    let element = |(at, quant): (usize, u32)| {
        let group = at / affine.group_size;
        quant as f32 * affine.scales[group].to_f32() + affine.biases[group].to_f32()
    };
    unpack(affine, cols)
        .into_iter()
        .enumerate()
        .map(element)
        .collect()
}

fn single(kind: u32, cols: u64, rows: u64, data: &[u8]) -> Gguf {
    open(&Writer::new().tensor("t", &[cols, rows], kind, data).bytes()).unwrap()
}

#[test]
fn shapes_are_turned_to_outermost_first() {
    let file = open(&Writer::new().tensor("t", &[2, 3, 5], F32, &[0; 120]).bytes()).unwrap();
    let info = file.tensors().next().unwrap();
    assert_eq!(info.shape, [5, 3, 2]);
    assert_eq!(
        (info.elements(), info.cols(), info.bytes(), info.kind),
        (30, 2, Some(120), Kind::F32)
    );
}

#[test]
fn floats_of_every_width_come_back() {
    let values = [0.0, -1.5, 3.25, 65504.0];
    let f32s: Vec<u8> = values.iter().flat_map(|v: &f32| v.to_le_bytes()).collect();
    let f16s: Vec<u8> = values
        .iter()
        .flat_map(|v| f16::from_f32(*v).to_le_bytes())
        .collect();
    let bf16s: Vec<u8> = values
        .iter()
        .flat_map(|v| bf16::from_f32(*v).to_le_bytes())
        .collect();
    let file = Writer::new()
        .tensor("a", &[4], F32, &f32s)
        .tensor("b", &[2, 2], F16, &f16s)
        .tensor("c", &[4, 1], BF16, &bf16s);
    let file = open(&file.bytes()).unwrap();
    assert_eq!(file.tensor("a").unwrap().to_f32().unwrap(), values);
    assert_eq!(file.tensor("b").unwrap().to_f32().unwrap(), values);
    assert_eq!(
        file.tensor("c").unwrap().to_f32().unwrap(),
        values.map(|v| bf16::from_f32(v).to_f32())
    );
    assert!(file.tensor("a").unwrap().to_affine().is_none());
    assert!(file.has("c") && !file.has("d"));
    assert!(file.tensor("d").unwrap_err().to_string().contains("`d`"));
}

#[test]
fn low_nibbles_are_a_blocks_first_half_and_mlx_packs_in_order() {
    // Element j holds j % 16.
    let quants: Vec<u8> = (0..16).map(|j| j | j << 4).collect();
    let file = single(Q4_1, 32, 1, &[&half(1.0)[..], &half(0.0), &quants].concat());
    let affine = file.tensor("t").unwrap().to_affine().unwrap();
    assert_eq!(
        affine.weight,
        [0x7654_3210, 0xfedc_ba98, 0x7654_3210, 0xfedc_ba98]
    );
    let expected: Vec<f32> = (0..32).map(|j| (j % 16) as f32).collect();
    assert_eq!(file.tensor("t").unwrap().to_f32().unwrap(), expected);
}

#[test]
fn signed_bytes_move_up_by_128() {
    let quants: Vec<u8> = (0..32).map(|j| (j * 8 - 128_i32) as i8 as u8).collect();
    let file = single(Q8_0, 32, 1, &[&half(0.5)[..], &quants].concat());
    let affine = file.tensor("t").unwrap().to_affine().unwrap();
    assert_eq!((affine.bits, affine.group_size), (8, 32));
    assert_eq!(affine.weight[0], 0x1810_0800);
    assert_eq!(
        (affine.scales[0].to_f32(), affine.biases[0].to_f32()),
        (0.5, -64.0)
    );
    assert_eq!(file.tensor("t").unwrap().to_f32().unwrap()[0], -64.0);
}

#[test]
fn a_bias_that_no_half_can_hold_leaves_the_tensor_dense() {
    for (kind, scale, fits) in [
        (Q8_0, 511.0, true),
        (Q8_0, 512.0, false),
        (Q4_0, 8184.0, true),
        (Q4_0, 8192.0, false),
        (Q4_0, f32::NAN, false),
        (Q4_1, f32::INFINITY, false),
    ] {
        let length = if kind == Q8_0 { 32 } else { 16 };
        let minimum = if kind == Q4_1 {
            half(0.0).to_vec()
        } else {
            Vec::new()
        };
        let file = single(
            kind,
            32,
            1,
            &[&half(scale)[..], &minimum, &vec![0x11; length]].concat(),
        );
        assert_eq!(
            file.tensor("t").unwrap().to_affine().is_some(),
            fits,
            "{kind} {scale}"
        );
        assert_eq!(file.tensor("t").unwrap().to_f32().unwrap().len(), 32);
    }
}

#[test]
fn a_type_that_is_not_read_is_listed_but_refused_by_its_name() {
    let file = open(&Writer::new().tensor("blk.0.w", &[256], Q4_K, &[0; 144]).bytes()).unwrap();
    assert_eq!(file.tensors().next().unwrap().bytes(), None);
    let message = file.tensor("blk.0.w").unwrap_err().to_string();
    assert!(
        message.contains("`blk.0.w`") && message.contains("Q4_K"),
        "{message}"
    );
}

#[test]
fn every_kind_of_metadata_value_is_read() {
    let names = [text("a"), text("bc")].concat();
    let nested = array(9, 1, &array(4, 2, &[1, 0, 0, 0, 2, 0, 0, 0]));
    let file = Writer::new()
        .entry("u8", 0, &[7])
        .entry("i8", 1, &[0xff])
        .entry("u16", 2, &300_u16.to_le_bytes())
        .entry("i16", 3, &(-2_i16).to_le_bytes())
        .entry("u32", 4, &70_000_u32.to_le_bytes())
        .entry("i32", 5, &(-3_i32).to_le_bytes())
        .entry("f32", 6, &0.5_f32.to_le_bytes())
        .entry("bool", 7, &[1])
        .entry("str", 8, &text("héllo"))
        .entry("strs", 9, &array(8, 2, &names))
        .entry("u64", 10, &(1_u64 << 40).to_le_bytes())
        .entry("i64", 11, &(-4_i64).to_le_bytes())
        .entry("f64", 12, &0.25_f64.to_le_bytes())
        .entry("nested", 9, &nested);
    let bytes = file.bytes();
    let file = open(&bytes).unwrap();
    let meta = file.metadata();
    assert_eq!(
        (
            meta.u64("u8").unwrap(),
            meta.u64("u32").unwrap(),
            meta.u64("u64").unwrap()
        ),
        (7, 70_000, 1 << 40)
    );
    assert_eq!(
        (
            meta.u64("u16").unwrap(),
            meta.f32("f32").unwrap(),
            meta.f32("f64").unwrap()
        ),
        (300, 0.5, 0.25)
    );
    assert_eq!(
        (meta.str("str").unwrap(), meta.bool("bool").unwrap()),
        ("héllo", true)
    );
    assert_eq!(meta.strings("strs").unwrap(), ["a", "bc"]);
    for (key, value) in [("i8", -1), ("i16", -2), ("i32", -3), ("i64", -4)] {
        assert_eq!(meta.get(key).unwrap().as_integer(), Some(value));
    }
    assert_eq!(
        (meta.len(), meta.iter().count(), file.file_bytes()),
        (14, 14, bytes.len() as u64)
    );
}

#[test]
fn version_2_and_another_alignment_are_read() {
    let mut writer = Writer::new().entry("general.alignment", 4, &128_u32.to_le_bytes());
    writer =
        writer
            .tensor("a", &[1], F32, &1.0_f32.to_le_bytes())
            .tensor("b", &[1], F32, &2.0_f32.to_le_bytes());
    writer.alignment = 128;
    writer.version = 2;
    let file = open(&writer.bytes()).unwrap();
    assert_eq!(file.tensor("b").unwrap().to_f32().unwrap(), [2.0]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// The triple is the tensor: both ways give the same floats, bit for bit where the sum needs no rounding.
    #[test]
    fn the_affine_triple_is_exact(
        kind in prop::sample::select(vec![Q4_0, Q4_1, Q8_0]),
        blocks in 1_usize..5,
        rows in 1_usize..4,
        seed in prop::collection::vec(any::<u8>(), 40 * 12),
        scales in prop::collection::vec((-2000_i16..2000, -2000_i16..2000), 12),
    ) {
        let length = if kind == Q8_0 { 32 } else { 16 };
        let mut data = Vec::new();
        for block in 0..blocks * rows {
            let (scale, minimum) = scales[block % 12];
            data.extend(half(f32::from(scale) / 64.0));
            if kind == Q4_1 {
                data.extend(half(f32::from(minimum) / 64.0));
            }
            data.extend((0..length).map(|byte| seed[(block * 37 + byte) % seed.len()]));
        }
        let cols = blocks * 32;
        let file = single(kind, cols as u64, rows as u64, &data);
        let tensor = file.tensor("t").unwrap();
        let affine = tensor.to_affine().unwrap();
        prop_assert_eq!(affine.weight.len(), rows * cols * affine.bits as usize / 32);
        prop_assert_eq!(affine.scales.len(), rows * blocks);
        prop_assert_eq!(affine.biases.len(), rows * blocks);
        prop_assert_eq!(dequantize(&affine, cols), tensor.to_f32().unwrap());
    }
}
