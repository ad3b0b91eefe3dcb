//! How the loop changes models.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use mlx_chat::chat::{Settings, State};
use mlx_chat::engine::telemetry::{EngineInfo, EngineState, Snapshot};
use mlx_chat::engine::{self, FinishReason};
use mlx_chat::ui::app::{App, Clock, Wires};
use mlx_chat::ui::canvas::Canvas;
use mlx_chat::ui::host::Host;
use mlx_chat::ui::models::{Models, Place};
use mlx_chat::ui::worker;
use tokio::sync::mpsc;

use super::shelf::{Delivery, Shelf, listed};
use super::stand::{Hands, Puppet, SharedVt, wall};
use super::support::*;

fn ready_as(name: &str) -> Snapshot {
    let info = EngineInfo {
        model: name.into(),
        ..ready().info
    };
    Snapshot { info, ..ready() }
}

/// The loop on models of a test.
pub struct Stand<M = Shelf> {
    pub shelf: Arc<M>,
    hands: Hands,
    screen: SharedVt,
}

impl<M> Stand<M> {
    /// Waits until the screen shows what is wanted; threads take real time, the loop's own passes at once.
    pub async fn until(&self, what: &str, wanted: impl Fn(&str) -> bool) {
        for _ in 0..20_000 {
            if wanted(&self.screen.contents()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
            std::thread::sleep(Duration::from_micros(500));
        }
        panic!("waited in vain for {what}:\n{}", self.screen.contents());
    }

    pub async fn shows(&self, text: &str) {
        self.until(text, |screen| screen.contains(text)).await;
    }

    fn alt_m(&self) {
        let key = KeyEvent::new(KeyCode::Char('m'), KeyModifiers::ALT);
        self.hands.give(crossterm::event::Event::Key(key));
    }

    /// Chooses a model by its whole name.
    pub async fn choose(&self, name: &str) {
        self.alt_m();
        self.shows("on this machine").await;
        self.hands.text(name);
        self.shows(&format!("model> {name}")).await;
        // Longer after the letters than a paste would take.
        tokio::time::sleep(Duration::from_millis(200)).await;
        self.hands.code(KeyCode::Enter);
    }

    pub async fn ask(&self, prompt: &str) {
        self.hands.text(prompt);
        tokio::time::sleep(Duration::from_millis(200)).await;
        self.hands.code(KeyCode::Enter);
    }
}

impl Stand {
    fn state_of(&self, name: &str, state: EngineState) {
        let snapshot = Snapshot {
            state,
            ..ready_as(name)
        };
        self.shelf.engines[name]
            .snapshots
            .send_replace(Arc::new(snapshot));
    }

    /// A model's engine, once it has a request.
    async fn running_on(&self, name: &str) -> Arc<Puppet> {
        let engine = Arc::clone(&self.shelf.engines[name]);
        self.until("it runs", |_| !engine.running.lock().unwrap().is_empty())
            .await;
        engine
    }
}

fn loading() -> EngineState {
    EngineState::Loading {
        stage: "loading the model".into(),
        done: 1 << 20,
        total: 4 << 20,
    }
}

fn still_loading(name: &str) -> Snapshot {
    Snapshot {
        state: loading(),
        ..ready_as(name)
    }
}

pub fn on_shelf<M: Models + 'static, F: Future<Output = ()>>(
    shelf: Arc<M>,
    first: &str,
    test: impl FnOnce(Stand<M>) -> F,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        // For engines that really answer.
        let settings = Settings {
            max_tokens: Some(8),
            ..Settings::default()
        };
        let state = State::new(settings, session(1), &[]);
        let (_signals, signals) = mpsc::unbounded_channel();
        let (_reports, reports) = mpsc::unbounded_channel();
        let wires = Wires {
            signals,
            reports,
            write: Box::new(|_| {}),
        };
        let host = Host::of(shelf.clone());
        let mut app = App::new(state, view(no_color()), host, Clock::new(wall), wires);
        app.begin(first.to_owned());
        let folder = tempfile::tempdir().unwrap();
        let (done, told) = mpsc::unbounded_channel();
        let store = mlx_chat::chat::Store::at(folder.path());
        let jobs = worker::start(store, shelf.clone(), done).unwrap();
        app.work_with(Box::new(move |job| drop(jobs.send(job))), told);
        let screen = SharedVt::new(80, 24);
        let mut canvas = Canvas::new(screen.clone()).unwrap();
        let hands = Hands::default();
        let stand = Stand {
            shelf,
            hands: hands.clone(),
            screen,
        };
        let mut keys = hands;
        tokio::select! {
            biased;
            outcome = app.run(Some(&mut canvas), &mut keys) => panic!("{outcome:?}"),
            () = test(stand) => {}
        }
    });
}

