//! The prompt cache in memory: caches of rows under exactly the tokens that they hold.

use super::index::{Class, Index, Namespace, NewEntry, Relation};
use crate::cache::RowCache;
use crate::engine::telemetry::PromptCacheStats;

/// Entries shorter than this many tokens are published only for named sessions.
pub const MIN_TOKENS: usize = 256;

/// Caches of past rows, bounded in bytes.
pub struct PromptCache {
    index: Index<RowCache>,
    stats: PromptCacheStats,
}

impl PromptCache {
    /// An empty cache that may hold `limit` bytes.
    pub fn new(limit: u64) -> Self {
        let stats = PromptCacheStats {
            enabled: true,
            limit,
            ..PromptCacheStats::default()
        };
        Self {
            index: Index::new(limit),
            stats,
        }
    }

    /// The longest cached prefix of `tokens` that is usable, at most `tokens.len() - 1` long, as caches that share the
    /// entry's arrays until they are written. Counts a lookup.
    pub fn fetch(&mut self, namespace: &Namespace, tokens: &[u32]) -> Option<RowCache> {
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
        restored
    }

    fn restore(&mut self, namespace: &Namespace, tokens: &[u32], most: usize) -> Option<RowCache> {
        let hit = self.index.lookup(namespace, tokens, most)?;
        let mut cache = self.index.get(hit.id)?.clone();
        if cache.len() != Some(hit.usable) {
            let trimmed = cache.trim_to(hit.usable);
            trimmed
                .inspect_err(|error| tracing::warn!(%error, "cached prefix not trimmed"))
                .ok()?;
        }
        (hit.usable > 0).then_some(cache)
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
        let (bytes, trimmable) = (cache.allocated_bytes(), cache.trimmable());
        let _evicted = self.index.insert(
            namespace,
            NewEntry {
                tokens,
                bytes,
                class,
                trimmable,
                payload: cache,
            },
        );
    }

    /// Drops what is stored under exactly these tokens.
    pub fn forget(&mut self, namespace: &Namespace, tokens: &[u32]) {
        if let Some(hit) = self.index.lookup(namespace, tokens, tokens.len())
            && hit.relation == Relation::Exact
        {
            self.index.remove(hit.id);
        }
    }

    /// Gives back bytes until no more than `bytes` are held.
    pub fn shrink_to(&mut self, bytes: u64) {
        let _evicted = self.index.shrink_to(bytes);
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.index.stats().bytes
    }

    /// Its statistics.
    pub fn stats(&self) -> PromptCacheStats {
        let held = self.index.stats();
        PromptCacheStats {
            entries: held.entries,
            bytes: held.bytes,
            limit: held.limit,
            evictions: held.evictions,
            ..self.stats
        }
    }
}
