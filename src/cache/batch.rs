//! The caches of the running batch.

use std::rc::Rc;

use mlx_rs::Array;

use super::columns::Columns;
use super::full::Full;
use super::layer::Rows;
use super::own::OwnRow;
use super::row::Held;
use super::{CacheError, KvLayout, LayerCache, Layers, RowCache, Sight, same_len};

/// The rows of the running batch: columns of a lone row as they came, or of rows right-aligned in one tensor per
/// layer; or each row's own buffers.
///
/// The padded layout's width is always its longest row's length: joining pads the shorter side, and
/// [`filter`](Self::filter) drops the columns that are padding for all survivors. All layers count columns alike, so that a
/// row's padding is the same in all of them; of a sliding layer's ring, it is what is left of it among the last columns.
pub struct BatchCache {
    layout: Layout,
}

enum Layout {
    Lone(Vec<Columns>),
    Padded(Padded),
    Own(Vec<OwnRow>),
}

struct Padded {
    /// Each of `pads.len()` rows.
    layers: Vec<Columns>,
    /// Empty columns on the left of each row.
    pads: Vec<usize>,
}

impl BatchCache {
    /// A batch of one row, whose caches are kept as they are.
    pub fn adopt(row: RowCache) -> Self {
        let layout = match row.held {
            Held::Columns(layers) => Layout::Lone(layers),
            Held::Own(row) => Layout::Own(vec![row]),
        };
        Self { layout }
    }

    /// Rows in the batch; at least 1.
    pub fn rows(&self) -> usize {
        match &self.layout {
            Layout::Lone(_) => 1,
            Layout::Padded(padded) => padded.pads.len(),
            Layout::Own(rows) => rows.len(),
        }
    }

    /// One position more of a lone row whose layers all keep all positions in columns and in full precision, for a kernel that writes it in place: of
    /// each layer, keys and values `[1, heads, capacity, dim]`, the columns so far among them. Start the kernel before anything else looks at
    /// the row. Nothing is done, and nothing given, of other rows, and where nothing is held.
    ///
    /// # Errors
    /// If MLX refuses to copy what is shared with other caches.
    pub fn grown(&mut self) -> Result<Option<Vec<[Array; 2]>>, CacheError> {
        let layers = match &mut self.layout {
            Layout::Lone(layers) => layers,
            Layout::Padded(padded) => &mut padded.layers,
            Layout::Own(_) => return Ok(None),
        };
        let growing: Option<Vec<_>> = layers.iter_mut().map(Columns::growing).collect();
        growing
            .map(|layers| layers.into_iter().map(Full::grown).collect())
            .transpose()
    }

    /// Positions that each row holds: the position of the token that is fed next.
    pub fn lengths(&self) -> Vec<usize> {
        match &self.layout {
            Layout::Lone(layers) => vec![width(layers)],
            Layout::Padded(padded) => {
                let width = width(&padded.layers);
                padded.pads.iter().map(|pad| width - pad).collect()
            }
            Layout::Own(rows) => rows.iter().map(OwnRow::width).collect(),
        }
    }

    /// Empty columns on the left of each row; none in own buffers.
    pub fn left_pads(&self) -> Vec<usize> {
        match &self.layout {
            Layout::Padded(padded) => padded.pads.clone(),
            Layout::Lone(_) | Layout::Own(_) => vec![0; self.rows()],
        }
    }

    /// The longest row's length.
    pub fn width(&self) -> usize {
        match &self.layout {
            Layout::Lone(layers) => width(layers),
            Layout::Padded(padded) => width(&padded.layers),
            Layout::Own(rows) => rows.iter().map(OwnRow::width).max().unwrap_or(0),
        }
    }

    /// Whether this is one row as a lone run has it: an adopted one that is still as it came, or the only one left
    /// with its own buffers.
    pub fn is_lone(&self) -> bool {
        match &self.layout {
            Layout::Lone(_) => true,
            Layout::Padded(_) => false,
            Layout::Own(rows) => rows.len() == 1,
        }
    }