fn two() -> Arc<Shelf> {
    Shelf::new(&[("alpha", ready_as("alpha")), ("beta", still_loading("beta"))])
}

#[test]
fn the_engine_is_closed_before_another_model_is_opened_and_conversations_go_on() {
    on_shelf(two(), "alpha", |stand| async move {
        stand.shows("ready").await;
        stand.ask("hello").await;
        let alpha = stand.running_on("alpha").await;
        alpha.says(0, "from alpha");
        alpha.tell(0, engine::Event::Finish(finish(FinishReason::Stop, None)));
        stand.shows("540/8192").await;
        stand.choose("beta").await;
        stand.shows("beta: loading the model").await;
        stand.shows("Esc goes back to alpha").await;
        stand.shows("1.0M of 4.0M").await;
        assert_eq!(stand.shelf.log(), ["open alpha", "close alpha", "open beta"]);
        // What is written meanwhile waits.
        stand.ask("and now?").await;
        stand.shows("waits: and now?").await;
        stand.state_of("beta", EngineState::Ready);
        stand.shows("beta answers from now on, in place of alpha").await;
        let beta = stand.running_on("beta").await;
        let text = stand.screen.contents();
        assert!(text.contains("from alpha") && text.contains(" ~4/8192"), "{text}");
        // Both engines count their requests from the same number.
        beta.says(0, "from beta");
        stand.shows("from beta").await;
    });
}

#[test]
fn answers_that_stream_are_awaited_and_the_choice_can_be_taken_back() {
    on_shelf(two(), "alpha", |stand| async move {
        stand.shows("ready").await;
        stand.ask("hello").await;
        let alpha = stand.running_on("alpha").await;
        stand.choose("beta").await;
        stand.shows("An answer still streams.").await;
        stand.hands.text("f");
        stand.shows("then beta").await;
        stand.choose("alpha").await;
        stand.shows("alpha stays; beta was not loaded").await;
        assert_eq!(stand.shelf.log(), ["open alpha"]);
        stand.choose("beta").await;
        stand.shows("An answer still streams.").await;
        stand.hands.text("s");
        stand
            .until("it is cancelled", |_| !alpha.cancelled.lock().unwrap().is_empty())
            .await;
        alpha.says(0, "so far");
        alpha.tell(0, engine::Event::Finish(finish(FinishReason::Cancelled, None)));
        stand.shows("Esc goes back to alpha").await;
        assert_eq!(stand.shelf.log(), ["open alpha", "close alpha", "open beta"]);
        assert!(stand.screen.contents().contains("so far"));
    });
}

#[test]
fn escape_while_a_model_loads_brings_the_one_before_back() {
    on_shelf(two(), "alpha", |stand| async move {
        stand.shows("ready").await;
        stand.choose("beta").await;
        stand.shows("beta: loading the model").await;
        stand.shelf.shut.store(true, Ordering::Release);
        stand.hands.code(KeyCode::Esc);
        stand.shows("closing beta").await;
        stand.shelf.shut.store(false, Ordering::Release);
        stand.shows("beta was given up; alpha is back").await;
        let log = [
            "open alpha",
            "close alpha",
            "open beta",
            "close beta",
            "open alpha",
        ];
        assert_eq!(stand.shelf.log(), log);
    });
}

