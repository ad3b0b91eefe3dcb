//! Caches: what is written comes back, byte for byte, whatever rows join and leave in between.

mod codes;
mod in_place;
mod kinds;
mod mixed;
mod parts;
mod reservation;

use mlx_chat::cache::{
    BatchCache, CacheError, CachePlan, KvScheme, KvShape, Layers, Need, RowCache, Seen, capacity_for,
};
use mlx_chat::nn::Backend;
use mlx_rs::{Array, Dtype};

const HEADS: usize = 2;
const KEY_DIM: usize = 3;
const VALUE_DIM: usize = 4;
const LAYERS: usize = 2;
/// Any: full layers take as much however they are fed.
const CHUNK: usize = 300;

fn plan() -> CachePlan {
    Backend::Cpu.enter();
    let shape = KvShape {
        heads: HEADS,
        key_dim: KEY_DIM,
        value_dim: VALUE_DIM,
        dtype: Dtype::Float32,
        scheme: KvScheme::Full,
    };
    CachePlan::new(vec![shape; LAYERS])
}

/// A small reproducible generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }

    fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.next() as f32 / 1e6 - 500.0).collect()
    }
}

/// One row on the host: for each layer, for each position, its keys of all heads and its values of all heads.
#[derive(Clone, Default)]
struct Reference {
    positions: Vec<[(Vec<f32>, Vec<f32>); LAYERS]>,
}

impl Reference {
    fn grow(&mut self, by: usize, random: &mut Random) {
        for _ in 0..by {
            let mut layer = || (random.floats(HEADS * KEY_DIM), random.floats(HEADS * VALUE_DIM));
            self.positions.push([layer(), layer()]);
        }
    }

    /// `[heads, columns, dim]` of some positions.
    fn flat(&self, layer: usize, from: usize, values: bool) -> Vec<f32> {
        let dim = if values { VALUE_DIM } else { KEY_DIM };
        let mut out = Vec::new();
        for head in 0..HEADS {
            for position in &self.positions[from..] {
                let (k, v) = &position[layer];
                let all = if values { v } else { k };
                out.extend(&all[head * dim..(head + 1) * dim]);
            }
        }
        out
    }
}

fn array(data: &[f32], rows: usize, len: usize, dim: usize) -> Array {
    Array::from_slice(data, &[rows, HEADS, len, dim].map(|n| n as i32))
}

fn floats(array: &Array) -> Vec<f32> {
    array.contiguous().unwrap().to_vec_exact().unwrap()
}

/// Appends the last `len` positions of the reference to a serial row.
fn feed(row: &mut RowCache, reference: &Reference, len: usize) {
    let from = reference.positions.len() - len;
    for layer in 0..LAYERS {
        let keys = array(&reference.flat(layer, from, false), 1, len, KEY_DIM);
        let values = array(&reference.flat(layer, from, true), 1, len, VALUE_DIM);
        let seen = row.layer(layer).append(&keys, &values).unwrap();
        let [all_keys, all_values] = seen.in_full().unwrap();
        assert_eq!(floats(&all_keys), reference.flat(layer, 0, false));
        assert_eq!(floats(&all_values), reference.flat(layer, 0, true));
    }
}

/// A row of `len` positions, written in pieces.
fn row_of(len: usize, random: &mut Random) -> (RowCache, Reference) {
    let (mut row, mut reference) = (RowCache::new(&plan()), Reference::default());
    while reference.positions.len() < len {
        let piece = (1 + random.below(300)).min(len - reference.positions.len());
        reference.grow(piece, random);
        feed(&mut row, &reference, piece);
    }
    (row, reference)
}

