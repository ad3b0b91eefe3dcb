//! The scripted engine: batching, limits, ends, failures, figures.

use std::sync::{Arc, Mutex};

use mlx_chat::engine::fake::Fake;
use mlx_chat::engine::fake::script::{Script, ScriptError};
use mlx_chat::engine::telemetry::{EngineState, RowState, Snapshot};
use mlx_chat::engine::{
    Consumer, ConsumerError, Engine, Event, Finish, FinishReason, Flow, Prompt, Request, RequestId,
    StopReason, SubmitError,
};
use mlx_chat::text::message::{Message, Role};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

type Heard = UnboundedReceiver<(RequestId, Event)>;

fn manual(script: &str) -> Fake {
    Fake::manual(Script::parse("test", script).expect("a good script"))
}

fn text(prompt: &str, max_tokens: usize) -> Request {
    Request::new(Prompt::Text(prompt.into()), max_tokens)
}

fn ask(engine: &Fake, request: Request) -> (RequestId, Heard) {
    let (sender, receiver) = unbounded_channel();
    (engine.submit(request, Box::new(sender)).expect("taken"), receiver)
}

fn events(heard: &mut Heard) -> Vec<Event> {
    std::iter::from_fn(|| heard.try_recv().ok())
        .map(|(_, event)| event)
        .collect()
}

/// The whole text, and the end if it has come.
fn answer(heard: &mut Heard) -> (String, Option<Finish>) {
    let mut all = String::new();
    let mut end = None;
    for event in events(heard) {
        assert!(end.is_none(), "nothing follows the end");
        match event {
            Event::Token { text, .. } => all.push_str(&text),
            Event::Finish(finish) => {
                all.push_str(&finish.text);
                end = Some(finish);
            }
            Event::Admitted { .. } | Event::Prefill { .. } => {}
        }
    }
    (all, end)
}

fn end(heard: &mut Heard) -> Finish {
    answer(heard).1.expect("it has ended")
}

fn now(engine: &Fake) -> Arc<Snapshot> {
    engine.snapshots().borrow().clone()
}

fn states(engine: &Fake) -> Vec<RowState> {
    now(engine).rows.iter().map(|row| row.state).collect()
}

const ENDLESS: &str = "[[answer]]\ntext = 'a b c'\nendless = true\n";

#[test]
fn an_empty_script_echoes_the_prompt_and_ends_with_eos() {
    let engine = manual("");
    let (_, mut heard) = ask(&engine, text("one two\nthree", 10));
    engine.advance(10);
    let (all, finish) = answer(&mut heard);
    let finish = finish.unwrap();
    assert_eq!(all, "one two\nthree");
    assert_eq!(
        (finish.reason, finish.stop_reason),
        (FinishReason::Stop, Some(StopReason::Eos))
    );
    assert_eq!(
        (finish.prompt_tokens, finish.generated_tokens),
        (3, 4),
        "EOS is generated, not delivered"
    );
}

#[test]
fn the_first_answer_that_matches_the_last_message_is_given() {
    let engine = manual(
        "[[answer]]\nmatch = 'sun'\npieces = ['War', 'm.']\n[[answer]]\nmatch = 'rain'\ntext = 'Wet.'\nrepeat = 2\n",
    );
    let message = |role, content: &str| Message {
        role,
        content: content.into(),
    };
    let chat = vec![
        message(Role::User, "sun"),
        message(Role::Assistant, "x"),
        message(Role::User, "rain?"),
    ];
    let (_, mut rain) = ask(&engine, Request::new(Prompt::Messages(chat), 9));
    let (_, mut sun) = ask(&engine, text("the sun", 9));
    let (_, mut other) = ask(&engine, Request::new(Prompt::Tokens(vec![7, 8]), 9));
    engine.advance(10);
    assert_eq!(answer(&mut rain).0, "Wet.Wet.");
    assert_eq!(answer(&mut sun).0, "Warm.");
    assert_eq!(answer(&mut other).0, "7 8");
}

