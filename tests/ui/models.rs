//! The picker of models, and how the loop changes them.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use mlx_chat::chat::{Draft, Event, State};
use mlx_chat::engine::telemetry::{EngineInfo, EngineState, Snapshot};
use mlx_chat::engine::{self, FinishReason};
use mlx_chat::ui::app::{App, Clock, Wires};
use mlx_chat::ui::canvas::Canvas;
use mlx_chat::ui::host::Host;
use mlx_chat::ui::models::{Fetching, Fit, Place, Wish};
use mlx_chat::ui::overlay::Overlay;
use mlx_chat::ui::overlay::models::{Fetch, ModelPicker};
use mlx_chat::ui::worker;
use tokio::sync::mpsc;

use super::shelf::{Delivery, Shelf, facts, listed};
use super::stand::{Hands, SharedVt, wall};
use super::support::*;

fn ready_as(name: &str) -> Snapshot {
    let info = EngineInfo {
        model: name.into(),
        ..ready().info
    };
    Snapshot { info, ..ready() }
}

/// A keyboard over four models, of which `alpha` is in use, and the prompt cache; the picker is open.
pub fn picking() -> Keyboard {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    let shelf = Shelf::new(&[]);
    {
        let mut inventory = shelf.inventory.lock().unwrap();
        let mut alpha = listed("alpha-1b", Place::Installed);
        (alpha.in_use, alpha.default) = (true, true);
        let mut delta = listed("delta", Place::Remote);
        (delta.unfinished, delta.facts) = (5 << 20, Some(facts(Fit::Whole)));
        inventory.models = vec![
            alpha,
            listed("beta-70b", Place::Cached),
            listed("gamma", Place::Elsewhere),
            delta,
        ];
        (inventory.prompt_files, inventory.prompt_bytes) = (3, 40 << 20);
        let mut known = shelf.facts.lock().unwrap();
        known.insert("alpha-1b".into(), facts(Fit::Whole));
        known.insert("beta-70b".into(), facts(Fit::UpTo(900)));
    }
    keyboard.models = shelf;
    keyboard.view.going.current = Some("alpha-1b".into());
    keyboard.press(KeyModifiers::ALT, KeyCode::Char('m'));
    keyboard
}

fn picker(keyboard: &Keyboard) -> &ModelPicker {
    match &keyboard.view.overlay {
        Some(Overlay::Models(picker)) => picker,
        other => panic!("{other:?}"),
    }
}

fn line_of(screen: &str, name: &str) -> String {
    let line = screen.lines().find(|line| line.contains(name));
    line.unwrap_or_else(|| panic!("no {name} in {screen}")).to_owned()
}

#[test]
fn models_are_listed_with_place_size_weights_and_whether_they_fit() {
    let mut keyboard = picking();
    assert_eq!(
        picker(&keyboard).shown(),
        ["alpha-1b", "beta-70b", "gamma", "delta"]
    );
    let screen = keyboard.screen();
    for (name, parts) in [
        ("alpha-1b ", ["*", "installed", "98M", "Q4_K", "fits"]),
        ("beta-70b ", ["", "hub cache", "98M", "Q4_K", "to 900 tok"]),
        ("gamma ", ["", "your file", "98M", "not readable", ""]),
        ("delta ", ["", "begun", "98M", "Q4_K", "fits"]),
        ("prompt cache", ["", "on disk", "40M", "3 files", ""]),
    ] {
        let line = line_of(&screen, name);
        assert!(parts.iter().all(|part| line.contains(part)), "{name}: {line}");
    }
    for part in [
        "the default model; 98M weights + 180M KV for ",
        " tokens, 12G free",
    ] {
        assert!(screen.contains(part), "{screen}");
    }
    assert!(screen.contains("3 on this machine, 294M"), "{screen}");
}

#[test]
fn letters_find_a_model_and_enter_takes_it() {
    let mut keyboard = picking();
    keyboard.type_text("bt70");
    assert_eq!(picker(&keyboard).shown(), ["beta-70b"]);
    keyboard.code(KeyCode::Enter);
    let name = "beta-70b".to_owned();
    assert_eq!(keyboard.wishes, [Wish::Use { name, stop: false }]);
    assert!(keyboard.view.overlay.is_none());
}