    /// Adds a row at the end. Own buffers stay where they are. Columns are padded on the left, on both sides, to the
    /// longer one's width, lazily: a lone batch becomes a padded one. After an error the batch is as it was.
    pub fn extend(&mut self, row: RowCache) -> Result<(), CacheError> {
        let (layers, pads) = match (&mut self.layout, row.held) {
            (Layout::Own(rows), Held::Own(row)) => {
                if !rows.first().is_some_and(|first| first.plans().eq(row.plans())) {
                    return Err(CacheError::OtherModel);
                }
                for row in rows.iter().chain([&row]) {
                    row.len()?;
                }
                rows.push(row);
                return Ok(());
            }
            (Layout::Lone(layers), Held::Columns(row)) => joined(layers, &[0], &row)?,
            (Layout::Padded(padded), Held::Columns(row)) => joined(&padded.layers, &padded.pads, &row)?,
            (Layout::Own(_), Held::Columns(_)) | (_, Held::Own(_)) => return Err(CacheError::OtherModel),
        };
        self.layout = Layout::Padded(Padded { layers, pads });
        Ok(())
    }

    /// Keeps these rows, in this order. Own buffers stay where they are. Columns that are padding for all survivors are
    /// dropped, lazily; a padded batch filtered down to one row stays as it is laid out. After an error the batch is as
    /// it was.
    pub fn filter(&mut self, keep: &[usize]) -> Result<(), CacheError> {
        let rows = self.rows();
        self.check_selection(keep)?;
        let unchanged = keep.len() == rows && keep.is_sorted();
        match &mut self.layout {
            Layout::Lone(_) => {}
            _ if unchanged => {}
            Layout::Padded(padded) => {
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
                *padded = Padded { layers, pads };
            }
            Layout::Own(rows) => {
                for row in rows.iter() {
                    row.len()?;
                }
                let mut all: Vec<Option<OwnRow>> = std::mem::take(rows).into_iter().map(Some).collect();
                let kept = keep.iter().filter_map(|&row| all.get_mut(row)?.take());
                rows.extend(kept);
            }
        }
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

    /// One row as a serial cache of its own, with the bytes that it would hold had it run alone. Own buffers are shared,
    /// as by a clone of the row. Columns are copied lazily: evaluate its arrays at once, or they keep the whole batch's
    /// buffers alive.
    pub fn extract(&self, row: usize) -> Result<RowCache, CacheError> {
        self.check_selection(&[row])?;
        let held = match &self.layout {
            Layout::Lone(layers) => {
                same_width(layers)?;
                Held::Columns(layers.clone())
            }
            Layout::Padded(padded) => {
                same_width(&padded.layers)?;
                let from = padded.pads.get(row).copied().unwrap_or(0);
                let layers = padded.layers.iter().map(|layer| layer.rows_from(&[row], from));
                Held::Columns(layers.collect::<Result<Vec<_>, _>>()?)
            }
            Layout::Own(all) => {
                let rows = all.len();
                let row = all.get(row).ok_or(CacheError::NoSuchRow { row, rows })?;
                row.len()?;
                Held::Own(row.clone())
            }
        };
        Ok(RowCache { held })
    }

    /// The row of a [lone](Self::is_lone) batch, without a copy; else the batch itself.
    pub fn into_lone(self) -> Result<RowCache, Self> {
        let held = match self.layout {
            Layout::Lone(layers) => Held::Columns(layers),
            Layout::Own(mut rows) => match (rows.pop(), rows.is_empty()) {
                (Some(row), true) => Held::Own(row),
                (last, _) => {
                    rows.extend(last);
                    let layout = Layout::Own(rows);
                    return Err(Self { layout });
                }
            },
            padded @ Layout::Padded(_) => return Err(Self { layout: padded }),
        };
        Ok(RowCache { held })
    }

    /// What to evaluate before anyone relies on the content: buffers of columns, or what own buffers' last writes wait
    /// for.
    pub fn arrays(&self) -> Vec<&Array> {
        match &self.layout {
            Layout::Lone(layers) | Layout::Padded(Padded { layers, .. }) => {
                layers.iter().flat_map(Columns::arrays).collect()
            }
            Layout::Own(rows) => rows.iter().flat_map(OwnRow::arrays).collect(),
        }
    }

    /// Bytes of the positions that hold something: padding does not count.
    pub fn used_bytes(&self) -> u64 {
        match &self.layout {
            Layout::Lone(layers) => layers.iter().map(|layer| layer.used_bytes(&[0])).sum(),
            Layout::Padded(Padded { layers, pads }) => {
                layers.iter().map(|layer| layer.used_bytes(pads)).sum()
            }
            Layout::Own(rows) => rows.iter().map(OwnRow::used_bytes).sum(),
        }
    }

    /// Bytes of the buffers, by their shapes.
    pub fn allocated_bytes(&self) -> u64 {
        match &self.layout {
            Layout::Lone(layers) | Layout::Padded(Padded { layers, .. }) => {
                layers.iter().map(Columns::allocated_bytes).sum()
            }
            Layout::Own(rows) => rows.iter().map(OwnRow::allocated_bytes).sum(),
        }
    }
}

impl Layers for BatchCache {
    fn layer(&mut self, layer: usize) -> LayerCache<'_> {
        let rows = match &mut self.layout {
            Layout::Lone(layers) | Layout::Padded(Padded { layers, .. }) => Rows::Columns(layers),
            Layout::Own(rows) => Rows::Own(rows),
        };
        LayerCache::new(layer, rows)
    }