#[test]
fn requests_that_come_together_share_every_step() {
    let engine = manual("");
    let mut all: Vec<_> = (0..4).map(|_| ask(&engine, text("a b c d e", 5)).1).collect();
    engine.advance(6);
    assert!(
        all.iter_mut()
            .all(|heard| end(heard).reason == FinishReason::Length)
    );
    let mut samples = Vec::new();
    engine.drain_samples(&mut samples);
    assert_eq!(
        samples
            .iter()
            .map(|sample| (sample.rows, sample.tokens))
            .collect::<Vec<_>>(),
        [(4, 4); 4]
    );
}

#[test]
fn a_long_prompt_is_prepared_by_chunks_while_others_decode() {
    let engine = manual(&format!(
        "[engine]\nprefill_chunk = 4\nprefill_batch_tokens = 4\n{ENDLESS}"
    ));
    let (_, mut short) = ask(&engine, text("hi", 100));
    engine.advance(1);
    let (_, mut long) = ask(&engine, text("1 2 3 4 5 6 7 8 9 10", 100));
    let mut decoded = Vec::new();
    for _ in 0..3 {
        events(&mut short);
        engine.advance(1);
        decoded.push(events(&mut short).len());
    }
    assert_eq!(decoded, [1, 1, 1]);
    let progress: Vec<_> = events(&mut long)
        .into_iter()
        .filter_map(|event| match event {
            Event::Prefill { done, total } => Some((done, total)),
            _ => None,
        })
        .collect();
    assert_eq!(progress, [(4, 10), (8, 10), (9, 10), (10, 10)]);
    assert_eq!(states(&engine), [RowState::Decode, RowState::Decode]);
}

#[test]
fn more_than_the_batch_holds_wait_in_order() {
    let engine = manual(&format!("[engine]\nmax_batch = 2\n{ENDLESS}"));
    let rows: Vec<_> = (0..4).map(|_| ask(&engine, text("hi", 50))).collect();
    engine.advance(2);
    let waits = RowState::Queued { for_kv: false };
    assert_eq!(
        states(&engine),
        [RowState::Decode, RowState::Decode, waits, waits]
    );
    assert_eq!(now(&engine).queued, 2);
    engine.cancel(rows[0].0);
    engine.advance(1);
    assert_eq!(
        states(&engine),
        [RowState::Done, RowState::Decode, RowState::Decode, waits]
    );
}

#[test]
fn a_head_without_kv_budget_waits_for_it() {
    // 16 positions of 10 bytes each fit once.
    let engine = manual(&format!(
        "[model]\nkv_bytes_per_token = 10\n[engine]\nkv_budget = 200\n{ENDLESS}"
    ));
    let (first, _heard) = ask(&engine, text("hi", 12));
    let (_, mut second) = ask(&engine, text("hi", 12));
    engine.advance(1);
    assert_eq!(
        states(&engine),
        [RowState::Decode, RowState::Queued { for_kv: true }]
    );
    engine.cancel(first);
    engine.advance(1);
    assert_eq!(states(&engine)[1], RowState::Decode);
    engine.advance(20);
    assert_eq!(end(&mut second).reason, FinishReason::Length);
    assert_eq!(now(&engine).kv_peak_reserved, 160);
}

#[test]
fn one_that_never_fits_is_rejected_with_what_to_change() {
    let engine = manual("[engine]\nkv_budget = 16384\n");
    let (_, mut heard) = ask(&engine, text("a b c", 100));
    engine.advance(1);
    let finish = end(&mut heard);
    assert_eq!(finish.reason, FinishReason::Rejected);
    assert!(finish.message.unwrap().contains("lower max_tokens to at most 13"));
}

#[test]
fn a_full_queue_refuses_at_once() {
    let engine = manual("[engine]\nmax_batch = 1\nmax_queued = 2\n");
    let (sender, _heard) = unbounded_channel();
    let submit = || engine.submit(text("hi there", 5), Box::new(sender.clone()));
    assert!(submit().is_ok() && submit().is_ok());
    assert_eq!(submit(), Err(SubmitError::QueueFull { limit: 2 }));
    engine.advance(1);
    assert!(submit().is_ok(), "one has started");
    assert_eq!(submit(), Err(SubmitError::QueueFull { limit: 2 }));
}

