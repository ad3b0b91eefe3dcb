//! What fails, alone or as a whole; loading; threads; scripts.

use super::*;

/// Fails in its own way at its third token.
struct Bad(fn() -> Result<Flow, ConsumerError>, Arc<Mutex<Vec<Event>>>);

impl Consumer for Bad {
    fn deliver(&mut self, _: RequestId, event: Event) -> Result<Flow, ConsumerError> {
        let third = matches!(event, Event::Token { index: 2, .. });
        self.1.lock().unwrap().push(event);
        if third { (self.0)() } else { Ok(Flow::Continue) }
    }
}

#[test]
fn a_consumer_that_fails_or_panics_ends_its_row_alone() {
    let engine = manual(ENDLESS);
    let (_, mut good) = ask(&engine, text("hi", 8));
    let heard: Arc<Mutex<Vec<Event>>> = Arc::default();
    let session = Request {
        session: Some("s".into()),
        ..text("hi", 8)
    };
    let fails: fn() -> _ = || Err(ConsumerError("full".into()));
    engine
        .submit(session.clone(), Box::new(Bad(fails, Arc::clone(&heard))))
        .unwrap();
    engine
        .submit(
            session,
            Box::new(Bad(|| panic!("a scripted panic"), Arc::clone(&heard))),
        )
        .unwrap();
    engine.advance(3);
    assert_eq!(
        states(&engine),
        [RowState::Decode, RowState::Done, RowState::Done]
    );
    engine.advance(10);
    assert_eq!(end(&mut good).generated_tokens, 8);
    assert_eq!(now(&engine).prompt_cache.entries, 0, "nothing of them is cached");
    let heard = heard.lock().unwrap();
    let delivered = |e: &&Event| matches!(e, Event::Token { .. });
    assert_eq!(heard.iter().filter(delivered).count(), 6);
    assert!(
        !heard.iter().any(|event| matches!(event, Event::Finish(_))),
        "a failed consumer hears no more"
    );
}

#[test]
fn a_consumer_may_end_its_answer() {
    let engine = manual(ENDLESS);
    let heard: Arc<Mutex<Vec<Event>>> = Arc::default();
    engine
        .submit(
            text("hi", 8),
            Box::new(Bad(|| Ok(Flow::Stop), Arc::clone(&heard))),
        )
        .unwrap();
    engine.advance(9);
    match heard.lock().unwrap().last() {
        Some(Event::Finish(finish)) => assert_eq!(finish.stop_reason, Some(StopReason::Consumer)),
        other => panic!("{other:?}"),
    };
}

#[test]
fn rows_reject_and_fail_as_scripted_and_others_go_on() {
    let engine = manual(
        "[[answer]]\nmatch = 'bad'\nreject = 'not today'\n\
         [[answer]]\nmatch = 'later'\ntext = 'a b c d'\nerror = { after = 2, message = 'lost' }\n\
         [[answer]]\nmatch = 'soon'\nerror = { after = 0, message = 'at once' }\n",
    );
    let mut heard: Vec<_> = ["bad", "later", "soon", "fine"]
        .map(|p| ask(&engine, text(p, 9)).1)
        .into();
    engine.advance(9);
    let mut ends = heard.iter_mut().map(|heard| {
        let (all, finish) = answer(heard);
        let finish = finish.unwrap();
        (all, finish.reason, finish.message.unwrap_or_default())
    });
    let mut next = || ends.next().unwrap();
    assert_eq!(
        next(),
        (String::new(), FinishReason::Rejected, "not today".into())
    );
    assert_eq!(next(), ("a b".into(), FinishReason::Error, "lost".into()));
    assert_eq!(next(), (String::new(), FinishReason::Error, "at once".into()));
    assert_eq!(next(), ("fine".into(), FinishReason::Stop, String::new()));
}

