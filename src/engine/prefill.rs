//! Preparation: a joiner's prompt is processed in chunks up to its last token; a forward over that one gives token 0.

use std::ops::Range;
use std::time::Instant;

use mlx_rs::{Array, memory, transforms};

use super::batch::{BatchError, Register, check_fault};
use super::chunks::ChunkPlan;
use super::decode::read_register;
use super::event::Event;
use super::prompt_cache::index::Class;
use super::prompt_cache::store::MIN_TOKENS;
use super::row::{End, Row};
use crate::cache::{BatchCache, RowCache};
use crate::model::{LanguageModel, ModelError, MostLikely};
use crate::sampling::chain;

/// A row whose prompt is being processed.
pub struct Joiner {
    /// The row.
    pub row: Row,
    /// Its caches: the first [`Joiner::done`] prompt tokens.
    pub cache: RowCache,
    chunk: usize,
    boundaries: Vec<(usize, Class)>,
    done: usize,
    unread: Option<Register>,
}

/// What one advance of a joiner came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// A chunk was processed; more are left, or the last token is.
    Chunk {
        /// The prompt's tokens in it.
        range: Range<usize>,
        /// The caches now hold exactly what later prompts will share: publish them as this.
        boundary: Option<Class>,
    },
    /// The whole prompt was processed, and token 0 was sampled and delivered.
    Ready,
}

impl Joiner {
    /// A joiner whose caches hold the first `row.cached` tokens of its prompt. `trimmable`: what the row comes to hold can
    /// be cut to any prefix.
    pub fn new(row: Row, cache: RowCache, chunk: usize, trimmable: bool) -> Self {
        let done = row.cached;
        let marks = Marks {
            prompt: row.job.prompt.len(),
            system: row.job.system,
            stable: row.job.stable,
            named: row.job.session.is_some(),
            trimmable,
        };
        let mut boundaries = marks.boundaries();
        boundaries.retain(|(at, _)| row.job.cache && *at > done);
        Self {
            row,
            cache,
            chunk,
            boundaries,
            done,
            unread: None,
        }
    }

    /// Prompt tokens that the caches hold.
    pub fn done(&self) -> usize {
        self.done
    }

    /// Whether every chunk is done, and the forward over the last token is next.
    pub fn only_last_left(&self) -> bool {
        self.next_range().is_none()
    }

    /// How many prompt tokens the next advance will process.
    pub fn next_tokens(&self) -> usize {
        self.next_range().map_or(1, |range| range.len())
    }

    fn next_range(&self) -> Option<Range<usize>> {
        let boundary = self
            .boundaries
            .iter()
            .map(|(at, _)| *at)
            .find(|&at| at > self.done);
        ChunkPlan::new(self.row.job.prompt.len(), self.chunk, boundary).next(self.done)
    }

    /// Takes the row, its caches and, where token 0 was not read, that.
    pub(super) fn into_parts(self) -> (Row, RowCache, Option<Register>) {
        (self.row, self.cache, self.unread)
    }

    /// Processes the next chunk, or the last token. With `seed`, token 0 is started but not read, unless it is the last.
    /// A failure concerns this joiner alone.
    pub fn advance(
        &mut self,
        model: &dyn LanguageModel,
        eos: &[u32],
        seed: bool,
    ) -> Result<Progress, BatchError> {
        let Some(range) = self.next_range() else {
            return self.first_token(model, eos, seed).map(|()| Progress::Ready);
        };
        model.prefill(&self.row.job.prompt[range.clone()], &mut self.cache)?;
        transforms::eval(self.cache.arrays())?;
        check_fault()?;
        memory::clear_cache()?;
        self.done = range.end;
        let event = Event::Prefill {
            done: self.done,
            total: self.row.job.prompt.len(),
        };
        if let Err(message) = self.row.deliver(event) {
            self.row.end = Some(End::error(message));
        }
        let boundary = self
            .boundaries
            .iter()
            .find(|(at, _)| *at == self.done)
            .map(|(_, class)| *class);
        Ok(Progress::Chunk { range, boundary })
    }

