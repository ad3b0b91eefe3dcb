//! Own buffers: what kernels write in place comes back bit for bit, whatever rows join, leave, are cloned and cut in
//! between, evaluated or not.

use std::sync::{Arc, Mutex};

use mlx_chat::cache::{
    BatchCache, CacheError, CachePlan, GROWTH, KvLayout, KvShape, Layers, PANEL, RowCache, capacity_for,
};
use mlx_chat::nn::Backend;
use mlx_chat::nn::kernels::{InPlaceNode, RoomMut};
use mlx_rs::{Array, Dtype, transforms};
use proptest::prelude::*;

/// Two layers that differ in everything; the second's values fill a panel's stride only with one to spare.
const SHAPES: [KvShape; 2] = [
    KvShape {
        heads: 2,
        key_dim: 3,
        value_dim: 4,
        dtype: Dtype::Float32,
    },
    KvShape {
        heads: 1,
        key_dim: 5,
        value_dim: 17,
        dtype: Dtype::Float32,
    },
];

fn plan() -> CachePlan {
    Backend::Cpu.enter();
    CachePlan::own_buffers(SHAPES.to_vec())
}

/// Floats of one position in one layer: for each head its key, then its value.
fn per_position(shape: KvShape) -> usize {
    shape.heads * (shape.key_dim + shape.value_dim)
}

/// What a row holds, on the host: for each layer, position after position.
#[derive(Clone, Default, Debug)]
struct Reference {
    len: usize,
    layers: [Vec<f32>; 2],
}

