//! What is said to be allocated for keys and values, beside what MLX's allocator holds; and that nothing stays behind.
//!
//! The allocator is the whole process's, so that all tests here are one after another.

#[path = "support/engine.rs"]
#[allow(dead_code, reason = "made for workloads of all kinds")]
mod support;
#[path = "support/tiny.rs"]
mod tiny;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mlx_chat::cache::{
    BatchCache, CachePlan, KvLayout, KvQuantization, KvScheme, KvSchemes, KvShape, LayerPlan, Layers,
    RecurrentShape, RowCache,
};
use mlx_chat::engine::options::PromptCacheLimit;
use mlx_chat::engine::{Consumer, ConsumerError, Engine, EngineOptions, Event, Flow, Request, RequestId};
use mlx_chat::nn::Backend;
use mlx_chat::nn::kernels::InPlaceNode;
use mlx_rs::ops::concatenate;
use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::{Array, Dtype, memory, transforms};
use support::{Dice, engine_with, options, request, run, run_through};
use tiny::{feed, load_tiny, load_tiny_holding, logits_of};

fn one_at_a_time() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn active() -> u64 {
    memory::active_memory().unwrap() as u64
}

/// The allocator comes to hold what is asked for: a stream's thread lets go of inputs a little after an evaluation ends.
fn wait_for(right: impl Fn(u64) -> bool, what: &dyn std::fmt::Debug) {
    let limit = Instant::now() + Duration::from_secs(20);
    while !right(active()) {
        assert!(Instant::now() < limit, "MLX holds {} bytes: {what:?}", active());
        std::thread::yield_now();
    }
}

/// Within 2 %.
fn assert_held(base: u64, allocated: u64, what: &dyn std::fmt::Debug) {
    let slack = allocated / 50;
    let right = |active: u64| active.saturating_sub(base).abs_diff(allocated) <= slack;
    wait_for(right, &(what, base, allocated));
}

const KV: KvShape = KvShape {
    heads: 4,
    key_dim: 64,
    value_dim: 48,
    dtype: Dtype::Float32,
    scheme: KvScheme::Full,
};
/// The same in codes.
const CODED: KvShape = KvShape {
    value_dim: 64,
    scheme: KvScheme::Quantized(KvQuantization {
        bits: 4,
        group_size: 32,
    }),
    ..KV
};
/// Of a size that models have: MLX copies no part of an array to save 16 KiB.
const STATE: RecurrentShape = RecurrentShape {
    conv: 3,
    conv_features: 4096,
    heads: 16,
    value_dim: 128,
    key_dim: 128,
    dtype: Dtype::Float32,
};

fn kinds() -> [Vec<LayerPlan>; 6] {
    let (full, recurrent) = (LayerPlan::Full(KV), LayerPlan::Recurrent(STATE));
    let coded = LayerPlan::Full(CODED);
    let sliding = |window| LayerPlan::Sliding { kv: KV, window };
    let coded_sliding = |window| LayerPlan::Sliding { kv: CODED, window };
    [
        vec![full; 2],
        vec![sliding(300), sliding(40)],
        vec![recurrent; 2],
        vec![recurrent, full, sliding(100), recurrent],
        vec![coded; 2],
        vec![coded_sliding(300), recurrent, coded, coded_sliding(40)],
    ]
}

/// Writes something to all layers, as a forward of `added` tokens for each row would, and waits for it.
fn forward(plan: &CachePlan, caches: &mut dyn Layers, rows: usize, added: usize) {
    let shape = |of: &[usize]| -> Vec<i32> { of.iter().map(|&n| n as i32).collect() };
    let zeros = |of: &[usize]| mlx_rs::ops::zeros::<f32>(&shape(of)).unwrap();
    let mut last = Array::from_f32(0.0);
    for (layer, plan_of_layer) in plan.layers().iter().enumerate() {
        let cache = caches.layer(layer);
        match (plan.layout(), plan_of_layer) {
            (KvLayout::OwnBuffers, _) => {
                let rooms = cache.rooms(added).unwrap();
                let node = InPlaceNode::new("Touch", |_, rooms, outputs| {
                    for room in rooms {
                        match &mut room.codes {
                            Some(codes) => codes.words[0] = 1,
                            None => room.buffer[0] = 1.0,
                        }
                    }
                    outputs[0].as_mut_slice::<f32>().expect("floats").fill(0.0);
                });
                [last] = node
                    .apply(&[&last], &rooms, [(&[1][..], Dtype::Float32)])
                    .unwrap();
            }
            (KvLayout::Columns, LayerPlan::Recurrent(_)) => {
                let before = cache.recurrent(added).unwrap();
                let new = zeros(&[rows, added, STATE.conv_features]);
                let inputs = concatenate(&[before.conv(), &new], 1).unwrap();
                // As models keep it: a part of what the convolution took in.
                let conv = inputs.try_index((.., added as i32.., ..)).unwrap();
                let state = before.state().add(Array::from_f32(1.0)).unwrap();
                before.store(conv.contiguous().unwrap(), state).unwrap();
            }
            (KvLayout::Columns, LayerPlan::Full(kv) | LayerPlan::Sliding { kv, .. }) => {
                let (keys, values) = (
                    zeros(&[rows, kv.heads, added, kv.key_dim]),
                    zeros(&[rows, kv.heads, added, kv.value_dim]),
                );
                drop(cache.append(&keys, &values).unwrap());
            }
        }
    }
    caches.wrote(&last).unwrap();
}

