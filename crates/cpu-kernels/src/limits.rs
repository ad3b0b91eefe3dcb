//! What the machine can do at most, measured: how far a kernel is from it says what there is left to gain.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::shared::SharedMut;
use crate::simd::{Simd, for_isa};
use crate::{Isa, Team};

/// The best of this many runs counts: others were disturbed.
const RUNS: usize = 5;

/// Bytes a second that the team reads from memory, `bytes` (far more than the caches hold) in all.
pub fn read_bandwidth(team: &Team, bytes: usize) -> f64 {
    let mut memory = vec![1.0f32; bytes / 4];
    let memory = SharedMut::new(&mut memory);
    let share = bytes / 4 / team.size();
    let elapsed = best(|| {
        team.run(|worker| {
            let first = worker.index() * share;
            // SAFETY: each member has a part of its own.
            let part: &[f32] = unsafe { memory.slice(first..first + share) };
            let mut sum = 0.0;
            if team.isa() == Isa::Portable {
                sum = part.iter().sum();
            } else {
                // SAFETY: the instructions are the team's.
                unsafe { read(team.isa(), part, &mut sum) };
            }
            black_box(sum);
        });
    });
    (share * team.size() * 4) as f64 / elapsed.as_secs_f64()
}

/// Multiply-adds of float32 a second that the team can do with operands in registers.
pub fn multiply_adds(team: &Team) -> f64 {
    const ROUNDS: usize = 4_000_000;
    if team.isa() == Isa::Portable {
        let elapsed = best(|| {
            team.run(|_| {
                let mut x = black_box(1.0f32);
                for _ in 0..ROUNDS {
                    x = x * 0.5 + 1.0;
                }
                black_box(x);
            });
        });
        return (ROUNDS * team.size()) as f64 / elapsed.as_secs_f64();
    }
    let elapsed = best(|| {
        team.run(|_| {
            let mut sum = 0.0;
            // SAFETY: the instructions are the team's.
            unsafe { chains(team.isa(), ROUNDS, &mut sum) };
            black_box(sum);
        });
    });
    (ROUNDS * CHAINS * team.isa().lanes() * team.size()) as f64 / elapsed.as_secs_f64()
}

fn best(mut run: impl FnMut()) -> Duration {
    let time = |_| {
        let start = Instant::now();
        run();
        start.elapsed()
    };
    (0..RUNS)
        .map(time)
        .min()
        .unwrap_or(Duration::MAX)
        .max(Duration::from_nanos(1))
}

/// Independent chains: more than a multiply-add takes cycles, twice over.
const CHAINS: usize = 12;

for_isa! {
    /// Adds up a slice.
    unsafe fn read(from: &[f32], sum: &mut f32) = read_with
}

#[inline(always)]
unsafe fn read_with<S: Simd>(from: &[f32], sum: &mut f32) {
    // SAFETY: whole steps lie within the slice; the instructions are promised.
    unsafe {
        let mut sums = [S::splat(0.0); 8];
        for step in from.chunks_exact(8 * S::LANES) {
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = S::add(*sum, S::load(step.as_ptr().add(i * S::LANES)));
            }
        }
        *sum = total::<S>(&sums);
    }
}

for_isa! {
    /// Runs chains of dependent multiply-adds.
    unsafe fn chains(rounds: usize, sum: &mut f32) = chains_with
}

#[inline(always)]
unsafe fn chains_with<S: Simd>(rounds: usize, sum: &mut f32) {
    // SAFETY: the instructions are promised.
    unsafe {
        let (half, one) = (S::splat(black_box(0.5)), S::splat(black_box(1.0)));
        let mut chains = [one; CHAINS];
        for _ in 0..rounds {
            for chain in &mut chains {
                *chain = S::fma(*chain, half, one);
            }
        }
        *sum = total::<S>(&chains);
    }
}

#[inline(always)]
unsafe fn total<S: Simd>(vectors: &[S::F]) -> f32 {
    let mut lanes = [0.0f32; 16];
    let mut total = 0.0;
    for vector in vectors {
        // SAFETY: room for the widest vector.
        unsafe { S::store(lanes.as_mut_ptr(), *vector) };
        total += lanes.iter().take(S::LANES).sum::<f32>();
    }
    total
}
