//! Products with packed weights, `y = x · Wᵀ`: for one row as for many, with what comes before and after fused in.
//!
//! # The order of reduction
//! The total of an output starts at 0 and takes in one group of inputs after the other. Of quantized weights, the products
//! of a group are summed from 0, input by input, by fused multiply-adds; then `total = fma(sum, scale, total)` and, where
//! there are biases, `total = fma(Σx, bias, total)`. `Σx` is the sum over the group's blocks of 16, in order, each added up by
//! halves. Dense weights are added to the total input by input. Nothing of it depends on the number of rows or threads, or
//! on the instructions.
//!
//! By [`Arithmetic::Integers`] inputs become whole numbers of a step that a block of 32 shares: `X = 256 · H + L`, `L` a signed byte.
//! For each block, or half of it where groups are of 16, `h = Σ H · q` and `l = Σ L · q` are exact, and with `a` = 3 · 2²²,
//! `total = fma(fma(h − a / 256, 256, l + a) · step, scale, total)`; then come the biases, block by block. So it doesn't matter in which
//! order a block's products are summed.

mod finish;
#[cfg_attr(not(target_arch = "x86_64"), path = "no_integers.rs")]
mod integers;
mod tiles;
mod unpack;

use std::mem::MaybeUninit;
use std::ops::Range;

use crate::rows::{Forms, Input, Packed, SUM_BLOCK, Scratch, Tiles};
use crate::shared::SharedMut;
use crate::simd::prefetch;
use crate::weights::{PANEL, Quants, Storage, Weights};
use crate::{Arithmetic, Isa, Team, reference};

pub use finish::Activation;
pub(crate) use finish::Finish;
use finish::{FinishArgs, finish_rows};
use tiles::{TileArgs, tile_run};
use unpack::{FusedArgs, UnpackArgs, fused_panel, unpack_run};

/// What sums of low digits are moved by: a float so large has no fraction, and so the sum added to its bits makes it the float of both,
/// without being converted. No sum is as large as a third of it. Sums of high digits are moved the other way, by as much.
pub(crate) const AWAY: i32 = 3 << 22;

/// Rows whose totals of a panel stay in the fastest cache.
const BLOCK_ROWS: usize = 128;

/// Inputs that are unpacked at once: whole groups, the largest of which it is.
const RUN: usize = 128;

/// The most groups in that.
const RUN_GROUPS: usize = RUN / SUM_BLOCK;

/// The phase in which panels are claimed; rows are prepared in the one before.
const CLAIM_PANELS: usize = 1;

