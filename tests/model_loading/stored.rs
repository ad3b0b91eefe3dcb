//! What weights are after they were taken from a file: to the bit, in our names and order.

use mlx_chat::gguf::Gguf;
use mlx_chat::model::ModelError;
use mlx_chat::model::weights::{
    GgufWeights, Matrix, Microscaled, Quantization, SafetensorsFolder, WeightSource,
};
use mlx_chat::nn::{Backend, Linear, Microscaling, Quantized};
use mlx_rs::{Array, Dtype};
use safetensors::tensor::Dtype as Stored;
use serde_json::{Value, json};

use super::gguf_writer::{Writer, text};
use super::{Tensor, Weights, save};

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits = (0..hex.len()).step_by(2);
    digits
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

fn words_of(hex: &str) -> Vec<u32> {
    let bytes = bytes_of(hex);
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|word| u32::from_le_bytes(*word))
        .collect()
}

/// Matrices `[2, 64]` in each mode and what MLX makes of them: what `tests/gguf/vectors.py mlx` printed.
fn microscaled() -> Vec<(Microscaled, Vec<f32>)> {
    let lines = include_str!("microscaled.txt").lines();
    let vector = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let mode = Microscaling::ALL
            .into_iter()
            .find(|mode| mode.name() == fields[0])
            .unwrap();
        let matrix = Microscaled {
            rows: 2,
            cols: 64,
            mode,
            packed: words_of(fields[1]),
            scales: bytes_of(fields[2]),
        };
        (
            matrix,
            words_of(fields[3]).into_iter().map(f32::from_bits).collect(),
        )
    };
    lines.map(vector).collect()
}

#[test]
fn microscaled_elements_are_what_mlx_makes_of_them() {
    let vectors = microscaled();
    assert_eq!(vectors.len(), 6);
    for (matrix, expected) in vectors {
        let mode = matrix.mode.name();
        let matrix = Matrix::Microscaled(matrix);
        // MLX has no results below the smallest of bfloat16.
        let found = matrix.clone().into_dense();
        for (found, expected) in found.iter().zip(&expected) {
            let vanished = *expected == 0.0 && found.abs() < 2.0_f32.powi(-126);
            assert!(found == expected || vanished, "{mode}: {found} for {expected}");
        }
        assert_eq!(matrix.for_kernels().into_dense(), found, "{mode}");
    }
}

#[test]
fn mlx_multiplies_by_microscaled_matrices_in_their_own_modes() {
    Backend::Cpu.enter();
    for (matrix, expected) in microscaled().into_iter().step_by(2) {
        let words = 64 * matrix.mode.bits() as i32 / 32;
        let groups = 64 / matrix.mode.group_size() as i32;
        let quantized = || {
            Quantized::microscaled(
                [
                    Array::from_slice(&matrix.packed, &[2, words]),
                    Array::from_slice(&matrix.scales, &[2, groups]),
                ],
                matrix.mode,
            )
        };
        let row = Array::from_slice(&[1_u32], &[1]);
        let rows = quantized().rows(&row, Dtype::Float32).unwrap();
        assert_eq!(rows.to_vec_exact::<f32>().unwrap(), expected[64..]);
        // A column of the identity picks an element of each output.
        let mut x = [0.0_f32; 64];
        x[17] = 1.0;
        let x = Array::from_slice(&x, &[1, 64]);
        let y = Linear::quantized(quantized(), None).forward(&x).unwrap();
        let y = y.as_type::<f32>().unwrap().to_vec_exact::<f32>().unwrap();
        assert_eq!(y, [expected[17], expected[64 + 17]], "{}", matrix.mode.name());
        // Side by side with a dense one.
        let dense = Linear::dense(Array::from_slice(&[2.0_f32; 64], &[64, 1]), None);
        let both = Linear::joined(vec![Linear::quantized(quantized(), None), dense], None);
        let y = both.forward(&x).unwrap().as_type::<f32>().unwrap();
        let expected = [expected[17], expected[64 + 17], 2.0];
        assert_eq!(
            (y.shape(), y.to_vec_exact::<f32>().unwrap()),
            (&[1, 3][..], expected.to_vec())
        );
    }
}

