//! What the kernels' tests share.
#![allow(dead_code, reason = "no test needs all of it")]

use cpu_kernels::{Arithmetic, Isa, Team};

/// Reproducible numbers between -1 and 1.
pub struct Noise(pub u32);

impl Noise {
    pub fn bits(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0
    }

    pub fn float(&mut self) -> f32 {
        (self.bits() >> 8) as f32 / 8_388_608.0 - 1.0
    }

    pub fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }

    pub fn below(&mut self, n: usize) -> usize {
        (((self.float() + 1.0) / 2.0 * n as f32) as usize).min(n - 1)
    }
}

/// One team of each kind: all instructions that there are, the plain ones first, on one to three threads.
pub fn teams() -> Vec<Team> {
    teams_of(Arithmetic::Floats)
}

/// The same of one arithmetic.
pub fn teams_of(arithmetic: Arithmetic) -> Vec<Team> {
    let mut teams = Vec::new();
    let having = |isa: &Isa| isa.arithmetics().contains(&arithmetic);
    for isa in Isa::available().into_iter().filter(having) {
        for threads in [1, 2, 3] {
            teams.push(Team::with_arithmetic(threads, isa, arithmetic).unwrap());
        }
    }
    teams
}

pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}
