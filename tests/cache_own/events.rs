//! Whatever happens, in any order.

use mlx_chat::cache::{BatchCache, CachePlan, Need, RowCache};
use proptest::prelude::*;

use crate::world::{CHUNK, Reference, SHAPES, World, assert_batch, assert_figures, assert_row, plan};

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

fn need() -> impl Strategy<Value = Need> {
    (0..1500usize, 0..700usize).prop_map(|(prompt, max_tokens)| Need { prompt, max_tokens })
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
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

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
        mut needs in prop::collection::vec(need(), 1..6),
        grown in 0..6usize,
        by in need(),
        added in need(),
    ) {
        for plan in [plan(), CachePlan::new(SHAPES.to_vec())] {
            let mut before = plan.reserved_bytes(&needs, CHUNK);
            let row = grown % needs.len();
            needs[row].prompt += by.prompt;
            needs[row].max_tokens += by.max_tokens;
            let now = plan.reserved_bytes(&needs, CHUNK);
            prop_assert!(now >= before);
            before = now;
            needs.push(added);
            prop_assert!(plan.reserved_bytes(&needs, CHUNK) >= before);
        }
    }
}
