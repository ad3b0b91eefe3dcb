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
//! Nothing of it depends on how a prompt is cut, on other rows, on threads or instructions; only where a value is not finite,
//! tokens of the same prompt before it may get NaN with it (their weights of it are 0, and 0 · ∞ is NaN).

mod item;
mod layout;
mod plan;
mod prepare;
mod tiles;

use crate::rows::grow;
use crate::shared::SharedMut;
use crate::{Isa, Norm, Team, reference};

pub(crate) use layout::BLOCK;
pub use layout::{CAPACITY_STEP, KvLayout, PANEL_POSITIONS};

use item::{merge_item, run_item, write_positions};
use plan::Plan;

/// The most features of a key or a value.
pub const MOST_FEATURES: usize = 256;

/// Phases of the team's work.
const CLAIM_WRITES: usize = 0;
const CLAIM_ITEMS: usize = 1;
const CLAIM_MERGES: usize = 2;

/// One layer's attention.
#[derive(Debug, Clone, Copy)]
pub struct Attention<'a> {
    /// Heads of queries, a multiple of `kv.heads`: query head `h` looks at key head `h / (heads / kv.heads)`.
    pub heads: usize,
    /// Keys and values.
    pub kv: KvLayout,
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
    /// The row's keys and values: [`KvLayout::floats`] of a multiple of [`CAPACITY_STEP`] positions.
    pub kv: &'a mut [f32],
    /// The position of the first new token: positions before it are filled.
    pub start: usize,
    /// How many there are.
    pub tokens: usize,
}

/// Memory that attention uses while it runs, kept between runs.
#[derive(Debug, Default)]
pub struct Scratch {
    plan: Plan,
    /// Partial results of blocks.
    partials: Vec<f32>,
    /// Queries, sums and scores of each thread.
    threads: Vec<f32>,
}

impl Attention<'_> {
    /// Floats of a token in what [`attend`] takes: its queries, keys and values.
    pub fn width(&self) -> usize {
        self.heads * self.kv.key_dim + self.kv.heads * (self.kv.key_dim + self.kv.value_dim)
    }

    /// The first position that the query at `position` sees.
    pub(crate) fn first_visible(&self, position: usize) -> usize {
        self.window
            .map_or(0, |window| (position + 1).saturating_sub(window))
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
        let capacity = self.kv.capacity(segment.kv.len());
        assert!(
            capacity.is_multiple_of(CAPACITY_STEP) && self.kv.floats(capacity) == segment.kv.len(),
            "{} floats of keys and values",
            segment.kv.len()
        );
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
    let mut token = 0;
    let mut rows = Vec::with_capacity(segments.len());
    for segment in &mut *segments {
        attention.check_segment(segment);
        rows.push(Row {
            floats: segment.kv.len(),
            kv: SharedMut::new(segment.kv),
            start: segment.start,
            tokens: segment.tokens,
            first_token: token,
        });
        token += segment.tokens;
    }
    let Scratch {
        plan,
        partials,
        threads,
    } = scratch;
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
        if !plan.merges.is_empty() {
            worker.barrier();
            while let Some(merge) = plan.merges.get(worker.claim(CLAIM_MERGES)) {
                // SAFETY: as above; all partials have been written.
                unsafe { merge_item(isa, &call, merge, memory) };
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
    kv: SharedMut<'a, f32>,
    floats: usize,
    start: usize,
    tokens: usize,
    first_token: usize,
}