#[test]
fn a_refused_product_is_an_error() {
    Backend::Cpu.enter();
    let arrays = [
        Array::from_slice(&[0_u32; 4], &[1, 4]),
        Array::from_slice(&[127_u8], &[1, 1]),
    ];
    let weight = Quantized::microscaled(arrays, Microscaling::Mxfp4);
    let error = weight
        .product(&Array::from_slice(&[0.0_f32; 8], &[1, 8]))
        .unwrap_err();
    assert!(error.what().contains("mxfp4"), "{error}");
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(tensors: &[(&str, Tensor)]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        let weights: Weights = tensors
            .iter()
            .map(|(name, t)| ((*name).to_owned(), t.clone()))
            .collect();
        save(&weights, &folder.0.path().join("model.safetensors"));
        folder
    }

    fn open(&self, quantization: Value) -> SafetensorsFolder {
        let config = json!({ "quantization": quantization });
        SafetensorsFolder::open(self.0.path(), Quantization::from_config(&config).unwrap()).unwrap()
    }
}

fn tensor(dtype: Stored, shape: &[usize], byte: impl Fn(usize) -> u8) -> Tensor {
    let length = shape.iter().product::<usize>() * dtype.bitsize() / 8;
    Tensor {
        dtype,
        shape: shape.to_vec(),
        bytes: (0..length).map(byte).collect(),
    }
}

#[test]
fn single_modules_have_their_own_modes_or_none() {
    let folder = Folder::new(&[
        ("a.weight", tensor(Stored::U32, &[2, 8], |at| at as u8)),
        ("a.scales", tensor(Stored::U8, &[2, 2], |_| 127)),
        ("b.weight", tensor(Stored::U32, &[2, 8], |at| at as u8)),
        ("b.scales", tensor(Stored::U8, &[2, 4], |_| 0x38)),
        (
            "c.weight",
            tensor(Stored::F32, &[2, 64], |at| [0, 0, 0x80, 0x3f][at % 4]),
        ),
        ("d.weight", tensor(Stored::U32, &[1, 2], |at| at as u8)),
        (
            "d.scales",
            tensor(Stored::F32, &[1, 1], |at| [0, 0, 0x80, 0x3f][at % 4]),
        ),
        ("d.biases", tensor(Stored::F32, &[1, 1], |_| 0)),
    ]);
    let settings = json!({
        "mode": "mxfp4", "bits": 4, "group_size": 32,
        "b": {"mode": "nvfp4", "bits": 4, "group_size": 16},
        "c": false,
        "d": {"bits": 4, "group_size": 16},
    });
    let source = folder.open(settings.clone());
    let mode = |name: &str| match source.matrix(name, 2, 64).unwrap() {
        Matrix::Microscaled(scaled) => Some(scaled.mode),
        _ => None,
    };
    assert_eq!(mode("a.weight"), Some(Microscaling::Mxfp4));
    assert_eq!(mode("b.weight"), Some(Microscaling::Nvfp4));
    assert_eq!(source.matrix("c.weight", 2, 64).unwrap().into_dense(), [1.0; 128]);
    let sixteen = source.matrix("d.weight", 1, 16).unwrap();
    assert!(matches!(sixteen.clone().for_kernels(), Matrix::Affine(affine) if affine.group_size == 16));
    let expected = [0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 7, 0].map(|quant| quant as f32);
    assert_eq!(sixteen.into_dense(), expected);
    assert_eq!(source.quantization(), "mxfp4");
    let mut shown: Vec<String> = source
        .holdings(Backend::Cpu)
        .iter()
        .map(|h| h.to_string())
        .collect();
    shown.sort();
    assert_eq!(
        shown,
        [
            "F32 ×1 as dense float32",
            "affine 4-bit, group 16 ×1 as affine 4-bit, group 16",
            "mxfp4 ×1 as affine 5-bit, group 32",
            "nvfp4 ×1 as affine 5-bit, group 16",
        ]
    );
    let gpu: Vec<String> = source
        .holdings(Backend::Gpu)
        .into_iter()
        .map(|h| h.held)
        .collect();
    assert!(gpu.contains(&"nvfp4".to_owned()) && gpu.contains(&"dense bfloat16".to_owned()));
    // What is said not to be quantized, but is.
    let mut wrong = settings;
    wrong["a"] = json!(false);
    let error = folder
        .open(wrong)
        .matrix("a.weight", 2, 64)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("quantization.a is false") && error.contains("a has scales"),
        "{error}"
    );
}

