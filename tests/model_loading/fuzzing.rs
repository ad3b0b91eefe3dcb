//! Files of weights changed at random: opened, and all that they claim to hold taken, without a panic or an outsized
//! allocation.

use mlx_chat::gguf::Gguf;
use mlx_chat::model::weights::{GgufWeights, Quantization, SafetensorsFolder, WeightSource};
use mlx_chat::nn::Backend;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::json;

use super::fuzz::fuzz;
use super::gguf_writer::{Writer, array, text};

/// Takes every tensor as what it may be.
fn take_all(source: &dyn WeightSource) {
    for backend in [Backend::Cpu, Backend::Gpu] {
        source.holdings(backend);
    }
    source.quantization();
    for name in source.names() {
        source.bytes(&name);
        let shape = source.shape(&name).unwrap_or_else(|| vec![2, 2, 32]);
        match shape.as_slice() {
            [len] => drop(source.vector(&name, *len)),
            // Quantized ones have more columns than words.
            [rows, cols] => {
                for cols in [*cols, cols.saturating_mul(4), cols.saturating_mul(8)] {
                    if let Ok(matrix) = source.matrix(&name, *rows, cols) {
                        let dense = matrix.clone().into_dense();
                        assert_eq!(dense.len(), rows * cols, "{name}");
                        assert_eq!(matrix.clone().for_kernels().into_dense().len(), dense.len());
                        assert_eq!(matrix.for_mlx().into_dense().len(), dense.len());
                    }
                }
            }
            [experts, rows, cols] => {
                for expert in [0, *experts] {
                    drop(source.expert(&name, expert, *experts, *rows, *cols));
                }
            }
            _ => {}
        }
    }
}

fn safetensors(tensors: &[(&str, Dtype, &[usize])]) -> Vec<u8> {
    let data = vec![0x3c; 4096];
    let views = tensors.iter().map(|(name, dtype, shape)| {
        let bytes = shape.iter().product::<usize>() * dtype.bitsize() / 8;
        let view = TensorView::new(*dtype, shape.to_vec(), &data[..bytes]).unwrap();
        ((*name).to_owned(), view)
    });
    safetensors::serialize(views, None).unwrap()
}

#[test]
fn fuzzed_safetensors_files_are_taken_or_refused() {
    let plain = safetensors(&[
        ("model.norm.weight", Dtype::F32, &[4]),
        ("model.embed_tokens.weight", Dtype::BF16, &[4, 32]),
        ("lm_head.weight", Dtype::F16, &[4, 32]),
        ("model.layers.0.linear_attn.conv1d.weight", Dtype::F32, &[4, 1, 4]),
    ]);
    let affine = safetensors(&[
        ("a.weight", Dtype::U32, &[2, 4]),
        ("a.scales", Dtype::F16, &[2, 1]),
        ("a.biases", Dtype::F16, &[2, 1]),
        ("b.weight", Dtype::U32, &[2, 8]),
        ("b.scales", Dtype::U8, &[2, 1]),
        ("c.weight", Dtype::U32, &[2, 8]),
        ("c.scales", Dtype::U8, &[2, 4]),
    ]);
    let experts = safetensors(&[
        ("m.0.mlp.switch_mlp.up_proj.weight", Dtype::F32, &[2, 2, 32]),
        ("m.1.mlp.experts.0.up_proj.weight", Dtype::F32, &[2, 32]),
        ("m.1.mlp.experts.1.up_proj.weight", Dtype::F32, &[2, 32]),
        ("m.2.mlp.experts.gate_up_proj", Dtype::F32, &[2, 4, 32]),
    ]);
    let config = json!({"quantization": {
        "bits": 4, "group_size": 32, "b": {"mode": "mxfp8"}, "c": {"mode": "nvfp4"}, "d": false
    }});
    let quantization = Quantization::from_config(&config).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    fuzz("safetensors", &[&plain, &affine, &experts], |bytes| {
        std::fs::write(&path, bytes).unwrap();
        let opened = SafetensorsFolder::open(folder.path(), quantization.clone());
        if let Ok(source) = &opened {
            take_all(source);
        }
        opened.is_ok()
    });
}

#[test]
fn fuzzed_gguf_files_are_taken_or_refused_in_every_order_of_rows() {
    let number = |number: u32| number.to_le_bytes();
    let llama = Writer::new()
        .entry("general.architecture", 8, &text("llama"))
        .entry("llama.attention.head_count", 4, &number(2))
        .entry("llama.attention.head_count_kv", 4, &number(1))
        .entry("tokenizer.ggml.tokens", 9, &array(8, 1, &text("a")))
        .tensor("token_embd.weight", &[32, 2], 8, &[0x31; 68])
        .tensor("blk.0.attn_q.weight", &[32, 8], 2, &[0x31; 144])
        .tensor("blk.0.attn_k.weight", &[32, 4], 39, &[0x31; 68])
        .tensor("blk.0.attn_norm.weight", &[32], 0, &[0x31; 128])
        .bytes();
    let hybrid = Writer::new()
        .entry("general.architecture", 8, &text("qwen35moe"))
        .entry("qwen35moe.ssm.group_count", 4, &number(2))
        .entry("qwen35moe.ssm.time_step_rank", 4, &number(4))
        .entry("qwen35moe.ssm.inner_size", 4, &number(128))
        .entry("qwen35moe.ssm.state_size", 4, &number(2))
        .tensor("blk.0.attn_qkv.weight", &[32, 8], 2, &[0x31; 144])
        .tensor("blk.0.ssm_out.weight", &[128, 2], 2, &[0x31; 144])
        .tensor("blk.0.ssm_a", &[4], 0, &[0xbf; 16])
        .tensor("blk.0.ffn_up_exps.weight", &[32, 2, 2], 8, &[0x31; 136])
        .bytes();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    fuzz("gguf-weights", &[&llama, &hybrid], |bytes| {
        std::fs::write(&path, bytes).unwrap();
        let Ok(file) = Gguf::open(&path) else {
            return false;
        };
        let source = GgufWeights::new(&file);
        if let Ok(source) = &source {
            take_all(source);
        }
        source.is_ok()
    });
}