fn prefilled(plan: &CachePlan, len: usize) -> RowCache {
    let mut row = RowCache::new(plan);
    let mut held = 0;
    while held < len {
        let piece = (len - held).min(256);
        forward(plan, &mut row, 1, piece);
        transforms::eval(row.arrays()).unwrap();
        held += piece;
    }
    row
}

fn step(plan: &CachePlan, batch: &mut BatchCache) {
    let rows = batch.rows();
    forward(plan, batch, rows, 1);
    transforms::eval(batch.arrays()).unwrap();
}

#[test]
fn what_is_said_to_be_allocated_is_what_the_allocator_holds_for_every_kind_and_layout() {
    let _turn = one_at_a_time();
    Backend::Cpu.enter();
    for layers in kinds() {
        for plan in [CachePlan::new(layers.clone()), CachePlan::own_buffers(layers)] {
            memory::clear_cache().unwrap();
            let base = active();
            let rows = [700, 40, 300].map(|len| prefilled(&plan, len));
            let all = rows.iter().map(RowCache::allocated_bytes).sum();
            assert_held(base, all, &("prepared", &plan));
            let mut rows = rows.into_iter();
            let mut batch = BatchCache::adopt(rows.next().unwrap());
            for row in rows {
                batch.extend(row).unwrap();
            }
            step(&plan, &mut batch);
            assert_held(base, batch.allocated_bytes(), &("together", &plan));
            // Past a growth step of the longest.
            (0..100).for_each(|_| step(&plan, &mut batch));
            assert_held(base, batch.allocated_bytes(), &("grown", &plan));
            batch.filter(&[2, 1]).unwrap();
            step(&plan, &mut batch);
            assert_held(base, batch.allocated_bytes(), &("without the longest", &plan));
            let left = batch.extract(1).unwrap();
            transforms::eval(left.arrays()).unwrap();
            drop(batch);
            assert_held(base, left.allocated_bytes(), &("extracted", &plan));
            let (mut twin, mut kept) = (left.clone(), left);
            assert_held(base, kept.allocated_bytes(), &("a clone shares", &plan));
            forward(&plan, &mut twin, 1, 1);
            transforms::eval(twin.arrays()).unwrap();
            assert_held(
                base,
                kept.allocated_bytes() + twin.allocated_bytes(),
                &("it went on", &plan),
            );
            drop(twin);
            kept.compact().unwrap();
            assert_held(base, kept.allocated_bytes(), &("compacted", &plan));
            drop(kept);
            wait_for(|active| active == base, &("all let go", &plan));
        }
    }
}

#[test]
fn a_models_rows_take_what_is_said_and_leave_nothing() {
    let _turn = one_at_a_time();
    let coded = KvSchemes {
        uniform: CODED.scheme,
        ..KvSchemes::default()
    };
    let plain = KvSchemes::default;
    for (name, kv) in [
        ("llama", plain()),
        ("gemma3-4bit", plain()),
        ("qwen3_next-4bit", plain()),
        ("qwen3_5", plain()),
        ("llama", coded.clone()),
        ("gemma3-4bit", coded),
    ] {
        let loaded = load_tiny_holding(name, 2, kv);
        let model = &*loaded.model;
        // What is reused may be some pages larger than what is asked for, which is much for a tiny model.
        let kept = memory::set_cache_limit(0).unwrap();
        let mut dice = Dice(3);
        let prompts = [900, 30, 400].map(|len| dice.prompt(len, 320));
        let base = active();
        let mut rows = prompts.iter().map(|prompt| {
            let mut row = model.new_row();
            feed(model, &mut row, prompt.chunks(256));
            row
        });
        let mut batch = BatchCache::adopt(rows.next().unwrap());
        rows.for_each(|row| batch.extend(row).unwrap());
        for _ in 0..3 {
            logits_of(model, &mut batch, &[1, 2, 3]).eval().unwrap();
        }
        assert_held(base, batch.allocated_bytes(), &name);
        let mut entry = batch.extract(0).unwrap();
        drop(batch);
        entry.compact().unwrap();
        assert_held(base, entry.allocated_bytes(), &(name, "kept"));
        drop(entry);
        wait_for(|active| active == base, &(name, "let go"));
        memory::set_cache_limit(kept).unwrap();
    }
}

