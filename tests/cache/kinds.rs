//! Layers of all kinds in both layouts: whatever rows join, leave, are cut, cloned and restored, each sees its own.

use mlx_chat::cache::{
    BatchCache, CacheError, CachePlan, GROWTH, KvLayout, LayerPlan, Layers, Need, PANEL, RowCache,
    capacity_for,
};
use mlx_rs::{Array, transforms};

use crate::mixed::{CHUNK, Mixed, hybrid, plans, quantized, sliding, windows};
use crate::{Random, grow};

/// Rows outside of a batch, and the batch.
struct Rows {
    mixed: Mixed,
    random: Random,
    alone: Vec<(RowCache, Vec<u32>)>,
    batch: Option<(BatchCache, Vec<Vec<u32>>)>,
}

impl Rows {
    fn pick(&mut self) -> Option<usize> {
        (!self.alone.is_empty()).then(|| self.random.below(self.alone.len()))
    }

    fn happen(&mut self) {
        match self.random.below(12) {
            0 => {
                let len = self.random.below(700);
                let row = self.mixed.row(len, &mut self.random);
                self.alone.push(row);
            }
            1 | 2 => {
                let added = 1 + self.random.below(CHUNK);
                if let Some(at) = self.pick() {
                    let (row, tokens) = &mut self.alone[at];
                    self.mixed.feed(row, tokens, added);
                }
            }
            3 => {
                if let Some(at) = self.pick() {
                    self.alone.push(self.alone[at].clone());
                }
            }
            4 => {
                if let Some(at) = self.pick() {
                    let (mut row, tokens) = self.alone.swap_remove(at);
                    // As the prompt cache keeps it.
                    row.compact().unwrap();
                    self.alone.push((row, tokens));
                }
            }
            5 => self.cut(),
            6 | 7 => self.join(),
            8 => self.filter(),
            9 => {
                if let Some((batch, tokens)) = &self.batch {
                    let at = self.random.below(tokens.len());
                    self.alone.push((batch.extract(at).unwrap(), tokens[at].clone()));
                }
            }
            10 => {
                if self.batch.as_ref().is_some_and(|(batch, _)| batch.is_lone())
                    && let Some((batch, mut tokens)) = self.batch.take()
                {
                    self.alone.push((batch.into_lone().unwrap(), tokens.remove(0)));
                }
            }
            _ => {
                if let Some((batch, tokens)) = &mut self.batch {
                    let steps = 1 + self.random.below(40);
                    (0..steps).for_each(|_| self.mixed.step(batch, tokens));
                }
            }
        }
        if let Some((batch, tokens)) = &self.batch {
            self.mixed.assert_batch(batch, tokens);
        }
    }

    fn cut(&mut self) {
        let Some(at) = self.pick() else { return };
        let (row, tokens) = &mut self.alone[at];
        let len = self.random.below(tokens.len() + 1);
        if row.trimmable_to(len) {
            row.trim_to(len).unwrap();
            tokens.truncate(len);
        } else {
            assert!(!row.trimmable(), "none is harder to cut to");
            assert!(!self.mixed.plan.trimmable_at(tokens.len()));
            assert!(matches!(row.trim_to(len), Err(CacheError::Untrimmable { .. })));
        }
    }

    fn join(&mut self) {
        let Some(at) = self.pick() else { return };
        let (row, new) = self.alone.swap_remove(at);
        match &mut self.batch {
            Some((_, tokens)) if tokens.len() > 4 => self.alone.push((row, new)),
            Some((batch, tokens)) => {
                batch.extend(row).unwrap();
                tokens.push(new);
            }
            None => self.batch = Some((BatchCache::adopt(row), vec![new])),
        }
    }

    fn filter(&mut self) {
        let Some((batch, tokens)) = &mut self.batch else {
            return;
        };
        let mut keep: Vec<usize> = (0..tokens.len()).filter(|_| self.random.below(3) > 0).collect();
        if self.random.below(3) == 0 {
            keep.reverse();
        }
        if keep.is_empty() {
            keep.push(self.random.below(tokens.len()));
        }
        batch.filter(&keep).unwrap();
        *tokens = keep.iter().map(|&row| tokens[row].clone()).collect();
    }

    fn read(&self) {
        for (row, tokens) in &self.alone {
            self.mixed.assert_row(row, tokens);
        }
        if let Some((batch, rows)) = &self.batch {
            for (at, tokens) in rows.iter().enumerate() {
                self.mixed.assert_row(&batch.extract(at).unwrap(), tokens);
            }
        }
    }
}

