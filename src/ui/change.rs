//! Changing the model while conversations are open: answers end, the engine closes, another one loads, and on failure the
//! one before comes back. The first model of all comes the same way.

use std::sync::Arc;

use crate::chat::{EngineStatus, Event, NoticeKind};
use crate::engine::telemetry::{EngineState, Snapshot};
use crate::ui::app::App;
use crate::ui::host::Report;
use crate::ui::models::{NotOpened, Wish};
use crate::ui::overlay::models::Escape;
use crate::ui::view::View;

/// A change that is going on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    /// The model that is wanted.
    to: String,
    /// The one to go back to.
    back: Option<String>,
    /// Why this is the way back.
    why: Option<String>,
    step: Step,
}

/// Where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Answers come to their end.
    Draining,
    /// The engine is being closed.
    Closing,
    /// The model is being found.
    Opening,
    /// The first model is being downloaded: there is no engine meanwhile.
    Fetching,
    /// The new engine loads it.
    Loading,
}

impl App {
    /// Opens the first model, downloading it where it isn't on this machine.
    pub fn begin(&mut self, model: String) {
        self.show_stage(&format!("finding {model}"), 0, 0);
        self.host.open(&model);
        self.set_change(Some(Change {
            to: model,
            back: None,
            why: None,
            step: Step::Opening,
        }));
    }

    /// Does what the person wants with the engine.
    pub(super) fn wish(&mut self, wish: Wish) {
        match wish {
            Wish::Use { name, stop } => self.use_model(name, stop),
            Wish::Fetch(_) if self.host.fetches().is_some() => {
                let why = "a model is being downloaded already: stop that first, in the list of models";
                let reactions = self.view.not_fetched(why.into());
                self.react(reactions);
            }
            Wish::Fetch(name) => {
                self.view.going.fetches(&name);
                self.host.fetch(&name);
            }
            Wish::StopFetch => self.host.stop_fetch(),
            Wish::TurnBack => self.turn_back(),
        }
    }

    fn use_model(&mut self, name: String, stop: bool) {
        let current = self.view.going.current.clone();
        let is_current = current.as_ref() == Some(&name);
        let fails = matches!(self.state.engine(), EngineStatus::Failed(_));
        match self.change.clone() {
            Some(change) if change.step == Step::Draining && is_current => self.stay(&name, &change),
            // It is on its way already.
            Some(change) if change.to == name => {}
            Some(change) if change.back.as_ref() == Some(&name) => self.turn_back(),
            Some(change) => {
                // On the way back, the model that one goes back to stays the one to go back to.
                let back = change.why.as_ref().map(|_| change.to.clone());
                self.head_for(Change {
                    to: name,
                    back: change.back.clone().or(back),
                    why: None,
                    step: change.step,
                });
            }
            None if is_current && !fails => self.tell(format!("{name} is the model already")),
            None => {
                self.apply(Event::Hold);
                self.set_change(Some(Change {
                    to: name,
                    back: current.filter(|_| !fails),
                    why: None,
                    step: Step::Draining,
                }));
            }
        }
        if stop {
            self.apply(Event::StopAll);
        }
        self.advance();
        if let Some(Change {
            to,
            step: Step::Draining,
            ..
        }) = &self.change
        {
            let text = format!("{to} comes when the answers that run have ended; prompts wait until then");
            self.apply(Event::Progress { text });
        }
    }

    /// Goes on where nothing has to be awaited any more.
    pub(super) fn advance(&mut self) {
        let Some(Change {
            step: Step::Draining, ..
        }) = &self.change
        else {
            return;
        };
        if self.state.panes().values().any(|pane| pane.running().is_some()) {
            return;
        }
        self.close();
    }

    /// The change is given up before anything was closed.
    fn stay(&mut self, name: &str, change: &Change) {
        self.set_change(None);
        self.apply(Event::Release);
        self.tell_outcome(format!("{name} stays; {} was not loaded", change.to));
    }

    fn close(&mut self) {
        self.go_to(Step::Closing);
        let name = self.host.seated().unwrap_or_default().to_owned();
        self.show_stage(&format!("closing {name}"), 0, 0);
        self.host.close();
    }

    fn open(&mut self) {
        self.go_to(Step::Opening);
        if let Some(change) = &self.change {
            let to = change.to.clone();
            self.show_stage(&format!("finding {to}"), 0, 0);
            self.host.open(&to);
        }
    }

