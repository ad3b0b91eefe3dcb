//! Operations: a closure, its life, and its nodes.

use std::ffi::{CStr, CString, c_void};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::slice;
use std::sync::Arc;

use super::fault::{self, Fault, Slot};
use super::view::{TensorView, TensorViewMut};
use crate::{
    mlx_array, mlx_bridge_last_error, mlx_bridge_op, mlx_bridge_op_apply, mlx_bridge_op_free,
    mlx_bridge_op_new, mlx_bridge_op_update, mlx_bridge_output, mlx_bridge_tensor, mlx_dtype, mlx_stream,
};

type Closure = dyn Fn(&[TensorView<'_>], &mut [TensorViewMut<'_>]) + Send + Sync;

/// What the C++ side owns.
struct Context {
    name: String,
    faults: Arc<Slot>,
    closure: Box<Closure>,
}

/// Why a node could not be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeError(String);

impl BridgeError {
    /// Why the last call of this thread has failed.
    fn last() -> Self {
        // SAFETY: the message is a C string of this thread, which no call comes in between to change.
        let message = unsafe { CStr::from_ptr(mlx_bridge_last_error()) };
        Self(message.to_string_lossy().into_owned())
    }
}

impl fmt::Display for BridgeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BridgeError {}

/// Shape and element type of an output.
#[derive(Debug, Clone, Copy)]
pub struct OutputSpec<'a> {
    /// The extents; `[]` for a scalar.
    pub shape: &'a [i32],
    /// The element type.
    pub dtype: mlx_dtype,
}

impl OutputSpec<'_> {
    /// For as long as the shape lives.
    pub(crate) fn raw(&self) -> mlx_bridge_output {
        mlx_bridge_output {
            shape: self.shape.as_ptr(),
            ndim: self.shape.len(),
            dtype: self.dtype,
        }
    }
}

const NO_ARRAY: mlx_array = mlx_array { ctx: ptr::null_mut() };

/// A Rust closure that can be put into MLX's graphs, any number of times and from any thread.
///
/// The closure is dropped once: when this handle is gone, and every graph that holds a node of it, and every run.
pub struct CustomOp {
    raw: mlx_bridge_op,
    faults: Arc<Slot>,
}

// SAFETY: the handle is a pointer to a `shared_ptr` that nobody writes after its making; the closure is Send and Sync.
unsafe impl Send for CustomOp {}
// SAFETY: as above; nodes are made with copies of the `shared_ptr`.
unsafe impl Sync for CustomOp {}

