//! The gated delta rule (Yang, Kautz and Hatamizadeh 2024) with what is before and after it, for rows with states of their
//! own: for one token of many rows as for a long prompt.
//!
//! # The order of operations
//! A token's queries, keys and values go through a causal depthwise convolution: a feature is the sum over the taps, the
//! oldest token first, of `x · weight` from 0 by fused multiply-adds, and then `silu` of it. Queries and keys are brought to
//! length 1, head by head: `x · (1 / sqrt(Σx² + 1e-6))`, queries `· 1 / sqrt(key_dim)` in the factor; the squares are summed
//! as those of a [`Norm`]. A head of values then has `decay = exp(−exp(a_log) · softplus(a + dt_bias))` and `β = sigmoid(b)`. Of
//! its state `S`, for each value `v`:
//! - `s[j] = S[j] · decay`, and `m` is the sum of `s[j] · k[j]` in 16 lanes by `j % 16`, in order, by fused multiply-adds; lanes
//!   are added by halves;
//! - `d = (v − m) · β`, and `S[j] = fma(k[j], d, s[j])`;
//! - `y` is the sum of `S[j] · q[j]`, as `m` is summed.
//!
//! The head's `y` are normalized, and multiplied by `silu(z)`. Nothing of it depends on how a prompt is cut, on other rows, on
//! threads or instructions.

mod head;

use std::ops::Range;

use crate::attention::MOST_FEATURES;
use crate::rows::grow;
use crate::shared::SharedMut;
use crate::{Isa, Norm, Team, reference};

use head::{convolve_head, recur_head};

/// What keeps the length of a query or a key of zeros finite, added to the sum of its squares.
pub(crate) const LENGTH_EPS: f32 = 1e-6;

/// Phases of the team's work.
const CLAIM_CONVOLUTIONS: usize = 0;
const CLAIM_HEADS: usize = 1;

/// How many heads a layer has, how wide they are, and how far its convolution looks back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeltaShape {
    /// Heads of queries, and of keys.
    pub key_heads: usize,
    /// Heads of values, a multiple of `key_heads`: value head `h` goes with key head `h / (value_heads / key_heads)`.
    pub value_heads: usize,
    /// Features of a query and of a key.
    pub key_dim: usize,
    /// Features of a value.
    pub value_dim: usize,
    /// Tokens that the convolution sees, the newest among them.
    pub kernel: usize,
}

/// One layer's gated delta rule.
#[derive(Debug, Clone, Copy)]
pub struct DeltaNet<'a> {
    /// Its heads.
    pub shape: DeltaShape,
    /// `[kernel, conv_features]`, the tap of the oldest token first.
    pub conv: &'a [f32],
    /// The logarithm of each value head's rate of decay, `[value_heads]`.
    pub a_log: &'a [f32],
    /// Added to each value head's `a`, `[value_heads]`.
    pub dt_bias: &'a [f32],
    /// Normalizes each head's output, `[value_dim]`.
    pub norm: Norm<'a>,
}

/// New tokens of one row.
#[derive(Debug)]
pub struct Segment<'a> {
    /// What the row remembers, [`DeltaShape::state_floats`]: the convolution's last inputs `[kernel − 1, conv_features]`, then
    /// `[value_heads, value_dim, key_dim]`. Of a new row all zeros.
    pub state: &'a mut [f32],
    /// How many there are.
    pub tokens: usize,
}

/// Memory that the kernel uses while it runs, kept between runs.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Queries, keys and values behind the convolution, `[tokens, conv_features]`.
    convolved: Vec<f32>,
}

impl DeltaShape {
    /// Features of all queries, keys and values: what the convolution runs over.
    pub fn conv_features(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.value_features()
    }

    /// Features of all values, and of a token's output.
    pub fn value_features(&self) -> usize {
        self.value_heads * self.value_dim
    }

    /// Floats of a token in what [`update`] takes.
    pub fn width(&self) -> usize {
        self.conv_features() + self.value_features() + 2 * self.value_heads
    }

    /// Floats of a row's state.
    pub fn state_floats(&self) -> usize {
        self.held() * self.conv_features() + self.value_features() * self.key_dim
    }

    /// Inputs of the convolution that a row remembers.
    pub(crate) fn held(&self) -> usize {
        self.kernel - 1
    }

    /// Heads that the convolution is shared out by: queries, keys, values.
    pub(crate) fn conv_heads(&self) -> usize {
        2 * self.key_heads + self.value_heads
    }

    /// The features of one of them.
    pub(crate) fn conv_head(&self, head: usize) -> Range<usize> {
        match head.checked_sub(2 * self.key_heads) {
            None => head * self.key_dim..(head + 1) * self.key_dim,
            Some(value) => {
                let start = 2 * self.key_heads * self.key_dim + value * self.value_dim;
                start..start + self.value_dim
            }
        }
    }

