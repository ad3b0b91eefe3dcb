//! The hash, on the host: integers modulo 2³², one term for each position.

use super::HashingLayer;

/// Odd constants, so that multiplying by them modulo 2³² loses nothing.
pub(super) const GOLDEN: u32 = 0x9E37_79B1;
pub(super) const MIX: u32 = 0x85EB_CA6B;
pub(super) const LATE: u32 = 0xC2B2_AE35;
/// Keeps an empty column that a mask fails to hide from counting as nothing.
pub(super) const PRESENT: u32 = 0x27D4_EB2F;
/// A word's halves, which floats hold exactly.
pub(super) const HALF: u32 = 65_536;
/// The rows of a recurrent layer's convolution: its last tokens, each plus 1.
pub(super) const CONV: usize = 2;
/// What the rows of the convolution count, from the older one on.
pub(super) const CONV_FACTORS: [u32; CONV] = [MIX, LATE];

/// Spreads high bits to low ones; as MLX has no shifts here, by a division.
pub(super) fn fold(x: u32) -> u32 {
    x.wrapping_add(x / HALF).wrapping_mul(GOLDEN)
}

/// An odd number that differs for each position.
pub(super) fn position_factor(position: u32) -> u32 {
    let x = position.wrapping_add(1).wrapping_mul(GOLDEN);
    fold(x).wrapping_mul(2).wrapping_add(1)
}

/// What a key, `token + 1`, counts at its position.
pub(super) fn term(key: u32, position: u32) -> u32 {
    key.wrapping_add(PRESENT).wrapping_mul(position_factor(position))
}

/// The state of a layer after one that came to `sum`.
pub(super) fn layered(state: u32, sum: u32) -> u32 {
    fold(state.wrapping_mul(LATE).wrapping_add(sum))
}

/// A position as terms take it.
pub(super) fn number(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

/// What a recurrent layer has come to.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Running {
    pub(super) conv: [u32; CONV],
    pub(super) hash: u32,
}

impl Running {
    /// After one position more.
    pub(super) fn then(self, key: u32, position: u32) -> Self {
        let [_, newer] = self.conv;
        Self {
            conv: [newer, key],
            hash: self.hash.wrapping_mul(GOLDEN).wrapping_add(term(key, position)),
        }
    }

    pub(super) fn sum(self) -> u32 {
        let counted = self.conv.into_iter().zip(CONV_FACTORS);
        counted.fold(self.hash, |sum, (key, factor)| {
            sum.wrapping_add(key.wrapping_mul(factor))
        })
    }
}

/// What a lone row's layers come to once they hold `context`.
pub(super) fn state_of(layers: &[HashingLayer], context: &[u32]) -> u32 {
    let keys = || {
        let keys = context.iter().map(|token| token.wrapping_add(1));
        keys.enumerate().map(|(position, key)| (key, number(position)))
    };
    let sum_from = |first: usize| {
        let seen = keys().skip(first);
        seen.fold(0u32, |sum, (key, position)| sum.wrapping_add(term(key, position)))
    };
    layers.iter().fold(0, |state, layer| {
        let sum = match *layer {
            HashingLayer::Full => sum_from(0),
            HashingLayer::Sliding(window) => sum_from(context.len().saturating_sub(window)),
            HashingLayer::Recurrent => keys()
                .fold(Running::default(), |running, (key, position)| {
                    running.then(key, position)
                })
                .sum(),
        };
        layered(state, sum)
    })
}
