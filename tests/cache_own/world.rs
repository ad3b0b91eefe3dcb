//! A model of nothing but kernels, what rows hold on the host, and what both must agree on.

use std::sync::{Arc, Mutex};

use mlx_chat::cache::{
    BatchCache, CachePlan, GROWTH, KvScheme, KvShape, Layers, PANEL, RowCache, capacity_for,
};
use mlx_chat::nn::Backend;
use mlx_chat::nn::kernels::{InPlaceNode, RoomMut};
use mlx_rs::{Array, Dtype};

/// Two layers that differ in everything; the second's values fill a panel's stride only with one to spare.
pub const SHAPES: [KvShape; 2] = [
    KvShape {
        heads: 2,
        key_dim: 3,
        value_dim: 4,
        dtype: Dtype::Float32,
        scheme: KvScheme::Full,
    },
    KvShape {
        heads: 1,
        key_dim: 5,
        value_dim: 17,
        dtype: Dtype::Float32,
        scheme: KvScheme::Full,
    },
];

/// The most positions of a forward.
pub const CHUNK: usize = 3 * GROWTH + 5;

pub fn plan() -> CachePlan {
    Backend::Cpu.enter();
    CachePlan::own_buffers(SHAPES.to_vec())
}

/// Floats of one position in one layer: for each head its key, then its value.
pub fn per_position(shape: KvShape) -> usize {
    shape.heads * (shape.key_dim + shape.value_dim)
}

/// What a row holds, on the host: for each layer, position after position.
#[derive(Clone, Default, Debug)]
pub struct Reference {
    pub len: usize,
    pub layers: [Vec<f32>; 2],
}

impl Reference {
    /// Adds positions that nothing else holds.
    pub fn grow(&mut self, by: usize, counter: &mut u32) {
        for (layer, shape) in self.layers.iter_mut().zip(SHAPES) {
            for _ in 0..by * per_position(shape) {
                *counter += 1;
                layer.push(if counter.is_multiple_of(7) {
                    -0.0
                } else {
                    *counter as f32
                });
            }
        }
        self.len += by;
    }

    pub fn cut(&mut self, len: usize) {
        for (layer, shape) in self.layers.iter_mut().zip(SHAPES) {
            layer.truncate(len * per_position(shape));
        }
        self.len = len;
    }

    /// The last positions, as a forward is given them.
    pub fn last(&self, layer: usize, positions: usize) -> &[f32] {
        &self.layers[layer][(self.len - positions) * per_position(SHAPES[layer])..]
    }

    /// Keys and values as `[heads, len, dim]`.
    pub fn flat(&self, layer: usize) -> (Vec<f32>, Vec<f32>) {
        let shape = SHAPES[layer];
        let dim = shape.key_dim + shape.value_dim;
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for head in 0..shape.heads {
            for position in self.layers[layer].chunks(per_position(shape)) {
                let (key, value) = position[head * dim..(head + 1) * dim].split_at(shape.key_dim);
                keys.extend(key);
                values.extend(value);
            }
        }
        (keys, values)
    }

    pub fn hash(&self, layer: usize) -> u32 {
        hash(self.layers[layer].iter().copied())
    }
}

pub fn hash(values: impl Iterator<Item = f32>) -> u32 {
    values.fold(1, |hash, value| hash.wrapping_mul(0x0100_0193) ^ value.to_bits())
}

pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Where one position of one head lies in a buffer: its key's elements, then its value's.
pub fn places(shape: KvShape, capacity: usize, head: usize, position: usize) -> impl Iterator<Item = usize> {
    let panel = (head * capacity / PANEL + position / PANEL) * shape.panel_len();
    let at = position % PANEL;
    let keys = (0..shape.key_dim).map(move |d| panel + d * PANEL + at);
    let values = panel + PANEL * shape.key_dim + at * shape.value_stride();
    keys.chain((0..shape.value_dim).map(move |d| values + d))
}

pub type Addresses = Arc<Mutex<Vec<usize>>>;

/// A kernel for one layer: writes the new positions of each room, then hashes all that the room holds, and notes where
/// the buffers are.
pub fn kernel(shape: KvShape, addresses: &Addresses) -> InPlaceNode {
    let addresses = Arc::clone(addresses);
    InPlaceNode::new("Kernel", move |inputs, rooms, outputs| {
        let new = inputs[0].as_slice::<f32>().expect("floats");
        let added = new.len() / per_position(shape) / rooms.len();
        let hashes = outputs[0].as_mut_slice::<u32>().expect("numbers");
        let mut new = new.iter();
        for (RoomMut { buffer, start, .. }, hashed) in rooms.iter_mut().zip(hashes) {
            let capacity = buffer.len() / shape.heads / shape.panel_len() * PANEL;
            assert_eq!(capacity, capacity_for(*start + added));
            for position in *start..*start + added {
                for place in (0..shape.heads).flat_map(|head| places(shape, capacity, head, position)) {
                    buffer[place] = *new.next().expect("as many as there are places");
                }
            }
            let all = (0..*start + added)
                .flat_map(|position| (0..shape.heads).map(move |head| (head, position)))
                .flat_map(|(head, position)| places(shape, capacity, head, position));
            *hashed = hash(all.map(|place| buffer[place]));
            assert!(
                buffer.iter().all(|value| value.is_finite()),
                "memory that nobody wrote is zero"
            );
            addresses.lock().expect("no panic").push(buffer.as_ptr() as usize);
        }
    })
}