    /// What a query (`Some`) or a key is multiplied by besides its length's reciprocal; `None` of a value.
    pub(crate) fn length(&self, head: usize) -> Option<f32> {
        if head < self.key_heads {
            Some(1.0 / (self.key_dim as f32).sqrt())
        } else if head < 2 * self.key_heads {
            Some(1.0)
        } else {
            None
        }
    }

    /// Where a token's query and key of a value head are among the convolved features.
    pub(crate) fn query_and_key(&self, head: usize) -> [usize; 2] {
        let key_head = head / (self.value_heads / self.key_heads);
        [key_head, self.key_heads + key_head].map(|head| head * self.key_dim)
    }

    /// Where a value head's matrix is in a state.
    pub(crate) fn matrix(&self, head: usize) -> Range<usize> {
        let floats = self.value_dim * self.key_dim;
        let start = self.held() * self.conv_features() + head * floats;
        start..start + floats
    }
}

impl DeltaNet<'_> {
    fn check(&self) {
        let DeltaShape {
            key_heads,
            value_heads,
            key_dim,
            value_dim,
            kernel,
        } = self.shape;
        assert!(key_heads > 0 && value_heads > 0 && value_heads.is_multiple_of(key_heads));
        for features in [key_dim, value_dim] {
            assert!(
                (1..=MOST_FEATURES).contains(&features),
                "{features} features of a head"
            );
        }
        assert!(kernel > 0, "a convolution of no tokens");
        let conv = kernel * self.shape.conv_features();
        assert_eq!(self.conv.len(), conv, "weights of the convolution");
        assert_eq!(self.a_log.len(), value_heads, "rates of decay");
        assert_eq!(self.dt_bias.len(), value_heads, "biases of the decay");
        assert_eq!(self.norm.weight.len(), value_dim, "the norm's weight");
    }
}

/// Takes all segments' tokens into their rows' states, and puts out what each token gets.
///
/// `projected` is `[tokens, width]`, the tokens of all segments one after the other: of each its queries `[key_heads,
/// key_dim]`, keys `[key_heads, key_dim]`, values `[value_heads, value_dim]`, `z` `[value_heads, value_dim]`, `b`
/// `[value_heads]` and `a` `[value_heads]`. `out` is `[tokens, value_heads · value_dim]`.
///
/// # Panics
/// If a slice has not the length that the shapes ask for, or a dimension is more than [`MOST_FEATURES`].
pub fn update(
    team: &Team,
    scratch: &mut Scratch,
    net: &DeltaNet<'_>,
    projected: &[f32],
    segments: &mut [Segment<'_>],
    out: &mut [f32],
) {
    net.check();
    let shape = net.shape;
    let tokens: usize = segments.iter().map(|segment| segment.tokens).sum();
    for segment in &*segments {
        assert!(segment.tokens > 0, "a segment of no tokens");
        assert_eq!(segment.state.len(), shape.state_floats(), "floats of a state");
    }
    assert_eq!(projected.len(), tokens * shape.width(), "what is projected");
    assert_eq!(
        out.len(),
        tokens * shape.value_features(),
        "elements of the output"
    );
    let isa = team.isa();
    if isa == Isa::Portable {
        reference::delta::update(net, projected, segments, out);
        return;
    }
    let mut token = 0;
    let mut rows = Vec::with_capacity(segments.len());
    for segment in &mut *segments {
        rows.push(Row {
            state: SharedMut::new(segment.state),
            tokens: segment.tokens,
            first_token: token,
        });
        token += segment.tokens;
    }
    grow(&mut scratch.convolved, tokens * shape.conv_features());
    let call = Call {
        isa,
        net,
        projected,
        rows: &rows,
        convolved: SharedMut::new(&mut scratch.convolved),
        out: SharedMut::new(out),
    };
    let (conv_heads, value_heads) = (shape.conv_heads(), shape.value_heads);
    team.run(|worker| {
        loop {
            let pieces = worker.claim_run(CLAIM_CONVOLUTIONS, rows.len() * conv_heads);
            if pieces.is_empty() {
                break;
            }
            for piece in pieces {
                // SAFETY: the instructions are the team's; a head's features, and what is held of them, are its own.
                unsafe { convolve_head(isa, &call, piece / conv_heads, piece % conv_heads) };
            }
        }
        worker.barrier();
        loop {
            let pieces = worker.claim_run(CLAIM_HEADS, rows.len() * value_heads);
            if pieces.is_empty() {
                break;
            }
            for piece in pieces {
                // SAFETY: as above; nobody writes what is convolved any more, and a head's matrix and outputs are its own.
                unsafe { recur_head(isa, &call, piece / value_heads, piece % value_heads) };
            }
        }
    });
}

/// What all pieces of a call share.
struct Call<'a> {
    isa: Isa,
    net: &'a DeltaNet<'a>,
    projected: &'a [f32],
    rows: &'a [Row<'a>],
    convolved: SharedMut<'a, f32>,
    out: SharedMut<'a, f32>,
}

/// A segment.
struct Row<'a> {
    state: SharedMut<'a, f32>,
    tokens: usize,
    first_token: usize,
}