#[test]
fn whatever_happens_every_row_sees_its_own_and_holds_it() {
    let models = [
        windows(1, 33),
        windows(40, 7),
        windows(256, 100),
        windows(300, 900),
        hybrid(40, 300),
        hybrid(600, 64),
        quantized(40, 300),
        quantized(600, 1),
    ];
    for (seed, layers) in models.iter().enumerate() {
        for plan in plans(layers) {
            for part in 0..4 {
                let mut rows = Rows {
                    mixed: Mixed::new(plan.clone()),
                    random: Random(seed as u64 * 10 + part),
                    alone: Vec::new(),
                    batch: None,
                };
                (0..30).for_each(|_| rows.happen());
                rows.read();
            }
        }
    }
}

const WINDOW: usize = 40;

fn edges() -> [usize; 7] {
    [
        1,
        WINDOW - 1,
        WINDOW,
        WINDOW + 1,
        2 * WINDOW - 1,
        2 * WINDOW,
        2 * WINDOW + 1,
    ]
}

/// Feeds a row of its own in pieces of `chunk`.
fn fed(mixed: &mut Mixed, len: usize, chunk: usize) -> (RowCache, Vec<u32>) {
    let (mut row, mut tokens) = (RowCache::new(&mixed.plan), Vec::new());
    while tokens.len() < len {
        let piece = chunk.min(len - tokens.len());
        mixed.feed(&mut row, &mut tokens, piece);
    }
    (row, tokens)
}

#[test]
fn at_every_edge_of_the_ring_rows_join_step_leave_and_are_given_back() {
    let kinds = [hybrid(WINDOW, 2 * WINDOW), quantized(WINDOW, 2 * WINDOW)];
    for plan in kinds.iter().flat_map(|layers| plans(layers)) {
        let mut mixed = Mixed::new(plan);
        for first in edges() {
            for second in edges() {
                let (a, a_tokens) = fed(&mut mixed, first, 7);
                let (b, b_tokens) = fed(&mut mixed, second, CHUNK);
                let mut rows = vec![a_tokens, b_tokens];
                let mut batch = BatchCache::adopt(a);
                batch.extend(b).unwrap();
                for (at, tokens) in rows.iter().enumerate() {
                    mixed.assert_row(&batch.extract(at).unwrap(), tokens);
                }
                (0..2).for_each(|_| mixed.step(&mut batch, &mut rows));
                mixed.assert_batch(&batch, &rows);
                mixed.assert_row(&batch.extract(0).unwrap(), &rows[0]);
                batch.filter(&[1]).unwrap();
                rows.remove(0);
                mixed.assert_batch(&batch, &rows);
                (0..2).for_each(|_| mixed.step(&mut batch, &mut rows));
                mixed.assert_row(&batch.extract(0).unwrap(), &rows[0]);
            }
        }
    }
}

#[test]
fn a_ring_of_columns_lies_the_same_however_it_came_to_be() {
    let [plan, _] = plans(&windows(WINDOW, 3));
    let bytes = |row: &RowCache| -> Vec<Vec<f32>> {
        let arrays = row.arrays();
        transforms::eval(arrays.iter().copied()).unwrap();
        let read = |array: &&Array| array.contiguous().unwrap().to_vec_exact().unwrap();
        arrays.iter().map(read).collect()
    };
    for len in edges() {
        // The same tokens each time.
        let lone = |chunk| fed(&mut Mixed::new(plan.clone()), len, chunk).0;
        let whole = lone(CHUNK);
        for chunk in [1, 7, WINDOW] {
            assert_eq!(bytes(&lone(chunk)), bytes(&whole), "{len} in pieces of {chunk}");
        }
        let mut batch = BatchCache::adopt(lone(CHUNK));
        let other = fed(&mut Mixed::new(plan.clone()), 2 * WINDOW + 7, CHUNK).0;
        batch.extend(other).unwrap();
        assert_eq!(bytes(&batch.extract(0).unwrap()), bytes(&whole), "{len}");
        batch.filter(&[0]).unwrap();
        assert_eq!(bytes(&batch.extract(0).unwrap()), bytes(&whole), "{len}");
    }
}

