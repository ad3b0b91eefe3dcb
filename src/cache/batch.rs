//! The caches of the running batch.

use mlx_rs::Array;

use super::full::Full;
use super::row::{append, same_width};
use super::{CacheError, RowCache};

/// The rows of the running batch: a lone row as it came, or rows right-aligned in one tensor per layer.
///
/// The padded layout's width is always its longest row's length: joining pads the shorter side, and
/// [`filter`](Self::filter) drops the columns that are padding for all survivors.
pub struct BatchCache {
    layout: Layout,
}

enum Layout {
    Lone(RowCache),
    Padded(Padded),
}

struct Padded {
    /// Each of `pads.len()` rows.
    layers: Vec<Full>,
    /// Empty columns on the left of each row.
    pads: Vec<usize>,
}

impl BatchCache {
    /// A batch of one row, whose caches are kept as they are.
    pub fn adopt(row: RowCache) -> Self {
        Self {
            layout: Layout::Lone(row),
        }
    }

    /// Rows in the batch; at least 1.
    pub fn rows(&self) -> usize {
        match &self.layout {
            Layout::Lone(_) => 1,
            Layout::Padded(padded) => padded.pads.len(),
        }
    }

    /// Positions that each row holds: the position of the token that is fed next.
    pub fn lengths(&self) -> Vec<usize> {
        let width = self.width();
        self.left_pads().iter().map(|pad| width - pad).collect()
    }

    /// Empty columns on the left of each row.
    pub fn left_pads(&self) -> Vec<usize> {
        match &self.layout {
            Layout::Lone(_) => vec![0],
            Layout::Padded(padded) => padded.pads.clone(),
        }
    }

    /// Columns filled: the longest row's length.
    pub fn width(&self) -> usize {
        self.layers().first().map_or(0, Full::width)
    }

    /// Whether this is an adopted row, still as it came.
    pub fn is_lone(&self) -> bool {
        matches!(self.layout, Layout::Lone(_))
    }

    fn layers(&self) -> &[Full] {
        match &self.layout {
            Layout::Lone(row) => &row.layers,
            Layout::Padded(padded) => &padded.layers,
        }
    }

    /// Adds a row at the end: both sides are padded on the left to the longer one's width. A lone batch
    /// becomes a padded one. Lazy; after an error the batch is as it was.
    pub fn extend(&mut self, row: RowCache) -> Result<(), CacheError> {
        let (old, new) = (same_width(self.layers())?, same_width(&row.layers)?);
        if !self
            .layers()
            .iter()
            .map(Full::shape)
            .eq(row.layers.iter().map(Full::shape))
        {
            return Err(CacheError::OtherModel);
        }
        let pairs = self.layers().iter().zip(&row.layers);
        let layers = pairs
            .map(|(ours, its)| ours.joined(its))
            .collect::<Result<Vec<_>, _>>()?;
        let width = old.max(new);
        let mut pads: Vec<usize> = self.left_pads().iter().map(|pad| pad + width - old).collect();
        pads.push(width - new);
        self.layout = Layout::Padded(Padded { layers, pads });
        Ok(())
    }

    /// Keeps these rows, in this order, and drops the columns that are padding for all of them. A batch
    /// filtered down to one row stays as it is laid out. Lazy; after an error the batch is as it was.
    pub fn filter(&mut self, keep: &[usize]) -> Result<(), CacheError> {
        let rows = self.rows();
        self.check_selection(keep)?;
        let Layout::Padded(padded) = &self.layout else {
            return Ok(());
        };
        if keep.len() == rows && keep.is_sorted() {
            return Ok(());
        }
        same_width(&padded.layers)?;
        let kept: Vec<usize> = keep
            .iter()
            .filter_map(|&row| padded.pads.get(row).copied())
            .collect();
        let drop = kept.iter().copied().min().unwrap_or(0);
        let layers = padded
            .layers
            .iter()
            .map(|layer| layer.rows_from(keep, drop))
            .collect::<Result<Vec<_>, _>>()?;
        let pads = kept.iter().map(|pad| pad - drop).collect();
        self.layout = Layout::Padded(Padded { layers, pads });
        Ok(())
    }

    fn check_selection(&self, keep: &[usize]) -> Result<(), CacheError> {
        let rows = self.rows();
        if let Some(&row) = keep.iter().find(|&&row| row >= rows) {
            return Err(CacheError::NoSuchRow { row, rows });
        }
        let twice = keep
            .iter()
            .enumerate()
            .any(|(at, row)| keep.iter().take(at).any(|other| other == row));
        if keep.is_empty() || twice {
            return Err(CacheError::BadSelection { keep: keep.to_vec() });
        }
        Ok(())
    }

    /// One row as a serial cache of its own, with the bytes that it would hold had it run alone. Lazy:
    /// evaluate its arrays at once, or they keep the whole batch's buffers alive.
    pub fn extract(&self, row: usize) -> Result<RowCache, CacheError> {
        self.check_selection(&[row])?;
        same_width(self.layers())?;
        match &self.layout {
            Layout::Lone(lone) => Ok(lone.clone()),
            Layout::Padded(padded) => {
                let from = padded.pads.get(row).copied().unwrap_or(0);
                let layers = padded.layers.iter().map(|layer| layer.row(row, from));
                Ok(RowCache {
                    layers: layers.collect::<Result<Vec<_>, _>>()?,
                })
            }
        }
    }

    /// The adopted row back, without a copy; the batch itself if it is laid out for several.
    pub fn into_lone(self) -> Result<RowCache, Self> {
        match self.layout {
            Layout::Lone(row) => Ok(row),
            padded @ Layout::Padded(_) => Err(Self { layout: padded }),
        }
    }

    /// Writes one layer's `[rows, heads, 1, dim]` keys and values, one position for each row; gives back
    /// views of `[rows, heads, width, dim]`. Drop them before the next call for that layer.
    pub fn append(
        &mut self,
        layer: usize,
        keys: &Array,
        values: &Array,
    ) -> Result<(Array, Array), CacheError> {
        let layers = match &mut self.layout {
            Layout::Lone(row) => &mut row.layers,
            Layout::Padded(padded) => &mut padded.layers,
        };
        append(layers, layer, keys, values)
    }

    /// Every array held, for evaluation.
    pub fn arrays(&self) -> Vec<&Array> {
        self.layers().iter().flat_map(Full::arrays).collect()
    }

    /// Bytes of the positions that hold something: padding does not count.
    pub fn used_bytes(&self) -> u64 {
        let padding: usize = self.left_pads().iter().sum();
        let used = |layer: &Full| {
            let positions = (layer.rows() * layer.width()).saturating_sub(padding);
            positions as u64 * layer.shape().bytes_per_column()
        };
        self.layers().iter().map(used).sum()
    }

    /// Bytes of the buffers, by their shapes.
    pub fn allocated_bytes(&self) -> u64 {
        self.layers().iter().map(Full::allocated_bytes).sum()
    }
}

impl std::fmt::Debug for BatchCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("BatchCache");
        out.field("lone", &self.is_lone())
            .field("lengths", &self.lengths())
            .finish_non_exhaustive()
    }
}
