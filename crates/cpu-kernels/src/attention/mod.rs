//! Causal attention of rows over keys and values of their own: new tokens' keys and values are written in place, and their
//! queries attend to what is there; for one token of many rows as for a long prompt.
//!
//! # The order of operations
//! A query and a key are normalized, if there are weights for it ([`Norm`]), and turned ([`Rope`]); the query is multiplied
//! by the scale. Positions are taken in by *blocks* of 128, by absolute index. Of a block, for one query:
//! - `s[j]` is the sum of `q[d] · k[j][d]` from 0, feature by feature, by fused multiply-adds;
//! - `m_b` is the largest `s[j]` of the positions that the query sees, and `p[j] = exp(s[j] − m_b)`;
//! - `l_b` is the sum of `p[j]` in 16 lanes by `j % 16`, in order, which are added by halves;
//! - `a_b` is the sum of `p[j] · v[j]` from 0, position by position, by fused multiply-adds.
//!
//! The first block that the query sees anything of is its state; the others are merged into it one after the other: `m' = max(m,
//! m_b)`, `α = exp(m − m')`, `β = exp(m_b − m')`, `l' = fma(l, α, l_b · β)`, `a' = fma(a_b, β, a · α)`. The result is `a · (1 /
//! l) + 0` (so that zeros are positive, and positions of weight 0 change nothing).
//!
//! # Quantized keys and values
//! Where a layer has [`KvCodes`], keys and values are quantized as they are written ([`CodeLayout`]), and the same is computed over
//! what the codes say. But the first tokens of a row, those of a segment that starts at position 0, attend to their keys and
//! values as they are, and only what later ones see of them is quantized: as mlx-lm does, which converts a cache after the first
//! piece of a prompt.
//!
//! # What it doesn't depend on
//! Nothing of it depends on how a prompt is cut, on other rows, on threads or instructions; only where a value is not finite,
//! tokens of the same prompt before it may get NaN with it (their weights of it are 0, and 0 · ∞ is NaN).

mod codes;
mod item;
mod layout;
mod plan;
mod prepare;
mod quantize;
mod tiles;

use crate::rows::grow;
use crate::shared::SharedMut;
use crate::{Isa, Norm, Team, reference};

pub(crate) use codes::place;
pub use codes::{CodeLayout, KvCodes};
pub(crate) use layout::BLOCK;
pub use layout::{CAPACITY_STEP, KvLayout, PANEL_POSITIONS};
pub(crate) use quantize::scale_and_bias;

use item::{merge_item, run_item, store_positions, write_positions};
use plan::Plan;

/// The most features of a key or a value.
pub const MOST_FEATURES: usize = 256;

/// Phases of the team's work.
const CLAIM_WRITES: usize = 0;
const CLAIM_ITEMS: usize = 1;
const CLAIM_MERGES: usize = 2;
const CLAIM_STORES: usize = 3;

/// One layer's attention.
#[derive(Debug, Clone, Copy)]
pub struct Attention<'a> {
    /// Heads of queries, a multiple of `kv.heads`: query head `h` looks at key head `h / (heads / kv.heads)`.
    pub heads: usize,
    /// Keys and values.
    pub kv: KvLayout,
    /// How keys and values are quantized, where they are.
    pub codes: Option<KvCodes>,
    /// What queries are multiplied by, mostly `1 / sqrt(key_dim)`.
    pub scale: f32,
    /// How many positions a query sees, its own among them; all if there is no window.
    pub window: Option<usize>,
    /// Normalizes each query head, `[key_dim]`.
    pub query_norm: Option<Norm<'a>>,
    /// Normalizes each key head, `[key_dim]`.
    pub key_norm: Option<Norm<'a>>,
    /// How queries and keys are turned by their positions.
    pub rope: Option<Rope<'a>>,
}

/// Rotary embedding: feature `i < pairs` is paired with feature `i + pairs`, and the pair `(a, b)` becomes `(fma(a, cos, −(b · sin)),
/// fma(b, cos, a · sin))`. Features from `2 · pairs` on stay as they are.
#[derive(Debug, Clone, Copy)]
pub struct Rope<'a> {
    /// Pairs of features that are turned.
    pub pairs: usize,
    /// Cosines of each token's angles, `[tokens, pairs]`.
    pub cos: &'a [f32],
    /// Sines, `[tokens, pairs]`.
    pub sin: &'a [f32],
}

/// New tokens of one row.
#[derive(Debug)]
pub struct Segment<'a> {
    /// The row's keys and values, of a multiple of [`CAPACITY_STEP`] positions.
    pub kv: KvMut<'a>,
    /// The position of the first new token: positions before it are filled.
    pub start: usize,
    /// How many there are.
    pub tokens: usize,
}

