//! One decode step, pipelined: step n+1 is built from the unread tokens of step n and started, and only then are
//! those tokens read and delivered.

use std::time::Instant;

use mlx_rs::ops::concatenate;
use mlx_rs::ops::indexing::IndexOp;
use mlx_rs::{Array, transforms};

use super::batch::{Batch, BatchError, Register, check_fault};
use super::row::Row;
use super::stopwatch::{Phase, Stopwatch};
use super::telemetry::Attribution;
use crate::model::{Feed, LanguageModel, Piece};
use crate::sampling::chain;

/// What a step did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stepped {
    /// Rows in the forward; 0 where only tokens were read.
    pub forward_rows: usize,
    /// Tokens that rows took.
    pub tokens: usize,
    /// In attribution mode: where the forward's time went.
    pub attribution: Attribution,
}

/// How steps are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepMode {
    /// A step is built before the last one's tokens are read.
    pub pipeline: bool,
    /// Forward, head and sampling are evaluated one by one.
    pub attribution: bool,
}

impl Batch {
    /// Advances every live row by one token. In a pipeline, tokens are delivered one step after they were sampled.
    ///
    /// `riders` are pieces of prompts that go through the forward, too, if [there is one](Self::has_forward).
    ///
    /// Where the forward fails, tokens of the step before are delivered first: nothing that was computed is lost.
    pub fn step(
        &mut self,
        model: &dyn LanguageModel,
        eos: &[u32],
        mode: StepMode,
        riders: Vec<Piece<'_>>,
        watch: &mut Stopwatch,
    ) -> Result<Stepped, BatchError> {
        let mut stepped = Stepped::default();
        let unread = self.register.take();
        let mut built = Ok(());
        if self.has_forward() {
            built = self
                .build(model, unread.as_ref(), mode, riders, watch)
                .map(|attribution| {
                    stepped.attribution = attribution;
                });
            if built.is_ok() {
                stepped.forward_rows = self.rows.len();
            }
        }
        if let Some(register) = unread {
            stepped.tokens += self.take_tokens(&register, stepped.forward_rows > 0, eos, watch)?;
        }
        built?;
        self.check_accounts()?;
        if !mode.pipeline
            && let Some(register) = self.register.take()
        {
            stepped.tokens += self.take_tokens(&register, false, eos, watch)?;
        }
        Ok(stepped)
    }

    /// Whether the next step has a forward: some row has tokens left to sample.
    pub fn has_forward(&self) -> bool {
        self.rows.iter().any(|row| !row.pending_is_last())
    }

    /// Every row whose coverage is known holds just the positions that it accounts for.
    fn check_accounts(&self) -> Result<(), BatchError> {
        for (row, held) in self.rows.iter().zip(self.caches.lengths()) {
            let accounted = row.job.prompt.len() + row.fed.len();
            if !row.fed_tainted && held != accounted {
                return Err(BatchError::Accounts { held, accounted });
            }
        }
        Ok(())
    }

    /// Reads and delivers tokens that were sampled but not fed; the next step is a cold one.
    pub fn flush(&mut self, eos: &[u32], watch: &mut Stopwatch) -> Result<usize, BatchError> {
        match self.register.take() {
            Some(register) => self.take_tokens(&register, false, eos, watch),
            None => Ok(0),
        }
    }

    /// Builds and starts the forward over the unread tokens, or over the rows' current ones on a cold step.
    fn build(
        &mut self,
        model: &dyn LanguageModel,
        unread: Option<&Register>,
        mode: StepMode,
        riders: Vec<Piece<'_>>,
        watch: &mut Stopwatch,
    ) -> Result<Attribution, BatchError> {
        let before = watch.enter(Phase::Construct);
        let outcome = self.construct(model, unread, mode, riders, watch);
        watch.enter(before);
        let (register, attribution) = outcome?;
        for (row, real) in self.rows.iter_mut().zip(&register.real) {
            if *real {
                row.sampled += 1;
            }
        }
        self.register = Some(register);
        Ok(attribution)
    }