/// Rows join and leave, some are cancelled, prompts are found again.
fn busy(dice: &mut Dice, requests: usize) -> Vec<(u64, Request)> {
    let mut workload = Vec::new();
    for number in 0..requests {
        let length = 1 + dice.below(200);
        let tokens = 1 + dice.below(40);
        let request = Request {
            ignore_eos: true,
            session: (number % 3 == 0).then(|| "again".into()),
            cancel_after_tokens: (number % 5 == 0).then_some(1 + tokens / 2),
            ..request(&dice.prompt(length, 320), tokens)
        };
        workload.push((0, request));
    }
    workload
}

#[test]
fn hundreds_of_steps_with_joins_and_leaves_leave_no_array_behind() {
    let _turn = one_at_a_time();
    for name in ["llama-4bit", "qwen3_next-4bit"] {
        let base = active();
        let options = EngineOptions {
            prompt_cache: PromptCacheLimit::Off,
            prefill_chunk: Some(64),
            ..options()
        };
        let engine = engine_with(options, move || load_tiny(name, Some(2)));
        let mut dice = Dice(8);
        let mut after = Vec::new();
        for _ in 0..3 {
            run(&engine, busy(&mut dice, 60));
            // A finished request's end is told before its arrays are let go: something small makes sure of it.
            run(&engine, vec![(0, request(&[1], 1))]);
            after.push(active());
        }
        let least = after.iter().copied().min().unwrap();
        wait_for(|active| active <= least, &(name, &after));
        assert!(
            after.iter().all(|active| active - least < 4096),
            "{name}: {after:?}"
        );
        engine.close();
        assert!(engine.snapshots().borrow().totals.steps > 200);
        wait_for(
            |active| active <= base + 4096,
            &(name, base, "when the engine has gone"),
        );
    }
}

#[test]
fn a_prompt_that_is_found_again_and_again_adds_nothing() {
    let _turn = one_at_a_time();
    for name in ["llama-4bit", "qwen3_next-4bit"] {
        let engine = engine_with(options(), move || load_tiny(name, Some(2)));
        let asked = Request {
            session: Some("s".into()),
            ignore_eos: true,
            ..request(&Dice(2).prompt(500, 320), 4)
        };
        let mut after = Vec::new();
        for turn in 0..30 {
            let heard = run(&engine, vec![(0, asked.clone())]);
            assert_eq!(heard[0].end().cached_tokens > 0, turn > 0, "{name}, turn {turn}");
            run(
                &engine,
                vec![(
                    0,
                    Request {
                        cache: false,
                        ..request(&[1], 1)
                    },
                )],
            );
            after.push(active());
        }
        let settled = after[2];
        assert!(
            after[3..].iter().all(|&active| active <= settled + 4096),
            "{name}: {after:?}"
        );
        engine.close();
        let entries = engine.snapshots().borrow().prompt_cache.entries;
        assert!(entries <= 3, "{name}: {entries} entries");
    }
}

/// Notes what MLX keeps for reuse whenever a chunk of a prompt is done; told on the engine's thread.
struct Watching {
    kept: Arc<Mutex<Vec<usize>>>,
    consumer: Box<dyn Consumer>,
}

impl Consumer for Watching {
    fn deliver(&mut self, id: RequestId, event: Event) -> Result<Flow, ConsumerError> {
        if matches!(event, Event::Prefill { .. }) {
            self.kept.lock().unwrap().push(memory::cache_memory().unwrap());
        }
        self.consumer.deliver(id, event)
    }
}

#[test]
fn nothing_is_kept_for_reuse_between_the_chunks_of_a_prompt() {
    let _turn = one_at_a_time();
    let options = EngineOptions {
        prefill_chunk: Some(128),
        ..options()
    };
    let engine = engine_with(options, || load_tiny("llama", Some(2)));
    let kept = Arc::new(Mutex::new(Vec::new()));
    run_through(
        &engine,
        vec![(0, request(&Dice(4).prompt(900, 320), 1))],
        |consumer| {
            let kept = Arc::clone(&kept);
            Box::new(Watching { kept, consumer })
        },
    );
    let kept = kept.lock().unwrap();
    assert_eq!(kept.len(), 8);
    // Activations of a chunk are hundreds of kilobytes; what a worker lets go of late is a few.
    assert!(kept.iter().all(|&bytes| bytes < 64 << 10), "{kept:?}");
}
