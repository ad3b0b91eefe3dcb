//! Phases, holds and tasks.

use mlx_chat::engine::command::TaskState;
use mlx_chat::engine::telemetry::RowState;
use mlx_chat::engine::{
    Consumer, ConsumerError, Engine, EngineOptions, Event, FinishReason, Flow, RequestId,
};
use std::sync::mpsc;

use super::{alone, assert_as_alone, engine_over, plain};
use crate::support::{options, request, run, wait_for};

#[test]
fn phases_and_idling_add_up_to_the_wall_time() {
    let engine = engine_over(options(), plain());
    run(
        &engine,
        (0..4).map(|row| (row, request(&[1, 2, 3], 30))).collect(),
    );
    engine.close();
    let mut samples = Vec::new();
    engine.drain_samples(&mut samples);
    let snapshot = engine.snapshots().borrow().clone();
    assert_eq!(snapshot.dropped_samples, 0);
    let phases = snapshot.totals.phases;
    let (attributed, wall) = (phases.busy() + phases.idle, snapshot.totals.wall_ns);
    assert!(
        attributed.abs_diff(wall) <= wall / 100,
        "{attributed} of {wall} ns are attributed"
    );
    let forwards = samples.iter().filter(|sample| sample.rows > 0).count();
    assert_eq!(forwards as u64, snapshot.totals.steps);
    let build: u64 = samples.iter().map(|sample| sample.build_ns).sum();
    assert_eq!(
        build,
        snapshot.totals.phases.construct + snapshot.totals.phases.dispatch
    );
    assert!(
        samples
            .iter()
            .all(|sample| sample.construct_ns + sample.dispatch_ns == sample.build_ns)
    );
    let tokens: u32 = samples.iter().map(|sample| sample.tokens).sum();
    assert_eq!(u64::from(tokens), snapshot.totals.decode_tokens);
}

#[test]
fn attribution_shows_each_parts_time_and_changes_no_token() {
    for pipeline in [true, false] {
        let engine = engine_over(
            EngineOptions {
                attribution: true,
                pipeline,
                ..options()
            },
            plain(),
        );
        let workload: Vec<_> = (0..3).map(|row| (row, request(&[1, 2, 3], 10))).collect();
        let heard = run(&engine, workload.clone());
        assert_as_alone(&plain(), &workload, &heard);
        engine.close();
        let mut samples = Vec::new();
        engine.drain_samples(&mut samples);
        for sample in samples.iter().filter(|sample| sample.rows > 0) {
            let parts = sample.attribution;
            assert!(
                parts.forward_ns > 0 && parts.head_ns > 0 && parts.sampling_ns > 0,
                "{sample:?}"
            );
            assert!(
                parts.forward_ns + parts.head_ns + parts.sampling_ns <= sample.dispatch_ns,
                "{sample:?}"
            );
        }
        let totals = engine.snapshots().borrow().totals;
        assert!(totals.attribution.forward_ns > 0);
    }
}

#[test]
fn a_hold_waits_for_running_rows_and_the_queue_goes_on_after_it() {
    for cancel_running in [false, true] {
        let engine = engine_over(options(), plain());
        let (sender, mut events) = tokio::sync::mpsc::unbounded_channel::<(RequestId, Event)>();
        let running = engine
            .submit(request(&[1, 2], 4000), Box::new(sender.clone()))
            .expect("taken");
        wait_for(&engine, |snapshot| {
            snapshot.rows.iter().any(|row| row.state == RowState::Decode)
        });
        let (held, was_held) = mpsc::channel();
        engine
            .hold(
                cancel_running,
                Box::new(move |model| {
                    let _gone = held.send(model.info().family.clone());
                    false
                }),
            )
            .expect("runs");
        let after = engine.submit(request(&[3], 5), Box::new(sender)).expect("taken");
        assert_eq!(was_held.recv().expect("the hold ran"), "hashing");
        let mut ends = Vec::new();
        while let Some((id, event)) = events.blocking_recv() {
            if let Event::Finish(finish) = event {
                ends.push((id, finish.reason));
            }
        }
        let first = if cancel_running {
            FinishReason::Cancelled
        } else {
            FinishReason::Length
        };
        assert_eq!(ends, [(running, first), (after, FinishReason::Length)]);
    }
}