#[test]
fn a_row_past_its_window_can_be_cut_to_nothing_or_left_alone() {
    for plan in plans(&windows(WINDOW, WINDOW)) {
        let mut mixed = Mixed::new(plan);
        for (len, cut) in [(WINDOW - 1, true), (WINDOW, true), (4 * CHUNK, false)] {
            let (mut row, mut tokens) = fed(&mut mixed, len, CHUNK);
            assert_eq!(row.trimmable(), cut, "{len}");
            assert_eq!(row.trimmable_to(len / 2), cut);
            assert_eq!(mixed.plan.trimmable_at(len), cut);
            assert!(row.trimmable_to(len) && row.trimmable_to(0) && !row.trimmable_to(len + 1));
            if cut {
                row.trim_to(len / 2).unwrap();
                tokens.truncate(len / 2);
            } else {
                let message = row.trim_to(len / 2).unwrap_err().to_string();
                assert!(
                    message.contains("1200 positions can't be cut to 600: layer 0"),
                    "{message}"
                );
                row.trim_to(len).unwrap();
            }
            mixed.assert_row(&row, &tokens);
            mixed.feed(&mut row, &mut tokens, 50);
            mixed.assert_row(&row, &tokens);
            row.trim_to(0).unwrap();
            assert!(row.is_empty() && row.allocated_bytes() == 0);
            mixed.feed(&mut row, &mut Vec::new(), 50);
            mixed.check();
        }
    }
}

/// In own buffers the ring has room for a chunk, and so for a while what would be dropped.
#[test]
fn what_a_chunk_has_left_in_a_ring_can_be_gone_back_to() {
    let [_, plan] = plans(&[sliding(WINDOW)]);
    let mut mixed = Mixed::new(plan);
    let (mut row, mut tokens) = fed(&mut mixed, 3 * GROWTH, GROWTH);
    assert!(!row.trimmable() && row.trimmable_to(3 * GROWTH - 100));
    for len in [3 * GROWTH - 100, 3 * GROWTH - 150] {
        row.trim_to(len).unwrap();
        tokens.truncate(len);
        mixed.feed(&mut row, &mut tokens, 20);
        mixed.assert_row(&row, &tokens);
    }
}

#[test]
fn a_recurrent_layer_can_not_go_back() {
    for plan in plans(&hybrid(WINDOW, 900)) {
        let mut mixed = Mixed::new(plan);
        let (mut row, mut tokens) = fed(&mut mixed, 10, 3);
        assert!(!row.trimmable() && !row.trimmable_to(9) && row.trimmable_to(10));
        assert!(!mixed.plan.trimmable_at(10));
        let error = row.trim_to(9).unwrap_err();
        assert!(
            matches!(
                error,
                CacheError::Untrimmable {
                    layer: 0,
                    len: 9,
                    held: 10
                }
            ),
            "{error}"
        );
        mixed.feed(&mut row, &mut tokens, 1);
        mixed.assert_row(&row, &tokens);
    }
}

#[test]
fn own_rings_have_room_for_a_chunk_while_it_is_fed_and_for_the_window_after() {
    let [_, plan] = plans(&[sliding(500)]);
    let per_position = plan.bytes_per_token();
    let mut mixed = Mixed::new(plan);
    let (mut row, mut tokens) = fed(&mut mixed, 2 * CHUNK, CHUNK);
    let held = |row: &RowCache| row.allocated_bytes() / per_position;
    assert_eq!(held(&row), capacity_for(2 * CHUNK) as u64);
    mixed.feed(&mut row, &mut tokens, CHUNK);
    assert_eq!(held(&row), capacity_for(500 + CHUNK - 1) as u64);
    assert_eq!(row.used_bytes(), 500 * per_position);
    mixed.feed(&mut row, &mut tokens, 1);
    assert_eq!(held(&row), capacity_for(500) as u64);
    mixed.feed(&mut row, &mut tokens, 1);
    assert_eq!(held(&row), capacity_for(500) as u64);
    mixed.assert_row(&row, &tokens);
}

#[test]
fn what_is_kept_is_compacted_to_whole_panels() {
    let [columns, own] = plans(&hybrid(WINDOW, 900));
    for len in [1, PANEL, PANEL + 1, 70, GROWTH - PANEL, GROWTH + 1] {
        let mut mixed = Mixed::new(own.clone());
        let (row, mut tokens) = fed(&mut mixed, len, CHUNK);
        let mut kept = row.clone();
        kept.compact().unwrap();
        mixed.assert_row(&kept, &tokens);
        let (now, least) = (kept.allocated_bytes(), kept.used_bytes());
        let rounding = PANEL as u64 * own.bytes_per_token();
        // What would free less than a quarter is left alone.
        assert!(now <= (least + rounding) * 4 / 3, "{now} for {least}");
        // Both go on, each for itself.
        let mut others = tokens.clone();
        mixed.feed(&mut kept, &mut tokens, 30);
        mixed.assert_row(&kept, &tokens);
        let mut row = row;
        mixed.feed(&mut row, &mut others, 3);
        mixed.assert_row(&row, &others);
        mixed.assert_row(&kept, &tokens);
    }
    let mut mixed = Mixed::new(columns);
    let (mut row, tokens) = fed(&mut mixed, 70, CHUNK);
    let before = row.allocated_bytes();
    row.compact().unwrap();
    assert_eq!(row.allocated_bytes(), before);
    mixed.assert_row(&row, &tokens);
}