/// Feeds one position to every row of a batch, and checks what attention would be given.
fn step(batch: &mut BatchCache, references: &mut [Reference], random: &mut Random) {
    let rows = references.len();
    for reference in references.iter_mut() {
        reference.grow(1, random);
    }
    if let [reference] = &*references
        && random.below(2) == 0
        && in_place::step(batch, reference)
    {
        return;
    }
    for layer in 0..LAYERS {
        let last = |values| -> Vec<f32> {
            references
                .iter()
                .flat_map(|r| r.flat(layer, r.positions.len() - 1, values))
                .collect()
        };
        let keys = array(&last(false), rows, 1, KEY_DIM);
        let values = array(&last(true), rows, 1, VALUE_DIM);
        let seen = batch.layer(layer).append(&keys, &values).unwrap();
        let [keys, values] = seen.in_full().unwrap();
        let width = references.iter().map(|r| r.positions.len()).max().unwrap();
        for (view, dim, is_values) in [(&keys, KEY_DIM, false), (&values, VALUE_DIM, true)] {
            let all = floats(view);
            for (b, reference) in references.iter().enumerate() {
                let pad = width - reference.positions.len();
                let mut seen: Vec<f32> = Vec::new();
                for head in 0..HEADS {
                    let start = ((b * HEADS + head) * width + pad) * dim;
                    seen.extend(&all[start..start + reference.positions.len() * dim]);
                }
                assert_eq!(seen, reference.flat(layer, 0, is_values), "row {b}");
            }
        }
    }
}

/// A serial row holds exactly the reference, in a buffer of the capacity that a lone run would have.
fn assert_row(row: &RowCache, reference: &Reference) {
    let len = reference.positions.len();
    assert_eq!(row.len(), Some(len));
    assert_eq!(row.used_bytes(), len as u64 * plan().bytes_per_token());
    assert_eq!(
        row.allocated_bytes(),
        capacity_for(len) as u64 * plan().bytes_per_token()
    );
    for (at, buffer) in row.arrays().into_iter().enumerate() {
        let (layer, is_values) = (at / 2, at % 2 == 1);
        let dim = if is_values { VALUE_DIM } else { KEY_DIM };
        assert_eq!(
            buffer.shape(),
            [1, HEADS, capacity_for(len), dim].map(|n| n as i32)
        );
        let all = floats(buffer);
        let held: Vec<f32> = (0..HEADS)
            .flat_map(|h| all[h * capacity_for(len) * dim..][..len * dim].to_vec())
            .collect();
        assert_eq!(held, reference.flat(layer, 0, is_values));
    }
}

fn assert_figures(batch: &BatchCache, references: &[Reference]) {
    let lengths: Vec<usize> = references.iter().map(|r| r.positions.len()).collect();
    let longest = lengths.iter().copied().max().unwrap();
    assert_eq!(batch.rows(), references.len());
    assert_eq!(batch.lengths(), lengths);
    assert_eq!(
        batch.width(),
        longest,
        "padding that is common to all rows is dropped"
    );
    let per_token = plan().bytes_per_token();
    assert_eq!(
        batch.used_bytes(),
        lengths.iter().sum::<usize>() as u64 * per_token
    );
    let allocated = (references.len() * capacity_for(longest)) as u64 * per_token;
    assert_eq!(batch.allocated_bytes(), allocated);
    let nbytes: usize = batch.arrays().iter().map(|array| array.nbytes()).sum();
    assert_eq!(nbytes as u64, allocated, "what is said to be allocated is");
}

#[test]
fn rows_that_join_step_and_leave_at_random_keep_their_bytes() {
    for seed in 0..25 {
        let mut random = Random(seed);
        let len = 1 + random.below(600);
        let (row, reference) = row_of(len, &mut random);
        let (mut batch, mut references) = (BatchCache::adopt(row), vec![reference]);
        for _ in 0..14 {
            match random.below(5) {
                0 | 1 if references.len() < 5 => {
                    let len = random.below(600);
                    let (row, reference) = row_of(len, &mut random);
                    batch.extend(row).unwrap();
                    references.push(reference);
                }
                2 => {
                    let mut keep: Vec<usize> =
                        (0..references.len()).filter(|_| random.below(3) > 0).collect();
                    if random.below(4) == 0 {
                        keep.reverse();
                    }
                    if keep.is_empty() {
                        keep.push(random.below(references.len()));
                    }
                    batch.filter(&keep).unwrap();
                    references = keep.iter().map(|&row| references[row].clone()).collect();
                }
                3 => {
                    let row = random.below(references.len());
                    assert_row(&batch.extract(row).unwrap(), &references[row]);
                }
                _ => step(&mut batch, &mut references, &mut random),
            }
            assert_figures(&batch, &references);
        }
        for (row, reference) in references.iter().enumerate() {
            assert_row(&batch.extract(row).unwrap(), reference);
        }
    }
}

