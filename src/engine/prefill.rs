//! Preparation: joiners' prompts are processed in chunks up to their last tokens, those of several together in one forward;
//! a forward over a last one gives token 0.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use mlx_rs::ops::indexing::IndexOp;
use mlx_rs::{Array, memory, transforms};

use super::batch::{BatchError, Register, check_fault};
use super::chunks::ChunkPlan;
use super::decode::read_register;
use super::event::Event;
use super::prompt_cache::index::Class;
use super::prompt_cache::store::MIN_TOKENS;
use super::row::{End, Row};
use crate::cache::{BatchCache, RowCache};
use crate::model::{Feed, LanguageModel, ModelError, MostLikely, Piece, Step};
use crate::sampling::chain;

/// A row whose prompt is being processed.
pub struct Joiner {
    /// The row.
    pub row: Row,
    /// Its caches: the first [`Joiner::done`] prompt tokens.
    pub cache: RowCache,
    /// It shares no forward: one that it shared has failed, and nobody knows by whose fault.
    pub apart: bool,
    chunk: usize,
    boundaries: Vec<(usize, Class)>,
    done: usize,
    flights: VecDeque<Flight>,
    unread: Option<Register>,
}

/// A piece that was fed in a step of the running batch which nobody has read.
struct Flight {
    /// The step's number.
    step: u64,
    /// What the caches held after it, if later prompts will share that.
    snapshot: Option<Snapshot>,
    /// How many tokens of the prompt were processed.
    done: usize,
}

/// Caches that hold exactly what later prompts will share, to be published as this.
pub struct Snapshot {
    /// The tokens that they hold, from the prompt's first on.
    pub tokens: usize,
    /// The caches.
    pub cache: RowCache,
    /// As what.
    pub class: Class,
}

/// What one advance of a joiner came to.
pub enum Progress {
    /// A chunk was processed; more are left, or the last token is.
    Chunk(Option<Snapshot>),
    /// The whole prompt was processed, and token 0 was sampled and delivered.
    Ready,
}

impl Joiner {
    /// A joiner whose caches hold the first `row.cached` tokens of its prompt. `trimmable`: what the row comes to hold can
    /// be cut to any prefix.
    pub fn new(row: Row, mut cache: RowCache, chunk: usize, trimmable: bool) -> Self {
        cache.expect(row.need().likely_length());
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
            apart: false,
            chunk,
            boundaries,
            done,
            flights: VecDeque::new(),
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

    /// The next chunk, to be fed to the caches.
    pub(super) fn piece(&mut self) -> Option<Piece<'_>> {
        let range = self.next_range()?;
        Some(Piece {
            tokens: self.row.job.prompt.get(range)?,
            row: &mut self.cache,
        })
    }

    /// Counts the next chunk, which was fed.
    fn fed(&mut self) -> Option<Snapshot> {
        self.done = self.next_range().map_or(self.done, |range| range.end);
        let boundary = self.boundaries.iter().find(|(at, _)| *at == self.done);
        boundary.map(|&(tokens, class)| Snapshot {
            tokens,
            cache: self.cache.clone(),
            class,
        })
    }

    /// Says how far it has come.
    fn report(&mut self, done: usize) {
        let total = self.row.job.prompt.len();
        if let Err(message) = self.row.deliver(Event::Prefill { done, total }) {
            self.row.end = Some(End::error(message));
        }
    }

    /// Counts the next chunk, which a step feeds that nobody has read.
    pub(super) fn took_off(&mut self, step: u64) {
        let snapshot = self.fed();
        self.flights.push_back(Flight {
            step,
            snapshot,
            done: self.done,
        });
    }

    /// Whether chunks were fed in steps that nobody has read.
    pub(super) fn is_in_flight(&self) -> bool {
        !self.flights.is_empty()
    }

    /// Steps up to this one, not included, were read, and well: what was fed in them is there. Gives what is to be published.
    pub(super) fn landed(&mut self, before: u64) -> Vec<Snapshot> {
        let mut snapshots = Vec::new();
        while let Some(flight) = self.flights.pop_front_if(|flight| flight.step < before) {
            self.report(flight.done);
            snapshots.extend(flight.snapshot);
        }
        snapshots
    }

    /// From the prompt's first token again, in empty caches, and with nobody else: what it shared has failed.
    pub(super) fn start_again(&mut self, empty: RowCache) {
        self.cache = empty;
        self.cache.expect(self.row.need().likely_length());
        self.done = 0;
        self.flights.clear();
        self.apart = true;
    }