    /// Another model is wanted than the one that is on its way.
    fn head_for(&mut self, change: Change) {
        let step = change.step;
        let before = self.change.take().map(|before| before.to);
        self.set_change(Some(change));
        match step {
            // What is on its way is seen to when it comes.
            Step::Draining | Step::Closing | Step::Opening => {}
            Step::Fetching if self.host.fetches() == before.as_deref() => self.host.stop_fetch(),
            // Another download was awaited, which goes on.
            Step::Fetching => self.open(),
            Step::Loading => self.close(),
        }
    }

    /// Goes back to the model from before; the first one's download ends.
    fn turn_back(&mut self) {
        match self.change.clone() {
            None => {}
            Some(
                change @ Change {
                    step: Step::Draining, ..
                },
            ) => {
                if let Some(name) = &change.back {
                    self.stay(name, &change);
                }
            }
            Some(Change {
                back: Some(back),
                to,
                step,
                ..
            }) => {
                self.head_for(Change {
                    to: back,
                    back: None,
                    why: Some(format!("{to} was given up")),
                    step,
                });
            }
            Some(_) => self.host.stop_fetch(),
        }
    }

    /// Takes what a thread has done.
    pub(super) fn on_report(&mut self, report: Report) {
        self.dirty = true;
        let step = self.change.as_ref().map(|change| change.step);
        let wanted = |name: &str| self.change.as_ref().is_some_and(|change| change.to == name);
        match report {
            Report::Closed => {
                if step == Some(Step::Closing) {
                    self.open();
                }
            }
            Report::Opened { name, opened } => match opened {
                Ok(opened) if wanted(&name) => {
                    self.host.seat(Some(name), opened.engine);
                    self.go_to(Step::Loading);
                    self.view.forget_steps();
                    let recommended = opened.recommended;
                    self.apply(Event::NewEngine { recommended });
                }
                Ok(opened) => {
                    self.go_to(Step::Closing);
                    self.show_stage(&format!("closing {name}"), 0, 0);
                    self.host.discard(opened.engine);
                }
                Err(_) if !wanted(&name) => self.open(),
                Err(NotOpened::Remote) => {
                    self.go_to(Step::Fetching);
                    match self.host.fetches().map(str::to_owned) {
                        Some(other) if other == name => {}
                        // One at a time: when that one has ended, this one is looked for again.
                        Some(other) => {
                            self.show_stage(&format!("{name} waits for the download of {other}"), 0, 0);
                        }
                        None => {
                            self.view.going.fetches(&name);
                            self.host.fetch(&name);
                        }
                    }
                }
                Err(NotOpened::Failed(why)) => self.failed(why),
            },
            Report::Fetching { name, fetching } => {
                if step == Some(Step::Fetching) && wanted(&name) {
                    let stage = format!("{name}: {}", fetching.stage);
                    self.show_stage(&stage, fetching.done, fetching.total);
                }
                let now = self.now();
                // One that was told of late has ended.
                if let Some(fetch) = self.view.going.fetch.as_mut().filter(|fetch| fetch.name == name) {
                    fetch.take(fetching, now);
                }
            }
            Report::Fetched { name, outcome } => {
                let goes_on = step == Some(Step::Fetching);
                let wanted = wanted(&name);
                let stopped = self.host.fetched();
                self.view.going.fetch = None;
                if let (Err(why), false) = (&outcome, stopped) {
                    self.view.going.missed.insert(name.clone(), why.to_string());
                }
                if goes_on && wanted {
                    return match outcome {
                        Ok(()) => self.open(),
                        Err(why) => self.failed(why.to_string()),
                    };
                }
                // Nobody asks for what was left for another model.
                if !(goes_on && stopped) {
                    let reactions = match outcome {
                        Ok(()) => self.view.fetched(&name),
                        Err(why) => self.view.not_fetched(why.to_string()),
                    };
                    self.react(reactions);
                }
                if goes_on {
                    self.open();
                }
            }
        }
    }

    /// The model that is wanted can't be had.
    fn failed(&mut self, why: String) {
        let Some(change) = self.change.clone() else { return };
        let why = format!("{} can't be used: {why}", change.to);
        match change.back {
            Some(back) => {
                self.set_change(Some(Change {
                    to: back,
                    back: None,
                    why: Some(why),
                    step: change.step,
                }));
                if change.step == Step::Loading {
                    self.close();
                } else {
                    self.open();
                }
            }
            None => {
                self.set_change(None);
                let before = change.why.map(|why| format!("{why}; ")).unwrap_or_default();
                let message = format!("{before}{why}");
                self.apply(Event::EngineFailed { message });
                self.apply(Event::Release);
            }
        }
    }

