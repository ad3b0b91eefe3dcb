//! The running batch: its rows, their caches, and the register of tokens that are sampled but not read.

use mlx_rs::ops::indexing::take_axis;
use mlx_rs::{Array, transforms};
use mlx_sys::bridge::{Fault, take_fault};

use super::event::FinishReason;
use super::row::{End, Row};
use crate::cache::{BatchCache, CacheError, RowCache};

/// Why the batch could not go on.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// The model's forward failed.
    #[error(transparent)]
    Model(#[from] crate::model::ModelError),
    /// The caches could not be rearranged.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// MLX failed in sampling, evaluating or reading.
    #[error("MLX: {0}")]
    Mlx(#[from] mlx_rs::error::Exception),
    /// Tokens could not be read from the device.
    #[error("tokens could not be read from the device: {0}")]
    Read(String),
    /// The caches of a row hold other positions than it accounts for: an error in the engine.
    #[error("a row's caches hold {held} positions where {accounted} were fed: please report this")]
    Accounts {
        /// What they hold.
        held: usize,
        /// What was fed.
        accounted: usize,
    },
    /// A kernel panicked: what was computed since is worth nothing.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// Asks, once computations have ended, whether a kernel panicked in one of them. Whoever reads results asks.
pub(super) fn check_fault() -> Result<(), BatchError> {
    take_fault().map_or(Ok(()), |fault| Err(fault.into()))
}

/// Waits for a step whose tokens nobody will read, so that a fault of it isn't laid to those that come after. Whether it
/// ended well.
pub(super) fn forget(unread: &Register) -> bool {
    transforms::eval(unread.arrays())
        .map_err(BatchError::from)
        .and_then(|()| check_fault())
        .inspect_err(|error| tracing::warn!(%error, "in a step whose tokens nobody waited for"))
        .is_ok()
}

/// Tokens of the last step, on the device, one per row.
pub(super) struct Register {
    /// `[B]` u32.
    pub(super) tokens: Array,
    /// `[B]` float32, where any row asked.
    pub(super) logprobs: Option<Array>,
    /// Whether the slot is a token of its row, not a placeholder.
    pub(super) real: Vec<bool>,
}

impl Register {
    pub(super) fn arrays(&self) -> impl Iterator<Item = &Array> {
        std::iter::once(&self.tokens).chain(&self.logprobs)
    }
}

/// Rows that advance together.
pub struct Batch {
    /// The rows, in the order of the caches' batch axis.
    pub(super) rows: Vec<Row>,
    pub(super) caches: BatchCache,
    pub(super) register: Option<Register>,
}

/// A row that has left, with its end and, where it is to be published, its caches.
pub struct Departed {
    /// The row.
    pub row: Row,
    /// Why it left.
    pub end: End,
    /// Its caches, evaluated, their own copy (or handed over by a lone row).
    pub cache: Option<RowCache>,
}

impl Batch {
    /// A batch of one: the row keeps its serial caches as they are.
    pub fn adopt(row: Row, cache: RowCache) -> Self {
        Self {
            rows: vec![row],
            caches: BatchCache::adopt(cache),
            register: None,
        }
    }

    /// The same, with a token 0 that is sampled but not read.
    pub(super) fn seeded(mut self, unread: Option<Register>) -> Self {
        self.register = unread;
        self
    }

    /// The rows.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The rows, to mark them.
    pub fn rows_mut(&mut self) -> &mut [Row] {
        &mut self.rows
    }

    /// Whether tokens are sampled but not read; then nothing may join.
    pub fn has_unread(&self) -> bool {
        self.register.is_some()
    }

    /// Waits for the step under way, if there is one, and fails if a kernel panicked in it. Its tokens stay unread.
    pub fn settle(&self) -> Result<(), BatchError> {
        if let Some(register) = &self.register {
            transforms::eval(register.arrays())?;
            check_fault()?;
        }
        Ok(())
    }

    /// The step under way, whose tokens nobody will read any more.
    pub(super) fn abandon(&mut self) -> Option<Register> {
        self.register.take()
    }

    /// KV bytes used and allocated.
    pub fn kv_bytes(&self) -> (u64, u64) {
        (self.caches.used_bytes(), self.caches.allocated_bytes())
    }

    /// Adds a row. The pipeline must have been flushed.
    pub fn join(&mut self, mut row: Row, cache: RowCache) -> Result<(), (Box<Row>, BatchError)> {
        debug_assert!(!self.has_unread(), "flush before a merge");
        if let Err(error) = self.caches.extend(cache) {
            return Err((Box::new(row), error.into()));
        }
        row.merged = true;
        for sibling in &mut self.rows {
            sibling.merged = true;
        }
        self.rows.push(row);
        Ok(())
    }

    /// Takes out every row that has an end. Caches are kept for those of which `publish` says so.
    /// On an error the batch is empty and every row comes back: the ended ones with their ends, the others with the error.
    pub fn evict(&mut self, publish: impl Fn(&Row) -> bool) -> (Vec<Departed>, Result<(), BatchError>) {
        let keep: Vec<usize> = (0..self.rows.len())
            .filter(|&index| self.rows[index].end.is_none())
            .collect();
        if keep.len() == self.rows.len() {
            return (Vec::new(), Ok(()));
        }
        let mut published: Vec<Option<RowCache>> = self.rows.iter().map(|_| None).collect();
        for (index, row) in self.rows.iter().enumerate() {
            if row.end.is_some() && publish(row) {
                published[index] = self.take_cache(index, row);
            }
        }
        // Taking caches has waited for the step under way.
        let mut rearranged = if published.iter().any(Option::is_some) {
            check_fault()
        } else {
            Ok(())
        };
        if rearranged.is_err() {
            published.fill_with(|| None);
        } else if !keep.is_empty() {
            rearranged = self.keep_only(&keep);
        }
        let failed = rearranged.as_ref().err().map(ToString::to_string);
        let mut departed = Vec::new();
        let mut stay = Vec::new();
        for (mut row, cache) in std::mem::take(&mut self.rows).into_iter().zip(published) {
            match (row.end.take(), &failed) {
                (Some(end), _) => departed.push(Departed { row, end, cache }),
                (None, Some(message)) => {
                    departed.push(Departed {
                        row,
                        end: End::error(message.clone()),
                        cache: None,
                    });
                }
                (None, None) => stay.push(row),
            }
        }
        self.rows = stay;
        (departed, rearranged)
    }

    /// The caches of a row that leaves, evaluated; `None` where they don't hold exactly what the row accounts for.
    fn take_cache(&self, index: usize, row: &Row) -> Option<RowCache> {
        let extracted = self.caches.extract(index);
        let cache = extracted
            .inspect_err(|error| tracing::warn!(row = %row.id(), %error, "row not extracted"))
            .ok()?;
        if cache.len() != Some(row.job.prompt.len() + row.fed.len()) {
            tracing::warn!(row = %row.id(), held = ?cache.len(), fed = row.fed.len(), "cache does not match its key");
            return None;
        }
        transforms::eval(cache.arrays())
            .inspect_err(|error| tracing::warn!(row = %row.id(), %error, "row not extracted"))
            .ok()?;
        Some(cache)
    }

    fn keep_only(&mut self, keep: &[usize]) -> Result<(), BatchError> {
        self.caches.filter(keep)?;
        if let Some(register) = &mut self.register {
            let index: Vec<i32> = keep
                .iter()
                .map(|&row| i32::try_from(row).unwrap_or(i32::MAX))
                .collect();
            let index = Array::from_slice(&index, &[i32::try_from(keep.len()).unwrap_or(i32::MAX)]);
            register.tokens = take_axis(&register.tokens, &index, 0)?;
            if let Some(logprobs) = &mut register.logprobs {
                *logprobs = take_axis(&*logprobs, &index, 0)?;
            }
            register.real = keep.iter().map(|&row| register.real[row]).collect();
        }
        Ok(())
    }

    /// Ends every row with the same error; nothing of it may be published.
    pub fn fail(self, message: &str) -> Vec<Departed> {
        self.rows
            .into_iter()
            .map(|mut row| {
                let end = row.end.take().filter(|end| end.reason != FinishReason::Error);
                Departed {
                    row,
                    end: end.unwrap_or_else(|| End::error(message)),
                    cache: None,
                }
            })
            .collect()
    }
}
