//! Fuzzing by mutation: seeds, changed a little or much by a seeded generator, go through a target that must neither
//! panic nor hang nor ask for much memory.
//!
//! A plain test run tries a fixed number of inputs, the same everywhere. For long:
//!
//! ```sh
//! ulimit -v 16777216   # an outsized allocation shows as an abort
//! MLX_CHAT_FUZZ_SECONDS=600 cargo test --test gguf fuzz
//! ```
//!
//! An input that fails is left in the folder of temporary files, by a name that the failure says.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Inputs of a plain test run.
const INPUTS: u64 = 1500;
/// Inputs that were taken and are changed further, beside the seeds.
const KEPT: usize = 64;
/// The longest input.
const LONGEST: usize = 1 << 16;
/// What one input may take where time is given. Far from what any should, so that a busy machine is no hang.
const HANG: Duration = Duration::from_secs(60);

/// Runs `target` over inputs made from `seeds`. It returns whether it took the input for a right one: such inputs are
/// changed further. `name` tells targets apart, in messages and in what is tried.
pub fn fuzz(name: &str, seeds: &[&[u8]], target: impl Fn(&[u8]) -> bool) {
    let seconds = std::env::var("MLX_CHAT_FUZZ_SECONDS").ok();
    let seconds: Option<u64> = seconds.map(|text| text.parse().expect("MLX_CHAT_FUZZ_SECONDS is a number"));
    let place = std::env::temp_dir().join(format!("fuzz-{name}-{}.bin", std::process::id()));
    let started = Instant::now();
    let tried = Arc::new(AtomicU64::new(0));
    if seconds.is_some() {
        watch(Arc::downgrade(&tried), place.clone());
    }
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut dice = Dice(hash);
    let mut pool: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.to_vec()).collect();
    let mut taken = 0_u64;
    loop {
        let at = tried.fetch_add(1, Ordering::Relaxed);
        match seconds {
            None if at >= INPUTS => break,
            Some(seconds) if started.elapsed() >= Duration::from_secs(seconds) => break,
            _ => {}
        }
        // The seeds as they are come first.
        let input = match seeds.get(usize::try_from(at).unwrap_or(usize::MAX)) {
            Some(seed) => seed.to_vec(),
            None => mutated(&pool, &mut dice),
        };
        if seconds.is_some() {
            std::fs::write(&place, &input).expect("temporary files can be written");
        }
        match catch_unwind(AssertUnwindSafe(|| target(&input))) {
            Ok(false) => {}
            Ok(true) => {
                taken += 1;
                if pool.len() < seeds.len() + KEPT {
                    pool.push(input);
                } else {
                    let at = seeds.len() + dice.below(KEPT);
                    pool[at] = input;
                }
            }
            Err(_) => {
                std::fs::write(&place, &input).expect("temporary files can be written");
                panic!("{name}: input {at} failed; it is {}", place.display());
            }
        }
    }
    if seconds.is_some() {
        std::fs::remove_file(&place).ok();
        let tried = tried.load(Ordering::Relaxed) - 1;
        println!("{name}: {tried} inputs in {:?}, {taken} taken", started.elapsed());
    }
    assert!(taken > 0, "{name}: not even the seeds were taken");
}

/// Ends the process if an input takes too long.
fn watch(tried: Weak<AtomicU64>, place: PathBuf) {
    std::thread::spawn(move || {
        let mut last = (0, Instant::now());
        while let Some(tried) = tried.upgrade() {
            let now = tried.load(Ordering::Relaxed);
            if now != last.0 {
                last = (now, Instant::now());
            } else if last.1.elapsed() > HANG {
                eprintln!("an input takes more than {HANG:?}; it is {}", place.display());
                std::process::abort();
            }
            drop(tried);
            std::thread::sleep(Duration::from_millis(500));
        }
    });
}

/// One input: one of the pool with a few changes.
fn mutated(pool: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = pool[dice.below(pool.len())].clone();
    // Mostly one change: two may hide what one would show.
    let changes = 1 + [0, 0, 0, 1, 3, 8][dice.below(6)];
    for _ in 0..changes {
        change(&mut bytes, pool, dice);
    }
    bytes.truncate(LONGEST);
    bytes
}

fn change(bytes: &mut Vec<u8>, pool: &[Vec<u8>], dice: &mut Dice) {
    let length = bytes.len();
    let (start, end) = dice.range(length);
    match dice.below(9) {
        _ if length == 0 => bytes.push(dice.byte()),
        0 => bytes[start.min(length - 1)] ^= 1 << dice.below(8),
        1 => bytes[start.min(length - 1)] = dice.byte(),
        // A number of some width: one at which sums and products break.
        2 | 3 => {
            let number = dice.number(length).to_le_bytes();
            let width = [1, 2, 4, 8][dice.below(4)];
            let end = (start + width).min(length);
            bytes[start..end].copy_from_slice(&number[..end - start]);
        }
        4 => bytes.truncate(start),
        5 => drop(bytes.drain(start..end)),
        // A part once more, there or elsewhere.
        6 => {
            let part = bytes[start..end].to_vec();
            let at = dice.below(length + 1);
            bytes.splice(at..at, part);
        }
        // A part of another.
        7 => {
            let other = &pool[dice.below(pool.len())];
            let (from, to) = dice.range(other.len());
            let replaced = if dice.below(2) == 0 {
                start..start
            } else {
                start..end
            };
            bytes.splice(replaced, other[from..to].iter().copied());
        }
        _ => {
            let added: Vec<u8> = (0..1 + dice.below(8)).map(|_| dice.byte()).collect();
            bytes.splice(start..start, added);
        }
    }
}

/// Numbers that look random and are the same everywhere (splitmix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Below `limit`, or 0.
    fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit.max(1)).expect("small");
        usize::try_from(self.next() % limit).expect("small")
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    /// A part of `0..length`, mostly a short one.
    fn range(&mut self, length: usize) -> (usize, usize) {
        let start = self.below(length + 1);
        let longest = if self.below(4) == 0 { length } else { 16 };
        (start, (start + self.below(longest + 1)).min(length))
    }

    /// Small, a power of two or just beside one, or near the input's length.
    fn number(&mut self, length: usize) -> u64 {
        let beside = self.next() % 3;
        match self.below(4) {
            0 => self.next() % 64,
            1 => (1_u64 << (self.next() % 64)).wrapping_add(beside).wrapping_sub(1),
            2 => (length as u64).wrapping_add(beside).wrapping_sub(1),
            _ => u64::MAX - beside,
        }
    }
}
