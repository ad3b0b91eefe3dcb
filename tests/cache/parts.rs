//! A row taken apart to bytes and put together again: the same row, to the byte.

use mlx_chat::cache::{BatchCache, CacheError, CachePlan, KvLayout, LayerParts, RowCache};
use mlx_chat::model::LanguageModel;
use mlx_chat::model::hashing::{HashingLayer, HashingModel, HashingOptions};
use mlx_chat::nn::Backend;
use mlx_rs::{Array, Dtype};

const LAYERS: [HashingLayer; 4] = [
    HashingLayer::Full,
    HashingLayer::Sliding(8),
    HashingLayer::Recurrent,
    HashingLayer::Sliding(300),
];

const LAYOUTS: [KvLayout; 2] = [KvLayout::Columns, KvLayout::OwnBuffers];

fn model(layout: KvLayout) -> HashingModel {
    Backend::Cpu.enter();
    HashingModel::new(HashingOptions {
        layout,
        layers: LAYERS.to_vec(),
        ..HashingOptions::default()
    })
}

/// A row that was fed so many tokens, in pieces.
fn row(model: &HashingModel, len: u32) -> RowCache {
    let mut row = model.new_row();
    let tokens: Vec<u32> = (0..len).map(|at| at * 7 % 61).collect();
    for piece in tokens.chunks(100) {
        model.prefill(piece, &mut row).unwrap();
        mlx_rs::transforms::eval(row.arrays()).unwrap();
    }
    row
}

fn apart(row: &RowCache) -> Vec<LayerParts> {
    (0..row.layers()).map(|layer| row.parts(layer).unwrap()).collect()
}

fn together(plan: &CachePlan, len: usize, layers: Vec<LayerParts>) -> Result<RowCache, CacheError> {
    RowCache::from_parts(plan, len, layers)
}

/// The logits after each of some tokens that a row is fed one by one.
fn goes_on(model: &HashingModel, row: RowCache) -> Vec<Vec<f32>> {
    let mut batch = BatchCache::adopt(row);
    let logits = |token: u32| {
        let logits = model
            .decode(&Array::from_slice(&[token], &[1]), &mut batch)
            .unwrap();
        logits.contiguous().unwrap().to_vec_exact().unwrap()
    };
    (0..12).map(logits).collect()
}

#[test]
fn what_is_put_together_is_what_was_taken_apart_and_goes_on_alike() {
    for layout in LAYOUTS {
        let model = model(layout);
        for len in [1, 7, 8, 9, 31, 33, 255, 257, 299, 300, 301, 650] {
            for compacted in [false, true] {
                let mut row = row(&model, len);
                if compacted {
                    row.compact().unwrap();
                }
                let parts = apart(&row);
                let again = together(model.plan(), len as usize, parts.clone()).unwrap();
                let what = format!("{layout}, {len} positions, compacted {compacted}");
                assert_eq!(apart(&again), parts, "{what}");
                assert_eq!(again.len(), row.len(), "{what}");
                assert_eq!(again.allocated_bytes(), row.allocated_bytes(), "{what}");
                assert_eq!(again.used_bytes(), row.used_bytes(), "{what}");
                assert_eq!(again.trimmable(), row.trimmable(), "{what}");
                for layer in 0..LAYERS.len() {
                    assert_eq!(
                        again.positions(layer).unwrap(),
                        row.positions(layer).unwrap(),
                        "{what}"
                    );
                }
                assert_eq!(goes_on(&model, again), goes_on(&model, row), "{what}");
            }
        }
    }
}

#[test]
fn a_row_goes_on_without_changing_what_was_taken_from_it() {
    for layout in LAYOUTS {
        let model = model(layout);
        let row = row(&model, 20);
        let parts = apart(&row);
        let again = together(model.plan(), 20, parts.clone()).unwrap();
        goes_on(&model, again.clone());
        assert_eq!(apart(&again), parts, "{layout}");
    }
}

#[test]
fn arrays_are_named_by_what_they_are() {
    let names = |layout| -> Vec<Vec<String>> {
        let named = |layer: LayerParts| layer.arrays.into_iter().map(|part| part.name).collect();
        apart(&row(&model(layout), 5)).into_iter().map(named).collect()
    };
    let attention = ["keys", "values"];
    assert_eq!(
        names(KvLayout::Columns),
        [&attention, &attention, &["convolution", "state"], &attention]
    );
    assert_eq!(
        names(KvLayout::OwnBuffers),
        [["panels"], ["panels"], ["state"], ["panels"]]
    );
}

/// What from parts that were changed in one place.
fn changed(layout: KvLayout, len: usize, change: impl Fn(&mut Vec<LayerParts>)) -> String {
    let model = model(layout);
    let mut parts = apart(&row(&model, 40));
    change(&mut parts);
    together(model.plan(), len, parts).unwrap_err().to_string()
}

#[test]
fn parts_of_another_shape_type_or_number_are_refused() {
    for layout in LAYOUTS {
        let says = |change: fn(&mut Vec<LayerParts>), said: &str| {
            let message = changed(layout, 40, change);
            assert!(message.contains(said), "{layout}: {said:?} is not in {message}");
        };
        says(|parts| drop(parts.pop()), "3 layers");
        says(
            |parts| parts[2].arrays.clear(),
            "layer 2 can't be put together again: 0 arrays",
        );
        says(|parts| parts[0].arrays[0].shape[0] += 1, "layer 0");
        says(|parts| parts[1].arrays[0].dtype = Dtype::Float16, "Float16");
        says(|parts| parts[3].arrays[0].name = "scales".into(), "scales");
        says(|parts| parts[0].arrays[0].bytes.truncate(3), "bytes");
        says(|parts| parts.swap(0, 2), "layer 0");
        says(|parts| parts[2].first = 1, "layer 2");
    }
}

#[test]
fn own_buffers_in_which_seen_positions_are_missing_are_refused() {
    let missing = changed(KvLayout::OwnBuffers, 40, |parts| parts[0].first = 1);
    assert!(
        missing.contains("layer 0") && missing.contains("missing"),
        "{missing}"
    );
    let too_short = changed(KvLayout::OwnBuffers, 40, |parts| {
        let panels = &mut parts[3].arrays[0];
        panels.bytes.truncate(panels.bytes.len() / panels.shape[1]);
        panels.shape[1] = 1;
    });
    assert!(
        too_short.contains("layer 3") && too_short.contains("missing"),
        "{too_short}"
    );
    let beyond = changed(KvLayout::OwnBuffers, 2000, |_| ());
    assert!(beyond.contains("layer 0"), "{beyond}");
}

#[test]
fn a_row_whose_forward_stopped_half_way_has_no_parts() {
    for layout in LAYOUTS {
        Backend::Cpu.enter();
        let model = HashingModel::new(HashingOptions {
            layout,
            layers: LAYERS.to_vec(),
            fail_prefill: Some(0),
            ..HashingOptions::default()
        });
        let mut row = model.new_row();
        assert!(model.prefill(&[1, 2, 3], &mut row).is_err());
        assert!(row.parts(0).is_err(), "{layout}");
    }
}
