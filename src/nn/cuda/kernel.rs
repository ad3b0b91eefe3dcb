//! CUDA kernels as nodes in MLX's graph, over arrays of mlx-rs.
#![expect(
    unsafe_code,
    reason = "handles of arrays go to mlx-sys, and kernels are trusted to keep to their arrays"
)]

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Write;
use std::rc::Rc;

use mlx_rs::error::Exception;
use mlx_rs::{Array, Dtype, Stream};
use mlx_sys::bridge::OutputSpec;
use mlx_sys::cuda::{self, Launch, Program};
use mlx_sys::mlx_array;

thread_local! {
    /// The thread's stream on the GPU. Looked up once: the handle is an allocation.
    static GPU: Stream = Stream::gpu();
}

/// What all kernels begin with.
const HEADER: &str = include_str!("vectors.cuh");

/// A kernel of this folder, and what it has been compiled for.
#[derive(Debug)]
pub(super) struct Kernel {
    source: cuda::Kernel,
    architecture: Rc<str>,
    programs: RefCell<HashMap<Vec<Constant>, Rc<Program>>>,
}

/// A constant of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Constant {
    Count(&'static str, usize),
    /// Its bits.
    Float(&'static str, u32),
    /// `T`.
    Type(Dtype),
    /// A list of what a macro makes of 0, 1, … up to so many, separated by commas.
    Each(&'static str, usize),
}

/// How it is started: blocks by axis, threads and bytes of shared memory of each, its constants, and the numbers that it is given.
pub(super) struct Start<'a> {
    pub blocks: [usize; 3],
    pub threads: usize,
    pub shared: usize,
    pub constants: &'a [Constant],
    pub numbers: &'a [usize],
}

impl Kernel {
    pub fn new(name: &'static str, source: &'static str, architecture: &Rc<str>) -> Self {
        Self {
            source: cuda::Kernel {
                name,
                header: HEADER,
                source,
            },
            architecture: Rc::clone(architecture),
            programs: RefCell::default(),
        }
    }

    /// Adds it to the graph. The callers in this folder give arrays of the shapes and types that the source states.
    pub fn apply<const N: usize>(
        &self,
        inputs: &[&Array],
        outputs: [(&[i32], Dtype); N],
        start: Start<'_>,
    ) -> Result<[Array; N], Exception> {
        let program = self.program(start.constants)?;
        let handles: Vec<mlx_array> = inputs.iter().map(|input| input.as_ptr()).collect();
        let specs: Vec<OutputSpec<'_>> = outputs
            .iter()
            .map(|&(shape, dtype)| OutputSpec {
                shape,
                dtype: dtype.into(),
            })
            .collect();
        let numbers: Vec<i32> = start
            .numbers
            .iter()
            .map(|&number| super::extent(number))
            .collect();
        let launch = Launch {
            blocks: start.blocks.map(super::extent),
            threads: super::extent(start.threads),
            shared: super::extent(start.shared),
        };
        // SAFETY: the handles are of arrays that live until this returns, and so does the thread's stream; the sources keep to
        // arrays of the shapes and types that they state, which is what their callers give, and have those parameters.
        let made =
            GPU.with(|stream| unsafe { program.apply(&handles, &specs, &numbers, launch, stream.as_ptr()) });
        let made = made.map_err(|error| Exception::custom(error.to_string()))?;
        // SAFETY: fresh handles, each of which is taken over once.
        let made: Vec<Array> = made
            .into_iter()
            .map(|handle| unsafe { Array::from_ptr(handle) })
            .collect();
        made.try_into()
            .map_err(|_| Exception::custom("a kernel has other outputs than were asked for"))
    }

    /// Compiled for constants, now if it hasn't been.
    fn program(&self, constants: &[Constant]) -> Result<Rc<Program>, Exception> {
        if let Some(program) = self.programs.borrow().get(constants) {
            return Ok(Rc::clone(program));
        }
        let mut definitions = String::new();
        for constant in constants {
            // Writing to a string can't fail.
            let _written = match constant {
                Constant::Count(name, count) => writeln!(definitions, "#define {name} {count}"),
                Constant::Float(name, bits) => {
                    writeln!(definitions, "#define {name} __uint_as_float({bits}u)")
                }
                Constant::Type(dtype) => writeln!(definitions, "#define T {}", type_name(*dtype)),
                Constant::Each(name, count) => {
                    let each: Vec<String> = (0..*count).map(|at| format!("of({at})")).collect();
                    writeln!(definitions, "#define {name}(of) {}", each.join(", "))
                }
            };
        }
        let program = self.source.program(&definitions, &self.architecture);
        let program = Rc::new(program.map_err(|error| Exception::custom(error.to_string()))?);
        let constants = constants.to_vec();
        self.programs.borrow_mut().insert(constants, Rc::clone(&program));
        Ok(program)
    }
}

/// A type of the header.
fn type_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Bfloat16 => "bfloat16",
        Dtype::Float16 => "float16",
        _ => "float",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_those_of_the_header() {
        for dtype in [Dtype::Bfloat16, Dtype::Float16] {
            assert!(HEADER.contains(&format!("struct {} {{", type_name(dtype))));
        }
    }
}
