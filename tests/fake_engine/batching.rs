//! Rows that wait, prepare and run together, and how they end.

use super::*;

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
    let message = |role, content: &str| Message::new(role, content);
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
fn a_limit_that_nobody_set_shrinks_to_what_is_left() {
    let engine = manual(&format!("[model]\ncontext_length = 10\n{ENDLESS}"));
    let unset = Request {
        shrinks: true,
        ..text("a b c", 100)
    };
    let (_, mut heard) = ask(&engine, unset);
    engine.advance(20);
    let finish = end(&mut heard);
    assert_eq!(
        (finish.reason, finish.generated_tokens),
        (FinishReason::Length, 7)
    );
    assert!(finish.message.unwrap().contains("10 positions"));
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
