//! Products of integers where no vectors multiply bytes: there are none, and no team has them (`Isa::arithmetics`).

use std::ops::Range;

use super::PanelTotals;
use crate::rows::Packed;
use crate::weights::{Quants, Weights};

/// The most rows of a tile.
pub(super) const TILE_ROWS: usize = 1;

/// The totals of one panel of some tiles' rows.
pub(super) fn multiply(_: &Packed, _: &Weights, _: Quants, _: usize, _: Range<usize>, _: &mut PanelTotals) {
    unreachable!("no vectors multiply bytes here");
}
