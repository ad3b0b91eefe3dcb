//! How long products and attention take on the GPU, by MLX's operations and by our kernels: the thresholds in `nn::cuda` are from here.
//!
//! `cargo bench --bench gpu_products`

use std::process::ExitCode;
use std::time::Instant;

use mlx_chat::nn::{Affine, Backend, Cuda};
use mlx_rs::error::Exception;
use mlx_rs::ops::{dequantize, matmul, quantize, quantized_matmul};
use mlx_rs::{Array, Dtype, random, transforms};

/// Nodes of a measurement, each on weights of its own until they are more than caches hold.
const NODES: usize = 64;
const WEIGHTS: usize = 8;

fn noise(shape: &[i32], seed: u64) -> Result<Array, Exception> {
    let floats = random::uniform::<_, f32>(-1.0f32, 1.0f32, shape, &random::key(seed)?)?;
    floats.as_dtype(Dtype::Bfloat16)
}

/// Microseconds of one of many nodes: the best of five times.
fn time(node: &dyn Fn(usize) -> Result<Array, Exception>) -> Result<f64, Exception> {
    let mut best = f64::INFINITY;
    for _ in 0..6 {
        let nodes = (0..NODES).map(node).collect::<Result<Vec<_>, _>>()?;
        let started = Instant::now();
        transforms::eval(nodes.iter())?;
        best = best.min(started.elapsed().as_secs_f64() * 1e6 / NODES as f64);
    }
    Ok(best)
}

fn products(cuda: &Cuda, [outputs, inputs]: [i32; 2]) -> Result<(), Exception> {
    let dense = (0..WEIGHTS as u64)
        .map(|seed| noise(&[outputs, inputs], seed))
        .collect::<Result<Vec<_>, _>>()?;
    let columns = dense
        .iter()
        .map(Array::transpose)
        .collect::<Result<Vec<_>, _>>()?;
    let packed = dense
        .iter()
        .map(|w| quantize(w, 64, 4))
        .collect::<Result<Vec<_>, _>>()?;
    transforms::eval(dense.iter().chain(packed.iter().flat_map(|(a, b, c)| [a, b, c])))?;
    for rows in [1, 2, 3, 4, 5, 8, 16, 32, 64, 128, 256, 512] {
        let x = noise(&[rows, inputs], 99)?;
        x.eval()?;
        let by_mlx = time(&|at| matmul(&x, &columns[at % WEIGHTS]))?;
        let quantized = time(&|at| {
            let (packed, scales, biases) = &packed[at % WEIGHTS];
            quantized_matmul(&x, packed, scales, biases, true, 64, 4)
        })?;
        let affine = match rows {
            ..=32 => Some(time(&|at| {
                let (packed, scales, biases) = &packed[at % WEIGHTS];
                let arrays = [packed, scales, biases];
                cuda.few_rows(
                    &x,
                    &Affine {
                        arrays,
                        bits: 4,
                        group_size: 64,
                    },
                )
            })?),
            _ => None,
        };
        let first = match rows {
            32.. => Some(time(&|at| {
                let (packed, scales, biases) = &packed[at % WEIGHTS];
                let elements = dequantize(packed, scales, biases, 64, 4)?;
                matmul(&x, elements.transpose()?)
            })?),
            _ => None,
        };
        let show = |time: Option<f64>| time.map_or("-".to_owned(), |time| format!("{time:.1}"));
        println!(
            "{outputs}×{inputs} rows {rows:>3} | 16 bit: MLX {by_mlx:.1} | 4 bit: MLX {quantized:.1}, kernel {}, dequantized first {}",
            show(affine),
            show(first),
        );
    }
    Ok(())
}

fn main() -> ExitCode {
    Backend::Gpu.enter();
    let Some(cuda) = Cuda::here() else {
        eprintln!("no GPU of NVIDIA's here, or MLX is not for CUDA");
        return ExitCode::FAILURE;
    };
    for shape in [[4096, 4096], [28672, 4096], [4096, 14336]] {
        if let Err(error) = products(&cuda, shape) {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