#[test]
fn a_model_that_is_not_here_is_downloaded_while_the_list_stays_open() {
    let mut keyboard = picking();
    keyboard.type_text("delta");
    keyboard.code(KeyCode::Enter);
    assert_eq!(keyboard.wishes, [Wish::Fetch("delta".into())]);
    let mut fetch = Fetch::new("delta");
    let fetching = |done| Fetching {
        stage: "downloading".into(),
        done,
        total: 100 << 20,
    };
    fetch.take(fetching(0), Duration::from_secs(1));
    fetch.take(fetching(20 << 20), Duration::from_secs(3));
    keyboard.view.going.fetch = Some(fetch);
    let line = line_of(&keyboard.screen(), "delta: ");
    for part in ["20%", "20M of 100M", "10M/s", "8 s left"] {
        assert!(line.contains(part), "{line}");
    }
    // One at a time; Esc stops it and leaves the list.
    keyboard.code(KeyCode::Enter);
    assert!(keyboard.screen().contains("being downloaded already"));
    keyboard.code(KeyCode::Esc);
    assert_eq!(keyboard.wishes.last(), Some(&Wish::StopFetch));
    picker(&keyboard);
    // The key that opens the list closes it, too, and the download goes on.
    keyboard.press(KeyModifiers::ALT, KeyCode::Char('m'));
    assert!(keyboard.view.overlay.is_none());
    assert!(
        keyboard.screen().contains("gets delta 20%"),
        "{}",
        keyboard.screen()
    );
}

#[test]
fn a_model_is_deleted_after_a_question_that_enter_does_not_answer() {
    let mut keyboard = picking();
    keyboard.type_text("beta");
    keyboard.ctrl('x');
    assert!(
        keyboard.screen().contains("Delete beta-70b, 98M?"),
        "{}",
        keyboard.screen()
    );
    keyboard.code(KeyCode::Enter);
    assert!(keyboard.models.log().is_empty());
    keyboard.type_text("n");
    assert!(
        !keyboard.screen().contains("Delete beta"),
        "{}",
        keyboard.screen()
    );
    keyboard.ctrl('x');
    keyboard.type_text("y");
    assert_eq!(keyboard.models.log(), ["remove beta-70b"]);
    assert_eq!(picker(&keyboard).shown(), [""; 0], "the list is read again");
    assert_eq!(keyboard.chats.told().text, "deleted beta-70b");
}

#[test]
fn what_is_in_use_or_somebodys_own_is_not_deleted() {
    for (letters, why) in [("alpha", "it is in use"), ("gamma", "a file of your own")] {
        let mut keyboard = picking();
        keyboard.type_text(letters);
        keyboard.ctrl('x');
        assert!(keyboard.screen().contains(why), "{}", keyboard.screen());
        keyboard.type_text("y");
        assert!(keyboard.models.log().is_empty());
    }
}

#[test]
fn a_model_on_its_way_is_not_deleted() {
    let mut keyboard = picking();
    keyboard.view.going.to = Some("beta-70b".into());
    keyboard.type_text("beta");
    keyboard.ctrl('x');
    assert!(
        keyboard.screen().contains("it is in use"),
        "{}",
        keyboard.screen()
    );
}

#[test]
fn what_a_download_left_is_deleted_and_counted() {
    let mut keyboard = picking();
    keyboard.type_text("delta");
    keyboard.ctrl('x');
    assert!(
        keyboard.screen().contains("Delete delta, 5.0M?"),
        "{}",
        keyboard.screen()
    );
    keyboard.type_text("y");
    assert_eq!(keyboard.models.log(), ["remove delta"]);
}

#[test]
fn the_prompt_caches_files_are_deleted_after_a_question() {
    let mut keyboard = picking();
    keyboard.type_text("prompt");
    keyboard.code(KeyCode::Enter);
    assert!(
        keyboard.screen().contains("only be deleted"),
        "{}",
        keyboard.screen()
    );
    keyboard.ctrl('x');
    assert!(
        keyboard.screen().contains("prompt cache's files, 40M?"),
        "{}",
        keyboard.screen()
    );
    keyboard.type_text("y");
    assert_eq!(keyboard.models.log(), ["clear prompts"]);
    assert!(!keyboard.screen().contains("3 files"), "{}", keyboard.screen());
}

