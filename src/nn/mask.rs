//! Which positions attention may see.

use mlx_rs::Array;

/// What hides keys from queries; built once per forward and shared by its layers.
#[derive(Debug)]
pub enum Mask {
    /// Every query sees every key: one new token per row, no padding.
    None,
    /// Each of the last `L` positions sees those up to its own.
    Causal,
    /// `[B, 1, 1, S]` bool: true where a row holds something.
    Padding(Array),
}

/// The mask of a step of rows with these paddings on their left, over `width` columns: `[B, 1, 1, width]`
/// bool, true at column `c` of row `b` where `c >= left_pads[b]`. None if no row is padded.
pub fn padding(left_pads: &[usize], width: usize) -> Option<Array> {
    if left_pads.iter().all(|&pad| pad == 0) {
        return None;
    }
    let visible: Vec<bool> = left_pads
        .iter()
        .flat_map(|&pad| (0..width).map(move |c| c >= pad))
        .collect();
    let extent = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    Some(Array::from_slice(
        &visible,
        &[extent(left_pads.len()), 1, 1, extent(width)],
    ))
}
