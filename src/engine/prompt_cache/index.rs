//! Which cached prefix serves a prompt, and which entry goes when memory runs short.
//!
//! Pure: the payload is the caller's. Entries lie in a compressed trie of tokens per namespace, so that a lookup costs
//! what the common prefix is long, however many entries there are. Rules:
//! - A lookup finds the longest usable prefix. An entry that goes on beyond it must be cut, so it has to be trimmable.
//! - An equal key replaces. A trimmable entry supersedes those it continues, except system prompts; an untrimmable one
//!   can't stand in for a shorter one, so it leaves them.
//! - The limit is in bytes. Turns go first, then system prompts, each least recently *used* first (a hit counts as
//!   use). What has just been inserted stays; what is over the limit alone is not stored.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::trie::{NodeId, Trie};

/// What keys are comparable: one model, KV scheme and adapter set.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Namespace(pub Arc<str>);

impl Namespace {
    /// A namespace by its name.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }
}

/// Names an entry; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryId(u64);

/// How long an entry is worth keeping; the greater outlives the lesser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A turn of a conversation.
    Turn,
    /// A system prompt, which many conversations share.
    System,
}

/// How an entry's key relates to the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// It is the prompt.
    Exact,
    /// The prompt continues it.
    Shorter,
    /// It goes on beyond what both share, in the prompt's direction or another.
    Longer,
}

/// The best entry for a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit {
    /// Which entry.
    pub id: EntryId,
    /// Tokens of the prompt that it serves; at least 1.
    pub usable: usize,
    /// Tokens to trim from its end: its length less `usable`. Not 0 only for a trimmable entry.
    pub trim: usize,
    /// How its key relates to the prompt.
    pub relation: Relation,
}

/// An entry to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEntry<E> {
    /// Exactly the tokens that its caches hold.
    pub tokens: Vec<u32>,
    /// Bytes that it keeps alive.
    pub bytes: u64,
    /// How long it is worth keeping.
    pub class: Class,
    /// Whether every layer can be cut shorter.
    pub trimmable: bool,
    /// The caches.
    pub payload: E,
}

/// Why an entry is not in the index any more, or never came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Another with the same key took its place.
    Replaced,
    /// A trimmable one that continues it took its place.
    Superseded,
    /// The byte limit.
    Evicted,
    /// It was over the limit alone, or empty, and was not stored.
    NotStored,
    /// Somebody asked for it.
    Removed,
}

/// An entry that is given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed<E> {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Its bytes.
    pub bytes: u64,
    /// Its class.
    pub class: Class,
    /// Whether it could be trimmed.
    pub trimmable: bool,
    /// The caches.
    pub payload: E,
    /// Why it is given back.
    pub why: Why,
}

/// What an insertion did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inserted<E> {
    /// The new entry, unless it was not stored.
    pub id: Option<EntryId>,
    /// What was given back for it.
    pub removed: Vec<Removed<E>>,
}

/// What the index holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// Entries held.
    pub entries: u64,
    /// Bytes held.
    pub bytes: u64,
    /// The most bytes it may hold.
    pub limit: u64,
    /// Entries evicted for the byte limit so far.
    pub evictions: u64,
}

#[derive(Debug)]
struct Entry<E> {
    namespace: Namespace,
    node: NodeId,
    length: usize,
    bytes: u64,
    class: Class,
    trimmable: bool,
    accessed: u64,
    payload: E,
}

/// The index.
#[derive(Debug)]
pub struct Index<E> {
    tries: HashMap<Namespace, Trie<EntryId>>,
    entries: HashMap<EntryId, Entry<E>>,
    /// Who goes first, by class and then by access.
    order: BTreeMap<(Class, u64), EntryId>,
    bytes: u64,
    limit: u64,
    evictions: u64,
    clock: u64,
}

