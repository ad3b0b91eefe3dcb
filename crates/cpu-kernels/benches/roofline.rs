//! How far each kernel is from what the machine's memory and arithmetic allow.
//!
//! `cargo bench -p cpu-kernels [-- THREADS]`

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Instant;

use cpu_kernels::linear::{Output, project};
use cpu_kernels::{Affine, Arena, Input, Isa, Scratch, Team, Weights, limits};

/// Weights of the default model's layers and head: outputs, inputs, bits, how many of them.
const SHAPES: [(&str, usize, usize, usize, usize); 5] = [
    ("qkv 576 to 960, 4 bit", 960, 576, 4, 30),
    ("gate and up 576 to 3072, 4 bit", 3072, 576, 4, 30),
    ("down 1536 to 576, 4 bit", 576, 1536, 4, 30),
    ("gate and up 640 to 4096, 5 bit", 4096, 640, 5, 18),
    ("head 576 to 49152, 8 bit", 49152, 576, 8, 1),
];

fn main() {
    let threads = std::env::args()
        .filter_map(|argument| argument.parse().ok())
        .next_back()
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    for isa in Isa::available().into_iter().rev() {
        if isa == Isa::Portable {
            continue;
        }
        for &arithmetic in isa.arithmetics().iter().rev() {
            report(&Team::with_arithmetic(threads, isa, arithmetic).expect("a team"));
        }
    }
}

fn report(team: &Team) {
    let (memory, arithmetic) = (
        limits::read_bandwidth(team, 512 << 20),
        limits::multiply_adds(team),
    );
    println!(
        "\n{}, {}, {} threads: memory {:.1} GB/s, {:.0} G multiply-adds/s",
        team.isa(),
        team.arithmetic(),
        team.size(),
        memory / 1e9,
        arithmetic / 1e9
    );
    println!(
        "{:<34} {:>5} {:>9} {:>8} {:>8} {:>8} {:>8}",
        "kernel", "rows", "µs", "GB/s", "of it", "Gmac/s", "of it"
    );
    step(team, memory, arithmetic);
    for (name, outputs, inputs, bits, copies) in SHAPES {
        let matrices: Vec<Weights> = (0..copies)
            .map(|seed| random(team, outputs, inputs, bits, seed))
            .collect();
        for rows in [1, 2, 4, 8, 16, 128] {
            if rows == 128 && copies == 1 {
                continue;
            }
            linear(team, name, &matrices, rows, memory, arithmetic);
        }
    }
}

/// All products of a step of the default model, whose weights are more than caches hold.
fn step(team: &Team, memory: f64, arithmetic: f64) {
    let shapes = [(960, 576, 4), (576, 576, 4), (3072, 576, 4), (576, 1536, 4)];
    let mut matrices: Vec<Weights> = Vec::new();
    for layer in 0..30 {
        matrices.extend(shapes.map(|(outputs, inputs, bits)| random(team, outputs, inputs, bits, layer)));
    }
    matrices.push(random(team, 49152, 576, 8, 99));
    let (mut scratch, x) = (Scratch::default(), vec![0.5; 1536 * 16]);
    let mut y = vec![0.0; 49152 * 16];
    for rows in [1, 2, 4, 8, 16] {
        let mut best = f64::INFINITY;
        for _ in 0..20 {
            let start = Instant::now();
            for matrix in &matrices {
                let (outputs, inputs) = (matrix.outputs(), matrix.inputs());
                let input = Input::new(&x[..rows * inputs], inputs, None);
                project(
                    team,
                    &mut scratch,
                    input,
                    &[matrix],
                    None,
                    Output::Store(&mut y[..rows * outputs]),
                );
            }
            best = best.min(start.elapsed().as_secs_f64());
        }
        let bytes: usize = matrices.iter().map(Weights::bytes).sum();
        let macs: usize = matrices.iter().map(|m| m.outputs() * m.inputs() * rows).sum();
        let (bytes, macs) = (bytes as f64, macs as f64);
        println!(
            "{:<34} {rows:>5} {:>9.1} {:>8.1} {:>7.0}% {:>8.1} {:>7.0}%",
            "all products of a step",
            best * 1e6,
            bytes / best / 1e9,
            bytes / best / memory * 100.0,
            macs / best / 1e9,
            macs / best / arithmetic * 100.0
        );
    }
}

fn random(team: &Team, outputs: usize, inputs: usize, bits: usize, seed: usize) -> Weights {
    static ARENA: OnceLock<Arena> = OnceLock::new();
    let mut state = seed as u32 + 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state
    };
    let packed: Vec<u32> = (0..outputs * inputs * bits / 32).map(|_| next()).collect();
    let scales: Vec<f32> = (0..outputs * inputs / 32)
        .map(|i| ((i % 13) as f32 + 1.0) / 1024.0)
        .collect();
    let biases: Vec<f32> = if bits == 8 {
        scales.iter().map(|s| -128.0 * s).collect()
    } else {
        scales.iter().map(|s| -7.0 * s).collect()
    };
    let matrix = Affine {
        outputs,
        inputs,
        bits,
        group: 32,
        packed: &packed,
        scales: &scales,
        biases: &biases,
    };
    Weights::affine(team, ARENA.get_or_init(Arena::default), matrix)
        .expect("widths that there are kernels for")
}

/// Runs over all copies, so that weights come from memory as they do in a model.
fn linear(team: &Team, name: &str, matrices: &[Weights], rows: usize, memory: f64, arithmetic: f64) {
    let (outputs, inputs) = (matrices[0].outputs(), matrices[0].inputs());
    let x: Vec<f32> = (0..rows * inputs)
        .map(|i| ((i % 31) as f32 - 15.0) / 16.0)
        .collect();
    let mut y = vec![0.0; rows * outputs];
    let mut scratch = Scratch::default();
    // The best of many runs: the others were disturbed.
    let (mut best, mut runs) = (f64::INFINITY, 0);
    let began = Instant::now();
    while runs < 7 || began.elapsed().as_millis() < 300 {
        let start = Instant::now();
        for matrix in matrices {
            project(
                team,
                &mut scratch,
                Input::new(&x, inputs, None),
                &[matrix],
                None,
                Output::Store(&mut y),
            );
        }
        black_box(&y);
        best = best.min(start.elapsed().as_secs_f64() / matrices.len() as f64);
        runs += 1;
    }
    let (bytes, macs) = (matrices[0].bytes() as f64, (rows * outputs * inputs) as f64);
    println!(
        "{name:<34} {rows:>5} {:>9.1} {:>8.1} {:>7.0}% {:>8.1} {:>7.0}%",
        best * 1e6,
        bytes / best / 1e9,
        bytes / best / memory * 100.0,
        macs / best / 1e9,
        macs / best / arithmetic * 100.0
    );
}
