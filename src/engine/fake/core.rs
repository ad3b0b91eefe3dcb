//! The scripted engine's state, one step at a time. It knows no thread and no clock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::figures::reserve;
use super::row::{End, Row, Stage, token_id};
use super::script::Script;
use crate::engine::admission::{Admitted, Limits, Need, Queue, Refused, Verdict, Waiting};
use crate::engine::chunks::{Burst, ChunkPlan};
use crate::engine::prompt_cache::index::{Class, Index, Namespace, NewEntry};
use crate::engine::rates::{DecodeRate, WorkRate};
use crate::engine::room::Room;
use crate::engine::step_log::StepLog;
use crate::engine::telemetry::{Attribution, EngineState, PromptCacheStats, StepSample};
use crate::engine::{Event, Finish, FinishReason, Flow, RequestId, StopReason};

/// How long a row that has ended is still shown.
const SHOWN: Duration = Duration::from_secs(2);
/// Rows of at least this many prompt tokens are cached without a session.
const WORTH_CACHING: usize = 256;

/// What the engine is told.
pub(super) enum Command {
    Submit(Box<Row>),
    Cancel(RequestId),
}

pub(super) struct Core {
    pub(super) script: Script,
    pub(super) state: EngineState,
    /// Every request, in order of submission; those that ended of late, too.
    pub(super) rows: Vec<Row>,
    queue: Queue<()>,
    pub(super) cache: Index<()>,
    namespace: Namespace,
    pub(super) cache_stats: PromptCacheStats,
    log: Arc<StepLog>,
    /// (stage, steps done in it) of loading.
    loading: (usize, u64),
    iterations: u64,
    pub(super) steps: u64,
    pub(super) decode_rate: DecodeRate,
    pub(super) prefill_rate: WorkRate,
    pub(super) kv_peak: u64,
    pub(super) mlx_peak: u64,
    pub(super) waits_for_kv: bool,
    /// Prefill and time since the last decode step, for the next one's record.
    gap: Gap,
}

#[derive(Debug, Clone, Copy, Default)]
struct Gap {
    tokens: usize,
    prefill_ns: u64,
    ns: u64,
}

impl Core {
    pub(super) fn new(script: Script, log: Arc<StepLog>) -> Self {
        let limits = Limits {
            max_batch: script.engine.max_batch,
            max_queued: script.engine.max_queued,
            kv_budget: script.engine.kv_budget,
            positions: script.model.context_length,
        };
        let mut core = Self {
            state: EngineState::Ready,
            rows: Vec::new(),
            queue: Queue::new(limits),
            cache: Index::new(script.engine.prompt_cache),
            namespace: Namespace::new(&script.model.name),
            cache_stats: PromptCacheStats::default(),
            log,
            loading: (0, 0),
            iterations: 0,
            steps: 0,
            decode_rate: DecodeRate::default(),
            prefill_rate: WorkRate::new(),
            kv_peak: 0,
            mlx_peak: 0,
            waits_for_kv: false,
            gap: Gap::default(),
            script,
        };
        core.show_loading();
        core
    }

    /// Whether there is nothing to do until somebody asks for something.
    pub(super) fn is_idle(&self) -> bool {
        let loading = matches!(self.state, EngineState::Loading { .. });
        !loading && self.rows.iter().all(|row| row.stage == Stage::Done)
    }

    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Positions of the longest row that could be admitted.
    pub(super) fn longest_row(&self) -> usize {
        self.queue.longest(reserve(self.script.model.kv_bytes_per_token))
    }

    /// Takes commands without doing any work.
    pub(super) fn take(&mut self, now: Duration, commands: Vec<Command>) {
        for command in commands {
            match command {
                Command::Submit(row) => self.enqueue(*row, now),
                Command::Cancel(id) => {
                    let live = |row: &Row| row.id == id && row.stage != Stage::Done;
                    if let Some(at) = self.rows.iter().position(live) {
                        self.end(at, End::Cancelled, now);
                    }
                }
            }
        }
    }

    /// One step. An error is a failure of the engine as a whole.
    pub(super) fn step(&mut self, now: Duration, commands: Vec<Command>) -> Result<(), String> {
        self.take(now, commands);
        self.rows
            .retain(|row| row.finished.is_none_or(|at| now.saturating_sub(at) < SHOWN));
        if matches!(self.state, EngineState::Loading { .. }) {
            return self.load();
        }
        if self.is_idle() {
            self.rest(now);
            return Ok(());
        }
        let iteration = self.iterations;
        self.iterations += 1;
        if let Some(fail) = self.script.fail.as_ref().filter(|fail| fail.at_step == iteration) {
            if let Some(message) = &fail.panic {
                panic!("{message}");
            }
            return Err(fail.message.clone().unwrap_or_default());
        }
        self.admit(now);
        self.kv_peak = self.kv_peak.max(self.kv().reserved);
        let running = self.at_stage(Stage::Decode);
        let prefilled = self.prepare(now);
        self.decode(&running, prefilled, now);
        if self.is_idle() {
            self.rest(now);
        }
        Ok(())
    }

