//! The queue in front of the batch: bounded, first in first out, with a budget for KV memory.
//!
//! Pure: it knows neither the model nor the clock. What a set of rows would reserve depends on the layout (in a padded
//! one every row is as long as the longest), so the caller passes a function from what the rows need to bytes. It
//! must be monotone (a longer or a further row never needs less) and must saturate rather than overflow.

use std::collections::VecDeque;
use std::fmt;

use super::request::RequestId;
pub use crate::cache::Need;

/// What the queue and the batch may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most rows that prepare or run; 0 is taken as 1.
    pub max_batch: usize,
    /// The most requests that wait; 0 is taken as 1.
    pub max_queued: usize,
    /// The most KV bytes that all admitted rows may come to hold.
    pub kv_budget: u64,
    /// The most positions of one row: the model's context length.
    pub positions: usize,
}

impl Limits {
    /// The default widths with a given budget in bytes and context length.
    pub fn new(kv_budget: u64, positions: usize) -> Self {
        Self {
            max_batch: 8,
            max_queued: 64,
            kv_budget,
            positions,
        }
    }
}

/// A request in the queue. Rows share a batch only if their group keys are equal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting<T, K = ()> {
    /// Which request.
    pub id: RequestId,
    /// How long it can become.
    pub need: Need,
    /// With whom it may run: adapter set, decode method, use of caches.
    pub group: K,
    /// Whatever its owner needs to start it.
    pub item: T,
}

/// Why a request can never be admitted. Its text says what to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct NeverFits {
    /// How long it could become.
    pub need: Need,
    /// KV bytes that it would reserve alone.
    pub bytes: u64,
    /// KV bytes that there may be.
    pub budget: u64,
    /// Positions that the model has.
    pub positions: usize,
    /// The longest row, prompt and answer together, that would be admitted.
    pub longest: usize,
}

impl fmt::Display for NeverFits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Need { prompt, max_tokens } = self.need;
        let (total, positions) = (self.need.final_length(), self.positions);
        let figures = format!("needed {}, budget {}", Bytes(self.bytes), Bytes(self.budget));
        let both = format!("prompt of {prompt} tokens and max_tokens {max_tokens} come to {total} positions");
        if total <= positions {
            write!(f, "the {both}, which is too much for the KV budget ({figures}); ")?;
        } else {
            if prompt >= positions {
                write!(f, "the prompt has {prompt} tokens")?;
            } else {
                write!(f, "the {both}")?;
            }
            write!(f, ", and the model takes {positions} with the answer")?;
            if self.bytes > self.budget {
                write!(f, " (KV memory {figures})")?;
            }
            write!(f, "; ")?;
        }
        if self.longest > prompt {
            write!(f, "lower max_tokens to at most {}", self.longest - prompt)?;
        } else if self.longest > 1 {
            write!(f, "shorten the prompt to fewer than {} tokens", self.longest)?;
        } else {
            // More memory alone would not do.
            if prompt >= positions {
                write!(f, "shorten the prompt to fewer than {positions} tokens, and ")?;
            } else if total > positions {
                write!(f, "lower max_tokens to at most {}, and ", positions - prompt)?;
            }
            return write!(f, "raise --kv-budget");
        }
        if total <= positions {
            write!(f, ", or raise --kv-budget")?;
        }
        Ok(())
    }
}

/// Bytes in units of 1024 and exactly: `1.5 MiB (1572864 bytes)`.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
        if self.0 < 1024 {
            return write!(f, "{} bytes", self.0);
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = UNITS[0];
        for next in &UNITS[1..] {
            // 1023.95 would be shown as 1024.0.
            if value < 1023.95 {
                break;
            }
            value /= 1024.0;
            unit = next;
        }
        write!(f, "{value:.1} {unit} ({} bytes)", self.0)
    }
}

/// Why a request was not queued.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// As many wait as may.
    #[error("the queue is full ({limit} requests wait already): try again when one has started")]
    QueueFull {
        /// The most requests that may wait.
        limit: usize,
    },
    /// It could wait for ever.
    #[error(transparent)]
    NeverFits(#[from] NeverFits),
}

/// The rows that prepare or run at the moment.
#[derive(Debug, Clone, Copy)]
pub struct Admitted<'a, K = ()> {
    /// How long each can come to be.
    pub needs: &'a [Need],
    /// Their group; it matters only while there are rows.
    pub group: Option<&'a K>,
}

/// What may happen to the head of the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict<T, K = ()> {
    /// It is taken out of the queue and becomes a row.
    Admit(Waiting<T, K>),
    /// It is taken out of the queue: it no longer fits even alone (the figures have changed since it was queued).
    Reject(Waiting<T, K>, NeverFits),
    /// Nobody waits.
    Empty,
    /// There are as many rows as may be.
    BatchFull,
    /// It waits until rows have left and given back KV memory.
    WaitForKv {
        /// Bytes that would be reserved with it.
        need: u64,
        /// Bytes reserved now.
        reserved: u64,
        /// The limit.
        budget: u64,
    },
    /// It waits until the batch of another group has drained.
    WaitForGroup,
}