#[test]
fn closing_ends_every_request_with_an_error_and_takes_no_more() {
    let engine = manual(&format!("[engine]\nmax_batch = 1\n{ENDLESS}"));
    let mut all: Vec<_> = (0..2).map(|_| ask(&engine, text("hi", 50)).1).collect();
    engine.advance(2);
    all.push(ask(&engine, text("hi", 50)).1);
    engine.close();
    engine.close();
    for heard in &mut all {
        let finish = end(heard);
        assert_eq!(finish.reason, FinishReason::Error);
        assert!(finish.message.unwrap().contains("closed"));
    }
    assert_eq!(now(&engine).state, EngineState::Closed);
    assert_eq!((now(&engine).queued, now(&engine).kv.reserved), (0, 0));
    let late = engine.submit(text("hi", 5), Box::new(unbounded_channel().0));
    assert!(matches!(late, Err(SubmitError::Closed(_))));
    engine.advance(5);
}

#[test]
fn a_failure_or_panic_of_the_engine_ends_every_request_and_is_shown() {
    for (how, shown) in [
        ("message", "boom"),
        ("panic", "the engine's thread panicked: boom"),
    ] {
        let engine = manual(&format!("[fail]\nat_step = 3\n{how} = 'boom'\n{ENDLESS}"));
        engine.advance(10);
        assert_eq!(
            now(&engine).state,
            EngineState::Ready,
            "steps with nothing to do don't count"
        );
        let (_, mut heard) = ask(&engine, text("hi", 50));
        engine.advance(3);
        assert_eq!(states(&engine), [RowState::Decode]);
        engine.advance(1);
        assert_eq!(now(&engine).state, EngineState::Failed(shown.into()));
        let finish = end(&mut heard);
        assert_eq!(finish.reason, FinishReason::Error);
        assert!(finish.message.unwrap().ends_with(shown));
        let late = engine.submit(text("hi", 5), Box::new(unbounded_channel().0));
        assert_eq!(late, Err(SubmitError::Closed(shown.into())));
        engine.close();
        assert_eq!(now(&engine).state, EngineState::Failed(shown.into()));
    }
}

const LOADING: &str =
    "[[loading]]\nstage = 'reading'\nsteps = 4\nbytes = 100\n[[loading]]\nstage = 'warming up'\n";

#[test]
fn loading_is_shown_by_stage_and_requests_wait_for_its_end() {
    let engine = manual(LOADING);
    let loading = |stage: &str, done, total| EngineState::Loading {
        stage: stage.into(),
        done,
        total,
    };
    assert_eq!(now(&engine).state, loading("reading", 0, 100));
    assert_eq!(now(&engine).info.model, "");
    let (_, mut heard) = ask(&engine, text("hi", 5));
    engine.advance(3);
    assert_eq!(now(&engine).state, loading("reading", 75, 100));
    assert_eq!(states(&engine), [RowState::Queued { for_kv: false }]);
    engine.advance(1);
    assert_eq!(now(&engine).state, loading("warming up", 0, 0));
    engine.advance(1);
    assert_eq!(
        (&now(&engine).state, now(&engine).info.model.as_str()),
        (&EngineState::Ready, "Scripted")
    );
    engine.advance(5);
    assert_eq!(answer(&mut heard).0, "hi");
}

#[test]
fn loading_may_fail() {
    let engine = manual("[[loading]]\nstage = 'reading'\nsteps = 2\nfail = 'the file is damaged'\n");
    let (_, mut heard) = ask(&engine, text("hi", 5));
    engine.advance(2);
    assert_eq!(
        now(&engine).state,
        EngineState::Failed("the file is damaged".into())
    );
    assert_eq!(end(&mut heard).reason, FinishReason::Error);
}

#[test]
fn the_thread_serves_many_callers_and_ends_them_all_when_closed() {
    let script =
        "tick_ms = 1\n[engine]\nmax_batch = 3\n[[answer]]\nmatch = 'for ever'\ntext = 'x'\nendless = true\n";
    let engine = Fake::spawn(Script::parse("test", script).unwrap()).unwrap();
    std::thread::scope(|scope| {
        for caller in 0..6 {
            let engine = &engine;
            scope.spawn(move || {
                let prompt = format!("caller {caller} says hello");
                let (_, mut heard) = ask(engine, text(&prompt, 20));
                let mut all = String::new();
                let finish = loop {
                    match heard.blocking_recv().expect("it ends with a finish").1 {
                        Event::Token { text, .. } => all.push_str(&text),
                        Event::Finish(finish) => break finish,
                        Event::Note(_) | Event::Admitted { .. } | Event::Prefill { .. } => {}
                    }
                };
                assert_eq!((all, finish.reason), (prompt, FinishReason::Stop));
            });
        }
    });
    let (_, mut heard) = ask(&engine, text("for ever", 4000));
    while !matches!(heard.blocking_recv().expect("tokens").1, Event::Token { .. }) {}
    engine.close();
    assert_eq!(end(&mut heard).reason, FinishReason::Error);
    assert_eq!(now(&engine).state, EngineState::Closed);
}