/// A model of nothing but kernels, and what they are to see once they run.
pub struct World {
    kernels: [InPlaceNode; 2],
    pub addresses: Addresses,
    counter: u32,
    expected: Vec<(Array, Vec<u32>)>,
}

impl World {
    pub fn new() -> Self {
        let addresses = Addresses::default();
        Self {
            kernels: SHAPES.map(|shape| kernel(shape, &addresses)),
            addresses,
            counter: 0,
            expected: Vec::new(),
        }
    }

    /// A forward of some positions for each row. Evaluates nothing.
    pub fn forward(&mut self, caches: &mut dyn Layers, rows: &mut [&mut Reference], positions: usize) {
        for row in rows.iter_mut() {
            row.grow(positions, &mut self.counter);
        }
        let mut last = None;
        for (layer, kernel) in self.kernels.iter().enumerate() {
            let new: Vec<f32> = rows
                .iter()
                .flat_map(|row| row.last(layer, positions))
                .copied()
                .collect();
            let new = Array::from_slice(&new, &[new.len() as i32]);
            // As in a model, where a layer's input is the layer's before.
            let inputs: Vec<&Array> = [&new].into_iter().chain(&last).collect();
            let rooms = caches.layer(layer).rooms(positions).unwrap();
            assert_eq!(rooms.len(), rows.len());
            let output = (&[rows.len() as i32][..], Dtype::Uint32);
            let [hashes] = kernel.apply(&inputs, &rooms, [output]).unwrap();
            let expected = rows.iter().map(|row| row.hash(layer)).collect();
            self.expected.push((hashes.clone(), expected));
            last = Some(hashes);
        }
        caches.wrote(&last.unwrap()).unwrap();
    }

    pub fn prefill(&mut self, row: &mut RowCache, reference: &mut Reference, positions: usize) {
        self.forward(row, &mut [reference], positions);
    }

    pub fn step(&mut self, batch: &mut BatchCache, references: &mut [Reference]) {
        let mut rows: Vec<&mut Reference> = references.iter_mut().collect();
        self.forward(batch, &mut rows, 1);
    }

    /// A row of this many positions, written in pieces.
    pub fn row(&mut self, len: usize) -> (RowCache, Reference) {
        let (mut row, mut reference) = (RowCache::new(&plan()), Reference::default());
        while reference.len < len {
            let piece = (len - reference.len).min(100);
            self.prefill(&mut row, &mut reference, piece);
        }
        (row, reference)
    }

    /// Every kernel saw what it was to see.
    pub fn check(&mut self) {
        for (hashes, expected) in self.expected.drain(..) {
            assert_eq!(hashes.to_vec_exact::<u32>().unwrap(), expected);
        }
        for kernel in &self.kernels {
            assert_eq!(kernel.take_fault(), None);
        }
    }

    /// Where the buffers of the rows are, layer by layer, as the last forward found them.
    pub fn addresses_after(&mut self, step: impl FnOnce(&mut Self)) -> Vec<usize> {
        self.check();
        self.addresses.lock().unwrap().clear();
        step(self);
        self.check();
        std::mem::take(&mut self.addresses.lock().unwrap())
    }
}

pub fn assert_figures(row: &RowCache, reference: &Reference) {
    let per_token = plan().bytes_per_token();
    assert_eq!(row.len(), Some(reference.len));
    assert_eq!(row.is_empty(), reference.len == 0);
    assert_eq!(row.used_bytes(), reference.len as u64 * per_token);
    assert_eq!(
        row.allocated_bytes(),
        capacity_for(reference.len) as u64 * per_token
    );
}

pub fn assert_row(row: &RowCache, reference: &Reference) {
    assert_figures(row, reference);
    for layer in 0..SHAPES.len() {
        let (keys, values) = row.positions(layer).unwrap();
        let (expected_keys, expected_values) = reference.flat(layer);
        assert_eq!(bits(&keys), bits(&expected_keys));
        assert_eq!(bits(&values), bits(&expected_values));
    }
}

pub fn assert_batch(batch: &BatchCache, references: &[Reference]) {
    let lengths: Vec<usize> = references.iter().map(|row| row.len).collect();
    let per_token = plan().bytes_per_token();
    assert_eq!(batch.rows(), references.len());
    assert_eq!(batch.lengths(), lengths);
    assert_eq!(batch.width(), lengths.iter().copied().max().unwrap());
    assert_eq!(batch.left_pads(), vec![0; lengths.len()]);
    assert_eq!(batch.is_lone(), lengths.len() == 1);
    let (used, allocated) = (batch.used_bytes(), batch.allocated_bytes());
    assert_eq!(used, lengths.iter().sum::<usize>() as u64 * per_token);
    assert!(used <= allocated && allocated <= lengths.iter().map(|&len| plan().row_bytes(len, CHUNK)).sum());
}