/// A row's keys and values.
#[derive(Debug)]
pub enum KvMut<'a> {
    /// [`KvLayout::floats`] of them.
    Floats(&'a mut [f32]),
    /// [`CodeLayout::words`] of them, where the attention has [`KvCodes`].
    Codes(&'a mut [u32]),
}

/// Memory that attention uses while it runs, kept between runs.
#[derive(Debug, Default)]
pub struct Scratch {
    plan: Plan,
    /// Partial results of blocks.
    partials: Vec<f32>,
    /// Queries, sums and scores of each thread.
    threads: Vec<f32>,
    /// Keys and values of the first tokens of quantized rows.
    first: Vec<f32>,
}

impl Attention<'_> {
    /// Floats of a token in what [`attend`] takes: its queries, keys and values.
    pub fn width(&self) -> usize {
        self.heads * self.kv.key_dim + self.kv.heads * (self.kv.key_dim + self.kv.value_dim)
    }

    /// How quantized keys and values lie in memory, where they are.
    pub fn code_layout(&self) -> Option<CodeLayout> {
        self.codes.map(|codes| CodeLayout { kv: self.kv, codes })
    }

    /// The first position that the query at `position` sees.
    pub(crate) fn first_visible(&self, position: usize) -> usize {
        self.window
            .map_or(0, |window| (position + 1).saturating_sub(window))
    }

    /// Floats that hold the keys and values of a quantized row's first tokens; 0 for others.
    fn first_floats(&self, segment: &Segment<'_>) -> usize {
        match segment.kv {
            KvMut::Codes(_) if segment.start == 0 => {
                self.kv.floats(segment.tokens.next_multiple_of(CAPACITY_STEP))
            }
            _ => 0,
        }
    }

    fn check(&self, tokens: usize) {
        let KvLayout {
            heads,
            key_dim,
            value_dim,
        } = self.kv;
        assert!(heads > 0 && self.heads > 0 && self.heads.is_multiple_of(heads));
        for features in [key_dim, value_dim] {
            assert!(
                (1..=MOST_FEATURES).contains(&features),
                "{features} features of a head"
            );
        }
        assert_ne!(self.window, Some(0), "a window of no positions");
        if let Some(layout) = self.code_layout() {
            layout.check();
        }
        for norm in [self.query_norm, self.key_norm].into_iter().flatten() {
            assert_eq!(norm.weight.len(), key_dim, "the norm's weight");
        }
        if let Some(rope) = self.rope {
            assert!(
                rope.pairs * 2 <= key_dim,
                "{} pairs of {key_dim} features",
                rope.pairs
            );
            for table in [rope.cos, rope.sin] {
                assert_eq!(table.len(), tokens * rope.pairs, "angles");
            }
        }
    }

    fn check_segment(&self, segment: &Segment<'_>) {
        let capacity = match (&segment.kv, self.code_layout()) {
            (KvMut::Floats(kv), None) => {
                let capacity = self.kv.capacity(kv.len());
                assert!(
                    capacity.is_multiple_of(CAPACITY_STEP) && self.kv.floats(capacity) == kv.len(),
                    "{} floats of keys and values",
                    kv.len()
                );
                capacity
            }
            (KvMut::Codes(words), Some(layout)) => {
                layout.check_buffer(words.len());
                layout.capacity(words.len())
            }
            _ => panic!("keys and values that are quantized, or not, where the others are not, or are"),
        };
        let end = segment.start + segment.tokens;
        let needed = self
            .window
            .map_or(end, |window| end.min(window.saturating_add(segment.tokens - 1)));
        assert!(
            needed <= capacity,
            "{needed} positions where there is room for {capacity}"
        );
    }
}

