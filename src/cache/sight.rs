//! What the new tokens of a forward see of what attention layers hold: plain data, from which masks are made.

/// The keys that a forward's queries are given by [`append`](super::LayerCache::append), and which of them are there for
/// whom. It is the same for all layers of one window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sight {
    /// New tokens of each row.
    pub added: usize,
    /// Columns of keys, those of the new tokens among them.
    pub columns: usize,
    /// Where the oldest column lies; the others follow it, round the end to the start. 0 where there are several new
    /// tokens: they are then the last.
    pub oldest: usize,
    /// How many of the oldest columns are padding, for each row.
    pub hidden: Vec<usize>,
    /// How many columns a token sees, its own among them; all up to its own if there is no window.
    pub window: Option<usize>,
}

impl Sight {
    /// Of `added` tokens of rows that end with column `len`, with these paddings on their left.
    pub(super) fn new(len: usize, pads: &[usize], window: Option<usize>, added: usize) -> Self {
        let end = len + added;
        let (columns, oldest) = match window {
            Some(window) if added == 1 && end > window => (window, end % window),
            // What the first of the new tokens sees, and all of them.
            Some(window) => (len.min(window - 1) + added, 0),
            None => (end, 0),
        };
        let hidden = pads.iter().map(|pad| pad.saturating_sub(end - columns)).collect();
        Self {
            added,
            columns,
            oldest,
            hidden,
            window,
        }
    }

    /// Whether every new token of every row sees every column up to its own.
    pub fn is_causal(&self) -> bool {
        let within = self.window.is_none_or(|window| self.columns <= window);
        within && self.hidden.iter().all(|&hidden| hidden == 0)
    }

    /// Whether a new token sees the key in a column of its row.
    pub fn sees(&self, row: usize, token: usize, column: usize) -> bool {
        let age_order = (column + self.columns - self.oldest) % self.columns.max(1);
        let own = self.columns - self.added + token;
        let hidden = self.hidden.get(row).copied().unwrap_or(0);
        let near = self.window.is_none_or(|window| age_order + window > own);
        (hidden..=own).contains(&age_order) && near
    }
}