#[test]
fn an_adopted_row_is_kept_as_it_is_and_handed_back() {
    let mut random = Random(1);
    let (row, reference) = row_of(10, &mut random);
    let (mut batch, mut references) = (BatchCache::adopt(row), vec![reference]);
    assert!(batch.is_lone());
    step(&mut batch, &mut references, &mut random);
    batch.filter(&[0]).unwrap();
    assert!(batch.is_lone());
    assert_row(&batch.into_lone().unwrap(), &references[0]);
}

#[test]
fn a_batch_filtered_down_to_one_row_stays_a_batch() {
    let mut random = Random(2);
    let (long, _) = row_of(300, &mut random);
    let (short, reference) = row_of(20, &mut random);
    let mut batch = BatchCache::adopt(long);
    batch.extend(short).unwrap();
    assert!(!batch.is_lone());
    batch.filter(&[1]).unwrap();
    assert_figures(&batch, &[reference]);
    let batch = batch.into_lone().unwrap_err();
    assert!(!batch.is_lone());
    assert_eq!(batch.left_pads(), [0]);
}

#[test]
fn a_clone_is_a_snapshot_whichever_of_the_two_goes_on() {
    let mut random = Random(3);
    let (mut row, mut reference) = row_of(200, &mut random);
    let (snapshot, then) = (row.clone(), reference.clone());
    reference.grow(5, &mut random);
    feed(&mut row, &reference, 5);
    assert_row(&snapshot, &then);
    let (mut other, mut others) = (snapshot.clone(), then.clone());
    others.grow(100, &mut random);
    feed(&mut other, &others, 100);
    assert_row(&snapshot, &then);
    assert_row(&row, &reference);
    assert_row(&other, &others);
}

#[test]
fn extending_and_filtering_leave_a_snapshot_intact() {
    let mut random = Random(4);
    let (row, reference) = row_of(256, &mut random);
    let snapshot = row.clone();
    let (longer, longers) = row_of(400, &mut random);
    let mut batch = BatchCache::adopt(row);
    batch.extend(longer).unwrap();
    let mut references = vec![reference.clone(), longers];
    step(&mut batch, &mut references, &mut random);
    let extracted = batch.extract(0).unwrap();
    let then = references[0].clone();
    batch.filter(&[0]).unwrap();
    references.truncate(1);
    step(&mut batch, &mut references, &mut random);
    assert_row(&extracted, &then);
    assert_row(&snapshot, &reference);
}

#[test]
fn a_cut_row_keeps_its_prefix_and_gives_up_what_it_does_not_need() {
    let mut random = Random(5);
    for (from, to) in [(700, 300), (700, 512), (300, 299), (256, 0), (10, 10), (513, 512)] {
        let (row, reference) = row_of(from, &mut random);
        let (mut cut, mut kept) = (row.clone(), reference.clone());
        assert!(cut.trimmable());
        cut.trim_to(to).unwrap();
        kept.positions.truncate(to);
        if to > 0 {
            assert_row(&cut, &kept);
        }
        assert_eq!(
            cut.allocated_bytes(),
            capacity_for(to) as u64 * plan().bytes_per_token()
        );
        kept.grow(7, &mut random);
        feed(&mut cut, &kept, 7);
        assert_row(&cut, &kept);
        assert_row(&row, &reference);
    }
}

#[test]
fn cutting_to_more_than_is_held_is_refused() {
    let (mut row, reference) = row_of(5, &mut Random(6));
    assert!(matches!(
        row.trim_to(6),
        Err(CacheError::TooLong { len: 6, held: 5 })
    ));
    assert_row(&row, &reference);
}