    /// Takes the engine's state, as a change has it shown.
    pub(super) fn on_snapshot(&mut self, snapshot: Option<Arc<Snapshot>>) {
        let Some(change) = self.change.clone() else {
            return match snapshot {
                Some(snapshot) => self.take_snapshot(snapshot),
                None => {
                    let message = "the engine's thread has ended; the log file may say why".to_owned();
                    self.apply(Event::EngineFailed { message });
                }
            };
        };
        match (change.step, snapshot) {
            (Step::Draining, Some(snapshot)) => self.take_snapshot(snapshot),
            (Step::Closing, Some(snapshot)) => {
                let pending = snapshot.prompt_cache.disk.pending;
                if pending > 0 {
                    let name = self.host.seated().unwrap_or_default().to_owned();
                    self.pending = self.pending.max(pending);
                    let (done, all) = (self.pending - pending, self.pending);
                    self.show_stage(&format!("keeping the prompt cache of {name}"), done, all);
                }
            }
            (Step::Loading, Some(snapshot)) => match &snapshot.state {
                EngineState::Failed(why) if change.back.is_some() || change.why.is_some() => {
                    self.failed(why.clone());
                }
                EngineState::Failed(_) => {
                    self.set_change(None);
                    self.take_snapshot(snapshot);
                }
                EngineState::Loading { stage, done, total } if change.back.is_some() => {
                    self.show_stage(&format!("{}: {stage}", change.to), *done, *total);
                }
                EngineState::Loading { .. } => self.take_snapshot(snapshot),
                EngineState::Closed => {}
                EngineState::Ready => {
                    self.take_snapshot(snapshot);
                    self.changed(change);
                }
            },
            (Step::Draining, None) => {
                let message = "the engine's thread has ended; the log file may say why".to_owned();
                self.apply(Event::EngineFailed { message });
            }
            (Step::Loading, None) => self.failed("the engine's thread has ended".into()),
            // Of an engine that is on its way out, or of none.
            (Step::Closing, None) | (Step::Opening | Step::Fetching, _) => {}
        }
    }

    /// The model that was wanted is there.
    fn changed(&mut self, change: Change) {
        let before = self.view.going.current.replace(change.to.clone());
        self.set_change(None);
        let reactions = self.view.list_models_again();
        self.react(reactions);
        match (change.why, before) {
            (Some(why), _) => self.warn(format!("{why}; {} is back", change.to)),
            (None, Some(before)) => {
                self.tell_outcome(format!("{} answers from now on, in place of {before}", change.to));
            }
            (None, None) => {}
        }
    }

    fn take_snapshot(&mut self, snapshot: Arc<Snapshot>) {
        let now = self.now();
        self.view.take_snapshot(&snapshot, now);
        self.apply(Event::Snapshot(snapshot));
    }

    /// Shows what is done while no engine can say it.
    fn show_stage(&mut self, stage: &str, done: u64, total: u64) {
        let mut snapshot = Snapshot::loading("");
        let stage = stage.to_owned();
        snapshot.state = EngineState::Loading { stage, done, total };
        let now = self.now();
        self.view.take_snapshot(&snapshot, now);
        self.apply(Event::Snapshot(Arc::new(snapshot)));
    }

    fn go_to(&mut self, step: Step) {
        self.pending = 0;
        if let Some(change) = self.change.clone() {
            self.set_change(Some(Change { step, ..change }));
        }
    }

    fn set_change(&mut self, change: Option<Change>) {
        let going = &mut self.view.going;
        going.to = change.as_ref().map(|change| change.to.clone());
        going.waits = change
            .as_ref()
            .is_some_and(|change| change.step == Step::Draining);
        going.escape = change
            .as_ref()
            .and_then(|change| match (change.step, &change.back) {
                (Step::Draining, Some(back)) => Some(Escape::Stay(back.clone())),
                (_, Some(back)) => Some(Escape::Back(back.clone())),
                (Step::Fetching, None) => Some(Escape::StopFetch),
                (Step::Draining | Step::Closing | Step::Opening | Step::Loading, None) => None,
            });
        self.change = change;
    }

    /// Tells what came of the change, in place of how far it was.
    fn tell_outcome(&mut self, text: String) {
        let kind = NoticeKind::Info;
        self.apply(Event::Outcome { kind, text });
    }

    fn warn(&mut self, text: String) {
        let kind = NoticeKind::Warning;
        self.apply(Event::Notice { kind, text });
    }
}

impl View {
    /// Forgets what earlier steps of an engine took: another one begins.
    pub(super) fn forget_steps(&mut self) {
        self.history = Default::default();
        self.frozen = None;
    }
}
