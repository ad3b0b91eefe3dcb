//! How keys and values lie in memory, as floats.

/// Positions of a panel.
pub const PANEL_POSITIONS: usize = 32;

/// Positions of a block: attention takes them in block by block.
pub(crate) const BLOCK: usize = 128;

/// A buffer holds a multiple of this many positions.
pub const CAPACITY_STEP: usize = 256;

/// Values of a position begin at multiples of this many floats.
const VALUE_STEP: usize = 16;

/// The keys and values of one layer of one row: float32 `[heads, capacity / 32, panel]`.
///
/// A *panel* holds 32 positions: their keys, transposed, `[key_dim][32]`, then their values, `[32][value_stride]`.
/// Position `p` lies in slot `p % capacity`, so that a buffer that is as long as a row never wraps, and one of a sliding
/// window goes round. What was never written may be anything finite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KvLayout {
    /// Heads of keys and values.
    pub heads: usize,
    /// Features of a key, and of a query.
    pub key_dim: usize,
    /// Features of a value.
    pub value_dim: usize,
}

impl KvLayout {
    /// Floats from one position's value to the next one's: `value_dim`, rounded up to 16.
    pub fn value_stride(&self) -> usize {
        self.value_dim.next_multiple_of(VALUE_STEP)
    }

    /// Floats of a panel.
    pub fn panel(&self) -> usize {
        PANEL_POSITIONS * (self.key_dim + self.value_stride())
    }

    /// Floats of a buffer for `capacity` positions, a multiple of [`CAPACITY_STEP`].
    pub fn floats(&self, capacity: usize) -> usize {
        self.heads * capacity.div_ceil(PANEL_POSITIONS) * self.panel()
    }

    /// Positions that a buffer of `floats` holds.
    pub fn capacity(&self, floats: usize) -> usize {
        floats / (self.heads * self.panel()).max(1) * PANEL_POSITIONS
    }

    /// Copies one position's key, `[key_dim]`, out of a buffer.
    ///
    /// # Panics
    /// If there is no such head, or `to` has another length.
    pub fn copy_key(&self, kv: &[f32], head: usize, position: usize, to: &mut [f32]) {
        assert_eq!(to.len(), self.key_dim, "features of a key");
        let from = self.key_at(self.capacity(kv.len()), head, position);
        for (d, to) in to.iter_mut().enumerate() {
            *to = kv[from + d * PANEL_POSITIONS];
        }
    }

    /// Copies one position's value, `[value_dim]`, out of a buffer.
    ///
    /// # Panics
    /// If there is no such head, or `to` has another length.
    pub fn copy_value(&self, kv: &[f32], head: usize, position: usize, to: &mut [f32]) {
        assert_eq!(to.len(), self.value_dim, "features of a value");
        let from = self.value_at(self.capacity(kv.len()), head, position);
        to.copy_from_slice(&kv[from..from + self.value_dim]);
    }

    /// Which panel a position lies in, in a buffer for `capacity` positions.
    pub(crate) fn panel_of(&self, capacity: usize, head: usize, position: usize) -> usize {
        assert!(head < self.heads, "head {head} of {}", self.heads);
        head * (capacity / PANEL_POSITIONS) + position % capacity / PANEL_POSITIONS
    }

    /// Where a position's key begins; its features are 32 floats apart.
    pub(crate) fn key_at(&self, capacity: usize, head: usize, position: usize) -> usize {
        self.panel_of(capacity, head, position) * self.panel() + position % PANEL_POSITIONS
    }

    /// Where a position's value begins.
    pub(crate) fn value_at(&self, capacity: usize, head: usize, position: usize) -> usize {
        self.panel_of(capacity, head, position) * self.panel()
            + PANEL_POSITIONS * self.key_dim
            + position % PANEL_POSITIONS * self.value_stride()
    }
}
