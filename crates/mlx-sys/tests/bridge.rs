//! Rust closures inside MLX's graphs, checked against MLX's own operations.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mlx_sys::bridge::{self, CustomOp, OutputSpec};
use mlx_sys::*;

/// An array of mlx-c that frees itself.
struct Owned(mlx_array);

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: a live handle, freed here only.
        unsafe { mlx_array_free(self.0) };
    }
}

impl Owned {
    fn floats(values: &[f32], shape: &[i32]) -> Self {
        // SAFETY: the data holds as many values as the shape says; mlx-c copies it.
        unsafe {
            Self(mlx_array_new_data(
                values.as_ptr().cast(),
                shape.as_ptr(),
                shape.len() as i32,
                mlx_dtype__MLX_FLOAT32,
            ))
        }
    }

    /// Runs an mlx-c function that writes its result through its first argument.
    fn made_by(make: impl FnOnce(*mut mlx_array) -> i32) -> Self {
        // SAFETY: makes an empty handle.
        let mut made = Self(unsafe { mlx_array_new() });
        assert_eq!(make(&raw mut made.0), 0);
        made
    }

    /// All values, evaluated, in row-major order.
    fn values(&self) -> Vec<f32> {
        let cpu = Stream::cpu();
        // SAFETY: live handles.
        let flat = Self::made_by(|out| unsafe { mlx_contiguous(out, self.0, false, cpu.0) });
        // SAFETY: a live handle; after evaluation the data holds `size` floats.
        unsafe {
            assert_eq!(mlx_array_eval(flat.0), 0);
            let size = mlx_array_size(flat.0);
            if size == 0 {
                return Vec::new();
            }
            std::slice::from_raw_parts(mlx_array_data_float32(flat.0), size).to_vec()
        }
    }
}

/// The CPU's default stream of this thread.
struct Stream(mlx_stream);

impl Stream {
    fn cpu() -> Self {
        // SAFETY: makes a handle.
        Self(unsafe { mlx_default_cpu_stream_new() })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: a live handle, freed here only.
        unsafe { mlx_stream_free(self.0) };
    }
}

fn twice_plus_one() -> CustomOp {
    CustomOp::new("TwicePlusOne", |inputs, output| {
        let x = inputs[0].to_row_major::<f32>().expect("floats");
        let y = output.as_mut_slice::<f32>().expect("floats");
        for (y, x) in y.iter_mut().zip(x.iter()) {
            *y = 2.0 * x + 1.0;
        }
    })
}

fn apply(op: &CustomOp, inputs: &[&Owned], shape: &[i32]) -> Owned {
    let handles: Vec<mlx_array> = inputs.iter().map(|input| input.0).collect();
    let spec = OutputSpec {
        shape,
        dtype: mlx_dtype__MLX_FLOAT32,
    };
    let stream = Stream::cpu();
    // SAFETY: live handles.
    Owned(unsafe { op.apply_one(&handles, spec, stream.0) }.expect("a node"))
}

fn counting(count: i32) -> Vec<f32> {
    (0..count).map(|i| i as f32 * 0.5 - 3.0).collect()
}

#[test]
fn an_op_inside_a_lazy_graph_equals_mlx_result() {
    let op = twice_plus_one();
    let stream = Stream::cpu();
    for shape in [
        vec![],
        vec![1],
        vec![7],
        vec![3, 5],
        vec![2, 1, 9, 3],
        vec![1, 1, 1],
    ] {
        let x = Owned::floats(&counting(shape.iter().product()), &shape);
        // SAFETY (here and below): live handles.
        let before = Owned::made_by(|out| unsafe { mlx_square(out, x.0, stream.0) });
        let ours = apply(&op, &[&before], &shape);
        let after = Owned::made_by(|out| unsafe { mlx_negative(out, ours.0, stream.0) });

        let two = Owned::floats(&[2.0], &[]);
        let one = Owned::floats(&[1.0], &[]);
        let twice = Owned::made_by(|out| unsafe { mlx_multiply(out, before.0, two.0, stream.0) });
        let theirs = Owned::made_by(|out| unsafe { mlx_add(out, twice.0, one.0, stream.0) });
        let theirs = Owned::made_by(|out| unsafe { mlx_negative(out, theirs.0, stream.0) });
        assert_eq!(after.values(), theirs.values(), "shape {shape:?}");
    }
    assert_eq!(op.take_fault(), None);
}