    /// Nothing is left to do: what passes from now on is of no step.
    fn rest(&mut self, now: Duration) {
        self.decode_rate.rest(now);
        self.gap = Gap::default();
    }

    /// Ends everything: the engine was closed, or has failed.
    pub(super) fn shut(&mut self, state: EngineState, message: &str, now: Duration) {
        self.state = state;
        for at in 0..self.rows.len() {
            self.end(at, End::Error(message.to_string()), now);
        }
    }

    fn load(&mut self) -> Result<(), String> {
        let (stage, steps) = self.loading;
        let Some(current) = self.script.loading.get(stage) else {
            self.show_loading();
            return Ok(());
        };
        if steps + 1 < current.steps {
            self.loading.1 += 1;
        } else if let Some(message) = &current.fail {
            return Err(message.clone());
        } else {
            self.loading = (stage + 1, 0);
        }
        self.show_loading();
        Ok(())
    }

    fn show_loading(&mut self) {
        let (stage, steps) = self.loading;
        self.state = match self.script.loading.get(stage) {
            None => EngineState::Ready,
            Some(current) => EngineState::Loading {
                stage: current.stage.clone(),
                done: current.bytes.saturating_mul(steps) / current.steps.max(1),
                total: current.bytes,
            },
        };
    }

    fn enqueue(&mut self, row: Row, now: Duration) {
        let (id, need, rejected) = (row.id, row.need(), row.reject.clone());
        self.rows.push(row);
        let at = self.rows.len() - 1;
        if let Some(message) = rejected {
            return self.end(at, End::Rejected(message), now);
        }
        let reserve = reserve(self.script.model.kv_bytes_per_token);
        let waiting = |need| Waiting {
            id,
            need,
            group: (),
            item: (),
        };
        let pushed = match self.queue.push(waiting(need), &reserve) {
            Err((_, Refused::NeverFits(never))) if self.rows[at].request.shrinks => {
                let room = Room::left(&never);
                let row = &mut self.rows[at];
                row.cut = room.as_ref().map(|room| room.told.clone());
                row.request.max_tokens = room.map_or(need.max_tokens, |room| room.max_tokens);
                let need = Need {
                    max_tokens: row.request.max_tokens,
                    ..need
                };
                self.queue.push(waiting(need), &reserve)
            }
            pushed => pushed,
        };
        match pushed {
            Ok(()) => {}
            Err((_, Refused::NeverFits(never))) => self.end(at, End::Rejected(never.to_string()), now),
            Err((_, full @ Refused::QueueFull { .. })) => self.end(at, End::Error(full.to_string()), now),
        }
    }

    fn admit(&mut self, now: Duration) {
        loop {
            let active = self
                .rows
                .iter()
                .filter(|row| matches!(row.stage, Stage::Prefill | Stage::Decode));
            let needs: Vec<Need> = active.map(Row::need).collect();
            let reserve = reserve(self.script.model.kv_bytes_per_token);
            let verdict = self.queue.next(
                Admitted {
                    needs: &needs,
                    group: None,
                },
                reserve,
            );
            self.waits_for_kv = matches!(verdict, Verdict::WaitForKv { .. });
            match verdict {
                Verdict::Admit(Waiting { id, .. }) => {
                    if let Some(at) = self.rows.iter().position(|row| row.id == id) {
                        self.start(at, now);
                    }
                }
                Verdict::Reject(Waiting { id, .. }, never) => {
                    if let Some(at) = self.rows.iter().position(|row| row.id == id) {
                        self.end(at, End::Rejected(never.to_string()), now);
                    }
                }
                _ => return,
            }
        }
    }

    fn start(&mut self, at: usize, now: Duration) {
        let cached = self.restore(at);
        let chunk = self.script.engine.prefill_chunk;
        let row = &mut self.rows[at];
        row.stage = Stage::Prefill;
        row.admitted = Some(now);
        row.cached = cached;
        row.done = cached;
        row.plan = ChunkPlan::new(row.prompt.len(), chunk, None);
        let event = Event::Admitted {
            prompt_tokens: row.prompt.len(),
            cached_tokens: cached,
        };
        self.deliver(at, event, now);
    }

