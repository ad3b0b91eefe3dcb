//! What the scripted engine tells of itself.

use super::*;

#[test]
fn a_follow_up_in_a_session_is_served_by_the_prompt_cache() {
    let engine = manual("[[answer]]\ntext = 'It is Paris.'\n");
    let mut messages = vec![Message::new(Role::User, "Which is the capital of France?")];
    let request = |messages: &[Message]| Request {
        session: Some("pane 1".into()),
        ..Request::new(Prompt::Messages(messages.to_vec()), 50)
    };
    let (_, mut heard) = ask(&engine, request(&messages));
    engine.advance(10);
    let (all, finish) = answer(&mut heard);
    assert_eq!(finish.unwrap().cached_tokens, 0);
    messages.push(Message::new(Role::Assistant, all));
    messages.push(Message::new(Role::User, "And of Italy?"));
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
        // The first step's gap holds the two iterations that prepared it.
        let ticks = if n == 0 { 3 } else { 1 };
        let whole = sample.build_ns + sample.read_ns + sample.emit_ns + sample.gap_ns;
        assert_eq!(whole, ticks * 20_000_000);
        assert_eq!(sample.construct_ns + sample.dispatch_ns, sample.build_ns);
        assert!(sample.prefill_ns <= sample.gap_ns);
        assert_eq!(sample.prefill_ns > 0, sample.prefill_tokens > 0);
    }
    assert_eq!(
        samples.iter().map(|sample| sample.prefill_tokens).sum::<u32>(),
        17
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
