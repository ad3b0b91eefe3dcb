//! Closures as nodes in MLX's graph, over arrays of mlx-rs.
#![expect(
    unsafe_code,
    reason = "the one place where handles of arrays go to the bridge, and where a room's memory is written in place"
)]

use std::rc::Rc;

use mlx_rs::error::Exception;
use mlx_rs::{Array, Dtype, Stream};
use mlx_sys::bridge::{CustomOp, Fault, OutputSpec, TensorView, TensorViewMut};
use mlx_sys::mlx_array;

use crate::cache::{KvQuantization, KvScheme, Room};

thread_local! {
    /// The thread's stream on the CPU. Looked up once: the handle is an allocation.
    static CPU: Stream = Stream::cpu();
}

/// A closure over inputs and outputs, to be put into graphs any number of times. It runs on the worker of this thread's
/// stream of the CPU; shapes and types are its own business. One that panics gives outputs of NaN and a [`Fault`], which
/// [`mlx_sys::bridge::take_fault`] tells of any node.
#[derive(Debug)]
pub struct Node {
    op: CustomOp,
}

/// A [`Node`] that also writes to rooms of caches in place.
#[derive(Debug)]
pub struct InPlaceNode {
    op: CustomOp,
}

/// A [`Room`] while a node runs.
#[derive(Debug)]
pub struct RoomMut<'a> {
    /// `[heads, capacity / PANEL, panel]`, in row-major order; empty where it is quantized.
    pub buffer: &'a mut [f32],
    /// The same where it is quantized.
    pub codes: Option<Codes<'a>>,
    /// The first new position. Those before are written.
    pub start: usize,
    /// How many new positions there are.
    pub tokens: usize,
}

/// A quantized layer's buffer.
#[derive(Debug)]
pub struct Codes<'a> {
    /// `[heads, capacity / PANEL, panel]`, in row-major order.
    pub words: &'a mut [u32],
    /// How it is quantized.
    pub by: KvQuantization,
}

impl Node {
    /// A node of this name, which graph dumps and faults show.
    pub fn new<F>(name: &str, closure: F) -> Self
    where
        F: Fn(&[TensorView<'_>], &mut [TensorViewMut<'_>]) + Send + Sync + 'static,
    {
        let op = CustomOp::with_outputs(name, closure);
        Self { op }
    }

    /// Adds it to the graph, with outputs of these shapes and types. Nothing runs before an output is evaluated, nor if
    /// no output has any elements.
    pub fn apply<const N: usize>(
        &self,
        inputs: &[&Array],
        outputs: [(&[i32], Dtype); N],
    ) -> Result<[Array; N], Exception> {
        let handles: Vec<mlx_array> = inputs.iter().map(|input| input.as_ptr()).collect();
        add(&self.op, &handles, outputs)
    }

    /// Adds it to the graph as one that updates `x`: its output, the closure's only one, begins as `x` and is in the same memory where
    /// nobody else needs `x`. The closure is given the other inputs.
    pub fn update(&self, x: &Array, inputs: &[&Array]) -> Result<Array, Exception> {
        let handles = std::iter::once(x).chain(inputs.iter().copied());
        let handles: Vec<mlx_array> = handles.map(Array::as_ptr).collect();
        update(&self.op, &handles, 0)
    }

    /// The first panic of its closure since the last call, if there was one.
    pub fn take_fault(&self) -> Option<Fault> {
        self.op.take_fault()
    }
}