    fn construct(
        &mut self,
        model: &dyn LanguageModel,
        unread: Option<&Register>,
        mode: StepMode,
        riders: Vec<Piece<'_>>,
        watch: &mut Stopwatch,
    ) -> Result<(Register, Attribution), BatchError> {
        let input = match unread {
            Some(register) => register.tokens.clone(),
            None => {
                let current: Vec<u32> = self.rows.iter_mut().map(Row::feed_current).collect();
                Array::from_slice(&current, &[i32::try_from(current.len()).unwrap_or(i32::MAX)])
            }
        };
        let mut attribution = Attribution::default();
        let mut apart =
            |arrays: &[&Array], into: fn(&mut Attribution) -> &mut u64| -> Result<(), BatchError> {
                if mode.attribution {
                    watch.enter(Phase::Dispatch);
                    let started = Instant::now();
                    transforms::eval(arrays.iter().copied())?;
                    *into(&mut attribution) = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    watch.enter(Phase::Construct);
                }
                Ok(())
            };
        let mut feed = Feed::step(&input, &mut self.caches);
        feed.pieces = riders;
        let hidden = model.packed(&mut feed)?;
        let written = feed.pieces.iter().flat_map(|rider| rider.row.arrays());
        let written: Vec<Array> = written.cloned().collect();
        apart(&[&hidden], |attribution| &mut attribution.forward_ns)?;
        let logits = model.head(&hidden)?;
        apart(&[&logits], |attribution| &mut attribution.head_ns)?;
        let real: Vec<bool> = self.rows.iter().map(|row| !row.pending_is_last()).collect();
        let tokens = self.sample(model, &logits, &input, &real)?;
        apart(&[&tokens], |attribution| &mut attribution.sampling_ns)?;
        let wanted = self.rows.iter().any(|row| row.job.logprobs);
        let logprobs = if wanted {
            Some(chain::chosen_logprobs(&logits, &tokens)?)
        } else {
            None
        };
        watch.enter(Phase::Dispatch);
        transforms::async_eval(std::iter::once(&tokens).chain(&logprobs).chain(&written))?;
        Ok((
            Register {
                tokens,
                logprobs,
                real,
            },
            attribution,
        ))
    }

    /// One argmax where all live rows are greedy; else each live row draws from its own slice with its own key.
    fn sample(
        &self,
        model: &dyn LanguageModel,
        logits: &Array,
        input: &Array,
        real: &[bool],
    ) -> Result<Array, BatchError> {
        let mut live = self.rows.iter().zip(real).filter(|(_, real)| **real);
        if live.all(|(row, _)| row.job.sampling.is_greedy()) {
            return Ok(model.most_likely(logits)?);
        }
        let mut slots = Vec::with_capacity(self.rows.len());
        for (index, row) in self.rows.iter().enumerate() {
            let at = i32::try_from(index).unwrap_or(i32::MAX);
            slots.push(if real[index] {
                chain::sample(
                    &logits.index((at..at + 1, ..)),
                    &row.job.sampling,
                    row.job.seed,
                    row.sampled,
                )?
            } else {
                input.index(at..at + 1)
            });
        }
        Ok(concatenate(&slots, 0)?)
    }

    fn take_tokens(
        &mut self,
        register: &Register,
        fed: bool,
        eos: &[u32],
        watch: &mut Stopwatch,
    ) -> Result<usize, BatchError> {
        let before = watch.enter(Phase::Read);
        let read = read_register(register);
        watch.enter(Phase::Emit);
        let mut taken = 0;
        if let Ok((tokens, logprobs)) = &read {
            let now = Instant::now();
            for (index, row) in self.rows.iter_mut().enumerate() {
                if !register.real[index] {
                    row.fed_tainted |= fed;
                    continue;
                }
                if fed {
                    row.fed.push(tokens[index]);
                }
                if row.end.is_none() {
                    let logprob = logprobs.as_ref().map(|values| values[index]);
                    row.accept(tokens[index], logprob, eos.contains(&tokens[index]), now);
                    taken += 1;
                }
            }
        }
        watch.enter(before);
        read.map(|_| taken)
    }
}

type Tokens = (Vec<u32>, Option<Vec<f32>>);

/// Blocks until the register's tokens are computed. If a kernel has panicked, in this step or already in the one after,
/// they are not to be trusted.
fn read_register(register: &Register) -> Result<Tokens, BatchError> {
    let expected = register.real.len();
    let tokens = read_vec::<u32>(&register.tokens, expected)?;
    let logprobs = register
        .logprobs
        .as_ref()
        .map(|array| read_vec::<f32>(array, expected))
        .transpose()?;
    check_fault()?;
    Ok((tokens, logprobs))
}

/// Evaluates a `[n]` array and copies it to the host.
pub(super) fn read_vec<T: mlx_rs::ArrayElement + Clone>(
    array: &Array,
    expected: usize,
) -> Result<Vec<T>, BatchError> {
    array.eval()?;
    let values = array
        .to_vec_exact::<T>()
        .map_err(|error| BatchError::Read(error.to_string()))?;
    if values.len() == expected {
        Ok(values)
    } else {
        Err(BatchError::Read(format!(
            "{} values where {expected} were expected",
            values.len()
        )))
    }
}