    /// Prompt tokens that the cache serves.
    fn restore(&mut self, at: usize) -> usize {
        let row = &self.rows[at];
        if self.script.engine.prompt_cache == 0 || !row.request.cache {
            return 0;
        }
        let asked = row.prompt.len();
        let hit = self
            .cache
            .lookup(&self.namespace, &row.prompt, asked.saturating_sub(1));
        let served = hit.map_or(0, |hit| hit.usable);
        let stats = &mut self.cache_stats;
        stats.lookups += 1;
        stats.tokens_asked += asked as u64;
        stats.tokens_served += served as u64;
        match served {
            0 => stats.miss += 1,
            _ if served + 1 == asked => stats.full += 1,
            _ => stats.partial += 1,
        }
        served
    }

    /// One chunk for the first joiner, and more joiners as far as the burst allows; gives the prompt tokens processed.
    fn prepare(&mut self, now: Duration) -> usize {
        let limits = &self.script.engine;
        let mut burst = Burst::new(limits.prefill_chunk, limits.prefill_batch_tokens);
        while let Some(&at) = self.at_stage(Stage::Prefill).first() {
            let row = &mut self.rows[at];
            let chunk = row.plan.next(row.done);
            if !burst.may_start(chunk.as_ref().map_or(1, std::ops::Range::len)) {
                break;
            }
            let total = row.prompt.len();
            if let Some(chunk) = chunk {
                row.done = chunk.end;
                burst.spend(chunk.len());
                self.deliver(
                    at,
                    Event::Prefill {
                        done: chunk.end,
                        total,
                    },
                    now,
                );
                let row = &self.rows[at];
                if row.stage != Stage::Prefill {
                    continue;
                }
                if row.plan.next(row.done).is_some() || !burst.may_finish() {
                    break;
                }
            }
            burst.spend(1);
            self.rows[at].done = total;
            self.deliver(at, Event::Prefill { done: total, total }, now);
            if self.rows[at].stage == Stage::Prefill {
                self.rows[at].stage = Stage::Decode;
                self.rows[at].rate.begin(now);
                self.emit(at, now);
            }
        }
        burst.spent()
    }

    /// One decode step of the rows that were running when the iteration began.
    fn decode(&mut self, running: &[usize], prefilled: usize, now: Duration) {
        let mut rows = 0;
        let mut tokens = 0;
        for &at in running {
            // Another row's consumer can't end it, but its own may have.
            if self.rows[at].stage == Stage::Decode {
                rows += 1;
                tokens += u32::from(self.emit(at, now));
            }
        }
        let tick = self.script.tick_ms.saturating_mul(1_000_000);
        if rows > 0 {
            let took = Duration::from_nanos(tick);
            self.decode_rate.record(now, u64::from(tokens), took);
        }
        let mut prefill_ns = 0;
        if prefilled > 0 {
            prefill_ns = tick * 3 / 10;
            self.prefill_rate
                .record(now, prefilled as u64, Duration::from_nanos(prefill_ns));
        }
        self.gap.tokens += prefilled;
        self.gap.prefill_ns += prefill_ns;
        if rows == 0 {
            self.gap.ns += tick;
            return;
        }
        let own_gap_ns = prefill_ns + tick / 50;
        let gap = std::mem::take(&mut self.gap);
        let rest = tick - own_gap_ns;
        let construct_ns = rest / 10;
        let build_ns = construct_ns + rest * 6 / 10;
        let emit_ns = rest / 20;
        let read_ns = rest - build_ns - emit_ns;
        let (kv, mlx) = (self.kv(), self.mlx());
        self.mlx_peak = mlx.peak;
        self.log.push(StepSample {
            step: self.steps,
            rows,
            tokens,
            prefill_tokens: u32::try_from(gap.tokens).unwrap_or(u32::MAX),
            mixed_tokens: 0,
            build_ns,
            construct_ns,
            dispatch_ns: build_ns - construct_ns,
            attribution: Attribution::default(),
            read_ns,
            emit_ns,
            gap_ns: gap.ns + own_gap_ns,
            prefill_ns: gap.prefill_ns,
            kv,
            mlx,
        });
        self.steps += 1;
    }