#[test]
fn settings_of_modes_that_cannot_be_are_named() {
    for (settings, said) in [
        (
            json!({"mode": "mxfp4", "group_size": 64}),
            "group_size is 64, but must be 32 where the mode is mxfp4",
        ),
        (json!({"mode": "nvfp4", "bits": 8}), "bits is 8"),
        (json!({"mode": "int4"}), "one of affine, mxfp4, nvfp4, mxfp8"),
        (
            json!({"bits": 4, "group_size": 32, "x": {"bits": 9}}),
            "quantization.x.bits is 9",
        ),
    ] {
        let error = Quantization::from_config(&json!({"quantization": settings})).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[test]
fn an_expert_is_a_slice_of_its_stack_or_a_tensor_of_its_own() {
    let each = |expert: usize| Tensor::f32(&[2, 32], expert as u32);
    let stacked = Tensor {
        dtype: Stored::F32,
        shape: vec![3, 2, 32],
        bytes: (0..3).flat_map(|expert| each(expert).bytes).collect(),
    };
    let own = [
        "m.1.mlp.experts.0.up_proj.weight",
        "m.1.mlp.experts.1.up_proj.weight",
        "m.1.mlp.experts.2.up_proj.weight",
    ];
    let mut tensors = vec![
        ("m.0.mlp.switch_mlp.up_proj.weight", stacked.clone()),
        ("m.2.mlp.experts.gate_up_proj", stacked),
    ];
    tensors.extend(own.iter().enumerate().map(|(expert, name)| (*name, each(expert))));
    let source = Folder::new(&tensors).open(Value::Null);
    let mut names = source.names();
    names.sort();
    let stacks = [
        "m.0.mlp.switch_mlp.up_proj.weight",
        "m.1.mlp.switch_mlp.up_proj.weight",
        "m.2.mlp.experts.gate_up_proj",
    ];
    assert_eq!(names, stacks);
    for stack in stacks {
        assert!(source.has(stack));
        assert_eq!(source.bytes(stack), 3 * 2 * 32 * 4);
        for expert in 0..3 {
            let found = source.expert(stack, expert, 3, 2, 32).unwrap();
            assert_eq!(found.into_dense(), each(expert).floats());
        }
        let error = source.expert(stack, 3, 3, 2, 32).unwrap_err().to_string();
        assert!(error.contains("no expert 3 among 3"), "{error}");
    }
    let error = source.expert(stacks[0], 0, 4, 2, 32).unwrap_err().to_string();
    assert!(
        error.contains("has shape [3, 2, 32], expected [4, 2, 32]"),
        "{error}"
    );
}

#[test]
fn quantized_experts_keep_their_form() {
    let stack = "m.mlp.switch_mlp.up_proj";
    let folder = Folder::new(&[
        (
            "m.mlp.switch_mlp.up_proj.weight",
            tensor(Stored::U32, &[2, 2, 4], |at| at as u8),
        ),
        (
            "m.mlp.switch_mlp.up_proj.scales",
            tensor(Stored::U8, &[2, 2, 1], |at| 120 + at as u8),
        ),
    ]);
    let source = folder.open(json!({"mode": "mxfp4"}));
    assert_eq!(source.names(), [format!("{stack}.weight")]);
    let Matrix::Microscaled(second) = source.expert(&format!("{stack}.weight"), 1, 2, 2, 32).unwrap() else {
        panic!("it was quantized");
    };
    assert_eq!((second.scales, second.packed[0]), (vec![122, 123], 0x2322_2120));
}

/// Values of F32 that count up.
fn counting(count: usize) -> Vec<u8> {
    (0..count).flat_map(|at| (at as f32).to_le_bytes()).collect()
}

fn with_gguf<T>(writer: &Writer, run: impl FnOnce(&GgufWeights<'_>) -> T) -> Result<T, ModelError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, writer.bytes()).unwrap();
    let file = Gguf::open(&path).unwrap();
    Ok(run(&GgufWeights::new(&file)?))
}

#[test]
fn rows_of_queries_and_keys_are_put_in_order_in_llama_only() {
    let writer = |architecture: &str| {
        Writer::new()
            .entry("general.architecture", 8, &text(architecture))
            .entry("llama.attention.head_count", 4, &2_u32.to_le_bytes())
            .tensor("blk.0.attn_q.weight", &[1, 8], 0, &counting(8))
            .tensor("blk.0.attn_q.bias", &[8], 0, &counting(8))
            .tensor("blk.0.attn_v.weight", &[1, 8], 0, &counting(8))
    };
    let inside = |name: &str| format!("model.layers.0.self_attn.{name}");
    for (architecture, order) in [
        ("llama", [0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0]),
        ("qwen2", [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]),
    ] {
        with_gguf(&writer(architecture), |source| {
            let queries = source.matrix(&inside("q_proj.weight"), 8, 1).unwrap();
            assert_eq!(queries.into_dense(), order, "{architecture}");
            assert_eq!(
                source.vector(&inside("q_proj.bias"), 8).unwrap(),
                order,
                "{architecture}"
            );
            let values = source
                .matrix(&inside("v_proj.weight"), 8, 1)
                .unwrap()
                .into_dense();
            assert!(values.is_sorted());
        })
        .unwrap();
    }
    let error = with_gguf(&writer("mamba"), |_| ()).unwrap_err().to_string();
    assert!(
        error.contains("\"mamba\"") && error.contains("qwen35moe"),
        "{error}"
    );
}

#[test]
fn linear_attention_comes_back_in_the_order_of_its_key_heads() {
    let number = |number: u32| number.to_le_bytes();
    // Two key heads of one feature, each with two value heads of two.
    let writer = Writer::new()
        .entry("general.architecture", 8, &text("qwen35"))
        .entry("qwen35.ssm.group_count", 4, &number(2))
        .entry("qwen35.ssm.time_step_rank", 4, &number(4))
        .entry("qwen35.ssm.inner_size", 4, &number(8))
        .entry("qwen35.ssm.state_size", 4, &number(1))
        .tensor("blk.0.attn_qkv.weight", &[1, 12], 0, &counting(12))
        .tensor("blk.0.ssm_alpha.weight", &[1, 4], 0, &counting(4))
        .tensor("blk.0.ssm_dt.bias", &[4], 0, &counting(4))
        .tensor("blk.0.ssm_out.weight", &[8, 1], 0, &counting(8))
        .tensor("blk.0.ssm_conv1d.weight", &[1, 12], 0, &counting(12))
        .tensor(
            "blk.0.ssm_a",
            &[4],
            0,
            &[-1.0, -2.0, -0.5, -4.0_f32].map(f32::to_le_bytes).concat(),
        );
    let inside = |name: &str| format!("model.layers.0.linear_attn.{name}");
    with_gguf(&writer, |source| {
        let dense = |name: &str, rows, cols| source.matrix(&inside(name), rows, cols).unwrap().into_dense();
        let mixed = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 9.0, 6.0, 7.0, 10.0, 11.0];
        assert_eq!(dense("in_proj_qkv.weight", 12, 1), mixed);
        assert_eq!(dense("conv1d.weight", 12, 1), mixed);
        assert_eq!(dense("in_proj_a.weight", 4, 1), [0.0, 2.0, 1.0, 3.0]);
        assert_eq!(
            dense("out_proj.weight", 1, 8),
            [0.0, 1.0, 4.0, 5.0, 2.0, 3.0, 6.0, 7.0]
        );
        assert_eq!(
            source.vector(&inside("dt_bias"), 4).unwrap(),
            [0.0, 2.0, 1.0, 3.0]
        );
        let decay = source.vector(&inside("A_log"), 4).unwrap();
        let back: Vec<f32> = decay.iter().map(|log| -log.exp()).collect();
        for (found, expected) in back.iter().zip([-1.0, -0.5, -2.0, -4.0]) {
            assert!((found - expected).abs() < 1e-6, "{found} for {expected}");
        }
    })
    .unwrap();
}

#[test]
fn types_of_gguf_files_are_held_as_the_backend_can() {
    let writer = Writer::new()
        .entry("general.architecture", 8, &text("qwen3moe"))
        .tensor("token_embd.weight", &[256, 1], 14, &[0; 210])
        .tensor("blk.0.attn_q.weight", &[256, 1], 12, &[0; 144])
        .tensor("blk.0.ffn_up_exps.weight", &[32, 2, 2], 39, &[0x22; 68])
        .tensor("blk.0.attn_norm.weight", &[1], 0, &[0; 4]);
    with_gguf(&writer, |source| {
        let held = |backend| {
            let mut all: Vec<String> = source.holdings(backend).iter().map(|h| h.to_string()).collect();
            all.sort();
            all
        };
        let cpu = [
            "F32 ×1 as dense float32",
            "MXFP4 ×1 as affine 5-bit, group 32",
            "Q4_K ×1 as affine 4-bit, group 32",
            "Q6_K ×1 as affine 6-bit, group 16",
        ];
        assert_eq!(held(Backend::Cpu), cpu);
        let gpu = [
            "F32 ×1 as dense bfloat16",
            "MXFP4 ×1 as mxfp4",
            "Q4_K ×1 as affine 4-bit, group 32",
            "Q6_K ×1 as dense bfloat16",
        ];
        assert_eq!(held(Backend::Gpu), gpu);
        let stack = "model.layers.0.mlp.switch_mlp.up_proj.weight";
        assert!(source.names().contains(&stack.to_owned()));
        let expert = source.expert(stack, 1, 2, 2, 32).unwrap();
        assert!(matches!(&expert, Matrix::Microscaled(scaled) if scaled.scales == [0x22, 0x22]));
        assert!(source.expert(stack, 2, 2, 2, 32).is_err());
    })
    .unwrap();
}