/// Writes the keys and values of all segments' tokens into their rows' buffers, and has their queries attend to them.
///
/// `qkv` is `[tokens, width]`, the tokens of all segments one after the other: of each its queries `[heads, key_dim]`, keys
/// `[kv.heads, key_dim]` and values `[kv.heads, value_dim]`. `out` is `[tokens, heads · value_dim]`.
///
/// # Panics
/// If a slice has not the length that the shapes ask for, a dimension is more than [`MOST_FEATURES`], or a buffer is
/// too small: it must hold all positions or, where there is a window, `window + tokens − 1`.
pub fn attend(
    team: &Team,
    scratch: &mut Scratch,
    attention: &Attention<'_>,
    qkv: &[f32],
    segments: &mut [Segment<'_>],
    out: &mut [f32],
) {
    for segment in &*segments {
        assert!(segment.tokens > 0, "a segment of no tokens");
    }
    let tokens: usize = segments.iter().map(|segment| segment.tokens).sum();
    attention.check(tokens);
    assert_eq!(qkv.len(), tokens * attention.width(), "queries, keys and values");
    assert_eq!(
        out.len(),
        tokens * attention.heads * attention.kv.value_dim,
        "elements of the output"
    );
    let (isa, size) = (team.isa(), team.size());
    if isa == Isa::Portable {
        for segment in &*segments {
            attention.check_segment(segment);
        }
        reference::attention::attend(attention, qkv, segments, out);
        return;
    }
    let Scratch {
        plan,
        partials,
        threads,
        first,
    } = scratch;
    let firsts = segments.iter().map(|segment| attention.first_floats(segment));
    grow(first, firsts.sum());
    let mut first = first.as_mut_slice();
    let mut token = 0;
    let mut rows = Vec::with_capacity(segments.len());
    for segment in &mut *segments {
        attention.check_segment(segment);
        let floats = attention.first_floats(segment);
        let (start, tokens) = (segment.start, segment.tokens);
        let (floats, codes) = match &mut segment.kv {
            KvMut::Floats(kv) => (Some(Held::new(kv, attention.kv.capacity(kv.len()))), None),
            KvMut::Codes(words) => {
                let capacity = attention
                    .code_layout()
                    .map_or(0, |layout| layout.capacity(words.len()));
                let (ours, rest) = std::mem::take(&mut first).split_at_mut(floats);
                first = rest;
                let floats = (floats > 0).then(|| Held::new(ours, attention.kv.capacity(floats)));
                (floats, Some(Held::new(words, capacity)))
            }
        };
        rows.push(Row {
            floats,
            codes,
            start,
            tokens,
            first_token: token,
        });
        token += tokens;
    }
    plan.make(isa, size, attention, &rows);
    grow(partials, plan.partials);
    let floats = item::thread_floats(attention);
    grow(threads, size * floats);
    let (plan, threads) = (&*plan, SharedMut::new(threads));
    let call = Call {
        isa,
        attention,
        qkv,
        rows: &rows,
        out: SharedMut::new(out),
        partials: SharedMut::new(partials),
    };
    team.run(|worker| {
        if !plan.writes.is_empty() {
            while let Some(write) = plan.writes.get(worker.claim(CLAIM_WRITES)) {
                // SAFETY: the instructions are the team's; a write's positions are its own, and nobody reads before the barrier.
                unsafe { write_positions(isa, &call, write) };
            }
            worker.barrier();
        }
        // SAFETY: a thread's part is its own.
        let memory = unsafe { threads.slice(worker.index() * floats..(worker.index() + 1) * floats) };
        loop {
            let index = worker.claim(CLAIM_ITEMS);
            let Some(item) = plan.items.get(index) else { break };
            // While this one is done, the others claim the items in between.
            let next = plan.items.get(index + size);
            // SAFETY: the instructions are the team's; an item's outputs, partials and positions are its own.
            unsafe { run_item(isa, &call, item, next, memory) };
        }
        if !plan.merges.is_empty() || !plan.stores.is_empty() {
            worker.barrier();
            while let Some(merge) = plan.merges.get(worker.claim(CLAIM_MERGES)) {
                // SAFETY: as above; all partials have been written.
                unsafe { merge_item(isa, &call, merge, memory) };
            }
            while let Some(store) = plan.stores.get(worker.claim(CLAIM_STORES)) {
                // SAFETY: as above; nobody reads the floats any more, and a panel's codes are a store's own.
                unsafe { store_positions(isa, &call, store) };
            }
        }
    });
}

/// What all items of a call share.
struct Call<'a> {
    isa: Isa,
    attention: &'a Attention<'a>,
    qkv: &'a [f32],
    rows: &'a [Row<'a>],
    out: SharedMut<'a, f32>,
    partials: SharedMut<'a, f32>,
}

/// A segment.
struct Row<'a> {
    /// What its queries see, unless that is the codes.
    floats: Option<Held<'a, f32>>,
    /// Where keys and values go in the end.
    codes: Option<Held<'a, u32>>,
    start: usize,
    tokens: usize,
    first_token: usize,
}

/// A buffer for so many positions.
struct Held<'a, T> {
    memory: SharedMut<'a, T>,
    capacity: usize,
}

impl Row<'_> {
    /// Positions that the buffer which its queries see has room for.
    fn capacity(&self) -> usize {
        let codes = || self.codes.as_ref().map_or(0, |codes| codes.capacity);
        self.floats.as_ref().map_or_else(codes, |floats| floats.capacity)
    }
}

impl<'a, T> Held<'a, T> {
    fn new(memory: &'a mut [T], capacity: usize) -> Self {
        Self {
            memory: SharedMut::new(memory),
            capacity,
        }
    }

    fn start(&self) -> *mut T {
        self.memory.start()
    }
}