#[test]
fn what_becomes_of_answers_is_asked_before_a_model_comes() {
    for (key, stop) in [('f', Some(false)), ('s', Some(true)), ('n', None)] {
        let mut keyboard = picking();
        keyboard.chats.send(1, "a long story");
        keyboard.type_text("beta");
        keyboard.code(KeyCode::Enter);
        let screen = keyboard.screen();
        assert!(screen.contains("An answer still streams."), "{screen}");
        assert!(screen.contains("f or Enter lets them finish first"), "{screen}");
        assert!(keyboard.wishes.is_empty());
        keyboard.type_text(&key.to_string());
        let name = "beta-70b".to_owned();
        let wishes: Vec<Wish> = stop.map(|stop| Wish::Use { name, stop }).into_iter().collect();
        assert_eq!(keyboard.wishes, wishes, "{key}");
        assert!(keyboard.view.overlay.is_none());
    }
}

#[test]
fn a_command_takes_a_model_by_its_name_downloads_it_or_opens_the_list() {
    let mut keyboard = picking();
    keyboard.code(KeyCode::Esc);
    let mut command = |line: &str| {
        keyboard.chats.tell(Event::Draft(Draft::at_end(line)));
        keyboard.code(KeyCode::Enter);
        std::mem::take(&mut keyboard.wishes)
    };
    let name = "gamma".to_owned();
    assert_eq!(command("/model gamma"), [Wish::Use { name, stop: false }]);
    assert_eq!(command("/model nobody"), []);
    assert_eq!(command("/model delta"), [Wish::Fetch("delta".into())]);
    assert!(keyboard.chats.told().text.contains("there is no model nobody"));
    picker(&keyboard);
    keyboard.code(KeyCode::Esc);
    keyboard.chats.tell(Event::Draft(Draft::at_end("/model")));
    keyboard.code(KeyCode::Enter);
    picker(&keyboard);
}

#[test]
fn the_picker_is_drawn_at_any_size() {
    let mut keyboard = picking();
    keyboard.chats.send(1, "a long story");
    for asks in [false, true] {
        if asks {
            keyboard.type_text("beta");
            keyboard.code(KeyCode::Enter);
        }
        for width in 0..90 {
            for height in 0..16 {
                text(&mut keyboard.view, &keyboard.chats.state, width, height);
            }
        }
    }
}

/// The loop on models of a test.
struct Stand {
    shelf: Arc<Shelf>,
    hands: Hands,
    screen: SharedVt,
}

impl Stand {
    /// Waits until the screen shows what is wanted; threads take real time, the loop's own passes at once.
    async fn until(&self, what: &str, wanted: impl Fn(&str) -> bool) {
        for _ in 0..20_000 {
            if wanted(&self.screen.contents()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
            std::thread::sleep(Duration::from_micros(500));
        }
        panic!("waited in vain for {what}:\n{}", self.screen.contents());
    }

    async fn shows(&self, text: &str) {
        self.until(text, |screen| screen.contains(text)).await;
    }

    fn alt_m(&self) {
        let key = KeyEvent::new(KeyCode::Char('m'), KeyModifiers::ALT);
        self.hands.give(crossterm::event::Event::Key(key));
    }

    /// Chooses a model by its whole name.
    async fn choose(&self, name: &str) {
        self.alt_m();
        self.shows("on this machine").await;
        self.hands.text(name);
        self.shows(&format!("model> {name}")).await;
        // Longer after the letters than a paste would take.
        tokio::time::sleep(Duration::from_millis(200)).await;
        self.hands.code(KeyCode::Enter);
    }

    async fn ask(&self, prompt: &str) {
        self.hands.text(prompt);
        tokio::time::sleep(Duration::from_millis(200)).await;
        self.hands.code(KeyCode::Enter);
    }

    fn state_of(&self, name: &str, state: EngineState) {
        let snapshot = Snapshot {
            state,
            ..ready_as(name)
        };
        self.shelf.engines[name]
            .snapshots
            .send_replace(Arc::new(snapshot));
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

fn on_shelf<F: Future<Output = ()>>(shelf: Arc<Shelf>, first: &str, test: impl FnOnce(Stand) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let state = State::new(Default::default(), session(1), &[]);
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
        let alpha = stand.shelf.engines["alpha"].clone();
        stand
            .until("it runs", |_| !alpha.running.lock().unwrap().is_empty())
            .await;
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
        let beta = stand.shelf.engines["beta"].clone();
        stand
            .until("it is sent", |_| !beta.running.lock().unwrap().is_empty())
            .await;
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
        let alpha = stand.shelf.engines["alpha"].clone();
        stand
            .until("it runs", |_| !alpha.running.lock().unwrap().is_empty())
            .await;
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
        stand.hands.code(KeyCode::Esc);
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
        stand.shows("beta is here. Go on with it now?").await;
        stand.hands.text("y");
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
    });
}