impl<E> Index<E> {
    /// An empty index that holds at most `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self {
            tries: HashMap::new(),
            entries: HashMap::new(),
            order: BTreeMap::new(),
            bytes: 0,
            limit,
            evictions: 0,
            clock: 0,
        }
    }

    /// What it holds.
    pub fn stats(&self) -> IndexStats {
        IndexStats {
            entries: self.entries.len() as u64,
            bytes: self.bytes,
            limit: self.limit,
            evictions: self.evictions,
        }
    }

    /// An entry's caches. Reading them is not a use; [`Index::lookup`] is.
    pub fn get(&self, id: EntryId) -> Option<&E> {
        self.entries.get(&id).map(|entry| &entry.payload)
    }

    /// The entry that serves the most of `tokens`, at most `limit` of them (the prompt's length less 1, so that its
    /// last token is left to compute). Among equals one that needs no trimming. A hit counts as use.
    pub fn lookup(&mut self, namespace: &Namespace, tokens: &[u32], limit: usize) -> Option<Hit> {
        let trie = self.tries.get(namespace)?;
        let limit = limit.min(tokens.len());
        let walk = trie.walk(tokens);
        let mut best: Option<(EntryId, usize)> = None;
        // From the deepest common prefix upwards: the first that is usable is the longest.
        for place in walk.iter().rev() {
            let usable = place.depth.min(limit);
            if usable == 0 || best.is_some_and(|(_, most)| usable < most) {
                break;
            }
            if let Some(id) = place.entry
                && place.depth == usable
            {
                best = Some((id, usable));
                break;
            }
            if best.is_none() {
                best = trie.trimmable_below(place.node).map(|id| (id, usable));
            }
        }
        let (id, usable) = best?;
        let length = self.entries.get(&id)?.length;
        let trim = length - usable;
        // An entry on the way is a prefix of the prompt.
        let relation = match walk.iter().find(|place| place.entry == Some(id)) {
            Some(place) if place.depth == tokens.len() => Relation::Exact,
            Some(_) => Relation::Shorter,
            None => Relation::Longer,
        };
        self.touch(id);
        Some(Hit {
            id,
            usable,
            trim,
            relation,
        })
    }

    /// Stores an entry, and gives back what had to go for it: see the rules above.
    pub fn insert(&mut self, namespace: &Namespace, new: NewEntry<E>) -> Inserted<E> {
        let NewEntry {
            tokens,
            bytes,
            mut class,
            trimmable,
            payload,
        } = new;
        if bytes > self.limit || tokens.is_empty() {
            let namespace = namespace.clone();
            let why = Why::NotStored;
            let removed = vec![Removed {
                namespace,
                tokens,
                bytes,
                class,
                trimmable,
                payload,
                why,
            }];
            return Inserted { id: None, removed };
        }
        let mut removed = Vec::new();
        if let Some(trie) = self.tries.get(namespace) {
            let mut leave = Vec::new();
            for place in trie.walk(&tokens) {
                let Some(id) = place.entry else { continue };
                if place.depth == tokens.len() {
                    leave.push((id, Why::Replaced));
                } else if trimmable {
                    leave.push((id, Why::Superseded));
                }
            }
            for (id, why) in leave {
                let Some(old) = self.entries.get(&id).map(|entry| entry.class) else {
                    continue;
                };
                if why == Why::Replaced {
                    class = class.max(old);
                } else if old == Class::System {
                    continue;
                }
                removed.extend(self.take(id, why));
            }
        }
        self.clock += 1;
        let (id, accessed) = (EntryId(self.clock), self.clock);
        let length = tokens.len();
        let trie = self.tries.entry(namespace.clone()).or_default();
        let node = trie.insert(&tokens, id, trimmable);
        let namespace = namespace.clone();
        let entry = Entry {
            namespace,
            node,
            length,
            bytes,
            class,
            trimmable,
            accessed,
            payload,
        };
        self.bytes += bytes;
        // Out of the order while room is made, so that it can't be its own victim.
        self.entries.insert(id, entry);
        self.evict(self.limit, &mut removed);
        self.order.insert((class, accessed), id);
        Inserted {
            id: Some(id),
            removed,
        }
    }

    /// Takes an entry out.
    pub fn remove(&mut self, id: EntryId) -> Option<Removed<E>> {
        self.take(id, Why::Removed)
    }

    /// Evicts until at most `bytes` are held; the limit stays.
    pub fn shrink_to(&mut self, bytes: u64) -> Vec<Removed<E>> {
        let mut removed = Vec::new();
        self.evict(bytes, &mut removed);
        removed
    }

    /// Changes the limit, and evicts down to it.
    pub fn set_limit(&mut self, bytes: u64) -> Vec<Removed<E>> {
        self.limit = bytes;
        self.shrink_to(bytes)
    }

    /// Takes everything out, most recently used last, as if evicted: for writing it to disk at exit.
    pub fn drain(&mut self) -> Vec<Removed<E>> {
        let mut ids: Vec<_> = self
            .order
            .iter()
            .map(|(&(_, accessed), &id)| (accessed, id))
            .collect();
        ids.sort_unstable_by_key(|&(accessed, _)| accessed);
        ids.into_iter()
            .filter_map(|(_, id)| self.take(id, Why::Removed))
            .collect()
    }

    /// Every entry's id and bytes, most recently used first.
    pub fn by_recency(&self) -> Vec<(EntryId, u64)> {
        let mut all: Vec<_> = self
            .entries
            .iter()
            .map(|(&id, entry)| (entry.accessed, id, entry.bytes))
            .collect();
        all.sort_unstable_by_key(|&(accessed, ..)| Reverse(accessed));
        all.into_iter().map(|(_, id, bytes)| (id, bytes)).collect()
    }

    fn evict(&mut self, bytes: u64, removed: &mut Vec<Removed<E>>) {
        while self.bytes > bytes {
            let Some(id) = self.order.first_key_value().map(|(_, &id)| id) else {
                return;
            };
            removed.extend(self.take(id, Why::Evicted));
            self.evictions += 1;
        }
    }

    fn touch(&mut self, id: EntryId) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        self.order.remove(&(entry.class, entry.accessed));
        self.clock += 1;
        entry.accessed = self.clock;
        self.order.insert((entry.class, entry.accessed), id);
    }

    fn take(&mut self, id: EntryId, why: Why) -> Option<Removed<E>> {
        let Entry {
            namespace,
            node,
            bytes,
            class,
            trimmable,
            accessed,
            payload,
            ..
        } = self.entries.remove(&id)?;
        self.order.remove(&(class, accessed));
        self.bytes -= bytes;
        let mut tokens = Vec::new();
        if let Some(trie) = self.tries.get_mut(&namespace) {
            tokens = trie.key(node);
            trie.remove(node);
            if trie.is_empty() {
                self.tries.remove(&namespace);
            }
        }
        Some(Removed {
            namespace,
            tokens,
            bytes,
            class,
            trimmable,
            payload,
            why,
        })
    }
}