    /// Takes the row, its caches and, where token 0 was not read, that.
    pub(super) fn into_parts(self) -> (Row, RowCache, Option<Register>) {
        (self.row, self.cache, self.unread)
    }

    /// The whole prompt was processed, and token 0 sampled.
    fn begin(&mut self) {
        self.done = self.row.job.prompt.len();
        self.row.sampled = 1;
    }
}

/// Processes the next chunk of each, or its last token, all in one forward. With `seed`, a token 0 is started but not read,
/// unless it is the last. A failure concerns all of them, and leaves their caches of no use.
pub fn advance(
    cohort: &mut [&mut Joiner],
    model: &dyn LanguageModel,
    eos: &[u32],
    seed: bool,
) -> Result<Vec<Progress>, BatchError> {
    // A forward of length 1 over each last token, so that a fresh, a cut and a restored prompt end alike.
    let mut lasts = Vec::new();
    for joiner in cohort.iter_mut().filter(|joiner| joiner.only_last_left()) {
        let cache = std::mem::replace(&mut joiner.cache, model.new_row());
        let token = Array::from_slice(&[joiner.row.last_of_prompt()], &[1]);
        lasts.push((token, BatchCache::adopt(cache)));
    }
    let steps = lasts.iter_mut().map(|(tokens, batch)| Step { tokens, batch });
    let mut feed = Feed {
        steps: steps.collect(),
        pieces: cohort.iter_mut().filter_map(|joiner| joiner.piece()).collect(),
    };
    let hidden = model.packed(&mut feed)?;
    let logits = match feed.steps.len() {
        0 => None,
        _ => Some(model.head(&hidden)?),
    };
    let most_likely = logits.as_ref().map(|logits| model.most_likely(logits));
    let logits = logits.zip(most_likely.transpose()?);
    let mut lasts = lasts.into_iter().map(|(_, batch)| batch);
    let mut firsts: Vec<Option<Register>> = Vec::new();
    let mut row = 0;
    for joiner in cohort.iter_mut() {
        let Some((logits, most_likely)) = logits.as_ref().filter(|_| joiner.only_last_left()) else {
            firsts.push(None);
            continue;
        };
        let lone = lasts.next().map(BatchCache::into_lone);
        joiner.cache = lone
            .and_then(Result::ok)
            .ok_or_else(|| ModelError::Misuse("a lone row came back as a batch".into()))?;
        let most_likely = MostLikely {
            tokens: most_likely.tokens.index(row..row + 1),
            logits: most_likely.logits.index(row..row + 1),
        };
        let logits = logits.index((row..row + 1, ..));
        firsts.push(Some(first_token(&joiner.row, &logits, most_likely)?));
        row += 1;
    }
    let started = firsts.iter().flatten().flat_map(Register::arrays);
    if let [joiner] = cohort
        && seed
        && joiner.row.job.max_tokens > 1
        && firsts.iter().any(Option::is_some)
    {
        transforms::async_eval(started)?;
        joiner.begin();
        joiner.unread = firsts.pop().flatten();
        return Ok(vec![Progress::Ready]);
    }
    let written = cohort.iter().flat_map(|joiner| joiner.cache.arrays());
    transforms::eval(written.chain(started))?;
    let read = firsts
        .iter()
        .map(|first| first.as_ref().map(read_register).transpose());
    let read: Vec<_> = read.collect::<Result<_, _>>()?;
    check_fault()?;
    memory::clear_cache()?;
    // Nothing fails from here on.
    let progress = cohort.iter_mut().zip(read).map(|(joiner, first)| match first {
        None => {
            let snapshot = joiner.fed();
            joiner.report(joiner.done);
            Progress::Chunk(snapshot)
        }
        Some(read) => {
            joiner.begin();
            joiner.row.take(read.sampled(0), eos, Instant::now());
            Progress::Ready
        }
    });
    Ok(progress.collect())
}

/// Token 0 of a row, sampled from its logits `[1, V]`.
fn first_token(row: &Row, logits: &Array, most_likely: MostLikely) -> Result<Register, BatchError> {
    let job = &row.job;
    let tokens = match job.sampling.is_greedy() {
        true => most_likely.tokens,
        false => chain::sample(logits, &job.sampling, job.seed, 0)?,
    };
    let logprobs = match job.logprobs {
        true => Some(chain::chosen_logprobs(logits, &tokens)?),
        false => None,
    };
    Ok(Register {
        tokens,
        largest: most_likely.logits,
        logprobs,
        real: vec![true],
    })
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
