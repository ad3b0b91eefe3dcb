//! How far attention is from what the machine's memory and arithmetic allow.
//!
//! `cargo bench -p cpu-kernels --bench attention [-- THREADS]`

use std::hint::black_box;
use std::time::Instant;

use cpu_kernels::attention::{Attention, CodeLayout, KvCodes, KvLayout, KvMut, Scratch, Segment, attend};
use cpu_kernels::{Isa, Team, limits};

/// Query heads, heads of keys and values, features.
const SHAPES: [(usize, usize, usize); 2] = [(9, 3, 64), (4, 1, 256)];

/// Segments, the position of their first token, their tokens.
const CALLS: [(usize, usize, usize); 8] = [
    (1, 127, 1),
    (1, 1999, 1),
    (1, 7999, 1),
    (8, 127, 1),
    (8, 1999, 1),
    (8, 7999, 1),
    (1, 0, 512),
    (1, 2048, 512),
];

/// How keys and values are held: as floats, or as codes.
const HOLDINGS: [Option<KvCodes>; 3] = [
    None,
    Some(KvCodes { bits: 8, group: 64 }),
    Some(KvCodes { bits: 4, group: 64 }),
];

/// Bytes of keys and values of all layers together: more than caches hold, as in a model.
const MEMORY: usize = 600 << 20;

fn main() {
    let threads = std::env::args()
        .filter_map(|argument| argument.parse().ok())
        .next_back()
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    for isa in Isa::available().into_iter().rev() {
        if isa != Isa::Portable {
            report(&Team::with_isa(threads, isa).expect("a team"));
        }
    }
}

fn report(team: &Team) {
    let memory = limits::read_bandwidth(team, 512 << 20);
    let arithmetic = limits::multiply_adds(team);
    println!(
        "\n{}, {} threads: memory {:.1} GB/s, {:.0} G multiply-adds/s",
        team.isa(),
        team.size(),
        memory / 1e9,
        arithmetic / 1e9
    );
    println!(
        "{:<16} {:>5} {:>4} {:>6} {:>6} {:>9} {:>8} {:>8} {:>8} {:>8}",
        "heads", "bits", "rows", "start", "tokens", "µs", "GB/s", "of it", "Gmac/s", "of it"
    );
    for shape in SHAPES {
        for call in CALLS {
            for codes in HOLDINGS {
                measure(team, shape, call, codes, memory, arithmetic);
            }
        }
    }
}

/// Runs over the layers of a made-up model, so that keys and values come from memory.
fn measure(
    team: &Team,
    (heads, kv_heads, dim): (usize, usize, usize),
    (rows, start, tokens): (usize, usize, usize),
    codes: Option<KvCodes>,
    memory: f64,
    arithmetic: f64,
) {
    let layout = KvLayout {
        heads: kv_heads,
        key_dim: dim,
        value_dim: dim,
    };
    let attention = Attention {
        heads,
        kv: layout,
        codes,
        scale: 1.0 / (dim as f32).sqrt(),
        window: None,
        query_norm: None,
        key_norm: None,
        rope: None,
    };
    let capacity = (start + tokens).next_multiple_of(256);
    let len = codes.map_or(layout.floats(capacity), |codes| {
        CodeLayout { kv: layout, codes }.words(capacity)
    });
    let layers = (MEMORY / 4 / len / rows).clamp(1, 4096);
    let (as_floats, as_codes) = match codes {
        None => (layers * rows * len + 16, 16),
        Some(_) => (16, layers * rows * len + 16),
    };
    // Any codes will do, if their scales are finite.
    let mut floats = vec![0.01f32; as_floats];
    let mut words = vec![0.01f32.to_bits(); as_codes];
    let floats = {
        let offset = floats.as_ptr().align_offset(64);
        &mut floats[offset..]
    };
    let words = {
        let offset = words.as_ptr().align_offset(64);
        &mut words[offset..]
    };
    let qkv: Vec<f32> = (0..rows * tokens * attention.width())
        .map(|i| ((i % 31) as f32 - 15.0) / 16.0)
        .collect();
    let mut out = vec![0.0; rows * tokens * heads * dim];
    let mut scratch = Scratch::default();
    // The best call counts: others were disturbed.
    let mut seconds = f64::INFINITY;
    let began = Instant::now();
    let mut calls = 0;
    while calls < 10 || began.elapsed().as_millis() < 1000 {
        for layer in 0..layers {
            let part = layer * rows * len..(layer + 1) * rows * len;
            let kv: Vec<KvMut<'_>> = match codes {
                None => floats[part].chunks_mut(len).map(KvMut::Floats).collect(),
                Some(_) => words[part].chunks_mut(len).map(KvMut::Codes).collect(),
            };
            let segment = |kv| Segment { kv, start, tokens };
            let mut segments: Vec<Segment<'_>> = kv.into_iter().map(segment).collect();
            let start = Instant::now();
            attend(team, &mut scratch, &attention, &qkv, &mut segments, &mut out);
            seconds = seconds.min(start.elapsed().as_secs_f64());
            calls += 1;
            black_box(&out);
        }
    }
    let positions = start + tokens;
    let bytes = (rows * positions * len * 4) as f64 / capacity as f64;
    let pairs = rows * tokens * start + rows * tokens * (tokens + 1) / 2;
    let bits = codes.map_or(32, |codes| codes.bits);
    let macs = (pairs * heads * 2 * dim) as f64;
    println!(
        "{:<16} {bits:>5} {rows:>4} {start:>6} {tokens:>6} {:>9.1} {:>8.1} {:>7.0}% {:>8.1} {:>7.0}%",
        format!("{heads} / {kv_heads} of {dim}"),
        seconds * 1e6,
        bytes / seconds / 1e9,
        bytes / seconds / memory * 100.0,
        macs / seconds / 1e9,
        macs / seconds / arithmetic * 100.0
    );
}