#[test]
fn a_model_that_changed_during_a_hold_is_not_served_from_the_old_cache() {
    let engine = engine_over(options(), plain());
    run(&engine, vec![(0, request(&[1, 2, 3], 4))]);
    engine.hold(false, Box::new(|_| true)).expect("runs");
    assert_eq!(
        run(&engine, vec![(0, request(&[1, 2, 3], 4))])[0]
            .end()
            .cached_tokens,
        0
    );
}

#[test]
fn tasks_take_turns_between_steps_and_can_be_cancelled() {
    let engine = engine_over(options(), plain());
    let (done, finished) = mpsc::channel();
    let mut turns = 0;
    let turn = move |_: &dyn mlx_chat::model::LanguageModel| {
        turns += 1;
        if turns < 3 {
            return TaskState::Unfinished;
        }
        let _gone = done.send(turns);
        TaskState::Finished
    };
    engine.start_task(Box::new(turn)).expect("runs");
    assert_eq!(finished.recv().expect("the task ran"), 3);
    let (dropped, gone) = mpsc::channel::<()>();
    let endless = move |_: &dyn mlx_chat::model::LanguageModel| {
        let _alive = &dropped;
        TaskState::Unfinished
    };
    let id = engine.start_task(Box::new(endless)).expect("runs");
    let heard = run(&engine, vec![(0, request(&[4, 5], 10))]);
    assert_eq!(
        heard[0].tokens,
        alone(&plain(), &[4, 5], 10),
        "requests go on beside it"
    );
    engine.cancel_task(id);
    assert!(gone.recv().is_err(), "a cancelled task is dropped");
}

/// Says when the first piece of a prompt is done, and waits there until it is let on.
struct Gate {
    reached: mpsc::Sender<()>,
    let_on: mpsc::Receiver<()>,
}

impl Consumer for Gate {
    fn deliver(&mut self, _: RequestId, event: Event) -> Result<Flow, ConsumerError> {
        if matches!(event, Event::Prefill { .. }) && self.reached.send(()).is_ok() {
            let _gone = self.let_on.recv();
        }
        Ok(Flow::Continue)
    }
}

#[test]
fn a_row_is_shown_as_preparing_before_its_first_chunk_ends() {
    let few = EngineOptions {
        prefill_chunk: Some(4),
        ..options()
    };
    let engine = engine_over(few, plain());
    let ((reached, at_chunk), (go, let_on)) = (mpsc::channel(), mpsc::channel());
    engine
        .submit(request(&[1; 9], 1), Box::new(Gate { reached, let_on }))
        .expect("taken");
    at_chunk.recv().expect("a chunk is done");
    let snapshot = engine.snapshots().borrow().clone();
    let states: Vec<RowState> = snapshot.rows.iter().map(|row| row.state).collect();
    assert_eq!(
        (states, snapshot.queued),
        (vec![RowState::Prefill { done: 0, total: 9 }], 0)
    );
    drop((at_chunk, go));
}

#[test]
fn a_model_that_is_still_loading_when_its_engine_closes_is_let_go_of_half_way() {
    let held = std::sync::Arc::new(());
    let (its, loading) = (held.clone(), mpsc::channel());
    let loader: mlx_chat::engine::handle::Loader = Box::new(move |progress| {
        let _its = its;
        // It never ends by itself.
        loop {
            progress(mlx_chat::model::LoadProgress {
                done_bytes: 1,
                total_bytes: 2,
            });
            let _nobody_waits_any_more = loading.0.send(());
        }
    });
    let engine = mlx_chat::engine::EngineHandle::spawn(options(), loader).unwrap();
    loading.1.recv().unwrap();
    engine.close();
    assert_eq!(std::sync::Arc::strong_count(&held), 1);
    let state = engine.snapshots().borrow().state.clone();
    assert_eq!(state, mlx_chat::engine::telemetry::EngineState::Closed);
}