impl InPlaceNode {
    /// A node of this name. The closure is given what it reads, the rooms that it fills, and the outputs.
    pub fn new<F>(name: &str, closure: F) -> Self
    where
        F: Fn(&[TensorView<'_>], &mut [RoomMut<'_>], &mut [TensorViewMut<'_>]) + Send + Sync + 'static,
    {
        let op = CustomOp::with_outputs(name, move |all, outputs| {
            let (header, rest) = all.split_first().expect("a header comes first");
            let Some([rooms, inputs, places @ ..]) = header.as_slice::<u32>() else {
                panic!("the header is two counts and four numbers for each room");
            };
            let (rooms, rest) = rest.split_at(*rooms as usize);
            let open = rooms.iter().zip(places.as_chunks::<4>().0).map(|(room, place)| {
                let [start, tokens, bits, group_size] = place.map(|number| number as usize);
                let (mut buffer, mut codes): (&mut [f32], _) = (&mut [], None);
                // SAFETY: `with_handles` put the buffers of rooms here. A row alone holds such a buffer: it is passed once, and
                // neither as an input nor to be updated. The host reads it only after an output of this node (the rules of `cache`), and
                // every operation that is given it runs on one stream, as this does.
                unsafe {
                    if bits == 0 {
                        let floats = room.as_mut_slice_in_place::<f32>();
                        buffer = floats.expect("own buffers are float32 without gaps");
                    } else {
                        let words = room.as_mut_slice_in_place::<u32>();
                        codes = Some(Codes {
                            words: words.expect("quantized buffers are uint32 without gaps"),
                            by: KvQuantization { bits, group_size },
                        });
                    }
                }
                RoomMut {
                    buffer,
                    codes,
                    start,
                    tokens,
                }
            });
            let mut open: Vec<RoomMut<'_>> = open.collect();
            closure(&rest[..*inputs as usize], &mut open, outputs);
        });
        Self { op }
    }

    /// Adds it to the graph, after all earlier writes to the rooms; else as [`Node::apply`]. Where nothing is put out,
    /// ask for an output of one element all the same, or it never runs. Several nodes may be given the same rooms: these
    /// run in the order of their dependencies.
    pub fn apply<const N: usize>(
        &self,
        inputs: &[&Array],
        rooms: &[Room<'_>],
        outputs: [(&[i32], Dtype); N],
    ) -> Result<[Array; N], Exception> {
        with_handles(rooms, None, inputs, |handles, _| add(&self.op, handles, outputs))
    }

    /// Adds it as one that updates `x`; else as [`apply`](Self::apply) and [`Node::update`].
    pub fn update(&self, x: &Array, inputs: &[&Array], rooms: &[Room<'_>]) -> Result<Array, Exception> {
        with_handles(rooms, Some(x), inputs, |handles, x| update(&self.op, handles, x))
    }

    /// The first panic of its closure since the last call, if there was one.
    pub fn take_fault(&self) -> Option<Fault> {
        self.op.take_fault()
    }
}

/// What a node with rooms is given: a header, the rooms' buffers, what it updates, its inputs, and what comes before. The second argument
/// is where what it updates is.
fn with_handles<T>(
    rooms: &[Room<'_>],
    updated: Option<&Array>,
    inputs: &[&Array],
    add: impl FnOnce(&[mlx_array], usize) -> T,
) -> T {
    let counts = [rooms.len(), inputs.len()];
    let places = rooms.iter().flat_map(|room| {
        let [bits, group_size] = match room.scheme() {
            KvScheme::Full => [0, 0],
            KvScheme::Quantized(by) => [by.bits, by.group_size],
        };
        [room.start(), room.added(), bits, group_size]
    });
    let header: Vec<u32> = counts.into_iter().chain(places).map(number).collect();
    let header = Array::from_slice(&header, &[i32::try_from(header.len()).unwrap_or(i32::MAX)]);
    let mut handles = Vec::with_capacity(inputs.len() + rooms.len() + 3);
    handles.push(header.as_ptr());
    handles.extend(rooms.iter().map(|room| room.buffer().as_ptr()));
    let at = handles.len();
    handles.extend(
        updated
            .into_iter()
            .chain(inputs.iter().copied())
            .map(Array::as_ptr),
    );
    let mut fences: Vec<&Rc<Array>> = Vec::new();
    for fence in rooms.iter().filter_map(Room::after) {
        if !fences.iter().any(|known| Rc::ptr_eq(known, fence)) {
            fences.push(fence);
        }
    }
    handles.extend(fences.iter().map(|fence| fence.as_ptr()));
    add(&handles, at)
}

/// A count or a position as the header holds it; no buffer that fits in memory has an extent past `u32`.
fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Adds a node over handles of arrays that live now.
fn add<const N: usize>(
    op: &CustomOp,
    inputs: &[mlx_array],
    outputs: [(&[i32], Dtype); N],
) -> Result<[Array; N], Exception> {
    let specs = outputs.map(|(shape, dtype)| OutputSpec {
        shape,
        dtype: dtype.into(),
    });
    // SAFETY: the callers' arrays live until this returns, and so does the thread's stream.
    let made = CPU.with(|stream| unsafe { op.apply(inputs, &specs, stream.as_ptr()) });
    let made = made.map_err(|error| Exception::custom(error.to_string()))?;
    // SAFETY: fresh handles, each of which is taken over once.
    let arrays: Vec<Array> = made
        .into_iter()
        .map(|handle| unsafe { Array::from_ptr(handle) })
        .collect();
    let count = |arrays: Vec<Array>| Exception::custom(format!("{} outputs for {N}", arrays.len()));
    arrays.try_into().map_err(count)
}

/// Adds a node that updates the array at `updated`, over handles of arrays that live now.
fn update(op: &CustomOp, inputs: &[mlx_array], updated: usize) -> Result<Array, Exception> {
    // SAFETY: as for `add`; a fresh handle, which is taken over once.
    unsafe {
        CPU.with(|stream| op.update(inputs, updated, stream.as_ptr()))
            .map(|handle| Array::from_ptr(handle))
            .map_err(|error| Exception::custom(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use mlx_rs::transforms;

    use super::*;
    use crate::cache::{CacheError, CachePlan, KvShape, Layers, RowCache};
    use crate::nn::Backend;

    fn plan() -> CachePlan {
        Backend::Cpu.enter();
        let shape = KvShape::float32(1, 1, 1);
        CachePlan::own_buffers(vec![shape])
    }

    fn twice() -> Node {
        Node::new("Twice", |inputs, outputs| {
            let x = inputs[0].to_row_major::<f32>().expect("floats");
            let y = outputs[0].as_mut_slice::<f32>().expect("floats");
            for (y, x) in y.iter_mut().zip(x.iter()) {
                *y = 2.0 * x;
            }
        })
    }

    /// Writes its input's only value as the key of every new position, one of each room; gives how many rooms it had.
    fn write() -> InPlaceNode {
        InPlaceNode::new("Write", |inputs, rooms, outputs| {
            let value = inputs[0].as_slice::<f32>().expect("a float")[0];
            for room in &mut *rooms {
                // The first panel's keys, one for each of its positions.
                room.buffer[room.start] = value;
            }
            outputs[0].as_mut_slice::<f32>().expect("floats")[0] = rooms.len() as f32;
        })
    }

    const ONE: (&[i32], Dtype) = (&[1], Dtype::Float32);

    #[test]
    fn a_node_is_an_operation_among_others() {
        Backend::Cpu.enter();
        let x = Array::from_slice(&[1.0f32, 2.0, 3.0], &[3]);
        let before = x.add(Array::from_f32(1.0)).unwrap();
        let [doubled] = twice().apply(&[&before], [(&[3], Dtype::Float32)]).unwrap();
        let after = doubled.negative().unwrap();
        assert_eq!(after.to_vec_exact::<f32>().unwrap(), [-4.0, -6.0, -8.0]);
    }

    #[test]
    fn outputs_have_the_shapes_and_types_asked_for() {
        Backend::Cpu.enter();
        let node = Node::new("Two", |_, outputs| {
            outputs[0].as_mut_slice::<u32>().expect("numbers").fill(7);
            outputs[1].as_mut_slice::<f32>().expect("floats").fill(0.5);
        });
        let [a, b] = node
            .apply(&[], [(&[2, 1], Dtype::Uint32), (&[], Dtype::Float32)])
            .unwrap();
        assert_eq!(
            (a.shape(), a.to_vec_exact::<u32>().unwrap()),
            (&[2, 1][..], vec![7, 7])
        );
        assert_eq!(b.item_exact::<f32>(), 0.5);
        let none: Result<[Array; 0], _> = node.apply(&[], []);
        assert!(none.unwrap_err().what().contains("no outputs"));
    }

    #[test]
    fn what_a_node_writes_to_a_room_the_next_one_sees_and_the_cache_holds() {
        let mut row = RowCache::new(&plan());
        let see = InPlaceNode::new("See", |_, rooms, outputs| {
            let seen = rooms[0].buffer[rooms[0].start];
            outputs[0].as_mut_slice::<f32>().expect("floats")[0] = seen;
        });
        for at in 0..3 {
            let value = Array::from_slice(&[at as f32 + 0.5], &[1]);
            let rooms = row.layer(0).rooms(1).unwrap();
            assert_eq!(rooms[0].start(), at);
            let [wrote] = write().apply(&[&value], &rooms, [ONE]).unwrap();
            let [seen] = see.apply(&[&wrote], &rooms, [ONE]).unwrap();
            row.wrote(&seen).unwrap();
            assert_eq!(seen.item_exact::<f32>(), at as f32 + 0.5);
        }
        assert_eq!(row.positions(0).unwrap().0, [0.5, 1.5, 2.5]);
    }

    fn add_one() -> Node {
        Node::new("AddOne", |inputs, outputs| {
            let by = inputs
                .first()
                .map_or(1.0, |by| by.as_slice::<f32>().expect("a float")[0]);
            for x in outputs[0].as_mut_slice::<f32>().expect("floats") {
                *x += by;
            }
        })
    }

    #[test]
    fn an_update_of_what_nobody_else_needs_is_in_its_memory() {
        Backend::Cpu.enter();
        let places = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&places);
        let node = Node::new("Note", move |_, outputs| {
            let x = outputs[0].as_mut_slice::<f32>().expect("floats");
            x[0] += 1.0;
            noted.lock().unwrap().push(x.as_ptr() as usize);
        });
        let x = Array::from_slice(&[1.0f32, 2.0], &[1, 2]);
        let [mut y] = twice().apply(&[&x], [(&[1, 2], Dtype::Float32)]).unwrap();
        for _ in 0..20 {
            y = node.update(&y, &[]).unwrap();
        }
        assert_eq!(y.to_vec_exact::<f32>().unwrap(), [22.0, 4.0]);
        let places = places.lock().unwrap();
        assert_eq!(*places, vec![places[0]; 20]);
    }

    #[test]
    fn an_update_of_what_others_need_is_a_copy() {
        Backend::Cpu.enter();
        let x = Array::from_slice(&[1.0f32, 2.0], &[2]);
        let node = add_one();
        let [doubled] = twice().apply(&[&x], [(&[2], Dtype::Float32)]).unwrap();
        let updated = node.update(&doubled, &[]).unwrap();
        let again = node.update(&doubled, &[]).unwrap();
        transforms::eval([&updated, &again]).unwrap();
        for (array, expected) in [
            (&x, [1.0, 2.0]),
            (&doubled, [2.0, 4.0]),
            (&updated, [3.0, 5.0]),
            (&again, [3.0, 5.0]),
        ] {
            assert_eq!(array.to_vec_exact::<f32>().unwrap(), expected);
        }
    }

    #[test]
    fn what_is_updated_has_no_gaps() {
        Backend::Cpu.enter();
        let x = Array::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2]);
        let turned = add_one().update(&x.transpose().unwrap(), &[]).unwrap();
        let error = turned.eval().unwrap_err();
        assert!(error.what().contains("`AddOne` updates an input"), "{error}");
    }

    #[test]
    fn an_update_with_rooms_sees_rooms_and_inputs() {
        let mut row = RowCache::new(&plan());
        let node = InPlaceNode::new("Both", |inputs, rooms, outputs| {
            let x = outputs[0].as_mut_slice::<f32>().expect("floats");
            rooms[0].buffer[rooms[0].start] = x[0];
            x[0] += inputs[0].as_slice::<f32>().expect("a float")[0];
        });
        let half = Array::from_slice(&[0.5f32], &[1]);
        let mut x = Array::from_slice(&[1.0f32], &[1]);
        for _ in 0..3 {
            let rooms = row.layer(0).rooms(1).unwrap();
            x = node.update(&x, &[&half], &rooms).unwrap();
            row.wrote(&x).unwrap();
        }
        assert_eq!(x.item_exact::<f32>(), 2.5);
        assert_eq!(row.positions(0).unwrap().0, [1.0, 1.5, 2.0]);
    }

    #[test]
    fn rooms_of_several_rows_keep_apart() {
        let mut rows = [RowCache::new(&plan()), RowCache::new(&plan())];
        let mut rooms = Vec::new();
        for row in &mut rows {
            rooms.extend(row.layer(0).rooms(1).unwrap());
        }
        let value = Array::from_slice(&[3.0f32], &[1]);
        let [wrote] = write().apply(&[&value], &rooms, [ONE]).unwrap();
        assert_eq!(wrote.item_exact::<f32>(), 2.0);
        for mut row in rows {
            row.wrote(&wrote).unwrap();
            assert_eq!(row.positions(0).unwrap().0, [3.0]);
        }
    }

    /// Nothing but the fence orders the second forward after the first here.
    #[test]
    fn a_forward_that_shares_nothing_with_the_one_before_still_runs_after_it() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let logging = Arc::clone(&log);
        let node = InPlaceNode::new("Log", move |_, rooms, outputs| {
            logging.lock().unwrap().push(rooms[0].start);
            outputs[0].as_mut_slice::<f32>().expect("floats").fill(0.0);
        });
        let mut row = RowCache::new(&plan());
        for _ in 0..20 {
            let rooms = row.layer(0).rooms(3).unwrap();
            let [out] = node.apply(&[], &rooms, [ONE]).unwrap();
            row.wrote(&out).unwrap();
        }
        assert!(log.lock().unwrap().is_empty());
        transforms::eval(row.arrays()).unwrap();
        assert_eq!(*log.lock().unwrap(), (0..20).map(|n| n * 3).collect::<Vec<_>>());
    }

    #[test]
    fn a_panic_in_a_closure_is_a_fault_of_its_node() {
        let mut row = RowCache::new(&plan());
        let node = InPlaceNode::new("Explodes", |_, rooms, _| {
            assert!(rooms[0].start > 0, "no position to start from");
        });
        let rooms = row.layer(0).rooms(1).unwrap();
        let [out] = node.apply(&[], &rooms, [ONE]).unwrap();
        assert!(out.item_exact::<f32>().is_nan());
        let fault = node.take_fault().unwrap();
        assert!(
            fault.op == "Explodes" && fault.message.contains("no position to start from"),
            "{fault}"
        );
        // Nobody said that the row was written.
        assert!(matches!(row.positions(0), Err(CacheError::Unwritten { .. })));
    }
}