    /// A forward of length 1 over the prompt's last token, so that a fresh, a cut and a restored prompt end alike.
    fn first_token(&mut self, model: &dyn LanguageModel, eos: &[u32], seed: bool) -> Result<(), BatchError> {
        let last = self.row.job.prompt[self.row.job.prompt.len() - 1];
        let mut lone = BatchCache::adopt(std::mem::replace(&mut self.cache, model.new_row()));
        let logits = model.decode(&Array::from_slice(&[last], &[1]), &mut lone);
        let logits = logits.and_then(|logits| {
            self.cache = lone
                .into_lone()
                .map_err(|_| ModelError::Misuse("a lone row came back as a batch".into()))?;
            Ok(logits)
        })?;
        let MostLikely {
            tokens: most_likely,
            logits: largest,
        } = model.most_likely(&logits)?;
        let job = &self.row.job;
        let tokens = match job.sampling.is_greedy() {
            true => most_likely,
            false => chain::sample(&logits, &job.sampling, job.seed, 0)?,
        };
        let logprobs = match job.logprobs {
            true => Some(chain::chosen_logprobs(&logits, &tokens)?),
            false => None,
        };
        let register = Register {
            tokens,
            largest,
            logprobs,
            real: vec![true],
        };
        if seed && job.max_tokens > 1 {
            transforms::async_eval(register.arrays())?;
            self.done = self.row.job.prompt.len();
            self.row.sampled = 1;
            self.unread = Some(register);
            return Ok(());
        }
        transforms::eval(self.cache.arrays().into_iter().chain(register.arrays()))?;
        let read = read_register(&register)?;
        memory::clear_cache()?;
        self.done = self.row.job.prompt.len();
        self.row.sampled = 1;
        self.row.take(read.sampled(0), eos, Instant::now());
        Ok(())
    }
}

/// What decides where a row's caches are published while its prompt is processed; in tokens of the prompt.
struct Marks {
    prompt: usize,
    /// The end of the system prompt; 0 where there is none.
    system: usize,
    /// What the next turn's rendering will share; 0 where that isn't known.
    stable: usize,
    /// Whether it is a named session's.
    named: bool,
    /// Whether what the row comes to hold can be cut to any prefix.
    trimmable: bool,
}

impl Marks {
    /// What others may share, in order. Of a row that can't be cut later, snapshots are all that a prompt which parts from
    /// its own will find: so there is one of its prompt in any case, and of short ones in named sessions.
    fn boundaries(&self) -> Vec<(usize, Class)> {
        let all_but_last = self.prompt.saturating_sub(1);
        let turn = match self.stable {
            stable if self.trimmable => stable,
            0 => all_but_last,
            stable => stable.min(all_but_last),
        };
        let least = if self.named && !self.trimmable {
            1
        } else {
            MIN_TOKENS
        };
        let mut boundaries = vec![(self.system, Class::System), (turn, Class::Turn)];
        boundaries.retain(|(at, _)| *at >= least);
        boundaries.sort_by_key(|(at, _)| *at);
        boundaries.dedup_by_key(|(at, _)| *at);
        boundaries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKS: Marks = Marks {
        prompt: 1000,
        system: 300,
        stable: 900,
        named: false,
        trimmable: true,
    };

    #[test]
    fn snapshots_are_taken_after_the_system_prompt_and_where_the_next_turn_parts() {
        let both = [(300, Class::System), (900, Class::Turn)];
        assert_eq!(MARKS.boundaries(), both);
        let trimmable = false;
        assert_eq!(Marks { trimmable, ..MARKS }.boundaries(), both);
        let same = Marks { stable: 300, ..MARKS };
        assert_eq!(same.boundaries(), [(300, Class::System)]);
    }

    #[test]
    fn a_row_that_cannot_be_cut_leaves_one_of_its_prompt_in_any_case() {
        let unknown = Marks {
            system: 0,
            stable: 0,
            ..MARKS
        };
        assert_eq!(unknown.boundaries(), []);
        let fixed = Marks {
            trimmable: false,
            ..unknown
        };
        assert_eq!(fixed.boundaries(), [(999, Class::Turn)]);
        let whole = Marks {
            stable: 1000,
            ..fixed
        };
        assert_eq!(
            whole.boundaries(),
            [(999, Class::Turn)],
            "the last token is always fed"
        );
    }

    #[test]
    fn short_snapshots_are_for_named_sessions_whose_rows_cannot_be_cut() {
        for (named, trimmable) in [(false, false), (false, true), (true, true), (true, false)] {
            let short = Marks {
                prompt: 50,
                system: 20,
                stable: 40,
                named,
                trimmable,
            };
            let expected: &[_] = if named && !trimmable {
                &[(20, Class::System), (40, Class::Turn)]
            } else {
                &[]
            };
            assert_eq!(short.boundaries(), expected, "{named} {trimmable}");
        }
    }
}
