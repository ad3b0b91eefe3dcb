//! Own buffers: what kernels write in place comes back bit for bit, whatever rows join, leave, are cloned and cut in
//! between, evaluated or not.

mod events;
mod world;

use mlx_chat::cache::{BatchCache, CacheError, CachePlan, GROWTH, KvLayout, KvShape, Layers, Need, RowCache};
use mlx_rs::{Array, Dtype, transforms};

use world::{CHUNK, Reference, SHAPES, World, assert_batch, assert_row, plan};

#[test]
fn own_buffers_reserve_no_padding_but_the_values_stride() {
    let plan = plan();
    assert_eq!(plan.layout(), KvLayout::OwnBuffers);
    assert_eq!(plan.bytes_per_token(), 4 * (2 * (3 + 16) + (5 + 32)));
    let needs = [(1, 1), (1000, 1000), (1, 255)].map(|(prompt, max_tokens)| Need { prompt, max_tokens });
    assert_eq!(
        plan.reserved_bytes(&needs, CHUNK),
        (256 + 2048 + 256) * plan.bytes_per_token()
    );
    let half = KvShape {
        dtype: Dtype::Float16,
        ..SHAPES[0]
    };
    let plan = CachePlan::own_buffers(vec![half]);
    assert_eq!(plan.layers()[0].kv().unwrap().dtype, Dtype::Float32);
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