#[test]
fn a_model_that_fails_to_load_or_to_open_brings_the_one_before_back() {
    on_shelf(two(), "alpha", |stand| async move {
        stand.shows("ready").await;
        stand.choose("beta").await;
        stand.shows("beta: loading the model").await;
        stand.state_of("beta", EngineState::Failed("not enough memory".into()));
        stand
            .shows("beta can't be used: not enough memory; alpha is back")
            .await;
        let log = [
            "open alpha",
            "close alpha",
            "open beta",
            "close beta",
            "open alpha",
        ];
        assert_eq!(stand.shelf.log(), log);
        // One that is on the list, and can't even be opened.
        let damaged = listed("damaged", Place::Installed);
        stand.shelf.inventory.lock().unwrap().models.push(damaged);
        stand.choose("damaged").await;
        stand
            .shows("damaged can't be used: its file is damaged; alpha is")
            .await;
        stand.ask("hello").await;
        let alpha = stand.shelf.engines["alpha"].clone();
        stand
            .until("it is asked", |_| !alpha.running.lock().unwrap().is_empty())
            .await;
    });
}

#[test]
fn without_a_model_the_way_to_one_is_told_and_open() {
    let shelf = Shelf::new(&[("beta", ready_as("beta"))]);
    on_shelf(shelf, "alpha", |stand| async move {
        stand.shows("alpha can't be used: its file is damaged").await;
        stand.shows("Alt-m chooses a model").await;
        stand.choose("beta").await;
        stand.shows("ready").await;
    });
}

fn remote(name: &str) -> Arc<Shelf> {
    let shelf = Shelf::new(&[("alpha", ready_as("alpha")), ("beta", ready_as("beta"))]);
    {
        let mut inventory = shelf.inventory.lock().unwrap();
        let mut models = inventory.models.iter_mut();
        models.find(|model| model.name == name).unwrap().place = Place::Remote;
    }
    shelf
}

#[test]
fn the_first_model_is_downloaded_on_the_screen_and_answers_then() {
    on_shelf(remote("alpha"), "alpha", |stand| async move {
        let send = |delivery| stand.shelf.deliveries.0.send(delivery).unwrap();
        send(Delivery::Progress(1 << 20, 4 << 20));
        stand.shows("alpha: downloading").await;
        stand.shows("1.0M of 4.0M").await;
        stand.ask("early").await;
        stand.shows("waits: early").await;
        send(Delivery::End(Ok(())));
        let alpha = stand.shelf.engines["alpha"].clone();
        stand
            .until("it is asked", |_| !alpha.running.lock().unwrap().is_empty())
            .await;
        assert_eq!(stand.shelf.log(), ["open alpha", "fetch alpha", "open alpha"]);
    });
}

#[test]
fn the_first_download_is_stopped_by_escape_and_another_model_taken() {
    on_shelf(remote("alpha"), "alpha", |stand| async move {
        stand.shelf.deliveries.0.send(Delivery::Progress(1, 4)).unwrap();
        stand.shows("alpha: downloading").await;
        stand.hands.code(KeyCode::Esc);
        stand.shows("the download of alpha was stopped").await;
        stand.choose("beta").await;
        stand.shows("ready").await;
        assert_eq!(stand.shelf.log(), ["open alpha", "fetch alpha", "open beta"]);
    });
}

#[test]
fn a_model_that_was_downloaded_meanwhile_is_offered() {
    on_shelf(remote("beta"), "alpha", |stand| async move {
        stand.shows("ready").await;
        stand.choose("beta").await;
        stand
            .shelf
            .deliveries
            .0
            .send(Delivery::Progress(1 << 20, 4 << 20))
            .unwrap();
        stand.shows("gets beta 25%").await;
        stand.shelf.deliveries.0.send(Delivery::End(Ok(()))).unwrap();
        stand.shows("beta is here: Enter goes on with it").await;
        // What is typed at that moment was meant for the list.
        stand.hands.text("y");
        stand.shows("model> betay").await;
        stand.hands.code(KeyCode::Backspace);
        stand.shows("beta is here: Enter goes on with it").await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        stand.hands.code(KeyCode::Enter);
        stand.shows("beta answers from now on, in place of alpha").await;
    });
}