impl CustomOp {
    /// An operation with one output. The name appears in graph dumps and messages; a NUL in it ends it.
    pub fn new<F>(name: &str, closure: F) -> Self
    where
        F: Fn(&[TensorView<'_>], &mut TensorViewMut<'_>) + Send + Sync + 'static,
    {
        Self::with_outputs(name, move |inputs, outputs| {
            if let [output] = outputs {
                closure(inputs, output);
            } else {
                panic!("made for one output, got {}", outputs.len());
            }
        })
    }

    /// An operation with as many outputs as [`apply`](Self::apply) asks for.
    pub fn with_outputs<F>(name: &str, closure: F) -> Self
    where
        F: Fn(&[TensorView<'_>], &mut [TensorViewMut<'_>]) + Send + Sync + 'static,
    {
        let name = name.split('\0').next().unwrap_or_default();
        let c_name = CString::new(name).unwrap_or_default();
        let faults = Arc::new(Slot::default());
        let context = Box::new(Context {
            name: name.to_owned(),
            faults: Arc::clone(&faults),
            closure: Box::new(closure),
        });
        // SAFETY: the context is a leaked box, which `drop_context` takes back; `call` and `drop_context` are made for it.
        let raw = unsafe {
            mlx_bridge_op_new(
                c_name.as_ptr(),
                Box::into_raw(context).cast(),
                Some(call),
                Some(drop_context),
            )
        };
        assert!(!raw.ctx.is_null(), "out of memory for an operation");
        Self { raw, faults }
    }

    /// Adds a node to the graph and gives handles to its outputs, which the caller owns (`mlx_array_free`).
    ///
    /// Nothing runs until MLX evaluates an output. Shapes and types of the inputs are the closure's business: it is
    /// called with whatever is passed here.
    ///
    /// # Errors
    /// If the stream isn't one of the CPU, an input handle is empty, an extent is negative, or there is no output.
    ///
    /// # Safety
    /// `inputs` and `stream` are handles of mlx-c that live now.
    pub unsafe fn apply(
        &self,
        inputs: &[mlx_array],
        outputs: &[OutputSpec<'_>],
        stream: mlx_stream,
    ) -> Result<Vec<mlx_array>, BridgeError> {
        let specs: Vec<mlx_bridge_output> = outputs.iter().map(OutputSpec::raw).collect();
        let mut results = vec![NO_ARRAY; outputs.len()];
        // SAFETY: promised by the caller.
        unsafe { self.add_node(inputs, &specs, &mut results, stream)? };
        Ok(results)
    }

    /// [`apply`](Self::apply) for one output.
    ///
    /// # Errors
    /// As `apply`.
    ///
    /// # Safety
    /// As `apply`.
    pub unsafe fn apply_one(
        &self,
        inputs: &[mlx_array],
        output: OutputSpec<'_>,
        stream: mlx_stream,
    ) -> Result<mlx_array, BridgeError> {
        let mut result = NO_ARRAY;
        // SAFETY: promised by the caller.
        unsafe { self.add_node(inputs, &[output.raw()], slice::from_mut(&mut result), stream)? };
        Ok(result)
    }

    /// Adds a node whose output is the input at `updated`, of the same shape and type: in the same memory where nobody else needs the
    /// input any more, else begun as a copy. The closure finds it as its only output, and not among the inputs; it has to be
    /// row-contiguous when it is evaluated. Gives a handle that the caller owns.
    ///
    /// # Errors
    /// If the stream isn't one of the CPU, an input handle is empty, or there is no such input.
    ///
    /// # Safety
    /// As [`apply`](Self::apply).
    pub unsafe fn update(
        &self,
        inputs: &[mlx_array],
        updated: usize,
        stream: mlx_stream,
    ) -> Result<mlx_array, BridgeError> {
        let mut result = NO_ARRAY;
        // SAFETY: pointer and count are of the slice; the handles are promised by the caller.
        let failed = unsafe {
            mlx_bridge_op_update(
                &raw mut result,
                self.raw,
                inputs.as_ptr(),
                inputs.len(),
                updated,
                stream,
            )
        };
        if failed == 0 {
            Ok(result)
        } else {
            Err(BridgeError::last())
        }
    }

    /// As many `results` as `outputs`.
    ///
    /// # Safety
    /// As [`apply`](Self::apply).
    unsafe fn add_node(
        &self,
        inputs: &[mlx_array],
        outputs: &[mlx_bridge_output],
        results: &mut [mlx_array],
        stream: mlx_stream,
    ) -> Result<(), BridgeError> {
        debug_assert_eq!(outputs.len(), results.len());
        // SAFETY: pointers and counts are of the slices above; the handles are promised by the caller.
        let failed = unsafe {
            mlx_bridge_op_apply(
                results.as_mut_ptr(),
                self.raw,
                inputs.as_ptr(),
                inputs.len(),
                outputs.as_ptr(),
                outputs.len(),
                stream,
            )
        };
        if failed == 0 {
            Ok(())
        } else {
            Err(BridgeError::last())
        }
    }

    /// The first panic of this operation's closure since the last call, if there was one.
    pub fn take_fault(&self) -> Option<Fault> {
        self.faults.take()
    }
}

impl Drop for CustomOp {
    fn drop(&mut self) {
        // SAFETY: made by `mlx_bridge_op_new`, and freed here only.
        unsafe { mlx_bridge_op_free(self.raw) };
    }
}

impl fmt::Debug for CustomOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomOp").finish_non_exhaustive()
    }
}

/// Runs a closure on the stream's thread; a panic ends here.
unsafe extern "C" fn call(
    context: *const c_void,
    inputs: *const mlx_bridge_tensor,
    input_count: usize,
    outputs: *mut mlx_bridge_tensor,
    output_count: usize,
) {
    // SAFETY: the bridge passes back the context that it owns, alive while a run is.
    let context = unsafe { &*context.cast::<Context>() };
    // SAFETY: the bridge passes that many descriptions, alive until this returns.
    let inputs = unsafe { TensorView::from_raw(inputs, input_count) };
    // SAFETY: as for the inputs; every output has its own memory, and nobody else uses its description.
    let outputs = unsafe { TensorViewMut::from_raw(outputs, output_count) };
    let result = catch_unwind(AssertUnwindSafe(|| (context.closure)(inputs, outputs)));
    if let Err(payload) = result {
        for output in outputs {
            output.poison();
        }
        let fault = Fault {
            op: context.name.clone(),
            message: fault::message(&*payload),
        };
        context.faults.put(fault.clone());
        fault::PROCESS.put(fault);
    }
}

/// Takes a context back from C++ and drops it.
unsafe extern "C" fn drop_context(context: *mut c_void) {
    // SAFETY: made by `Box::into_raw` in `with_outputs`, and passed here once.
    let context = unsafe { Box::from_raw(context.cast::<Context>()) };
    // A panicking destructor in the closure's captures must not unwind into C++.
    let _ = catch_unwind(AssertUnwindSafe(move || drop(context)));
}