#[test]
fn a_forward_that_stopped_half_way_leaves_a_row_without_a_length() {
    let mut random = Random(7);
    let (mut row, mut reference) = row_of(5, &mut random);
    reference.grow(1, &mut random);
    let keys = array(&reference.flat(0, 5, false), 1, 1, KEY_DIM);
    let values = array(&reference.flat(0, 5, true), 1, 1, VALUE_DIM);
    row.layer(0).append(&keys, &values).unwrap();
    assert_eq!(row.len(), None);
    let differ = |result: Result<(), CacheError>| {
        assert!(matches!(
            result,
            Err(CacheError::LayersDiffer {
                layer: 1,
                found: 5,
                expected: 6
            })
        ));
    };
    differ(row.clone().trim_to(3));
    differ(
        BatchCache::adopt(row_of(4, &mut random).0)
            .extend(row.clone())
            .map_err(|error| match error {
                // The row is the odd one, not the batch.
                CacheError::LayersDiffer { .. } => error,
                other => panic!("{other}"),
            }),
    );
    differ(BatchCache::adopt(row).extract(0).map(|_| ()));
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let mut random = Random(8);
    let (mut row, reference) = row_of(5, &mut random);
    let good = array(&random.floats(HEADS * KEY_DIM), 1, 1, KEY_DIM);
    let values = array(&random.floats(HEADS * VALUE_DIM), 1, 1, VALUE_DIM);
    let message = |result: Result<Seen, CacheError>| result.err().unwrap().to_string();
    let wide = array(&random.floats(2 * HEADS * KEY_DIM), 2, 1, KEY_DIM);
    assert_eq!(
        message(row.layer(0).append(&wide, &values)),
        "layer 0 was given keys of shape [2, 2, 1, 3], expected [1, 2, 1, 3]"
    );
    assert!(
        message(row.layer(0).append(&good, &good))
            .contains("values of shape [1, 2, 1, 3], expected [1, 2, 1, 4]")
    );
    let half = good.as_dtype(Dtype::Float16).unwrap();
    assert!(message(row.layer(1).append(&half, &values)).contains("keys of type Float16, expected Float32"));
    assert!(message(row.layer(2).append(&good, &values)).contains("no layer 2: the cache has 2"));
    assert_row(&row, &reference);

    let mut batch = BatchCache::adopt(row);
    batch.extend(row_of(9, &mut random).0).unwrap();
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
    let other = KvShape {
        heads: 1,
        key_dim: 3,
        value_dim: 4,
        dtype: Dtype::Float32,
        scheme: KvScheme::Full,
    };
    let stranger = RowCache::new(&CachePlan::new(vec![other; LAYERS]));
    assert!(matches!(batch.extend(stranger), Err(CacheError::OtherModel)));
    assert_row(&batch.extract(0).unwrap(), &reference);
}

/// Adds a row, or lets the prompt or the answer of one grow.
fn grow(needs: &mut Vec<Need>, random: &mut Random) {
    if needs.is_empty() || random.below(3) == 0 {
        needs.push(Need {
            prompt: 1 + random.below(900),
            max_tokens: 1 + random.below(300),
        });
        return;
    }
    let row = random.below(needs.len());
    let grown = match random.below(2) {
        0 => &mut needs[row].prompt,
        _ => &mut needs[row].max_tokens,
    };
    *grown += random.below(300);
}

#[test]
fn the_reservation_never_falls_when_a_row_is_added_or_grows() {
    let plan = plan();
    let mut random = Random(9);
    let mut needs = Vec::new();
    let mut before = plan.reserved_bytes(&needs, CHUNK);
    assert_eq!(before, 0);
    for _ in 0..200 {
        grow(&mut needs, &mut random);
        let now = plan.reserved_bytes(&needs, CHUNK);
        assert!(now >= before);
        before = now;
    }
}

#[test]
fn prefilling_in_pieces_allocates_what_one_piece_would() {
    for piece in [37, 100, 256] {
        let (mut row, mut reference) = (RowCache::new(&plan()), Reference::default());
        let mut random = Random(10);
        while reference.positions.len() < 800 {
            reference.grow(piece, &mut random);
            feed(&mut row, &reference, piece);
            assert_row(&row, &reference);
        }
    }
}