#[test]
fn a_download_that_fails_says_why_and_the_model_stays() {
    on_shelf(remote("beta"), "alpha", |stand| async move {
        stand.shows("ready").await;
        stand.choose("beta").await;
        stand.shows("beta: asking for it").await;
        let end = Delivery::End(Err("the network is down".into()));
        stand.shelf.deliveries.0.send(end).unwrap();
        stand.shows("the network is down").await;
        assert_eq!(stand.shelf.log(), ["open alpha", "fetch beta"]);
        // Its line has the reason until it is tried again.
        stand.hands.code(KeyCode::Esc);
        stand.shows("Write a prompt below").await;
        stand.choose("beta").await;
        stand.shows("beta: asking for it").await;
        let end = Delivery::End(Err("no such file".into()));
        stand.shelf.deliveries.0.send(end).unwrap();
        stand.shows("no such file").await;
        stand.hands.code(KeyCode::Esc);
        stand.shows("Write a prompt below").await;
        stand.alt_m();
        stand.shows("on this machine").await;
        stand.hands.text("beta");
        stand.shows("not downloaded: no such file").await;
    });
}

#[test]
fn escape_in_a_pane_that_does_not_answer_keeps_the_model_while_others_end() {
    on_shelf(two(), "alpha", |stand| async move {
        stand.shows("ready").await;
        stand.ask("hello").await;
        let alpha = stand.running_on("alpha").await;
        stand.hands.code(KeyCode::F(4));
        stand.shows("Write a prompt below").await;
        stand.choose("beta").await;
        stand.shows("An answer still streams.").await;
        stand.hands.text("f");
        stand.shows("beta comes when").await;
        stand.shows("Esc stays with alpha").await;
        stand.hands.code(KeyCode::Esc);
        stand.shows("alpha stays; beta was not loaded").await;
        assert!(
            alpha.cancelled.lock().unwrap().is_empty(),
            "the other pane's answer goes on"
        );
        assert_eq!(stand.shelf.log(), ["open alpha"]);
    });
}

#[test]
fn a_model_that_has_to_be_downloaded_waits_for_the_download_that_goes_on() {
    let shelf = Shelf::new(&[
        ("alpha", ready_as("alpha")),
        ("beta", ready_as("beta")),
        ("gamma", ready_as("gamma")),
    ]);
    let make_remote = |shelf: &Shelf, name: &str| {
        let mut inventory = shelf.inventory.lock().unwrap();
        let mut models = inventory.models.iter_mut();
        models.find(|model| model.name == name).unwrap().place = Place::Remote;
    };
    make_remote(&shelf, "gamma");
    on_shelf(shelf, "alpha", |stand| async move {
        let send = |delivery| stand.shelf.deliveries.0.send(delivery).unwrap();
        stand.shows("ready").await;
        stand.choose("gamma").await;
        stand.shows("gamma: asking for it").await;
        let fetches = |_: &str| stand.shelf.log().iter().any(|done| done == "fetch gamma");
        stand.until("it is fetched", fetches).await;
        // It is listed as installed, and somebody deletes it before it is taken.
        make_remote(&stand.shelf, "beta");
        (0..5).for_each(|_| stand.hands.code(KeyCode::Backspace));
        stand.hands.text("beta");
        stand.shows("model> beta").await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        stand.hands.code(KeyCode::Enter);
        stand.shows("beta waits for the download of gamma").await;
        send(Delivery::End(Ok(())));
        stand.shows("gamma is downloaded").await;
        send(Delivery::Progress(1 << 20, 4 << 20));
        stand.shows("1.0M of 4.0M").await;
        send(Delivery::End(Ok(())));
        stand.shows("beta answers from now on, in place of alpha").await;
        let log = [
            "open alpha",
            "fetch gamma",
            "close alpha",
            "open beta",
            "open beta",
            "fetch beta",
            "open beta",
        ];
        assert_eq!(stand.shelf.log(), log);
    });
}