    fn sight(&self, window: Option<usize>, added: usize) -> Option<Sight> {
        match &self.layout {
            Layout::Lone(layers) => Some(Sight::new(width(layers), &[0], window, added)),
            Layout::Padded(padded) => Some(Sight::new(width(&padded.layers), &padded.pads, window, added)),
            Layout::Own(_) => None,
        }
    }

    fn wrote(&mut self, output: &Array) -> Result<(), CacheError> {
        let Layout::Own(rows) = &mut self.layout else {
            return Ok(());
        };
        rows.iter().try_for_each(OwnRow::check_filled)?;
        let fence = Rc::new(output.clone());
        for row in rows {
            row.wrote(Rc::clone(&fence));
        }
        Ok(())
    }
}

/// Columns filled, of the first layer: of all of them, unless a forward stopped half-way.
fn width(layers: &[Columns]) -> usize {
    layers.first().map_or(0, Columns::width)
}

fn same_width(layers: &[Columns]) -> Result<usize, CacheError> {
    same_len(layers.iter().map(Columns::width))
}

/// The rows of `ours`, padded by `pads`, then the row `its`: layers and paddings.
fn joined(
    ours: &[Columns],
    pads: &[usize],
    its: &[Columns],
) -> Result<(Vec<Columns>, Vec<usize>), CacheError> {
    let (old, new) = (same_width(ours)?, same_width(its)?);
    if !ours.iter().map(Columns::plan).eq(its.iter().map(Columns::plan)) {
        return Err(CacheError::OtherModel);
    }
    let layers = ours
        .iter()
        .zip(its)
        .map(|(ours, its)| ours.joined(its))
        .collect::<Result<Vec<_>, _>>()?;
    let width = old.max(new);
    let mut pads: Vec<usize> = pads.iter().map(|pad| pad + width - old).collect();
    pads.push(width - new);
    Ok((layers, pads))
}

impl std::fmt::Debug for BatchCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let layout = match &self.layout {
            Layout::Lone(_) | Layout::Padded(_) => KvLayout::Columns,
            Layout::Own(_) => KvLayout::OwnBuffers,
        };
        let mut out = f.debug_struct("BatchCache");
        out.field("layout", &layout)
            .field("lone", &self.is_lone())
            .field("lengths", &self.lengths())
            .finish_non_exhaustive()
    }
}
