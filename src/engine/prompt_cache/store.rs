//! The prompt cache in memory: caches of rows under exactly the tokens that they hold; and what it hands to the disk, and
//! takes from there.

use std::time::Instant;

use super::disk::tier::DiskTier;
use super::index::{Class, Index, Namespace, NewEntry};
use crate::cache::RowCache;
use crate::engine::telemetry::PromptCacheStats;

/// Entries shorter than this many tokens are published only for named sessions.
pub const MIN_TOKENS: usize = 256;

/// Caches of past rows, bounded in bytes.
pub struct PromptCache {
    index: Index<RowCache>,
    disk: Option<DiskTier>,
    stats: PromptCacheStats,
}

impl PromptCache {
    /// An empty cache that may hold `limit` bytes, and what `disk` holds.
    pub fn new(limit: u64, disk: Option<DiskTier>) -> Self {
        let stats = PromptCacheStats {
            enabled: true,
            limit,
            ..PromptCacheStats::default()
        };
        Self {
            index: Index::new(limit),
            disk,
            stats,
        }
    }

    /// The longest cached prefix of `tokens` that is usable, at most `tokens.len() - 1` long, as caches that share the
    /// entry's arrays until they are written. Where a file serves more than memory does, it is read. Counts a lookup.
    pub fn fetch(&mut self, namespace: &Namespace, tokens: &[u32]) -> Option<RowCache> {
        let started = Instant::now();
        let most = tokens.len().saturating_sub(1);
        self.stats.lookups += 1;
        self.stats.tokens_asked += most as u64;
        let restored = self.restore(namespace, tokens, most);
        let served = restored.as_ref().and_then(RowCache::len).unwrap_or(0);
        self.stats.tokens_served += served as u64;
        match served {
            0 => self.stats.miss += 1,
            _ if served == most => self.stats.full += 1,
            _ => self.stats.partial += 1,
        }
        let took = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.stats.restore_ns = self.stats.restore_ns.saturating_add(took);
        restored
    }

    fn restore(&mut self, namespace: &Namespace, tokens: &[u32], most: usize) -> Option<RowCache> {
        let hit = self.index.lookup(namespace, tokens, most);
        let (mut cache, usable) =
            match self.from_disk(namespace, tokens, most, hit.map_or(0, |hit| hit.usable)) {
                Some(found) => found,
                None => {
                    let hit = hit?;
                    (self.index.get(hit.id)?.clone(), hit.usable)
                }
            };
        if cache.len() != Some(usable) {
            let trimmed = cache.trim_to(usable);
            trimmed
                .inspect_err(|error| tracing::warn!(%error, "cached prefix not trimmed"))
                .ok()?;
        }
        (usable > 0).then_some(cache)
    }

    /// What a file serves beyond what memory does; it is in memory, too, from now on.
    fn from_disk(
        &mut self,
        namespace: &Namespace,
        tokens: &[u32],
        most: usize,
        have: usize,
    ) -> Option<(RowCache, usize)> {
        let disk = self.disk.as_mut().filter(|disk| disk.namespace() == namespace)?;
        let found = disk.restore(tokens, most, have)?;
        self.keep(namespace, found.tokens, found.cache.clone(), found.class);
        Some((found.cache, found.usable))
    }

    /// Stores a row's caches under the tokens that they hold, in no more memory than they need. Caches whose length differs
    /// from the key's are dropped. Those that can't be cut serve no prompt but one that goes on from all their tokens.
    pub fn publish(&mut self, namespace: &Namespace, tokens: Vec<u32>, mut cache: RowCache, class: Class) {
        if cache.len() != Some(tokens.len()) || tokens.is_empty() {
            tracing::warn!(held = ?cache.len(), key = tokens.len(), "cache does not match its key: not stored");
            return;
        }
        if let Err(error) = cache.compact() {
            tracing::warn!(%error, "cache not compacted: not stored");
            return;
        }
        self.keep(namespace, tokens, cache, class);
    }

    fn keep(&mut self, namespace: &Namespace, tokens: Vec<u32>, cache: RowCache, class: Class) {
        let (bytes, trimmable) = (cache.allocated_bytes(), cache.trimmable());
        let new = NewEntry {
            tokens,
            bytes,
            class,
            trimmable,
            payload: cache,
        };
        let removed = self.index.insert(namespace, new).removed;
        if let Some(disk) = &mut self.disk {
            disk.retire(removed);
        }
    }

    /// Gives back bytes until no more than `bytes` are held.
    pub fn shrink_to(&mut self, bytes: u64) {
        let removed = self.index.shrink_to(bytes);
        if let Some(disk) = &mut self.disk {
            disk.retire(removed);
        }
    }

    /// Between steps: a part of what is to go to disk is read. Whether anything is on its way there.
    pub fn turn(&mut self) -> bool {
        self.disk.as_mut().is_some_and(DiskTier::turn)
    }

    /// Whether [`turn`](Self::turn) has anything to read now.
    pub fn has_turn(&self) -> bool {
        self.disk.as_ref().is_some_and(DiskTier::has_turn)
    }

    /// Writes all that is held to disk, if that is wanted, the most recently used first; nothing is held after. Tells its
    /// progress.
    pub fn save(&mut self, mut told: impl FnMut(PromptCacheStats)) {
        if let Some(disk) = &mut self.disk {
            let mut stats = PromptCacheStats {
                entries: 0,
                bytes: 0,
                ..self.stats
            };
            let mut entries = self.index.drain();
            entries.reverse();
            disk.finish(entries, |disk| {
                stats.disk = disk;
                told(stats);
            });
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.index.stats().bytes
    }

    /// Bytes of what is no longer held and not yet read.
    pub fn leaving_bytes(&self) -> u64 {
        self.disk.as_ref().map_or(0, DiskTier::waiting)
    }

    /// Its statistics.
    pub fn stats(&self) -> PromptCacheStats {
        let held = self.index.stats();
        PromptCacheStats {
            entries: held.entries,
            bytes: held.bytes,
            limit: held.limit,
            evictions: held.evictions,
            disk: self.disk.as_ref().map(DiskTier::stats).unwrap_or_default(),
            ..self.stats
        }
    }
}
