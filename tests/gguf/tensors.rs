use half::{bf16, f16};
use mlx_chat::gguf::{Affine, Gguf, Kind};
use proptest::prelude::*;

use super::open;
use super::writer::{Writer, array, text};

const F32: u32 = 0;
const F16: u32 = 1;
const Q4_0: u32 = 2;
const Q4_1: u32 = 3;
const Q5_0: u32 = 6;
const Q8_0: u32 = 8;
const IQ4_XS: u32 = 23;
const BF16: u32 = 30;

fn half(value: f32) -> [u8; 2] {
    f16::from_f32(value).to_le_bytes()
}

/// Element `j` of each row, by MLX's packing rule alone.
fn unpack(affine: &Affine, cols: usize) -> Vec<u32> {
    let bits = affine.bits;
    let row = |row: &[u32]| -> Vec<u32> {
        let bit = |at: usize| row[at / 32] >> (at % 32) & 1;
        let quant = |j: usize| (0..bits).map(|at| bit(j * bits + at) << at).sum();
        (0..cols).map(quant).collect()
    };
    affine.weight.chunks(cols * bits / 32).flat_map(row).collect()
}

/// What MLX computes from the triple, in single precision.
fn dequantize(affine: &Affine, cols: usize) -> Vec<f32> {
    let element = |(at, quant): (usize, u32)| {
        let group = at / affine.group_size;
        quant as f32 * affine.scales[group] + affine.biases[group]
    };
    unpack(affine, cols)
        .into_iter()
        .enumerate()
        .map(element)
        .collect()
}

/// Numbers of types in files.
const NUMBERS: [(&str, u32); 12] = [
    ("Q4_0", Q4_0),
    ("Q4_1", Q4_1),
    ("Q5_0", Q5_0),
    ("Q5_1", 7),
    ("Q8_0", Q8_0),
    ("Q2_K", 10),
    ("Q3_K", 11),
    ("Q4_K", 12),
    ("Q5_K", 13),
    ("Q6_K", 14),
    ("IQ4_NL", 20),
    ("MXFP4", 39),
];

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits = (0..hex.len()).step_by(2);
    digits
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

/// Types, two rows' bytes, and the floats' bits by the reference: what `vectors.py` printed.
fn vectors() -> Vec<(&'static str, Vec<u8>, Vec<u32>)> {
    let lines = include_str!("vectors.txt").lines();
    let vector = |line: &'static str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let floats = bytes_of(fields[2]);
        let floats = floats.as_chunks().0.iter().map(|bits| u32::from_le_bytes(*bits));
        (fields[0], bytes_of(fields[1]), floats.collect())
    };
    lines.map(vector).collect()
}

#[test]
fn every_quantized_type_is_what_the_reference_makes_of_it() {
    let vectors = vectors();
    assert_eq!(vectors.len(), NUMBERS.len());
    for (name, bytes, expected) in vectors {
        let (_, number) = NUMBERS.iter().find(|(known, _)| *known == name).unwrap();
        let cols = expected.len() / 2;
        let file = single(*number, cols as u64, 2, &bytes);
        let tensor = file.tensor("t").unwrap();
        assert_eq!(tensor.info.kind.to_string(), name);
        let floats = tensor.to_f32().unwrap();
        let found: Vec<u32> = floats.iter().map(|float| float.to_bits()).collect();
        assert_eq!(found, expected, "{name}");
        // Equal as numbers: the affine form loses the sign of a zero.
        let affine = tensor.to_affine().unwrap();
        assert_eq!(
            tensor.info.kind.affine_widths(),
            Some((affine.bits, affine.group_size))
        );
        assert_eq!(dequantize(&affine, cols), floats, "{name}");
    }
}

#[test]
fn the_microscaling_form_of_mxfp4_keeps_codes_and_exponents() {
    let quants: Vec<u8> = (0..16).map(|j| j | (15 - j) << 4).collect();
    let file = single(39, 32, 1, &[&[127][..], &quants].concat());
    let (words, exponents) = file.tensor("t").unwrap().to_mxfp4().unwrap();
    assert_eq!(words, [0x7654_3210, 0xfedc_ba98, 0x89ab_cdef, 0x0123_4567]);
    assert_eq!(exponents, [127]);
    let unknown = single(39, 32, 1, &[&[255][..], &quants].concat());
    assert!(unknown.tensor("t").unwrap().to_mxfp4().is_none());
    assert!(
        single(Q8_0, 32, 1, &[0; 34])
            .tensor("t")
            .unwrap()
            .to_mxfp4()
            .is_none()
    );
}

#[test]
fn a_slice_of_a_stack_is_what_its_bytes_are() {
    let data: Vec<u8> = (0..3 * 2 * 34)
        .map(|at| if at % 34 < 2 { 0x3c } else { at as u8 })
        .collect();
    let file = open(&Writer::new().tensor("t", &[32, 2, 3], Q8_0, &data).bytes()).unwrap();
    let stack = file.tensor("t").unwrap();
    let all = stack.to_f32().unwrap();
    for at in 0..3 {
        let slice = stack.part(at..at + 1, 3).unwrap();
        assert_eq!(slice.to_f32().unwrap(), all[at * 64..(at + 1) * 64]);
        file.release(&slice);
    }
    assert!(stack.part(3..4, 3).is_none());
    assert_eq!(stack.to_f32().unwrap(), all);
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
    assert_eq!((affine.scales[0], affine.biases[0]), (0.5, -64.0));
    assert_eq!(file.tensor("t").unwrap().to_f32().unwrap()[0], -64.0);
}

#[test]
fn a_scale_that_is_no_number_leaves_the_tensor_dense() {
    for (kind, scale, fits) in [
        (Q8_0, 65504.0, true),
        (Q4_0, f32::NAN, false),
        (Q4_1, f32::INFINITY, false),
        (Q5_0, f32::NEG_INFINITY, false),
    ] {
        let length = match kind {
            Q8_0 => 32,
            Q5_0 => 20,
            _ => 16,
        };
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
    // A power of two that doubles past the largest float.
    let huge = single(39, 32, 1, &[&[254][..], &[0x77; 16]].concat());
    assert!(huge.tensor("t").unwrap().to_affine().is_none());
    assert_eq!(huge.tensor("t").unwrap().to_f32().unwrap()[0], f32::INFINITY);
}

#[test]
fn a_type_that_is_not_read_is_listed_but_refused_by_its_name() {
    let file = open(&Writer::new().tensor("blk.0.w", &[256], IQ4_XS, &[0; 136]).bytes()).unwrap();
    assert_eq!(file.tensors().next().unwrap().bytes(), None);
    let message = file.tensor("blk.0.w").unwrap_err().to_string();
    assert!(
        message.contains("`blk.0.w`") && message.contains("IQ4_XS") && message.contains("Q6_K"),
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
        prop_assert_eq!(affine.weight.len(), rows * cols * affine.bits / 32);
        prop_assert_eq!(affine.scales.len(), rows * blocks);
        prop_assert_eq!(affine.biases.len(), rows * blocks);
        prop_assert_eq!(dequantize(&affine, cols), tensor.to_f32().unwrap());
    }
}
