//! How another engine takes the place of the one before: prompts wait, answers end, and all panes go on with the new one.

use std::sync::Arc;

use jiff::Timestamp;

use super::event::{Effect, Topic};
use super::pane::{Pane, Settings};
use super::parameter::{Parameter, Source};
use super::record::{End, Kind};
use super::state::{EngineStatus, State};
use super::turn::{Ending, write};
use crate::engine::telemetry::Snapshot;
use crate::sampling::Sampling;

impl State {
    /// Whether a prompt goes to the engine at once.
    pub(super) fn takes_prompts(&self) -> bool {
        self.engine == EngineStatus::Ready && !self.held
    }

    /// Sends what waits, where it can be sent.
    pub(super) fn start_all_queued(&mut self, at: Timestamp, out: &mut Vec<Effect>) {
        for id in self.ids(|pane| pane.queued.is_some()) {
            self.start_queued(at, id, out);
        }
    }

    pub(super) fn release(&mut self, at: Timestamp, out: &mut Vec<Effect>) {
        self.held = false;
        if self.takes_prompts() {
            self.is_over(Topic::Engine);
        }
        self.start_all_queued(at, out);
    }

    pub(super) fn stop_all(&mut self, out: &mut Vec<Effect>) {
        for pane in self.panes.values_mut() {
            pane.stop(out);
        }
    }

    pub(super) fn new_engine(&mut self, at: Timestamp, recommended: &Sampling, out: &mut Vec<Effect>) {
        // The one before ended its requests; of one that could not, nothing more is heard.
        for id in self.ids(|pane| pane.running().is_some()) {
            self.finish(at, id, Ending::new(End::Cancelled, None), out);
        }
        (self.unnamed, self.held) = (0, false);
        self.is_over(Topic::Engine);
        self.early.clear();
        let snapshot = Arc::new(Snapshot::loading("starting"));
        self.engine = State::status_of(&snapshot);
        self.snapshot = snapshot;
        self.began = Some(at);
        self.engines += 1;
        self.defaults.sampling = *recommended;
        self.origins.recommend(&self.defaults);
        for pane in self.panes.values_mut() {
            recommend(pane, at, &self.defaults, out);
        }
    }
}

/// Has a pane sample as new panes do, where it has nothing of its own.
pub(super) fn recommend(pane: &mut Pane, at: Timestamp, defaults: &Settings, out: &mut Vec<Effect>) {
    let mut settings = pane.settings.clone();
    for parameter in Parameter::SAMPLING {
        if *pane.sources.of(parameter) == Source::Start {
            parameter.copy(defaults, &mut settings);
        }
    }
    if settings == pane.settings {
        return;
    }
    pane.settings = settings.clone();
    // A log that has not begun says it in its first record.
    if pane.log.next > 0 {
        let record = pane.record(at, pane.log.head, Kind::Settings { settings });
        write(pane, vec![record], out);
    }
}