/// Closes the engine from within.
struct Closer(Arc<Mutex<Option<Arc<Fake>>>>);

impl Consumer for Closer {
    fn deliver(&mut self, _: RequestId, event: Event) -> Result<Flow, ConsumerError> {
        if let (Event::Token { index: 1, .. }, Some(engine)) = (event, &*self.0.lock().unwrap()) {
            engine.close();
        }
        Ok(Flow::Continue)
    }
}

#[test]
fn a_consumer_may_close_the_engine() {
    let script = Script::parse("test", &format!("tick_ms = 1\n{ENDLESS}")).unwrap();
    for engine in [Fake::manual(script.clone()), Fake::spawn(script).unwrap()] {
        let engine = Arc::new(engine);
        let slot = Arc::new(Mutex::new(Some(Arc::clone(&engine))));
        let (_, mut other) = ask(&engine, text("hi", 4000));
        engine
            .submit(text("hi", 4000), Box::new(Closer(Arc::clone(&slot))))
            .unwrap();
        engine.advance(2);
        while !matches!(other.blocking_recv().expect("it ends").1, Event::Finish(_)) {}
        slot.lock().unwrap().take();
        engine.close();
        assert_eq!(now(&engine).state, EngineState::Closed);
    }
}

fn fault(script: &str) -> String {
    Script::parse("demo.toml", script).unwrap_err().to_string()
}

#[test]
fn script_errors_point_to_the_line_and_the_field() {
    let table = [
        ("tick_ms = 20\n[model]\nnam = 'x'\n", "line 3", "nam"),
        ("\n\ntick_ms = 'fast'\n", "line 3", "string"),
        ("tick_ms = 20\n[engine\n", "line 2", ""),
        ("tick_ms = 0\n", "line 1", "tick_ms is 0"),
        ("\n[engine]\nmax_batch = 0\n", "line 2", "engine.max_batch is 0"),
        ("[fail]\nat_step = 1\n", "line 1", "one of message and panic"),
        (
            "\n[[loading]]\nstage = 'x'\nsteps = 0\n",
            "line 2",
            "loading 1: steps",
        ),
        (
            "[[answer]]\n[[answer]]\ntext = 'a'\npieces = ['b']\n",
            "line 2",
            "answer 2: text and pieces",
        ),
        ("[[answer]]\nrepeat = 0\n", "line 1", "answer 1: repeat"),
        (
            "[[answer]]\ntext = ''\nendless = true\n",
            "line 1",
            "answer 1: endless",
        ),
        (
            "[[answer]]\nendless = true\nrepeat = 2\n",
            "line 1",
            "endless and repeat",
        ),
        ("[[answer]]\ntext = 'a'\nreject = 'b'\n", "line 1", "reject"),
        ("[[answer]]\nerror = { after = 1 }\n", "line 2", "message"),
    ];
    for (script, line, field) in table {
        let fault = fault(script);
        assert!(
            fault.starts_with(&format!("the engine script demo.toml, {line}: ")),
            "{fault}"
        );
        assert!(fault.contains(field), "{fault}");
    }
}

#[test]
fn a_script_comes_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("demo.toml");
    assert!(matches!(Script::read(&path), Err(ScriptError::Read { .. })));
    std::fs::write(&path, "[model]\nname = 'From a file'\n").unwrap();
    let engine = Fake::from_file(&path).unwrap();
    assert_eq!(now(&engine).info.model, "From a file");
}