/// The queue. Nobody overtakes: only its head is ever admitted.
#[derive(Debug)]
pub struct Queue<T, K = ()> {
    limits: Limits,
    waiting: VecDeque<Waiting<T, K>>,
}

impl<T, K: Eq> Queue<T, K> {
    /// An empty queue.
    pub fn new(limits: Limits) -> Self {
        let limits = Limits {
            max_batch: limits.max_batch.max(1),
            max_queued: limits.max_queued.max(1),
            ..limits
        };
        Self {
            limits,
            waiting: VecDeque::new(),
        }
    }

    /// The limits in force.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Changes the KV budget; who no longer fits alone is rejected when it comes to the head.
    pub fn set_kv_budget(&mut self, bytes: u64) {
        self.limits.kv_budget = bytes;
    }

    /// Whether a request could ever be admitted, alone in the batch.
    pub fn check(&self, need: Need, reserve: impl Fn(&[Need]) -> u64) -> Result<(), NeverFits> {
        let Limits {
            kv_budget: budget,
            positions,
            ..
        } = self.limits;
        let total = need.final_length();
        let bytes = reserve(&[need]);
        if total <= positions && bytes <= budget {
            return Ok(());
        }
        Err(NeverFits {
            need,
            bytes,
            budget,
            positions,
            longest: self.longest_of(need, reserve),
        })
    }

    /// Positions of the longest row, prompt and answer together, that could be admitted, alone in the batch.
    pub fn longest(&self, reserve: impl Fn(&[Need]) -> u64) -> usize {
        let prompt = self.limits.positions.saturating_sub(1);
        self.longest_of(
            Need {
                prompt,
                max_tokens: 1,
            },
            reserve,
        )
    }

    /// The same where it is to be no longer than a request's.
    fn longest_of(&self, need: Need, reserve: impl Fn(&[Need]) -> u64) -> usize {
        // The answer is cut first, then the prompt. Monotone, so the longest admissible row is found by bisection: `fits`
        // always does, `over` never.
        let cut = |total: usize| {
            let prompt = need.prompt.min(total.saturating_sub(1));
            Need {
                prompt,
                max_tokens: total - prompt,
            }
        };
        let most = need.final_length().min(self.limits.positions);
        let (mut fits, mut over) = (0, most.saturating_add(1));
        while over - fits > 1 {
            let middle = fits + (over - fits) / 2;
            if reserve(&[cut(middle)]) <= self.limits.kv_budget {
                fits = middle;
            } else {
                over = middle;
            }
        }
        fits
    }

    /// Queues a request, or hands it back with the reason.
    pub fn push(
        &mut self,
        request: Waiting<T, K>,
        reserve: impl Fn(&[Need]) -> u64,
    ) -> Result<(), (Waiting<T, K>, Refused)> {
        if let Err(never) = self.check(request.need, reserve) {
            return Err((request, never.into()));
        }
        if self.is_full() {
            let limit = self.limits.max_queued;
            return Err((request, Refused::QueueFull { limit }));
        }
        self.waiting.push_back(request);
        Ok(())
    }

    /// Decides over the head of the queue, given the rows there are.
    pub fn next(&mut self, rows: Admitted<'_, K>, reserve: impl Fn(&[Need]) -> u64) -> Verdict<T, K> {
        let Some(head) = self.waiting.front() else {
            return Verdict::Empty;
        };
        if rows.needs.len() >= self.limits.max_batch {
            return Verdict::BatchFull;
        }
        if !rows.needs.is_empty() && rows.group.is_some_and(|group| *group != head.group) {
            return Verdict::WaitForGroup;
        }
        let need = reserve(&[rows.needs, &[head.need]].concat());
        let budget = self.limits.kv_budget;
        if need <= budget {
            return self.waiting.pop_front().map_or(Verdict::Empty, Verdict::Admit);
        }
        if let Err(never) = self.check(head.need, &reserve) {
            return self
                .waiting
                .pop_front()
                .map_or(Verdict::Empty, |head| Verdict::Reject(head, never));
        }
        let reserved = if rows.needs.is_empty() {
            0
        } else {
            reserve(rows.needs)
        };
        Verdict::WaitForKv {
            need,
            reserved,
            budget,
        }
    }

    /// Takes a request out of the queue, wherever it stands.
    pub fn remove(&mut self, id: RequestId) -> Option<Waiting<T, K>> {
        let place = self.position(id)?;
        self.waiting.remove(place)
    }

    /// Takes everyone out, in order.
    pub fn drain(&mut self) -> impl Iterator<Item = Waiting<T, K>> + '_ {
        self.waiting.drain(..)
    }

    /// Where a request stands; the head is 0.
    pub fn position(&self, id: RequestId) -> Option<usize> {
        self.waiting.iter().position(|waiting| waiting.id == id)
    }

    /// Everyone who waits, from the head.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Waiting<T, K>> {
        self.waiting.iter()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether as many wait as may.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= self.limits.max_queued
    }
}