/// Where a product goes.
#[derive(Debug)]
pub enum Output<'a> {
    /// `[rows, outputs]`, written.
    Store(&'a mut [f32]),
    /// `[rows, outputs]`, added to what is there.
    Add(&'a mut [f32]),
}

/// Multiplies rows with one or more matrices, whose outputs lie one after the other in each row of the result; adds a bias
/// `[outputs]`, if there is one.
///
/// # Panics
/// If a slice has not the length that the shapes ask for.
pub fn project(
    team: &Team,
    scratch: &mut Scratch,
    input: Input<'_>,
    weights: &[&Weights],
    bias: Option<&[f32]>,
    output: Output<'_>,
) {
    let outputs: usize = weights.iter().map(|matrix| matrix.outputs()).sum();
    if let Some(bias) = bias {
        assert_eq!(bias.len(), outputs, "biases");
    }
    let (to, adds) = match output {
        Output::Store(to) => (to, false),
        Output::Add(to) => (to, true),
    };
    let mut column = 0;
    let parts: Vec<Part<'_>> = weights
        .iter()
        .map(|matrix| {
            let part = Part {
                weights: [matrix, matrix],
                count: 1,
                column,
            };
            column += matrix.outputs();
            part
        })
        .collect();
    run(
        team,
        scratch,
        input,
        &parts,
        outputs,
        Finish::Add { bias, adds },
        to,
    );
}

/// The inner half of a gated MLP: `activation(x · gateᵀ) · (x · upᵀ)`, to `[rows, outputs]`. The biases of both products,
/// the gate's first, are `[2 · outputs]`.
///
/// # Panics
/// If the matrices differ in shape, or a slice has not the length that the shapes ask for.
pub fn gated(
    team: &Team,
    scratch: &mut Scratch,
    input: Input<'_>,
    [gate, up]: [&Weights; 2],
    bias: Option<&[f32]>,
    activation: Activation,
    to: &mut [f32],
) {
    let outputs = gate.outputs();
    if let Some(bias) = bias {
        assert_eq!(bias.len(), 2 * outputs, "biases");
    }
    assert_eq!(outputs, up.outputs(), "outputs of gate and up");
    let part = Part {
        weights: [gate, up],
        count: 2,
        column: 0,
    };
    run(
        team,
        scratch,
        input,
        &[part],
        outputs,
        Finish::Gate { bias, activation },
        to,
    );
}

/// One matrix, or two whose panels are computed together; and the first column that their outputs go to.
struct Part<'a> {
    weights: [&'a Weights; 2],
    count: usize,
    column: usize,
}

impl<'a> Part<'a> {
    fn weights(&self) -> &[&'a Weights] {
        &self.weights[..self.count]
    }
}

fn run(
    team: &Team,
    scratch: &mut Scratch,
    input: Input<'_>,
    parts: &[Part<'_>],
    outputs: usize,
    finish: Finish<'_>,
    to: &mut [f32],
) {
    for part in parts {
        for matrix in part.weights() {
            assert_eq!(matrix.inputs(), input.features(), "inputs of a matrix");
        }
    }
    assert_eq!(to.len(), input.rows() * outputs, "elements of the output");
    if to.is_empty() {
        return;
    }
    let isa = team.isa();
    if isa == Isa::Portable {
        for part in parts {
            reference::project(
                input,
                part.weights(),
                part.column,
                outputs,
                team.arithmetic(),
                finish,
                to,
            );
        }
        return;
    }
    let matrices = || parts.iter().flat_map(Part::weights);
    let quants = |matrix: &&Weights| integer_quants(team.arithmetic(), matrix);
    let forms = Forms {
        floats: matrices().any(|matrix| quants(matrix).is_none()),
        digits: matrices().any(|matrix| quants(matrix).is_some()),
        digit_sums: matrices().any(|matrix| quants(matrix).is_some_and(|quants| quants.centered)),
    };
    let most = if forms.digits {
        integers::TILE_ROWS
    } else {
        isa.tile_rows()
    };
    let tiles = Tiles::new(input.rows(), most);
    let block_tiles = (BLOCK_ROWS / tiles.most()).max(1);
    let panels: usize = parts.iter().map(|part| part.weights[0].panels()).sum();
    let pieces = Pieces::new(panels, tiles.count(), block_tiles, team.size());
    let to = SharedMut::new(to);
    let prepared = scratch.prepare(isa, team.size(), input, tiles, forms);
    team.run(|worker| {
        let packed = prepared.packed(worker);
        let mut totals = Totals::new();
        loop {
            let run = worker.claim_run(CLAIM_PANELS, pieces.count());
            if run.is_empty() {
                break;
            }
            let (part, first) = locate(parts, pieces.get(run.start).0);
            for matrix in part.weights() {
                fetch(&matrix.panel(first)[..BEGINNING.min(matrix.panel(first).len())]);
            }
            for piece in run {
                let (panel, span) = pieces.get(piece);
                let (part, panel) = locate(parts, panel);
                for (totals, matrix) in totals.each.iter_mut().zip(part.weights()) {
                    match integer_quants(team.arithmetic(), matrix) {
                        Some(quants) => {
                            integers::multiply(&packed, matrix, quants, panel, span.clone(), totals)
                        }
                        None => multiply(isa, &packed, matrix, panel, span.clone(), totals),
                    }
                }
                let args = FinishArgs {
                    totals: totals.each.each_ref().map(|totals| totals.0.as_ptr().cast()),
                    rows: tiles.start(span.start)..tiles.start(span.end),
                    column: part.column + panel * PANEL,
                    lanes: (part.weights[0].outputs() - panel * PANEL).min(PANEL),
                    stride: outputs,
                    finish,
                    to: to.start(),
                };
                // SAFETY: the instructions are the team's; the rows and columns lie within the output, and are written by whoever
                // has claimed them, alone.
                unsafe { finish_rows(isa, &args) };
            }
        }
    });
}

/// How a product is cut into pieces: a panel and a block of tiles each. Where the last block has many tiles (a whole one of products of
/// integers), its last panels are cut, so that threads end at about the same time.
struct Pieces {
    panels: usize,
    tiles: usize,
    block_tiles: usize,
    /// Pieces that are not smaller.
    whole: usize,
    /// Panels of the last block that are cut.
    cut: usize,
}

/// Pieces that a panel of the last ones is cut into.
const CUTS: usize = 4;

/// The fewest tiles of such a piece.
const CUT_TILES: usize = 8;

/// Panels that are cut, for each thread.
const CUT_PANELS: usize = 2;

impl Pieces {
    fn new(panels: usize, tiles: usize, block_tiles: usize, threads: usize) -> Self {
        let blocks = tiles.div_ceil(block_tiles);
        let last = tiles - (blocks - 1) * block_tiles;
        let cut = if threads > 1 && last >= CUTS * CUT_TILES {
            (CUT_PANELS * threads).min(panels)
        } else {
            0
        };
        Self {
            panels,
            tiles,
            block_tiles,
            whole: panels * blocks - cut,
            cut,
        }
    }

    fn count(&self) -> usize {
        self.whole + self.cut * CUTS
    }

    /// A piece's panel, counted over all matrices, and its tiles.
    fn get(&self, piece: usize) -> (usize, Range<usize>) {
        if let Some(piece) = piece.checked_sub(self.whole) {
            let start = (self.tiles - 1) / self.block_tiles * self.block_tiles;
            let at = |part: usize| start + part * (self.tiles - start) / CUTS;
            let (panel, part) = (piece / CUTS, piece % CUTS);
            return (self.panels - self.cut + panel, at(part)..at(part + 1));
        }
        let (block, panel) = (piece / self.panels, piece % self.panels);
        let start = block * self.block_tiles;
        (panel, start..(start + self.block_tiles).min(self.tiles))
    }
}

/// Bytes of a run's first panel that are fetched before anything else is done: later ones are fetched in passing.
const BEGINNING: usize = 2048;

/// Has some bytes fetched.
fn fetch(bytes: &[u8]) {
    for line in bytes.chunks(64) {
        prefetch(line.as_ptr());
    }
}

/// The part that a panel, counted over all, belongs to, and its place there.
fn locate<'p, 'a>(parts: &'p [Part<'a>], mut panel: usize) -> (&'p Part<'a>, usize) {
    let mut found = &parts[0];
    for part in parts {
        found = part;
        let panels = part.weights[0].panels();
        if panel < panels {
            break;
        }
        panel -= panels;
    }
    (found, panel)
}

/// `[rows][PANEL]`.
#[repr(align(64))]
struct PanelTotals(MaybeUninit<[f32; BLOCK_ROWS * PANEL]>);

struct Totals {
    each: [PanelTotals; 2],
}

impl Totals {
    fn new() -> Self {
        Self {
            each: [const { PanelTotals(MaybeUninit::uninit()) }; 2],
        }
    }
}

/// How a matrix is stored that is multiplied with whole numbers.
fn integer_quants(arithmetic: Arithmetic, matrix: &Weights) -> Option<Quants> {
    match (arithmetic, matrix.storage()) {
        (Arithmetic::Integers, Storage::Affine(quants)) => Some(quants),
        _ => None,
    }
}

/// The totals of one panel of some tiles' rows.
fn multiply(
    isa: Isa,
    packed: &Packed,
    weights: &Weights,
    panel: usize,
    span: Range<usize>,
    totals: &mut PanelTotals,
) {
    let rows = packed.tiles.start(span.end) - packed.tiles.start(span.start);
    let (bytes, inputs) = (weights.panel(panel), weights.inputs());
    let unpack = UnpackArgs {
        storage: weights.storage(),
        panel: bytes.as_ptr(),
        inputs,
    };
    if packed.tiles.count() == 1 && rows <= unpack::fused_rows(isa, weights.storage()) {
        let args = FusedArgs {
            unpack,
            rows,
            packed,
            totals: totals.0.as_mut_ptr().cast(),
        };
        // SAFETY: the panel has the layout of its storage, the rows are packed, and totals has room for as many.
        unsafe { fused_panel(isa, &args) };
        return;
    }
    // SAFETY: there is room for the rows of a block.
    unsafe { totals.0.as_mut_ptr().cast::<f32>().write_bytes(0, rows * PANEL) };
    let mut buffer = Buffer(MaybeUninit::uninit());
    for start in (0..inputs).step_by(RUN) {
        let run = start..(start + RUN).min(inputs);
        // SAFETY: as above; the buffer has room for a run, its scales and its biases.
        unsafe { unpack_run(isa, &unpack, run.clone(), buffer.0.as_mut_ptr().cast()) };
        let args = TileArgs {
            packed,
            span: span.clone(),
            run,
            weights: buffer.0.as_ptr().cast(),
            storage: weights.storage(),
            totals: totals.0.as_mut_ptr().cast(),
        };
        // SAFETY: as above.
        unsafe { tile_run(isa, &args) };
    }
}

/// A run's weights `[RUN][PANEL]`, then scales and biases of its groups, `[PANEL]` each.
#[repr(align(64))]
struct Buffer(MaybeUninit<[f32; (RUN + 2 * RUN_GROUPS) * PANEL]>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tile_of_each_panel_is_in_one_piece() {
        let (mut cut, mut whole) = (0, 0);
        for panels in [1, 2, 3, 4, 7, 20, 64] {
            for tiles in [1, 2, 10, 31, 32, 33, 63, 64, 65, 96] {
                for block_tiles in [10, 32, 40] {
                    for threads in [1, 2, 3, 16] {
                        let pieces = Pieces::new(panels, tiles, block_tiles, threads);
                        let mut times = vec![0; panels * tiles];
                        for piece in 0..pieces.count() {
                            let (panel, span) = pieces.get(piece);
                            assert!(!span.is_empty() && span.len() <= block_tiles);
                            span.for_each(|tile| times[panel * tiles + tile] += 1);
                        }
                        let what =
                            format!("{panels} panels, {tiles} tiles by {block_tiles}, {threads} threads");
                        assert!(times.iter().all(|times| *times == 1), "{what}: {times:?}");
                        *(if pieces.cut > 0 { &mut cut } else { &mut whole }) += 1;
                    }
                }
            }
        }
        assert!(cut > 50 && whole > 50, "{cut}, {whole}");
    }
}
