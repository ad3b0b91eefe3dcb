//! The engine's place: which one is there, what it says, and the threads that close one, open another and download models.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use tokio::sync::{mpsc, watch};

use crate::engine::telemetry::{EngineState, Snapshot, StepSample};
use crate::engine::{self, Engine, Request, RequestId, SubmitError};
use crate::ui::models::{Fetching, Models, NotFetched, NotOpened, Opened};

/// What a thread has done.
pub(super) enum Report {
    /// The engine is closed, and what it held is free.
    Closed,
    /// A model was opened, or can't be.
    Opened {
        name: String,
        opened: Result<Opened, NotOpened>,
    },
    /// A download goes on.
    Fetching { name: String, fetching: Fetching },
    /// It has ended.
    Fetched {
        name: String,
        outcome: Result<(), NotFetched>,
    },
}

/// What is heard.
pub(super) enum Heard {
    /// Of a thread.
    Report(Report),
    /// Of a request.
    Event(RequestId, engine::Event),
    /// Of the engine's state; none when there is no engine any more.
    Snapshot(Option<Arc<Snapshot>>),
}

/// The engine's place.
pub struct Host {
    models: Option<Arc<dyn Models>>,
    engine: Option<Arc<dyn Engine>>,
    /// The model whose engine is there, or was there last.
    seated: Option<String>,
    /// Into which each request's consumer sends; another channel for each engine, as each counts its requests from 0.
    consumer: mpsc::UnboundedSender<(RequestId, engine::Event)>,
    events: mpsc::UnboundedReceiver<(RequestId, engine::Event)>,
    /// None once the engine is gone.
    snapshots: Option<watch::Receiver<Arc<Snapshot>>>,
    reports: (mpsc::UnboundedSender<Report>, mpsc::UnboundedReceiver<Report>),
    /// The thread that closes an engine which has something to keep.
    closing: Option<JoinHandle<()>>,
    /// The model that is being downloaded, and what ends that.
    fetch: Option<(String, Arc<AtomicBool>)>,
    /// How far it is: the last that was told, however often that is.
    progress: watch::Sender<(String, Fetching)>,
    progressed: watch::Receiver<(String, Fetching)>,
}

impl Host {
    /// A place without an engine, for one of these models.
    pub fn of(models: Arc<dyn Models>) -> Self {
        Self {
            models: Some(models),
            ..Self::empty()
        }
    }

    fn empty() -> Self {
        let (consumer, events) = mpsc::unbounded_channel();
        let (progress, progressed) = watch::channel(Default::default());
        Self {
            models: None,
            engine: None,
            seated: None,
            consumer,
            events,
            snapshots: None,
            reports: mpsc::unbounded_channel(),
            closing: None,
            fetch: None,
            progress,
            progressed,
        }
    }