    /// The row's next token, or its end; whether there was a token.
    fn emit(&mut self, at: usize, now: Duration) -> bool {
        let row = &mut self.rows[at];
        let index = row.answer.len();
        if let Some(error) = row
            .reply
            .error
            .as_ref()
            .filter(|error| index as u64 >= error.after)
        {
            let message = error.message.clone();
            self.end(at, End::Error(message), now);
            return false;
        }
        row.generated += 1;
        row.first_token.get_or_insert(now);
        let Some(piece) = row.reply.piece((row.begun + index) as u64) else {
            self.end(at, End::Stop(StopReason::Eos), now);
            return false;
        };
        let token = token_id(piece);
        let (text, stopped) = row.held.push(piece);
        let text = row.scanner.push(&text);
        row.answer.push(token);
        row.rate.record(now, 1);
        let logprob = row.request.logprobs.then_some(-0.1);
        if !self.deliver(
            at,
            Event::Token {
                index,
                token,
                text,
                logprob,
            },
            now,
        ) {
            return true;
        }
        let row = &self.rows[at];
        let count = index + 1;
        if stopped {
            self.end(at, End::Stop(StopReason::StopString), now);
        } else if row.request.cancel_after_tokens.is_some_and(|most| count >= most) {
            self.end(at, End::Cancelled, now);
        } else if count >= row.request.max_tokens {
            self.end(at, End::Length, now);
        }
        true
    }

    /// Tells the consumer; whether the row goes on.
    fn deliver(&mut self, at: usize, event: Event, now: Duration) -> bool {
        let row = &mut self.rows[at];
        let id = row.id;
        match catch_unwind(AssertUnwindSafe(|| row.consumer.deliver(id, event))) {
            Ok(Ok(Flow::Continue)) => return true,
            Ok(Ok(Flow::Stop)) => self.end(at, End::Stop(StopReason::Consumer), now),
            Ok(Err(_)) | Err(_) => self.end(at, End::Consumer, now),
        }
        false
    }

    /// Ends a row, wherever it is; what its caches hold is kept if its end allows.
    fn end(&mut self, at: usize, end: End, now: Duration) {
        let row = &mut self.rows[at];
        let was = std::mem::replace(&mut row.stage, Stage::Done);
        if was == Stage::Done {
            return;
        }
        row.finished = Some(now);
        let id = row.id;
        if was == Stage::Queued {
            self.queue.remove(id);
        }
        let exact = matches!(end, End::Stop(_) | End::Length | End::Cancelled) && was == Stage::Decode;
        if exact {
            self.publish(at);
        }
        let row = &mut self.rows[at];
        let (reason, stop_reason, message) = match end {
            End::Stop(by) => (FinishReason::Stop, Some(by), None),
            End::Length => (FinishReason::Length, None, row.cut.take()),
            End::Cancelled => (FinishReason::Cancelled, None, None),
            End::Rejected(message) => (FinishReason::Rejected, None, Some(message)),
            End::Error(message) => (FinishReason::Error, None, Some(message)),
            End::Consumer => return,
        };
        let ms = |from: Option<Duration>, to: Duration| {
            from.map_or(0.0, |from| to.saturating_sub(from).as_secs_f64() * 1000.0)
        };
        let mut text = row.scanner.push(&row.held.finish());
        text.append(&row.scanner.finish());
        let finish = Finish {
            reason,
            stop_reason,
            message,
            text,
            prompt_tokens: row.prompt.len(),
            cached_tokens: row.cached,
            generated_tokens: row.generated,
            queued_ms: ms(Some(row.submitted), row.admitted.unwrap_or(now)),
            prefill_ms: ms(row.admitted, row.first_token.unwrap_or(now)),
            decode_ms: ms(row.first_token, now),
            ttft_ms: row.first_token.map(|first| ms(Some(row.submitted), first)),
        };
        // It has ended whatever its consumer makes of it.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            row.consumer.deliver(id, Event::Finish(finish))
        }));
    }

    fn publish(&mut self, at: usize) {
        let row = &self.rows[at];
        let worth = row.request.session.is_some() || row.prompt.len() >= WORTH_CACHING;
        if self.script.engine.prompt_cache == 0 || !row.request.cache || !worth {
            return;
        }
        let tokens = row.cache_key();
        let bytes = (tokens.len() as u64).saturating_mul(self.script.model.kv_bytes_per_token);
        let new = NewEntry {
            tokens,
            bytes,
            class: Class::Turn,
            trimmable: true,
            payload: (),
        };
        self.cache.insert(&self.namespace, new);
    }

    fn at_stage(&self, stage: Stage) -> Vec<usize> {
        let rows = self.rows.iter().enumerate();
        rows.filter(|(_, row)| row.stage == stage)
            .map(|(at, _)| at)
            .collect()
    }
}
