//! A stand for the loop: an engine, keys and a terminal of which everything is known.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use crossterm::event::{Event as TerminalEvent, KeyCode, KeyEvent, KeyModifiers};
use mlx_chat::chat::Settings;
use mlx_chat::engine::telemetry::{Snapshot, StepSample};
use mlx_chat::engine::{self, Consumer, Engine, Request, RequestId, SubmitError};
use mlx_chat::ui::app::{App, Clock, Input, Outcome, Signal, Wires};
use mlx_chat::ui::canvas::{Canvas, Target};
use tokio::sync::{mpsc, watch};

use super::support::*;

/// An engine that does what the test says.
pub struct Puppet {
    pub snapshots: watch::Sender<Arc<Snapshot>>,
    pub running: Mutex<Vec<(RequestId, Box<dyn Consumer>)>>,
    pub cancelled: Mutex<Vec<RequestId>>,
    pub samples: Mutex<Vec<StepSample>>,
}

impl Puppet {
    pub fn new(snapshot: Snapshot) -> Arc<Self> {
        Arc::new(Self {
            snapshots: watch::Sender::new(Arc::new(snapshot)),
            running: Mutex::default(),
            cancelled: Mutex::default(),
            samples: Mutex::default(),
        })
    }

    pub fn says(&self, index: usize, text: &str) {
        let event = engine::Event::Token {
            index: 0,
            token: 0,
            text: text.into(),
            logprob: None,
        };
        self.tell(index, event);
    }

    pub fn tell(&self, index: usize, event: engine::Event) {
        let (id, consumer) = &mut self.running.lock().unwrap()[index];
        consumer.deliver(*id, event).unwrap();
    }
}

impl Engine for Puppet {
    fn submit(&self, _: Request, consumer: Box<dyn Consumer>) -> Result<RequestId, SubmitError> {
        let mut running = self.running.lock().unwrap();
        let id = RequestId(17 + running.len() as u64);
        running.push((id, consumer));
        Ok(id)
    }

    fn cancel(&self, id: RequestId) {
        self.cancelled.lock().unwrap().push(id);
    }

    fn snapshots(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshots.subscribe()
    }

    fn drain_samples(&self, out: &mut Vec<StepSample>) {
        out.append(&mut self.samples.lock().unwrap());
    }

    fn close(&self) {}
}

/// Keys that the test presses.
#[derive(Clone, Default)]
pub struct Hands(Rc<RefCell<(VecDeque<TerminalEvent>, Option<Waker>)>>);

impl Hands {
    pub fn give(&self, event: TerminalEvent) {
        let mut inner = self.0.borrow_mut();
        inner.0.push_back(event);
        if let Some(waker) = inner.1.take() {
            waker.wake();
        }
    }

    pub fn code(&self, code: KeyCode) {
        self.give(TerminalEvent::Key(KeyEvent::new(code, KeyModifiers::NONE)));
    }

    pub fn text(&self, text: &str) {
        text.chars().for_each(|c| self.code(KeyCode::Char(c)));
    }
}

impl Input for Hands {
    async fn next(&mut self) -> Option<io::Result<TerminalEvent>> {
        poll_fn(|cx| {
            let mut inner = self.0.borrow_mut();
            match inner.0.pop_front() {
                Some(event) => Poll::Ready(Some(Ok(event))),
                None => {
                    inner.1 = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// A terminal of which everything is known.
pub struct Vt {
    pub parser: vt100::Parser,
    pub frames: Vec<Vec<u8>>,
    pub size: (u16, u16),
}

#[derive(Clone)]
pub struct SharedVt(pub Rc<RefCell<Vt>>);

impl SharedVt {
    pub fn new(width: u16, height: u16) -> Self {
        let parser = vt100::Parser::new(height.try_into().unwrap(), width.try_into().unwrap(), 0);
        Self(Rc::new(RefCell::new(Vt {
            parser,
            frames: Vec::new(),
            size: (width, height),
        })))
    }

    pub fn contents(&self) -> String {
        self.0.borrow().parser.screen().contents()
    }

    pub fn last_frame(&self) -> String {
        let vt = self.0.borrow();
        String::from_utf8_lossy(vt.frames.last().unwrap()).into_owned()
    }

    pub fn draws(&self) -> usize {
        self.0.borrow().frames.len()
    }

    pub fn resize(&self, width: u16, height: u16) {
        let mut vt = self.0.borrow_mut();
        vt.size = (width, height);
        vt.parser
            .screen_mut()
            .set_size(height.try_into().unwrap(), width.try_into().unwrap());
    }
}

impl Target for SharedVt {
    fn size(&self) -> io::Result<(u16, u16)> {
        Ok(self.0.borrow().size)
    }

    fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        let mut vt = self.0.borrow_mut();
        vt.parser.process(frame);
        vt.frames.push(frame.to_vec());
        Ok(())
    }
}

pub struct Stand {
    pub engine: Arc<Puppet>,
    pub hands: Hands,
    pub screen: SharedVt,
    pub signals: mpsc::UnboundedSender<Signal>,
}

impl Stand {
    /// Lets everything happen that happens within a time.
    pub async fn pass(&self, millis: u64) {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }
}

thread_local! {
    static START: tokio::time::Instant = tokio::time::Instant::now();
}

/// The time of day, which goes with the stand's time.
pub fn wall() -> jiff::Timestamp {
    at() + START.with(tokio::time::Instant::elapsed)
}

/// Runs the loop beside a test, on time that passes only when nothing else is to be done.
pub fn on_stand<F: Future<Output = ()>>(
    snapshot: Snapshot,
    test: impl FnOnce(Stand) -> F,
) -> Option<Outcome> {
    on_stand_with(snapshot, |_| {}, test)
}

/// The same, with a loop that is prepared before it runs.
pub fn on_stand_with<F: Future<Output = ()>>(
    snapshot: Snapshot,
    prepare: impl FnOnce(&mut App),
    test: impl FnOnce(Stand) -> F,
) -> Option<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let engine = Puppet::new(snapshot);
        let state = mlx_chat::chat::State::new(Settings::default(), session(1), &[session(2)]);
        let (signals, incoming) = mpsc::unbounded_channel();
        let (_reports, reports) = mpsc::unbounded_channel();
        let wires = Wires {
            signals: incoming,
            reports,
            write: Box::new(|_| {}),
        };
        let mut app = App::new(state, view(no_color()), engine.clone(), Clock::new(wall), wires);
        prepare(&mut app);
        let screen = SharedVt::new(80, 24);
        let mut canvas = Canvas::new(screen.clone()).unwrap();
        let hands = Hands::default();
        let stand = Stand {
            engine,
            hands: hands.clone(),
            screen,
            signals,
        };
        let mut keys = hands;
        tokio::select! {
            biased;
            outcome = app.run(Some(&mut canvas), &mut keys) => Some(outcome.unwrap()),
            () = test(stand) => None,
        }
    })
}
