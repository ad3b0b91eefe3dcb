//! Slices of rows become what all rows at once become.

use super::*;

/// Rows as a file may have them.
#[derive(Clone)]
enum Rows {
    Dense(Vec<f32>),
    Affine {
        bits: usize,
        group: usize,
        packed: Vec<u32>,
        scales: Vec<f32>,
        biases: Vec<f32>,
    },
}

const INPUTS: usize = 64;

fn words(count: usize) -> impl Iterator<Item = u32> {
    (1..=count as u32).map(|at| at.wrapping_mul(0x9E37_79B1))
}

fn dense(rows: usize, element: impl Fn(usize) -> f32) -> Rows {
    Rows::Dense((0..rows * INPUTS).map(element).collect())
}

fn affine(rows: usize, bits: usize, group: usize, pair: impl Fn(usize) -> (f32, f32)) -> Rows {
    let (scales, biases) = (0..rows * INPUTS / group).map(pair).unzip();
    Rows::Affine {
        bits,
        group,
        packed: words(rows * INPUTS * bits / 32).collect(),
        scales,
        biases,
    }
}

fn part<T: Clone>(all: &[T], rows: &Range<usize>, of: usize) -> Vec<T> {
    let each = all.len() / of;
    all[rows.start * each..rows.end * each].to_vec()
}

impl Rows {
    fn cut(&self, rows: &Range<usize>, of: usize) -> Self {
        match self {
            Self::Dense(elements) => Self::Dense(part(elements, rows, of)),
            Self::Affine {
                bits,
                group,
                packed,
                scales,
                biases,
            } => Self::Affine {
                bits: *bits,
                group: *group,
                packed: part(packed, rows, of),
                scales: part(scales, rows, of),
                biases: part(biases, rows, of),
            },
        }
    }

    fn give(&self, packing: &mut Packing<'_>, rows: usize) -> Result<(), PackError> {
        match self {
            Self::Dense(elements) => packing.dense(elements),
            // Dense rows that stand for the quantized ones: what they are in numbers is the caller's business.
            Self::Affine { .. } if packing.is_dense() => packing.dense(&vec![0.75; rows * INPUTS]),
            Self::Affine {
                bits,
                group,
                packed,
                scales,
                biases,
            } => packing.affine(Affine {
                outputs: rows,
                inputs: INPUTS,
                bits: *bits,
                group: *group,
                packed,
                scales,
                biases,
            }),
        }
    }
}

/// Packs the rows in slices of so many; and which were asked for.
fn packed(all: &[(usize, Rows)], slice: usize) -> (Weights, Vec<Range<usize>>) {
    let team = Team::new(2).unwrap();
    let arena = Arena::default();
    let outputs = all.iter().map(|(rows, _)| rows).sum();
    let mut packing = Packing::sliced(&team, &arena, [outputs, INPUTS], slice);
    let mut asked = Vec::new();
    while let Some(rows) = packing.next_rows() {
        asked.push(rows.clone());
        let mut start = 0;
        // Parts are whole slices here, or all is one slice.
        for (count, part) in all {
            if (start..start + count).contains(&rows.start) {
                let within = rows.start - start..(rows.end - start).min(*count);
                assert_eq!(within.len(), rows.len());
                part.cut(&within, *count).give(&mut packing, rows.len()).unwrap();
            }
            start += count;
        }
    }
    (packing.finish().unwrap(), asked)
}

fn same(a: &Weights, b: &Weights) -> bool {
    a.storage == b.storage && (0..a.panels()).all(|panel| a.panel(panel) == b.panel(panel))
}

#[test]
fn slices_become_what_the_whole_becomes() {
    for rows in [1, 31, 32, 64, 200] {
        for kind in [
            dense(rows, |at| (at % 77) as f32 * 0.5),
            dense(rows, |at| at as f32 * 1e-30),
            dense(rows, |at| 1.0 / (at + 1) as f32),
            affine(rows, 4, 32, |at| (at as f32, -8.0 * at as f32)),
            affine(rows, 8, 64, |at| (at as f32 * 0.1, 1.0)),
            affine(rows, 3, 16, |at| (1e-20 * at as f32, at as f32)),
        ] {
            let all = [(rows, kind)];
            let (whole, _) = packed(&all, rows);
            for slice in [1, 32, 64, 96] {
                assert!(
                    same(&packed(&all, slice).0, &whole),
                    "{rows} rows, {slice} at a time"
                );
            }
        }
    }
}

#[test]
fn what_later_rows_ask_for_holds_for_the_first_ones_too() {
    // Halves, then what only bfloat16 holds, then what only single precision does; centred, then not.
    let dense_rows = |at: usize| match at / INPUTS {
        0..32 => (at % 7) as f32,
        32..64 => 1e-30,
        _ => 0.1,
    };
    let pairs = |at: usize| if at < 64 { (0.5, -4.0) } else { (0.1, 3.0) };
    for kind in [dense(96, dense_rows), affine(96, 4, 32, pairs)] {
        let all = [(96, kind)];
        let (whole, _) = packed(&all, 96);
        let (sliced, asked) = packed(&all, 32);
        assert!(same(&sliced, &whole));
        let begun = asked.iter().filter(|rows| rows.start == 0).count();
        assert!((2..=4).contains(&begun), "{asked:?}");
    }
}

#[test]
fn rows_of_different_kinds_are_asked_for_densely() {
    let quantized = |bits| affine(32, bits, 32, |at| (at as f32, 0.0));
    let floats = || dense(32, |at| at as f32 * 0.1);
    for parts in [
        [quantized(4), floats()],
        [quantized(4), quantized(8)],
        [floats(), quantized(8)],
    ] {
        let all = parts.map(|part| (32, part));
        let (weights, asked) = packed(&all, 32);
        assert!(matches!(weights.storage, Storage::Dense(_)));
        assert!(asked.len() <= 4, "{asked:?}");
    }
}

#[test]
fn rows_that_are_missing_or_quantized_where_none_may_be_are_errors() {
    let (team, arena) = (Team::new(1).unwrap(), Arena::default());
    let packing = |slice| Packing::sliced(&team, &arena, [64, INPUTS], slice);
    let mut short = packing(32);
    short.next_rows();
    let wrong = short.dense(&[0.0; INPUTS]).unwrap_err();
    assert!(wrong.to_string().contains("64 elements where 2048"), "{wrong}");
    short.dense(&[0.1; 32 * INPUTS]).unwrap();
    short.next_rows();
    let quantized = affine(32, 4, 32, |_| (1.0, 0.0));
    let Rows::Affine {
        packed,
        scales,
        biases,
        ..
    } = quantized
    else {
        unreachable!()
    };
    let matrix = Affine {
        outputs: 32,
        inputs: INPUTS,
        bits: 4,
        group: 32,
        packed: &packed,
        scales: &scales,
        biases: &biases,
    };
    assert_eq!(short.affine(matrix).unwrap_err(), PackError::Mixed);
    let missing = short.finish().unwrap_err();
    assert!(missing.to_string().contains("rows: 32"), "{missing}");
}
