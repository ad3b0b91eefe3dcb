//! A lone row's next position, written in place: into buffers that are nobody else's.

use mlx_chat::cache::{
    BatchCache, CachePlan, KvQuantization, KvScheme, KvShape, LayerPlan, Layers, RowCache, capacity_for,
};
use mlx_rs::Array;
use mlx_rs::ops::indexing::TryIndexOp;

use super::{HEADS, KEY_DIM, LAYERS, Random, Reference, VALUE_DIM, assert_row, plan, row_of};

/// Writes the last position of a reference as a kernel does, if the batch lets it.
pub(super) fn step(batch: &mut BatchCache, reference: &Reference) -> bool {
    let Some(held) = batch.grown().unwrap() else {
        return false;
    };
    let last = reference.positions.len() - 1;
    assert_eq!((held.len(), batch.lengths()), (LAYERS, vec![last + 1]));
    for (layer, [keys, values]) in held.iter().enumerate() {
        write(keys, last, &reference.flat(layer, last, false), KEY_DIM);
        write(values, last, &reference.flat(layer, last, true), VALUE_DIM);
    }
    true
}

/// Writes `[heads, dim]` to a column.
#[expect(unsafe_code, reason = "what a kernel does that MLX knows nothing of")]
fn write(buffer: &Array, column: usize, all: &[f32], dim: usize) {
    buffer.eval().unwrap();
    let capacity = capacity_for(column + 1);
    assert_eq!(buffer.shape(), [1, HEADS, capacity, dim].map(|n| n as i32));
    // SAFETY: an evaluated array of so many floats, row by row, that nothing else looks at meanwhile.
    let held = unsafe {
        let data = mlx_sys::mlx_array_data_float32(buffer.as_ptr()).cast_mut();
        std::slice::from_raw_parts_mut(data, HEADS * capacity * dim)
    };
    for (head, new) in all.chunks_exact(dim).enumerate() {
        held[(head * capacity + column) * dim..][..dim].copy_from_slice(new);
    }
}

fn grown(batch: &mut BatchCache, reference: &mut Reference, random: &mut Random) {
    reference.grow(1, random);
    assert!(step(batch, reference));
}

fn places(batch: &BatchCache) -> Vec<*const f32> {
    let place = |array: &&Array| array.as_slice::<f32>().as_ptr();
    batch.arrays().iter().map(place).collect()
}

#[test]
fn a_row_is_copied_once_and_grows_in_place_from_then_on() {
    let mut random = Random(41);
    let (row, mut reference) = row_of(100, &mut random);
    let shared = row.clone();
    let mut batch = BatchCache::adopt(row);
    let before = places(&batch);
    grown(&mut batch, &mut reference, &mut random);
    let own = places(&batch);
    assert!(before.iter().zip(&own).all(|(before, own)| before != own));
    for _ in 0..3 {
        grown(&mut batch, &mut reference, &mut random);
        assert_eq!(places(&batch), own);
    }
    drop(shared);
    assert_row(&batch.into_lone().unwrap(), &reference);
}

#[test]
fn what_others_hold_or_have_seen_is_not_written_to() {
    let mut random = Random(42);
    for len in [1, 200, 255, 256, 300] {
        let (row, reference) = row_of(len, &mut random);
        let (mut batch, mut ours) = (BatchCache::adopt(row), reference);
        grown(&mut batch, &mut ours, &mut random);
        // One copy that was made while the row is being written to, and one that goes on by itself.
        let (taken, then) = (batch.extract(0).unwrap(), ours.clone());
        let (mut other, mut theirs) = (BatchCache::adopt(batch.extract(0).unwrap()), ours.clone());
        for _ in 0..3 {
            grown(&mut batch, &mut ours, &mut random);
            grown(&mut other, &mut theirs, &mut random);
        }
        assert_row(&taken, &then);
        assert_row(&other.into_lone().unwrap(), &theirs);

        // A clone, of which both go on.
        let row = batch.into_lone().unwrap();
        let (mut first, mut firsts) = (BatchCache::adopt(row.clone()), ours.clone());
        let (mut second, mut seconds) = (BatchCache::adopt(row.clone()), ours.clone());
        for _ in 0..3 {
            grown(&mut first, &mut firsts, &mut random);
            grown(&mut second, &mut seconds, &mut random);
        }
        assert_row(&row, &ours);
        assert_row(&second.into_lone().unwrap(), &seconds);

        // Cut while what was taken from it is still there, then written over.
        let taken = first.extract(0).unwrap();
        let mut row = first.into_lone().unwrap();
        row.trim_to(len).unwrap();
        let mut reference = firsts.clone();
        reference.positions.truncate(len);
        let mut batch = BatchCache::adopt(row);
        grown(&mut batch, &mut reference, &mut random);
        assert_row(&taken, &firsts);
        assert_row(&batch.into_lone().unwrap(), &reference);
    }
}

#[test]
fn what_was_seen_past_a_cut_is_not_written_to() {
    let mut random = Random(44);
    let (row, mut reference) = row_of(100, &mut random);
    let mut batch = BatchCache::adopt(row);
    grown(&mut batch, &mut reference, &mut random);
    let zeros = |dim| Array::zeros::<f32>(&[1, HEADS as i32, 1, dim as i32]).unwrap();
    let seen: Vec<_> = (0..LAYERS)
        .map(|layer| {
            batch
                .layer(layer)
                .append(&zeros(KEY_DIM), &zeros(VALUE_DIM))
                .unwrap()
        })
        .collect();
    let mut row = batch.into_lone().unwrap();
    row.trim_to(101).unwrap();
    let mut batch = BatchCache::adopt(row);
    grown(&mut batch, &mut reference, &mut random);
    for seen in seen {
        let written = seen.written().try_index((.., .., 101)).unwrap();
        let written = written.contiguous().unwrap();
        assert!(written.as_slice::<f32>().iter().all(|&value| value == 0.0));
    }
    assert_row(&batch.into_lone().unwrap(), &reference);
}

#[test]
fn only_full_columns_of_one_row_that_hold_something_grow_so() {
    let mut random = Random(43);
    assert!(
        BatchCache::adopt(RowCache::new(&plan()))
            .grown()
            .unwrap()
            .is_none()
    );
    let (row, _) = row_of(10, &mut random);
    let mut batch = BatchCache::adopt(row);
    batch.extend(row_of(7, &mut random).0).unwrap();
    assert!(batch.grown().unwrap().is_none());
    assert_eq!(batch.lengths(), [10, 7]);

    let full = LayerPlan::Full(KvShape::float32(2, 32, 32));
    let others = [
        full,
        LayerPlan::Sliding {
            kv: KvShape::float32(2, 32, 32),
            window: 8,
        },
        LayerPlan::Full(
            KvShape::float32(2, 32, 32).with_scheme(KvScheme::Quantized(KvQuantization {
                bits: 8,
                group_size: 32,
            })),
        ),
    ];
    for (other, grows) in others.into_iter().zip([true, false, false]) {
        let mut batch = BatchCache::adopt(RowCache::new(&CachePlan::new(vec![full, other])));
        for layer in 0..2 {
            let new = Array::zeros::<f32>(&[1, 2, 5, 32]).unwrap();
            batch.layer(layer).append(&new, &new).unwrap();
        }
        assert_eq!(batch.grown().unwrap().is_some(), grows, "{other:?}");
        assert_eq!(batch.lengths(), [5 + usize::from(grows)]);
    }
}
