//! Writes the step log and the snapshots that everyone else watches.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::rates::{DecodeRate, WorkRate};
use super::step_log::StepLog;
use super::stopwatch::{PhaseTimes, Stopwatch};
use super::telemetry::{
    Attribution, EngineState, KvFigures, MlxMemory, RowSnapshot, Snapshot, StepSample, Totals,
};

/// Snapshots are at least this far apart while the engine works.
const SNAPSHOT_INTERVAL: Duration = Duration::from_millis(100);

/// Finished rows stay in the snapshot for this long.
const RETENTION: Duration = Duration::from_secs(6);

/// The engine's book-keeper; lives on its thread.
pub struct Recorder {
    /// Which phase the time goes to.
    pub stopwatch: Stopwatch,
    log: Arc<StepLog>,
    publisher: watch::Sender<Arc<Snapshot>>,
    snapshot: Snapshot,
    totals: Totals,
    /// Of all rows, since the first step after idling.
    decode_rate: DecodeRate,
    prefill_rate: WorkRate,
    started: Instant,
    prefill_tokens: u32,
    mixed_tokens: u32,
    flushed: usize,
    last_published: Option<Instant>,
    done: Vec<(Instant, RowSnapshot)>,
    sampled_memory: Option<Instant>,
}

/// What a decode step came to, for its record.
#[derive(Debug, Clone, Copy)]
pub struct StepOutcome {
    /// Rows in the forward; 0 where only tokens were read.
    pub forward_rows: usize,
    /// Tokens delivered.
    pub tokens: usize,
    /// In attribution mode: where the forward's time went.
    pub attribution: Attribution,
    /// KV memory after the step.
    pub kv: KvFigures,
}

impl Recorder {
    /// A recorder that publishes to `publisher` and logs to `log`, from `now` on.
    pub fn new(
        log: Arc<StepLog>,
        publisher: watch::Sender<Arc<Snapshot>>,
        snapshot: Snapshot,
        now: Instant,
    ) -> Self {
        Self {
            stopwatch: Stopwatch::start(now),
            log,
            publisher,
            snapshot,
            totals: Totals::default(),
            decode_rate: DecodeRate::default(),
            prefill_rate: WorkRate::default(),
            started: now,
            prefill_tokens: 0,
            mixed_tokens: 0,
            flushed: 0,
            last_published: None,
            done: Vec::new(),
            sampled_memory: None,
        }
    }

    /// Decode forwards dispatched so far.
    pub fn steps(&self) -> u64 {
        self.totals.steps
    }

    /// Nothing is left to do: what passes from now on is of no step.
    pub fn rest(&mut self, now: Instant) {
        self.decode_rate.rest(now.saturating_duration_since(self.started));
    }

    /// Counts prompt tokens that rode along in a step.
    pub fn rode(&mut self, tokens: usize) {
        let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
        self.mixed_tokens = self.mixed_tokens.saturating_add(tokens);
        self.totals.mixed_tokens += u64::from(tokens);
    }

    /// Counts prompt tokens that were processed between steps, in so many chunks.
    pub fn prefilled(&mut self, chunks: usize, tokens: usize, took: Duration, now: Instant) {
        let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
        self.prefill_tokens = self.prefill_tokens.saturating_add(tokens);
        self.totals.prefill_chunks += chunks as u64;
        self.totals.prefill_tokens += u64::from(tokens);
        self.prefill_rate.record(
            now.saturating_duration_since(self.started),
            u64::from(tokens),
            took,
        );
    }

    /// Counts tokens that were read and delivered before rows joined: the next step's record has them.
    pub fn flushed(&mut self, tokens: usize) {
        self.flushed += tokens;
    }