#[test]
fn an_output_without_elements_runs_nothing() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&runs);
    let op = CustomOp::new("Empty", move |_, _| {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    let x = Owned::floats(&[], &[0, 4]);
    assert!(apply(&op, &[&x], &[0, 4]).values().is_empty());
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

#[test]
fn an_input_without_elements_is_an_empty_slice() {
    let op = CustomOp::new("CountInputs", |inputs, output| {
        assert!(inputs[0].is_empty());
        assert_eq!(inputs[0].as_slice::<f32>(), Some(&[][..]));
        assert_eq!(inputs[0].storage::<f32>(), Some(&[][..]));
        output.as_mut_slice::<f32>().expect("floats")[0] = inputs.len() as f32;
    });
    let x = Owned::floats(&[], &[0]);
    assert_eq!(apply(&op, &[&x], &[]).values(), [1.0]);
    assert_eq!(op.take_fault(), None);
}

#[test]
fn a_transposed_input_is_described_by_its_strides() {
    let stream = Stream::cpu();
    let x = Owned::floats(&counting(6), &[2, 3]);
    // SAFETY: live handles.
    let t = Owned::made_by(|out| unsafe { mlx_transpose(out, x.0, stream.0) });
    let op = CustomOp::new("Transposed", |inputs, output| {
        let t = &inputs[0];
        assert_eq!(t.shape(), [3, 2]);
        assert_eq!(t.strides(), [1, 3]);
        assert!(!t.is_row_contiguous() && t.is_col_contiguous());
        assert_eq!(t.as_slice::<f32>(), None);
        assert_eq!(t.storage::<f32>().map(<[f32]>::len), Some(6));
        assert_eq!(t.get::<f32>(&[2, 1]), Some(counting(6)[5]));
        assert_eq!(t.get::<f32>(&[3, 0]), None);
        assert_eq!(t.get::<i32>(&[0, 0]), None);
        let y = output.as_mut_slice::<f32>().expect("floats");
        y.copy_from_slice(&t.to_row_major::<f32>().expect("floats"));
    });
    let ours = apply(&op, &[&t], &[3, 2]);
    assert_eq!(ours.values(), t.values());
    assert_eq!(op.take_fault(), None);
}

#[test]
fn broadcast_sliced_and_reversed_inputs_are_described_correctly() {
    let stream = Stream::cpu();
    let x = Owned::floats(&counting(12), &[3, 4]);
    let (start, stop, step) = ([2, 1], [-4, 4], [-1, 2]);
    // SAFETY: live handles, three numbers for each axis.
    let reversed = Owned::made_by(|out| unsafe {
        mlx_slice(
            out,
            x.0,
            start.as_ptr(),
            2,
            stop.as_ptr(),
            2,
            step.as_ptr(),
            2,
            stream.0,
        )
    });
    let row = Owned::floats(&counting(2), &[2]);
    let wide = [3, 2];
    // SAFETY: live handles.
    let broadcast =
        Owned::made_by(|out| unsafe { mlx_broadcast_to(out, row.0, wide.as_ptr(), wide.len(), stream.0) });
    let op = CustomOp::new("Sum", |inputs, output| {
        assert_eq!(inputs[0].strides(), [-4, 2]);
        assert_eq!(inputs[0].storage::<f32>(), None);
        assert_eq!(inputs[1].strides(), [0, 1]);
        let y = output.as_mut_slice::<f32>().expect("floats");
        for (at, y) in y.iter_mut().enumerate() {
            let index = [at / 2, at % 2];
            *y = inputs.iter().filter_map(|x| x.get::<f32>(&index)).sum();
        }
    });
    let ours = apply(&op, &[&reversed, &broadcast], &[3, 2]);
    // SAFETY: live handles.
    let theirs = Owned::made_by(|out| unsafe { mlx_add(out, reversed.0, broadcast.0, stream.0) });
    assert_eq!(ours.values(), theirs.values());
    assert_eq!(op.take_fault(), None);
}

#[test]
fn several_outputs_of_different_shape_and_type() {
    let op = CustomOp::with_outputs("MinMax", |inputs, outputs| {
        let x = inputs[0].to_row_major::<f32>().expect("floats");
        let [min, place] = outputs else {
            panic!("two outputs")
        };
        let (at, least) = x
            .iter()
            .enumerate()
            .min_by(|a, b| a.1.total_cmp(b.1))
            .expect("values");
        min.as_mut_slice::<f32>().expect("floats")[0] = *least;
        place.as_mut_slice::<u32>().expect("numbers").fill(at as u32);
    });
    let x = Owned::floats(&[3.0, -7.0, 2.0], &[3]);
    let stream = Stream::cpu();
    let specs = [
        OutputSpec {
            shape: &[],
            dtype: mlx_dtype__MLX_FLOAT32,
        },
        OutputSpec {
            shape: &[2],
            dtype: mlx_dtype__MLX_UINT32,
        },
    ];
    // SAFETY: live handles.
    let made = unsafe { op.apply(&[x.0], &specs, stream.0) }.expect("nodes");
    let made: Vec<Owned> = made.into_iter().map(Owned).collect();
    // Only the second is asked for; both are computed.
    // SAFETY: live handles; after evaluation the data holds two numbers.
    unsafe {
        assert_eq!(mlx_array_eval(made[1].0), 0);
        let places = std::slice::from_raw_parts(mlx_array_data_uint32(made[1].0), 2);
        assert_eq!(places, [1, 1]);
    }
    assert_eq!(made[0].values(), [-7.0]);
    assert_eq!(op.take_fault(), None);
}

/// Adds its second input's only value to one element of the first, in place; gives the position.
fn add_at(at: usize) -> CustomOp {
    CustomOp::new("AddAt", move |inputs, output| {
        let by = inputs[1].as_slice::<f32>().expect("a float")[0];
        // SAFETY: the other input is another array, one stream runs all of the test's operations, and the array's data
        // is read only after they have run.
        let buffer = unsafe { inputs[0].as_mut_slice_in_place::<f32>() }.expect("floats");
        buffer[at] += by;
        output.as_mut_slice::<f32>().expect("floats")[0] = at as f32;
    })
}

#[test]
fn what_is_written_in_place_stays_and_is_seen_by_whoever_depends_on_it() {
    let buffer = Owned::floats(&[0.0; 4], &[2, 2]);
    let one = Owned::floats(&[1.0], &[1]);
    let first = apply(&add_at(3), &[&buffer, &one], &[1]);
    // Depends on the first write, and adds the 3 that it gives.
    let second = apply(&add_at(2), &[&buffer, &first], &[1]);
    let sees = CustomOp::new("Sees", |inputs, output| {
        let seen = inputs[0].as_slice::<f32>().expect("floats");
        output
            .as_mut_slice::<f32>()
            .expect("floats")
            .copy_from_slice(seen);
    });
    let seen = apply(&sees, &[&buffer, &second], &[2, 2]);
    assert_eq!(seen.values(), [0.0, 0.0, 3.0, 1.0]);
    assert_eq!(buffer.values(), [0.0, 0.0, 3.0, 1.0]);
    // The buffer's memory is not taken for a later result.
    for _ in 0..100 {
        let write = apply(&add_at(0), &[&buffer, &one], &[1]);
        assert_eq!(write.values(), [0.0]);
    }
    assert_eq!(buffer.values(), [100.0, 0.0, 3.0, 1.0]);
}

#[test]
fn a_concatenation_of_slices_is_a_copy_that_a_later_write_in_place_does_not_reach() {
    let stream = Stream::cpu();
    let buffer = Owned::floats(&[-0.0, 1.0, 2.0, 3.0], &[4]);
    let slice = |from: i32, to: i32| {
        // SAFETY: live handles, one number for the only axis.
        Owned::made_by(|out| unsafe { mlx_slice(out, buffer.0, &from, 1, &to, 1, &1, 1, stream.0) })
    };
    let parts = [slice(0, 2), slice(2, 4)];
    // SAFETY: live handles; the vector is freed after its use.
    let copy = Owned::made_by(|out| unsafe {
        let vector = mlx_vector_array_new_data([parts[0].0, parts[1].0].as_ptr(), 2);
        let failed = mlx_concatenate_axis(out, vector, 0, stream.0);
        mlx_vector_array_free(vector);
        failed
    });
    assert_eq!(copy.values(), [0.0, 1.0, 2.0, 3.0]);
    let one = Owned::floats(&[1.0], &[1]);
    assert_eq!(apply(&add_at(1), &[&buffer, &one], &[1]).values(), [1.0]);
    assert_eq!(buffer.values(), [0.0, 2.0, 2.0, 3.0]);
    assert_eq!(copy.values(), [0.0, 1.0, 2.0, 3.0]);
    assert!(copy.values()[0].is_sign_negative());
}

#[test]
fn only_rows_one_after_another_of_the_right_type_are_written_in_place() {
    let stream = Stream::cpu();
    let op = CustomOp::new("Refused", |inputs, output| {
        // SAFETY: nobody else uses the inputs' memory.
        unsafe {
            assert!(inputs[0].as_mut_slice_in_place::<f32>().is_none());
            assert!(inputs[1].as_mut_slice_in_place::<i32>().is_none());
            assert_eq!(inputs[1].as_mut_slice_in_place::<f32>().map(|s| s.len()), Some(6));
            assert_eq!(inputs[2].as_mut_slice_in_place::<f32>().map(|s| s.len()), Some(0));
        }
        output.as_mut_slice::<f32>().expect("floats")[0] = 1.0;
    });
    let x = Owned::floats(&counting(6), &[2, 3]);
    // SAFETY: live handles.
    let transposed = Owned::made_by(|out| unsafe { mlx_transpose(out, x.0, stream.0) });
    let empty = Owned::floats(&[], &[0, 2]);
    assert_eq!(apply(&op, &[&transposed, &x, &empty], &[1]).values(), [1.0]);
    assert_eq!(op.take_fault(), None);
}

#[test]
fn tensors_of_many_axes_and_of_none_are_described_side_by_side() {
    let op = CustomOp::with_outputs("Shapes", |inputs, outputs| {
        let shapes: Vec<&[i32]> = inputs.iter().map(|input| input.shape()).collect();
        assert_eq!(shapes, [&[][..], &[2, 1, 3, 1, 2], &[0, 7], &[], &[5]]);
        let strides: Vec<&[i64]> = inputs.iter().map(|input| input.strides()).collect();
        assert_eq!(strides, [&[][..], &[6, 6, 2, 2, 1], &[7, 1], &[], &[1]]);
        let shapes: Vec<&[i32]> = outputs.iter().map(|output| output.shape()).collect();
        assert_eq!(shapes, [&[1, 2, 1][..], &[], &[3, 0], &[4]]);
        for output in outputs {
            let len = output.len();
            output.as_mut_slice::<f32>().expect("floats").fill(len as f32);
        }
    });
    let arrays = [
        Owned::floats(&[1.0], &[]),
        Owned::floats(&counting(12), &[2, 1, 3, 1, 2]),
        Owned::floats(&[], &[0, 7]),
        Owned::floats(&[2.0], &[]),
        Owned::floats(&counting(5), &[5]),
    ];
    let inputs = arrays.each_ref().map(|array| array.0);
    let dtype = mlx_dtype__MLX_FLOAT32;
    let specs = [&[1, 2, 1][..], &[], &[3, 0], &[4]].map(|shape| OutputSpec { shape, dtype });
    let stream = Stream::cpu();
    // SAFETY: live handles.
    let made = unsafe { op.apply(&inputs, &specs, stream.0) }.expect("nodes");
    let made: Vec<Vec<f32>> = made.into_iter().map(|array| Owned(array).values()).collect();
    assert_eq!(op.take_fault(), None);
    assert_eq!(made, [vec![2.0; 2], vec![1.0], vec![], vec![4.0; 4]]);
}

#[test]
fn a_panic_is_contained_and_reported() {
    let op = CustomOp::new("Explodes", |inputs, _| {
        assert!(inputs[0].len() != 3, "three is too many");
    });
    let x = Owned::floats(&counting(3), &[3]);
    let ours = apply(&op, &[&x], &[3]);
    let stream = Stream::cpu();
    // SAFETY: live handles.
    let after = Owned::made_by(|out| unsafe { mlx_negative(out, ours.0, stream.0) });
    assert!(after.values().iter().all(|v| v.is_nan()));
    let fault = op.take_fault().expect("a fault");
    assert_eq!(fault.op, "Explodes");
    assert!(fault.message.contains("three is too many"), "{fault}");
    assert_eq!(op.take_fault(), None);
    assert_eq!(bridge::take_fault(), Some(fault));

    // The stream goes on.
    assert_eq!(apply(&twice_plus_one(), &[&x], &[3]).values(), [-5.0, -4.0, -3.0]);
}

/// Counts its drops.
struct Witness(Arc<AtomicUsize>);

impl Drop for Witness {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn witnessed() -> (CustomOp, Arc<AtomicUsize>) {
    let drops = Arc::new(AtomicUsize::new(0));
    let witness = Witness(Arc::clone(&drops));
    let op = CustomOp::new("Witnessed", move |_, output| {
        let _ = &witness;
        output.as_mut_slice::<f32>().expect("floats").fill(4.0);
    });
    (op, drops)
}

/// The worker thread drops its share after the result is there; this waits for it.
fn wait_for_drop(drops: &AtomicUsize) {
    for _ in 0..1000 {
        if drops.load(Ordering::SeqCst) > 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(drops.load(Ordering::SeqCst), 1);
}

#[test]
fn a_context_is_dropped_once_without_any_node() {
    let (op, drops) = witnessed();
    drop(op);
    assert_eq!(drops.load(Ordering::SeqCst), 1);
}

#[test]
fn a_context_lives_as_long_as_an_unevaluated_node() {
    let (op, drops) = witnessed();
    let first = apply(&op, &[], &[2]);
    let second = apply(&op, &[], &[3]);
    drop(op);
    assert_eq!(drops.load(Ordering::SeqCst), 0);
    drop(second);
    assert_eq!(drops.load(Ordering::SeqCst), 0);
    assert_eq!(first.values(), [4.0, 4.0]);
    wait_for_drop(&drops);
    drop(first);
    assert_eq!(drops.load(Ordering::SeqCst), 1);
}

#[test]
fn a_context_is_dropped_once_after_many_runs() {
    let (op, drops) = witnessed();
    for _ in 0..200 {
        assert_eq!(apply(&op, &[], &[1]).values(), [4.0]);
    }
    assert_eq!(drops.load(Ordering::SeqCst), 0);
    drop(op);
    wait_for_drop(&drops);
}

#[test]
fn inputs_live_until_the_op_has_run() {
    let op = twice_plus_one();
    let stream = Stream::cpu();
    let mut x = Owned::floats(&vec![1.0; 1000], &[1000]);
    for _ in 0..50 {
        // Each step drops its input's last handle before anything ran.
        let y = apply(&op, &[&x], &[1000]);
        // SAFETY: live handles.
        let half = Owned::floats(&[0.5], &[]);
        x = Owned::made_by(|out| unsafe { mlx_multiply(out, y.0, half.0, stream.0) });
    }
    // x -> (2x + 1) / 2 adds a half each time.
    assert!(x.values().iter().all(|v| (*v - 26.0).abs() < 1e-3));
}

#[test]
fn an_op_runs_on_a_thread_of_its_own_stream() {
    let op = Arc::new(twice_plus_one());
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let op = Arc::clone(&op);
            std::thread::spawn(move || {
                let x = Owned::floats(&[n as f32], &[]);
                apply(&op, &[&x], &[]).values()
            })
        })
        .collect();
    for (n, thread) in threads.into_iter().enumerate() {
        assert_eq!(thread.join().expect("no panic"), [2.0 * n as f32 + 1.0]);
    }
}

#[test]
fn wrong_calls_are_errors() {
    let op = twice_plus_one();
    let stream = Stream::cpu();
    let spec = |shape| OutputSpec {
        shape,
        dtype: mlx_dtype__MLX_FLOAT32,
    };
    let empty = mlx_array {
        ctx: std::ptr::null_mut(),
    };
    // SAFETY: the stream lives; an empty handle is what is tested.
    let error = unsafe { op.apply(&[empty], &[spec(&[1])], stream.0) }.expect_err("empty input");
    assert!(error.to_string().contains("non-empty"), "{error}");
    // SAFETY: live handles.
    let error = unsafe { op.apply(&[], &[spec(&[2, -1])], stream.0) }.expect_err("negative");
    assert!(error.to_string().contains("negative"), "{error}");
    // SAFETY: live handles.
    let error = unsafe { op.apply(&[], &[], stream.0) }.expect_err("no outputs");
    assert!(error.to_string().contains("no outputs"), "{error}");
}

#[test]
fn half_precision_crosses_as_bits() {
    let stream = Stream::cpu();
    let x = Owned::floats(&[1.5], &[]);
    let cases = [
        (mlx_dtype__MLX_FLOAT16, 0x3e00u16),
        (mlx_dtype__MLX_BFLOAT16, 0x3fc0),
    ];
    for (dtype, expected) in cases {
        // SAFETY: live handles; evaluated before the data is read.
        unsafe {
            let half = Owned::made_by(|out| mlx_astype(out, x.0, dtype, stream.0));
            assert_eq!(mlx_array_eval(half.0), 0);
            if dtype == mlx_dtype__MLX_FLOAT16 {
                let mut item = float16_t::default();
                assert_eq!(mlx_array_item_float16(&raw mut item, half.0), 0);
                assert_eq!(item, float16_t(expected));
                assert_eq!((*mlx_array_data_float16(half.0)).0, expected);
            } else {
                let mut item = 0;
                assert_eq!(mlx_array_item_bfloat16(&raw mut item, half.0), 0);
                assert_eq!(item, expected);
                assert_eq!(*mlx_array_data_bfloat16(half.0), expected);
            }
        }
    }
}