#[test]
fn what_is_fed_to_the_wrong_kind_of_layer_is_refused() {
    let [columns, own] = plans(&hybrid(WINDOW, 9));
    let mut row = RowCache::new(&columns);
    let one = Array::from_slice(&[0.0f32; 6], &[1, 2, 1, 3]);
    let message = |error: CacheError| error.to_string();
    let refused = message(row.layer(0).append(&one, &one).unwrap_err());
    assert!(
        refused.contains("layer 0 was taken for a layer of the attention kind"),
        "{refused}"
    );
    let refused = message(row.layer(1).recurrent(1).map(|_| ()).unwrap_err());
    assert!(
        refused.contains("layer 1 was taken for a layer of the recurrent kind"),
        "{refused}"
    );
    let recurrence = row.layer(0).recurrent(1).unwrap();
    let state = recurrence.state().clone();
    let refused = message(recurrence.store(one, state).unwrap_err());
    assert!(
        refused.contains("layer 0 was given the convolution's input of shape [1, 2, 1, 3]"),
        "{refused}"
    );
    assert_eq!(row.len(), Some(0));
    let mut own = RowCache::new(&own);
    let refused = own.layer(0).recurrent(1).map(|_| ()).unwrap_err();
    assert!(matches!(
        refused,
        CacheError::OtherLayout {
            needs: KvLayout::Columns
        }
    ));
    assert_eq!(
        own.layer(0).rooms(1).unwrap()[0].capacity(),
        0,
        "a state has no positions"
    );
}

#[test]
fn a_forward_that_stopped_before_any_layer_shows() {
    for plan in plans(&hybrid(WINDOW, 9)) {
        let mut mixed = Mixed::new(plan.clone());
        let (mut row, _) = fed(&mut mixed, 5, CHUNK);
        match plan.layout() {
            KvLayout::OwnBuffers => drop(row.layer(0).rooms(1).unwrap()),
            KvLayout::Columns => {
                let recurrence = row.layer(0).recurrent(1).unwrap();
                let (conv, state) = (recurrence.conv().clone(), recurrence.state().clone());
                recurrence.store(conv, state).unwrap();
            }
        }
        assert_eq!(row.len(), None);
        assert!(!row.trimmable());
        assert!(matches!(
            row.trim_to(3),
            Err(CacheError::LayersDiffer {
                layer: 1,
                found: 5,
                expected: 6
            })
        ));
    }
}

#[test]
fn a_plan_says_how_many_masks_a_forward_needs() {
    let plan = CachePlan::new(hybrid(40, 7));
    assert_eq!(plan.windows(), [Some(40), None, Some(7)]);
    let none: Vec<LayerPlan> = Vec::new();
    assert!(CachePlan::new(none).windows().is_empty());
    let plan = CachePlan::new(vec![sliding(0)]);
    assert_eq!(plan.windows(), [Some(1)], "a token sees itself");
}

#[test]
fn the_reservation_of_mixed_layers_never_falls_and_knows_the_window() {
    let mut random = Random(9);
    for plan in plans(&hybrid(300, 1000)) {
        let mut needs = Vec::new();
        let mut before = plan.reserved_bytes(&needs, CHUNK);
        assert_eq!(before, 0);
        for _ in 0..300 {
            grow(&mut needs, &mut random);
            let now = plan.reserved_bytes(&needs, CHUNK);
            assert!(now >= before, "{needs:?}");
            before = now;
        }
        let endless = Need {
            prompt: usize::MAX,
            max_tokens: usize::MAX,
        };
        assert_eq!(plan.reserved_bytes(&[endless], usize::MAX), u64::MAX);
    }
    for plan in plans(&[sliding(300)]) {
        let of = |prompt| {
            let max_tokens = 1;
            plan.reserved_bytes(&[Need { prompt, max_tokens }], CHUNK)
        };
        assert_eq!(of(2_000_000), of(1_000_000));
        assert_eq!(plan.used_bytes(1_000_000), 300 * plan.bytes_per_token());
    }
}