impl Reference {
    /// Adds positions that nothing else holds.
    fn grow(&mut self, by: usize, counter: &mut u32) {
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

    fn cut(&mut self, len: usize) {
        for (layer, shape) in self.layers.iter_mut().zip(SHAPES) {
            layer.truncate(len * per_position(shape));
        }
        self.len = len;
    }

    /// The last positions, as a forward is given them.
    fn last(&self, layer: usize, positions: usize) -> &[f32] {
        &self.layers[layer][(self.len - positions) * per_position(SHAPES[layer])..]
    }

    /// Keys and values as `[heads, len, dim]`.
    fn flat(&self, layer: usize) -> (Vec<f32>, Vec<f32>) {
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

    fn hash(&self, layer: usize) -> u32 {
        hash(self.layers[layer].iter().copied())
    }
}

fn hash(values: impl Iterator<Item = f32>) -> u32 {
    values.fold(1, |hash, value| hash.wrapping_mul(0x0100_0193) ^ value.to_bits())
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Where one position of one head lies in a buffer: its key's elements, then its value's.
fn places(shape: KvShape, capacity: usize, head: usize, position: usize) -> impl Iterator<Item = usize> {
    let panel = (head * capacity / PANEL + position / PANEL) * shape.panel_len();
    let at = position % PANEL;
    let keys = (0..shape.key_dim).map(move |d| panel + d * PANEL + at);
    let values = panel + PANEL * shape.key_dim + at * shape.value_stride();
    keys.chain((0..shape.value_dim).map(move |d| values + d))
}

type Addresses = Arc<Mutex<Vec<usize>>>;

/// A kernel for one layer: writes the new positions of each room, then hashes all that the room holds, and notes where
/// the buffers are.
fn kernel(shape: KvShape, addresses: &Addresses) -> InPlaceNode {
    let addresses = Arc::clone(addresses);
    InPlaceNode::new("Kernel", move |inputs, rooms, outputs| {
        let new = inputs[0].as_slice::<f32>().expect("floats");
        let added = new.len() / per_position(shape) / rooms.len();
        let hashes = outputs[0].as_mut_slice::<u32>().expect("numbers");
        let mut new = new.iter();
        for (RoomMut { buffer, start }, hashed) in rooms.iter_mut().zip(hashes) {
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
struct World {
    kernels: [InPlaceNode; 2],
    addresses: Addresses,
    counter: u32,
    expected: Vec<(Array, Vec<u32>)>,
}

impl World {
    fn new() -> Self {
        let addresses = Addresses::default();
        Self {
            kernels: SHAPES.map(|shape| kernel(shape, &addresses)),
            addresses,
            counter: 0,
            expected: Vec::new(),
        }
    }

    /// A forward of some positions for each row. Evaluates nothing.
    fn forward(&mut self, caches: &mut dyn Layers, rows: &mut [&mut Reference], positions: usize) {
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

    fn prefill(&mut self, row: &mut RowCache, reference: &mut Reference, positions: usize) {
        self.forward(row, &mut [reference], positions);
    }

    fn step(&mut self, batch: &mut BatchCache, references: &mut [Reference]) {
        let mut rows: Vec<&mut Reference> = references.iter_mut().collect();
        self.forward(batch, &mut rows, 1);
    }

    /// A row of this many positions, written in pieces.
    fn row(&mut self, len: usize) -> (RowCache, Reference) {
        let (mut row, mut reference) = (RowCache::new(&plan()), Reference::default());
        while reference.len < len {
            let piece = (len - reference.len).min(100);
            self.prefill(&mut row, &mut reference, piece);
        }
        (row, reference)
    }

    /// Every kernel saw what it was to see.
    fn check(&mut self) {
        for (hashes, expected) in self.expected.drain(..) {
            assert_eq!(hashes.to_vec_exact::<u32>().unwrap(), expected);
        }
        for kernel in &self.kernels {
            assert_eq!(kernel.take_fault(), None);
        }
    }

    /// Where the buffers of the rows are, layer by layer, as the last forward found them.
    fn addresses_after(&mut self, step: impl FnOnce(&mut Self)) -> Vec<usize> {
        self.check();
        self.addresses.lock().unwrap().clear();
        step(self);
        self.check();
        std::mem::take(&mut self.addresses.lock().unwrap())
    }
}

fn assert_figures(row: &RowCache, reference: &Reference) {
    let per_token = plan().bytes_per_token();
    assert_eq!(row.len(), Some(reference.len));
    assert_eq!(row.is_empty(), reference.len == 0);
    assert_eq!(row.used_bytes(), reference.len as u64 * per_token);
    assert_eq!(
        row.allocated_bytes(),
        capacity_for(reference.len) as u64 * per_token
    );
}

fn assert_row(row: &RowCache, reference: &Reference) {
    assert_figures(row, reference);
    for layer in 0..SHAPES.len() {
        let (keys, values) = row.positions(layer).unwrap();
        let (expected_keys, expected_values) = reference.flat(layer);
        assert_eq!(bits(&keys), bits(&expected_keys));
        assert_eq!(bits(&values), bits(&expected_values));
    }
}

fn assert_batch(batch: &BatchCache, references: &[Reference]) {
    let lengths: Vec<usize> = references.iter().map(|row| row.len).collect();
    let per_token = plan().bytes_per_token();
    assert_eq!(batch.rows(), references.len());
    assert_eq!(batch.lengths(), lengths);
    assert_eq!(batch.width(), lengths.iter().copied().max().unwrap());
    assert_eq!(batch.left_pads(), vec![0; lengths.len()]);
    assert_eq!(batch.is_lone(), lengths.len() == 1);
    let (used, allocated) = (batch.used_bytes(), batch.allocated_bytes());
    assert_eq!(used, lengths.iter().sum::<usize>() as u64 * per_token);
    assert!(used <= allocated && allocated <= plan().reserved_bytes(&lengths));
}

/// One thing that happens; numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Event {
    New,
    Prefill { row: usize, positions: usize },
    Clone { row: usize },
    Drop { row: usize },
    Cut { row: usize, len: usize },
    Join { row: usize },
    Steps { count: usize },
    Filter { keep: u8, reversed: bool },
    Extract { row: usize },
    Leave,
    Read { reversed: bool },
}

fn event() -> impl Strategy<Value = Event> {
    let row = 0..64usize;
    prop_oneof![
        2 => Just(Event::New),
        6 => (row.clone(), 1..300usize).prop_map(|(row, positions)| Event::Prefill { row, positions }),
        4 => row.clone().prop_map(|row| Event::Clone { row }),
        2 => row.clone().prop_map(|row| Event::Drop { row }),
        3 => (row.clone(), 0..1000usize).prop_map(|(row, len)| Event::Cut { row, len }),
        5 => row.clone().prop_map(|row| Event::Join { row }),
        8 => (1..5usize).prop_map(|count| Event::Steps { count }),
        3 => (1..=255u8, any::<bool>()).prop_map(|(keep, reversed)| Event::Filter { keep, reversed }),
        4 => row.clone().prop_map(|row| Event::Extract { row }),
        1 => Just(Event::Leave),
        2 => any::<bool>().prop_map(|reversed| Event::Read { reversed }),
    ]
}

/// The rows outside of the batch, and the batch.
#[derive(Default)]
struct Rows {
    alone: Vec<(RowCache, Reference)>,
    batch: Option<(BatchCache, Vec<Reference>)>,
}

impl Rows {
    fn happen(&mut self, world: &mut World, event: Event) {
        let alone = self.alone.len();
        match event {
            Event::New => self.alone.push((RowCache::new(&plan()), Reference::default())),
            Event::Prefill { row, positions } if alone > 0 => {
                let (row, reference) = &mut self.alone[row % alone];
                world.prefill(row, reference, positions);
            }
            Event::Clone { row } if alone > 0 => self.alone.push(self.alone[row % alone].clone()),
            Event::Drop { row } if alone > 0 => drop(self.alone.swap_remove(row % alone)),
            Event::Cut { row, len } if alone > 0 => {
                let (row, reference) = &mut self.alone[row % alone];
                let len = len % (reference.len + 1);
                row.trim_to(len).unwrap();
                reference.cut(len);
            }
            Event::Join { row } if alone > 0 => {
                let (row, reference) = self.alone.swap_remove(row % alone);
                match &mut self.batch {
                    None => self.batch = Some((BatchCache::adopt(row), vec![reference])),
                    Some((batch, references)) => {
                        batch.extend(row).unwrap();
                        references.push(reference);
                    }
                }
            }
            Event::Leave => match self.batch.take() {
                Some((batch, mut references)) if references.len() == 1 => {
                    let row = batch.into_lone().expect("one row is left");
                    self.alone.push((row, references.remove(0)));
                }
                Some((batch, references)) => {
                    let batch = batch.into_lone().expect_err("several rows");
                    self.batch = Some((batch, references));
                }
                None => {}
            },
            Event::Read { reversed } => self.read(world, reversed),
            event => {
                if let Some((batch, references)) = &mut self.batch {
                    Self::happen_to(batch, references, &mut self.alone, world, event);
                }
            }
        }
    }

    fn happen_to(
        batch: &mut BatchCache,
        references: &mut Vec<Reference>,
        alone: &mut Vec<(RowCache, Reference)>,
        world: &mut World,
        event: Event,
    ) {
        match event {
            Event::Steps { count } => (0..count).for_each(|_| world.step(batch, references)),
            Event::Filter { keep, reversed } => {
                let rows = 0..references.len();
                let mut keep: Vec<usize> = rows.filter(|row| keep >> (row % 8) & 1 == 1).collect();
                if keep.is_empty() {
                    keep.push(references.len() - 1);
                }
                if reversed {
                    keep.reverse();
                }
                batch.filter(&keep).unwrap();
                *references = keep.iter().map(|&row| references[row].clone()).collect();
            }
            Event::Extract { row } => {
                let row = row % references.len();
                alone.push((batch.extract(row).unwrap(), references[row].clone()));
            }
            _ => {}
        }
    }

    fn figures(&self) {
        for (row, reference) in &self.alone {
            assert_figures(row, reference);
        }
        if let Some((batch, references)) = &self.batch {
            assert_batch(batch, references);
        }
    }

    /// Whatever is read first is evaluated first.
    fn read(&self, world: &mut World, reversed: bool) {
        let mut rows: Vec<(RowCache, &Reference)> = Vec::new();
        rows.extend(self.alone.iter().map(|(row, reference)| (row.clone(), reference)));
        if let Some((batch, references)) = &self.batch {
            let extracted = |(row, reference)| (batch.extract(row).unwrap(), reference);
            rows.extend(references.iter().enumerate().map(extracted));
        }
        if reversed {
            rows.reverse();
        }
        for (row, reference) in &rows {
            assert_row(row, reference);
        }
        world.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn rows_keep_what_was_written_whatever_happens(
        events in prop::collection::vec(event(), 1..40),
        reversed in any::<bool>(),
    ) {
        let mut world = World::new();
        let mut rows = Rows::default();
        rows.happen(&mut world, Event::New);
        for event in events {
            rows.happen(&mut world, event);
            rows.figures();
        }
        rows.read(&mut world, reversed);
    }

    #[test]
    fn the_reservation_never_falls_and_covers_what_is_allocated(
        mut lengths in prop::collection::vec(0..2000usize, 1..6),
        grown in 0..6usize,
        by in 0..700usize,
        added in 0..2000usize,
    ) {
        for plan in [plan(), CachePlan::new(SHAPES.to_vec())] {
            let mut before = plan.reserved_bytes(&lengths);
            let row = grown % lengths.len();
            lengths[row] += by;
            let now = plan.reserved_bytes(&lengths);
            prop_assert!(now >= before);
            before = now;
            lengths.push(added);
            prop_assert!(plan.reserved_bytes(&lengths) >= before);
        }
    }
}

#[test]
fn own_buffers_reserve_no_padding_but_the_values_stride() {
    let plan = plan();
    assert_eq!(plan.layout(), KvLayout::OwnBuffers);
    assert_eq!(plan.bytes_per_token(), 4 * (2 * (3 + 16) + (5 + 32)));
    assert_eq!(
        plan.reserved_bytes(&[1, 2000, 256]),
        (256 + 2048 + 256) * plan.bytes_per_token()
    );
    let half = KvShape {
        dtype: Dtype::Float16,
        ..SHAPES[0]
    };
    let plan = CachePlan::own_buffers(vec![half]);
    assert_eq!(plan.layers()[0].dtype, Dtype::Float32);
}

#[test]
fn joining_leaving_and_extracting_move_no_buffer() {
    let mut world = World::new();
    let (mut rows, mut references): (Vec<RowCache>, Vec<Reference>) =
        [300, 20, 5, 100].into_iter().map(|len| world.row(len)).unzip();
    let mut homes = Vec::new();
    for (row, reference) in rows.iter_mut().zip(&mut references) {
        homes.push(world.addresses_after(|world| world.prefill(row, reference, 1)));
    }
    let of = |rows: &[usize]| -> Vec<usize> {
        (0..SHAPES.len())
            .flat_map(|layer| rows.iter().map(move |&row| (row, layer)))
            .map(|(row, layer)| homes[row][layer])
            .collect()
    };
    let mut rows = rows.into_iter();
    let mut batch = BatchCache::adopt(rows.next().unwrap());
    for row in rows {
        batch.extend(row).unwrap();
    }
    let found = world.addresses_after(|world| world.step(&mut batch, &mut references));
    assert_eq!(found, of(&[0, 1, 2, 3]));

    let mut left = batch.extract(1).unwrap();
    batch.filter(&[3, 0]).unwrap();
    let mut stay = vec![references[3].clone(), references[0].clone()];
    let found = world.addresses_after(|world| world.step(&mut batch, &mut stay));
    assert_eq!(found, of(&[3, 0]));
    // The extracted row, now the only one to hold its buffers, has them as they were.
    let found = world.addresses_after(|world| world.prefill(&mut left, &mut references[1], 1));
    assert_eq!(found, of(&[1]));

    batch.filter(&[1]).unwrap();
    let mut last = batch.into_lone().unwrap();
    let found = world.addresses_after(|world| world.prefill(&mut last, &mut stay[1], 1));
    assert_eq!(found, of(&[0]));
}

#[test]
fn whoever_writes_first_to_a_shared_buffer_copies_it() {
    let mut world = World::new();
    let (mut row, mut reference) = world.row(40);
    let home = world.addresses_after(|world| world.prefill(&mut row, &mut reference, 1));
    let (mut snapshot, mut then) = (row.clone(), reference.clone());
    let moved = world.addresses_after(|world| world.prefill(&mut row, &mut reference, 1));
    assert_ne!(moved, home);
    assert_row(&snapshot, &then);
    // The other one is now alone with what both had.
    let kept = world.addresses_after(|world| world.prefill(&mut snapshot, &mut then, 1));
    assert_eq!(kept, home);
    assert_row(&snapshot, &then);
    assert_row(&row, &reference);
}

/// The copy must not be made later than the writes to its source that follow.
#[test]
fn a_copy_holds_what_its_source_held_although_nothing_was_evaluated() {
    let mut world = World::new();
    let (mut row, mut reference) = world.row(31);
    let (mut other, mut others) = (row.clone(), reference.clone());
    world.prefill(&mut row, &mut reference, 3);
    // The first buffer's only holder by now: cut, and written to where the copy was taken from.
    other.trim_to(10).unwrap();
    others.cut(10);
    world.prefill(&mut other, &mut others, 30);
    // In this order: the later write runs first.
    assert_row(&other, &others);
    assert_row(&row, &reference);
    world.check();
}

#[test]
fn buffers_grow_in_steps_and_keep_the_sign_of_zero() {
    let mut world = World::new();
    let (mut row, mut reference) = (RowCache::new(&plan()), Reference::default());
    for piece in [GROWTH - 1, 1, 1, GROWTH, 3 * GROWTH + 5] {
        world.prefill(&mut row, &mut reference, piece);
        assert_row(&row, &reference);
        let held = &reference.layers[0];
        assert!(held.iter().any(|value| *value == 0.0 && value.is_sign_negative()));
    }
    row.trim_to(GROWTH).unwrap();
    reference.cut(GROWTH);
    assert_row(&row, &reference);
    assert!(matches!(
        row.trim_to(GROWTH + 1),
        Err(CacheError::TooLong { len, held }) if (len, held) == (GROWTH + 1, GROWTH)
    ));
    row.trim_to(0).unwrap();
    assert_eq!((row.len(), row.allocated_bytes()), (Some(0), 0));
    assert!(row.is_empty());
    transforms::eval(row.arrays()).unwrap();
    world.check();
}

#[test]
fn evaluating_the_arrays_makes_everything_written() {
    let mut world = World::new();
    let (short, reference) = world.row(5);
    let (long, longs) = world.row(200);
    let mut batch = BatchCache::adopt(short);
    batch.extend(long).unwrap();
    assert!(world.addresses.lock().unwrap().is_empty(), "nothing has run");
    transforms::eval(batch.arrays()).unwrap();
    // One piece of the first row, two of the second, in two layers each.
    assert_eq!(world.addresses.lock().unwrap().len(), 2 * (1 + 2));
    for (row, reference) in [reference, longs].iter().enumerate() {
        assert_row(&batch.extract(row).unwrap(), reference);
    }
}

#[test]
fn a_forward_that_stopped_half_way_leaves_a_row_without_a_length() {
    let mut world = World::new();
    let (mut row, reference) = world.row(5);
    let whole = row.clone();
    row.layer(0).rooms(1).unwrap();
    assert_eq!(row.len(), None);
    let differ = |result: Result<(), CacheError>| {
        let error = result.unwrap_err();
        assert!(
            matches!(
                error,
                CacheError::LayersDiffer {
                    layer: 1,
                    found: 5,
                    expected: 6
                }
            ),
            "{error}"
        );
    };
    differ(row.clone().trim_to(3));
    differ(row.wrote(&Array::from_f32(0.0)));
    differ(row.positions(0).map(|_| ()));
    differ(BatchCache::adopt(world.row(4).0).extend(row.clone()));
    differ(BatchCache::adopt(row.clone()).extract(0).map(|_| ()));

    // Room in every layer, and nobody says that it was filled.
    row.layer(1).rooms(1).unwrap();
    assert_eq!(row.len(), None);
    let message = row.trim_to(3).unwrap_err().to_string();
    assert!(message.contains("room up to position 6, but only 5"), "{message}");
    assert_row(&whole, &reference);
}

#[test]
fn a_layer_gets_room_once_in_a_forward() {
    let (mut row, _) = World::new().row(5);
    row.layer(1).rooms(2).unwrap();
    let again = row.layer(1).rooms(2).map(|_| ()).unwrap_err();
    assert!(
        matches!(
            again,
            CacheError::Unwritten {
                layer: 1,
                room: 7,
                written: 5
            }
        ),
        "{again}"
    );
}

#[test]
fn a_batch_that_refuses_is_as_it_was() {
    let mut world = World::new();
    let (row, reference) = world.row(5);
    let (other, others) = world.row(9);
    let mut batch = BatchCache::adopt(row);
    batch.extend(other).unwrap();
    let references = [reference, others];
    assert!(matches!(batch.filter(&[]), Err(CacheError::BadSelection { .. })));
    assert!(matches!(
        batch.filter(&[1, 1]),
        Err(CacheError::BadSelection { .. })
    ));
    assert!(matches!(
        batch.filter(&[0, 2]),
        Err(CacheError::NoSuchRow { row: 2, rows: 2 })
    ));
    assert!(matches!(
        batch.extract(2),
        Err(CacheError::NoSuchRow { row: 2, rows: 2 })
    ));
    let strangers = [
        CachePlan::own_buffers(vec![SHAPES[0]; 2]),
        CachePlan::own_buffers(vec![SHAPES[0]]),
        CachePlan::new(SHAPES.to_vec()),
    ];
    for stranger in strangers {
        let row = RowCache::new(&stranger);
        assert!(matches!(batch.extend(row), Err(CacheError::OtherModel)));
    }
    let mut half = world.row(3).0;
    half.layer(0).rooms(1).unwrap();
    assert!(matches!(batch.extend(half), Err(CacheError::LayersDiffer { .. })));
    assert_batch(&batch, &references);
    for (row, reference) in references.iter().enumerate() {
        assert_row(&batch.extract(row).unwrap(), reference);
    }
    let mut columns = BatchCache::adopt(RowCache::new(&CachePlan::new(SHAPES.to_vec())));
    let own = RowCache::new(&plan());
    assert!(matches!(columns.extend(own), Err(CacheError::OtherModel)));
}

#[test]
fn each_layout_is_written_to_in_its_own_way() {
    let mut own = world_row();
    let array = Array::from_slice(&[0.0f32; 6], &[1, 2, 1, 3]);
    assert_eq!(own.layer(0).layout(), KvLayout::OwnBuffers);
    let refused = own.layer(0).append(&array, &array).unwrap_err();
    assert!(matches!(
        refused,
        CacheError::OtherLayout {
            needs: KvLayout::Columns
        }
    ));
    assert!(refused.to_string().contains("laid out as columns"), "{refused}");
    assert!(matches!(
        own.layer(2).rooms(1).map(|_| ()),
        Err(CacheError::NoSuchLayer { layer: 2, layers: 2 })
    ));
    assert!(matches!(
        own.positions(2),
        Err(CacheError::NoSuchLayer { layer: 2, layers: 2 })
    ));
    assert_eq!(own.len(), Some(5));

    let mut columns = RowCache::new(&CachePlan::new(SHAPES.to_vec()));
    assert_eq!(columns.layer(0).layout(), KvLayout::Columns);
    let refused = columns.layer(0).rooms(1).map(|_| ()).unwrap_err();
    assert!(
        refused.to_string().contains("laid out as own buffers"),
        "{refused}"
    );
    columns.wrote(&array).unwrap();
    assert_eq!(columns.len(), Some(0));
}

fn world_row() -> RowCache {
    World::new().row(5).0
}

#[test]
fn positions_of_columns_read_like_those_of_own_buffers() {
    let mut world = World::new();
    let (own, reference) = world.row(5);
    let mut columns = RowCache::new(&CachePlan::new(SHAPES.to_vec()));
    assert_eq!(columns.positions(0).unwrap(), (vec![], vec![]));
    for (layer, shape) in SHAPES.into_iter().enumerate() {
        let (keys, values) = reference.flat(layer);
        let array =
            |data: &[f32], dim: usize| Array::from_slice(data, &[1, shape.heads as i32, 5, dim as i32]);
        let (keys, values) = (array(&keys, shape.key_dim), array(&values, shape.value_dim));
        columns.layer(layer).append(&keys, &values).unwrap();
    }
    for layer in 0..SHAPES.len() {
        assert_eq!(columns.positions(layer).unwrap(), own.positions(layer).unwrap());
    }
}
