//! What all kernels of a model share: the threads, and the memory that they work in.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cpu_kernels::{
    Affine, Arena, Isa, PackError, Packing, Scratch, Team, Weights, attention, delta, experts,
};

/// Rows whose inner activations exist at once in a kernel that runs through many: what bounds its memory.
pub(super) const ROWS: usize = 256;

/// Threads and scratch memory. Nodes run one after another, so that they never wait for the memory.
#[derive(Debug)]
pub struct Kernels {
    pub(super) team: Team,
    arena: Arena,
    scratch: Mutex<Workspace>,
}

/// Memory of a running kernel, kept for the next.
#[derive(Debug, Default)]
pub(super) struct Workspace {
    pub rows: Scratch,
    pub attention: attention::Scratch,
    pub delta: delta::Scratch,
    pub experts: experts::Scratch,
    pub joined: Vec<f32>,
    pub inner: Vec<f32>,
}

impl Kernels {
    /// Kernels on so many threads, all cores if not said.
    ///
    /// # Errors
    /// If a thread can't be started.
    pub fn new(threads: Option<usize>) -> io::Result<Arc<Self>> {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Arc::new(Self {
            team: Team::new(threads.unwrap_or_else(cores))?,
            arena: Arena::default(),
            scratch: Mutex::default(),
        }))
    }

    /// How products with quantized weights are computed on this machine: other ones give other bits.
    pub fn products() -> impl fmt::Display {
        Isa::best().best_arithmetic()
    }

    /// Bytes that packed weights take in this process, outside of MLX's memory.
    pub fn held() -> u64 {
        Arena::held()
    }

    /// Threads that compute.
    pub fn threads(&self) -> usize {
        self.team.size()
    }

    /// Packs a matrix `[outputs, inputs]` slice by slice.
    pub fn packing(&self, outputs: usize, inputs: usize) -> Packing<'_> {
        Packing::new(&self.team, &self.arena, outputs, inputs)
    }

    /// Packs dense elements `[outputs, inputs]`.
    ///
    /// # Errors
    /// If there are not as many.
    pub fn dense(&self, outputs: usize, inputs: usize, elements: &[f32]) -> Result<Arc<Weights>, PackError> {
        Weights::dense(&self.team, &self.arena, outputs, inputs, elements).map(Arc::new)
    }

    /// Packs a quantized matrix.
    ///
    /// # Errors
    /// If there is no kernel for its bits and groups.
    pub fn affine(&self, matrix: Affine<'_>) -> Result<Arc<Weights>, PackError> {
        Weights::affine(&self.team, &self.arena, matrix).map(Arc::new)
    }

    pub(super) fn workspace(&self) -> MutexGuard<'_, Workspace> {
        self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `AVX-512, products of integers, 2 threads`.
impl fmt::Display for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (isa, arithmetic, threads) = (self.team.isa(), self.team.arithmetic(), self.threads());
        let plural = if threads == 1 { "" } else { "s" };
        write!(f, "{isa}, products of {arithmetic}, {threads} thread{plural}")
    }
}

/// The first `len` floats of a buffer that grows as needed.
pub(super) fn floats(buffer: &mut Vec<f32>, len: usize) -> &mut [f32] {
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
    &mut buffer[..len]
}