#[test]
fn requests_that_cannot_be_served_are_refused_at_once() {
    let engine = manual("[model]\nhas_tokenizer = false\n");
    let refusal = |request| match engine.submit(request, Box::new(unbounded_channel().0)) {
        Err(SubmitError::Invalid(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(refusal(text("hi", 5)).contains("no tokenizer"));
    assert!(refusal(Request::new(Prompt::Tokens(vec![]), 5)).contains("empty"));
    assert!(refusal(Request::new(Prompt::Tokens(vec![1]), 0)).contains("max_tokens"));
    let mut odd = Request::new(Prompt::Tokens(vec![1]), 5);
    odd.sampling.top_p = 2.0;
    assert!(refusal(odd).contains("top_p is 2"));
}

#[test]
fn a_cancelled_row_is_gone_within_two_steps_and_its_kv_is_free() {
    let engine = manual(ENDLESS);
    let (id, mut heard) = ask(&engine, text("hi", 100));
    engine.advance(5);
    assert!(now(&engine).kv.used > 0);
    engine.cancel(id);
    engine.advance(2);
    let finish = end(&mut heard);
    assert_eq!(
        (finish.reason, finish.generated_tokens),
        (FinishReason::Cancelled, 5)
    );
    let kv = now(&engine).kv;
    assert_eq!((kv.used, kv.allocated, kv.reserved), (0, 0, 0));
    assert_eq!(states(&engine), [RowState::Done]);
    engine.cancel(id);
    engine.cancel(RequestId(99));
    engine.advance(1);
    assert!(events(&mut heard).is_empty());
    engine.advance(200);
    assert!(states(&engine).is_empty(), "it is shown for a while only");
}

#[test]
fn one_that_waits_or_prepares_can_be_cancelled() {
    let engine = manual(&format!("[engine]\nmax_batch = 1\nprefill_chunk = 2\n{ENDLESS}"));
    let (preparing, mut first) = ask(&engine, text("1 2 3 4 5 6 7 8", 9));
    let (waiting, mut second) = ask(&engine, text("hi", 9));
    engine.advance(1);
    assert_eq!(states(&engine)[0], RowState::Prefill { done: 2, total: 8 });
    engine.cancel(waiting);
    engine.cancel(preparing);
    engine.advance(1);
    for heard in [&mut first, &mut second] {
        let finish = end(heard);
        assert_eq!(
            (finish.reason, finish.generated_tokens),
            (FinishReason::Cancelled, 0)
        );
        assert_eq!(finish.ttft_ms, None);
    }
    assert_eq!(now(&engine).queued, 0);
}

#[test]
fn options_of_a_request_are_honoured() {
    let engine = manual("");
    let (_, mut forever) = ask(
        &engine,
        Request {
            ignore_eos: true,
            logprobs: true,
            ..text("a", 7)
        },
    );
    let (_, mut three) = ask(
        &engine,
        Request {
            cancel_after_tokens: Some(3),
            ..text("a b c d e", 7)
        },
    );
    let (_, mut stopped) = ask(
        &engine,
        Request {
            stop: vec!["b c".into()],
            ..text("a b cd e", 7)
        },
    );
    engine.advance(10);
    let heard = events(&mut forever);
    assert_eq!(
        heard
            .iter()
            .filter(|e| matches!(e, Event::Token { logprob: Some(_), .. }))
            .count(),
        7
    );
    assert!(matches!(heard.last(), Some(Event::Finish(f)) if f.reason == FinishReason::Length));
    let (all, finish) = answer(&mut three);
    assert_eq!(
        (all.as_str(), finish.unwrap().reason),
        ("a b c", FinishReason::Cancelled)
    );
    let (all, finish) = answer(&mut stopped);
    let finish = finish.unwrap();
    assert_eq!(
        (all.as_str(), finish.stop_reason),
        ("a ", Some(StopReason::StopString))
    );
}

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
fn a_follow_up_in_a_session_is_served_by_the_prompt_cache() {
    let engine = manual("[[answer]]\ntext = 'It is Paris.'\n");
    let mut messages = vec![Message {
        role: Role::User,
        content: "Which is the capital of France?".into(),
    }];
    let request = |messages: &[Message]| Request {
        session: Some("pane 1".into()),
        ..Request::new(Prompt::Messages(messages.to_vec()), 50)
    };
    let (_, mut heard) = ask(&engine, request(&messages));
    engine.advance(10);
    let (all, finish) = answer(&mut heard);
    assert_eq!(finish.unwrap().cached_tokens, 0);
    messages.push(Message {
        role: Role::Assistant,
        content: all,
    });
    messages.push(Message {
        role: Role::User,
        content: "And of Italy?".into(),
    });
    let (_, mut heard) = ask(&engine, request(&messages));
    let (_, mut private) = ask(
        &engine,
        Request {
            cache: false,
            ..request(&messages)
        },
    );
    engine.advance(10);
    // The first prompt's 8 tokens and all but the last of the answer.
    assert_eq!(end(&mut heard).cached_tokens, 10);
    assert_eq!(end(&mut private).cached_tokens, 0);
    let stats = now(&engine).prompt_cache;
    assert!(stats.enabled && stats.bytes > 0);
    assert_eq!(
        (stats.lookups, stats.miss, stats.partial, stats.full),
        (2, 1, 1, 0)
    );
    assert_eq!((stats.tokens_asked, stats.tokens_served), (8 + 16, 10));
}

#[test]
fn figures_hold_together_in_every_step() {
    let engine =
        manual("tick_ms = 20\n[engine]\nprefill_chunk = 3\n[[answer]]\ntext = 'a b c d e'\nrepeat = 20\n");
    let (_, _heard) = ask(&engine, text("1 2 3 4 5 6 7", 100));
    engine.advance(10);
    let (_, _heard) = ask(&engine, text("1 2 3 4 5 6 7 8 9 10", 100));
    let mut used = 0;
    for _ in 0..50 {
        engine.advance(1);
        let kv = now(&engine).kv;
        assert!(
            kv.used <= kv.allocated && kv.allocated <= kv.reserved && kv.reserved <= kv.budget,
            "{kv:?}"
        );
        assert!(kv.used > used, "it grows");
        used = kv.used;
    }
    let mut samples = Vec::new();
    engine.drain_samples(&mut samples);
    for (n, sample) in samples.iter().enumerate() {
        assert_eq!(sample.step, n as u64);
        assert_eq!(
            sample.build_ns + sample.read_ns + sample.emit_ns + sample.gap_ns,
            20_000_000
        );
        assert_eq!(sample.construct_ns + sample.dispatch_ns, sample.build_ns);
        assert!(sample.prefill_ns <= sample.gap_ns);
        assert_eq!(sample.prefill_ns > 0, sample.prefill_tokens > 0);
    }
    assert_eq!(
        samples.iter().map(|sample| sample.prefill_tokens).sum::<u32>(),
        10
    );
    let snapshot = now(&engine);
    assert_eq!(snapshot.steps, samples.len() as u64);
    let rate = snapshot.rows[0].tokens_per_s.unwrap();
    assert!((rate - 50.0).abs() < 0.01, "a token every 20 ms: {rate}");
    assert!(snapshot.decode_tokens_per_s.unwrap() > 60.0);
    assert!(snapshot.prefill_tokens_per_s.is_some());
    assert_eq!(snapshot.rows[0].ttft_ms, Some(20.0));
}

#[test]
fn records_that_nobody_takes_are_counted() {
    let engine = manual(ENDLESS);
    let (_, _heard) = ask(&engine, text("hi", 2000));
    engine.advance(1500);
    let mut samples = Vec::new();
    engine.drain_samples(&mut samples);
    let snapshot = now(&engine);
    assert_eq!(samples.len() as u64 + snapshot.dropped_samples, snapshot.steps);
    assert!(snapshot.dropped_samples > 0);
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
                        Event::Admitted { .. } | Event::Prefill { .. } => {}
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