    /// The next thing that is heard. May be dropped and asked again.
    pub(super) async fn next(&mut self) -> Heard {
        let snapshot = async {
            match &mut self.snapshots {
                Some(snapshots) => {
                    let changed = snapshots.changed().await.ok();
                    changed.map(|()| snapshots.borrow_and_update().clone())
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(report) = self.reports.1.recv() => Heard::Report(report),
            Some((request, event)) = self.events.recv() => Heard::Event(request, event),
            Ok(()) = self.progressed.changed() => {
                let (name, fetching) = self.progressed.borrow_and_update().clone();
                Heard::Report(Report::Fetching { name, fetching })
            }
            snapshot = snapshot => {
                if snapshot.is_none() {
                    self.snapshots = None;
                }
                Heard::Snapshot(snapshot)
            }
        }
    }

    /// What a request has to say by now.
    pub(super) fn next_event(&mut self) -> Option<(RequestId, engine::Event)> {
        self.events.try_recv().ok()
    }

    pub(super) fn submit(&self, request: Request) -> Result<RequestId, SubmitError> {
        let engine = self.engine.as_ref().ok_or(SubmitError::Loading)?;
        engine.submit(request, Box::new(self.consumer.clone()))
    }

    pub(super) fn cancel(&self, request: RequestId) {
        if let Some(engine) = &self.engine {
            engine.cancel(request);
        }
    }

    pub(super) fn drain_samples(&self, out: &mut Vec<StepSample>) {
        if let Some(engine) = &self.engine {
            engine.drain_samples(out);
        }
    }

    /// The model whose engine is there, or was there last.
    pub(super) fn seated(&self) -> Option<&str> {
        self.seated.as_deref()
    }

    /// Puts the engine of a model into the place, which is free.
    pub(super) fn seat(&mut self, model: Option<String>, engine: Arc<dyn Engine>) {
        let mut snapshots = engine.snapshots();
        snapshots.mark_changed();
        (self.consumer, self.events) = mpsc::unbounded_channel();
        self.snapshots = Some(snapshots);
        self.engine = Some(engine);
        self.seated = model;
    }

    /// Closes the engine that is there; [`Report::Closed`] follows when all that it held is free.
    pub(super) fn close(&mut self) {
        match self.engine.take() {
            Some(engine) => self.discard(engine),
            None => drop(self.reports.0.send(Report::Closed)),
        }
    }

    /// Closes an engine that never came to the place.
    pub(super) fn discard(&mut self, engine: Arc<dyn Engine>) {
        let reports = self.reports.0.clone();
        let keeps = !matches!(engine.snapshots().borrow().state, EngineState::Loading { .. });
        let close = move || {
            engine.close();
            drop(engine);
            // Nobody listens at the very end.
            let _ = reports.send(Report::Closed);
        };
        match std::thread::Builder::new()
            .name("engine-closer".into())
            .spawn(close)
        {
            // One that only loads has nothing to keep, and may take long to let go of it.
            Ok(thread) => self.closing = keeps.then_some(thread),
            // The engine was dropped with what was to run, which closes it.
            Err(error) => {
                tracing::warn!("an engine was closed in the loop: there can't be another thread: {error}");
                let _ = self.reports.0.send(Report::Closed);
            }
        }
    }

    /// Opens a model; [`Report::Opened`] follows.
    pub(super) fn open(&mut self, name: &str) {
        let (wanted, reports) = (name.to_owned(), self.reports.0.clone());
        let failed = |why: String| Report::Opened {
            name: name.to_owned(),
            opened: Err(NotOpened::Failed(why)),
        };
        let Some(models) = self.models.clone() else {
            return drop(self.reports.0.send(failed("there is no other model here".into())));
        };
        let open = move || {
            let opened = models.open(&wanted);
            let name = wanted;
            let _ = reports.send(Report::Opened { name, opened });
        };
        if let Err(error) = std::thread::Builder::new()
            .name("engine-opener".into())
            .spawn(open)
        {
            let _ = self
                .reports
                .0
                .send(failed(format!("there can't be another thread: {error}")));
        }
    }

    /// The model that is being downloaded.
    pub(super) fn fetches(&self) -> Option<&str> {
        self.fetch.as_ref().map(|(name, _)| name.as_str())
    }

    /// Downloads a model; [`Report::Fetching`] and [`Report::Fetched`] follow.
    pub(super) fn fetch(&mut self, name: &str) {
        let (wanted, reports) = (name.to_owned(), self.reports.0.clone());
        let failed = |why: String| Report::Fetched {
            name: name.to_owned(),
            outcome: Err(NotFetched(why)),
        };
        let Some(models) = self.models.clone() else {
            return drop(self.reports.0.send(failed("there is no other model here".into())));
        };
        let cancel = Arc::new(AtomicBool::new(false));
        self.fetch = Some((name.to_owned(), Arc::clone(&cancel)));
        let progress = self.progress.clone();
        let fetch = move || {
            let mut tell = |fetching: Fetching| drop(progress.send_replace((wanted.clone(), fetching)));
            let outcome = models.fetch(&wanted, &mut tell, &cancel);
            let name = wanted.clone();
            let _ = reports.send(Report::Fetched { name, outcome });
        };
        if let Err(error) = std::thread::Builder::new().name("download".into()).spawn(fetch) {
            let _ = self
                .reports
                .0
                .send(failed(format!("there can't be another thread: {error}")));
        }
    }

    /// The download has ended; whether it had been asked to.
    pub(super) fn fetched(&mut self) -> bool {
        let fetch = self.fetch.take();
        fetch.is_some_and(|(_, cancel)| cancel.load(Ordering::Acquire))
    }

    /// Asks the download to end; what came is kept.
    pub(super) fn stop_fetch(&self) {
        if let Some((_, cancel)) = &self.fetch {
            cancel.store(true, Ordering::Release);
        }
    }

    /// The engine that is there at the end, once the one before it is closed.
    pub(super) fn end(mut self) -> Option<Arc<dyn Engine>> {
        self.stop_fetch();
        if self.closing.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that closed an engine panicked");
        }
        self.engine.take()
    }
}

impl<E: Engine + 'static> From<Arc<E>> for Host {
    /// An engine that stays.
    fn from(engine: Arc<E>) -> Self {
        let mut host = Self::empty();
        host.seat(None, engine);
        host
    }
}