    /// Closes the record of a step; time since the last record is its.
    pub fn step(&mut self, mut outcome: StepOutcome, now: Instant) {
        outcome.tokens += std::mem::take(&mut self.flushed);
        let times = self.take_times(now);
        let mlx = self.memory(now);
        let record = StepSample {
            step: self.totals.steps,
            rows: u32::try_from(outcome.forward_rows).unwrap_or(u32::MAX),
            tokens: u32::try_from(outcome.tokens).unwrap_or(u32::MAX),
            prefill_tokens: std::mem::take(&mut self.prefill_tokens),
            mixed_tokens: std::mem::take(&mut self.mixed_tokens),
            build_ns: times.construct + times.dispatch,
            construct_ns: times.construct,
            dispatch_ns: times.dispatch,
            attribution: outcome.attribution,
            read_ns: times.read,
            emit_ns: times.emit,
            gap_ns: times.gap + times.prefill,
            prefill_ns: times.prefill,
            kv: outcome.kv,
            mlx,
        };
        self.log.push(record);
        if outcome.forward_rows > 0 {
            self.totals.steps += 1;
        }
        self.totals.attribution.add(&outcome.attribution);
        self.totals.decode_tokens += outcome.tokens as u64;
        self.totals.decode_ns += record.build_ns + record.read_ns + record.emit_ns + times.gap;
        let since_start = now.saturating_duration_since(self.started);
        let took = Duration::from_nanos(record.build_ns + record.read_ns + record.emit_ns);
        self.decode_rate.record(since_start, outcome.tokens as u64, took);
    }

    fn take_times(&mut self, now: Instant) -> PhaseTimes {
        let times = self.stopwatch.take_at(now);
        self.totals.phases.add(&times);
        times
    }

    /// MLX's figures, read every tenth of a second at most: each read takes its allocator's lock.
    fn memory(&mut self, now: Instant) -> MlxMemory {
        if self
            .sampled_memory
            .is_none_or(|at| now.saturating_duration_since(at) >= SNAPSHOT_INTERVAL)
        {
            self.sampled_memory = Some(now);
            self.snapshot.mlx = super::memory::mlx_memory();
        }
        self.snapshot.mlx
    }

    /// Notes the most KV bytes that were held.
    pub fn peak(&mut self, kv: KvFigures) {
        let peak = &mut self.totals.kv_peak;
        peak.used = peak.used.max(kv.used);
        peak.allocated = peak.allocated.max(kv.allocated);
        peak.reserved = peak.reserved.max(kv.reserved);
        peak.budget = kv.budget;
    }

    /// Keeps a row that has ended in sight for a while.
    pub fn finished(&mut self, row: RowSnapshot, now: Instant) {
        self.done.push((now, row));
    }

    /// Whether the next snapshot is due.
    pub fn due(&self, now: Instant) -> bool {
        self.last_published
            .is_none_or(|at| now.saturating_duration_since(at) >= SNAPSHOT_INTERVAL)
    }

    /// Publishes a snapshot; `fill` sets what only the scheduler knows.
    pub fn publish(&mut self, now: Instant, fill: impl FnOnce(&mut Snapshot)) {
        self.last_published = Some(now);
        self.take_times(now);
        let wall = now.saturating_duration_since(self.started);
        self.totals.wall_ns = u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX);
        self.done
            .retain(|(at, _)| now.saturating_duration_since(*at) < RETENTION);
        self.memory(now);
        let snapshot = &mut self.snapshot;
        snapshot.rows = self.done.iter().map(|(_, row)| row.clone()).collect();
        fill(snapshot);
        snapshot.rows.sort_by_key(|row| row.id);
        snapshot.steps = self.totals.steps;
        snapshot.kv_peak_reserved = self.totals.kv_peak.reserved;
        snapshot.decode_tokens_per_s = self
            .decode_rate
            .per_second(now.saturating_duration_since(self.started));
        snapshot.prefill_tokens_per_s = self.prefill_rate.per_second();
        snapshot.dropped_samples = self.log.dropped();
        snapshot.totals = self.totals;
        self.publisher.send_replace(Arc::new(snapshot.clone()));
    }

    /// Publishes a change of state alone.
    pub fn state(&mut self, state: EngineState) {
        let now = Instant::now();
        self.publish(now, |snapshot| snapshot.state = state);
    }
}
