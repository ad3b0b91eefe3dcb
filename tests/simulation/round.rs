//! One engine's life: two waves of requests, the second with the first one's next turns, and what must hold of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use mlx_chat::cache::Need;
use mlx_chat::engine::options::{MixedPrefill, PromptCacheLimit};
use mlx_chat::engine::telemetry::Snapshot;
use mlx_chat::engine::{
    Consumer, Engine, EngineHandle, EngineOptions, Event, FinishReason, Request, RequestId, StopReason,
};
use mlx_rs::memory;

use crate::actor::{Act, Actor, Part, When, part};
use crate::support::{Dice, Heard, engine_with, options, request};
use crate::workload::{Said, sampling};
use crate::world::{POISON, World};

/// What was met in all rounds: each of it must have been.
#[derive(Debug, Default)]
pub struct Seen {
    pub steps: u64,
    pub mixed_tokens: u64,
    pub most_rows: u32,
    pub restored: usize,
    pub cancelled: usize,
    pub failed: usize,
    pub rejected: usize,
    /// Rounds with memory for few rows.
    pub tight: usize,
    /// Rows that went on to be fed placeholders beside others once they had all their tokens, and were asked again.
    pub tainted: usize,
}

impl Seen {
    pub fn assert_all_met(&self) {
        let met = [
            self.mixed_tokens > 100,
            self.most_rows > 3,
            self.restored > 3,
            self.cancelled > 3,
            self.rejected > 0,
            self.tight > 0,
            self.tainted > 3,
        ];
        assert!(met.iter().all(|met| *met), "{self:?}");
    }
}

/// One request of a wave.
struct Asked {
    at_step: u64,
    request: Request,
    prompt: Vec<u32>,
    part: Part,
}

/// The most positions of a row that a tight budget has room for.
const TIGHT: usize = 500;

/// How an engine can be set up, thrown by dice.
fn any_options(dice: &mut Dice, world: &dyn World) -> EngineOptions {
    let chunk = [1, 3, 7, 16, 64, 512][dice.below(6)];
    let cache = [
        PromptCacheLimit::Off,
        PromptCacheLimit::Default,
        PromptCacheLimit::Default,
        PromptCacheLimit::Bytes(300 << 10),
    ];
    let options = EngineOptions {
        max_batch: 1 + dice.below(6),
        prefill_chunk: Some(chunk),
        prefill_batch_tokens: Some([chunk, 20, 100, 2048][dice.below(4)]),
        mixed_prefill: match dice.below(3) {
            0 => MixedPrefill::Off,
            _ => MixedPrefill::Tokens([2, 4, 8, 16, 64, 256][dice.below(6)]),
        },
        prompt_cache: cache[dice.below(4)],
        pipeline: dice.below(3) > 0,
        seed_first_token: dice.below(3) == 0,
        attribution: dice.below(8) == 0,
        ..options()
    };
    let options = match world.whole_prompts() {
        true => EngineOptions {
            prefill_chunk: Some(1024),
            prefill_batch_tokens: Some(2048),
            mixed_prefill: MixedPrefill::Off,
            prompt_cache: PromptCacheLimit::Off,
            ..options
        },
        false => options,
    };
    let tight = Need {
        prompt: 1,
        max_tokens: TIGHT - 1,
    };
    let tight = world.plan().reserved_bytes(&[tight], options.chunk(usize::MAX));
    EngineOptions {
        kv_budget: Some(if dice.below(3) == 0 { tight } else { 64 << 20 }),
        ..options
    }
}

/// A prompt that often begins as one of those before it does.
fn prompt(dice: &mut Dice, world: &dyn World, before: &[Asked]) -> Vec<u32> {
    let length = match dice.below(8) {
        0 => 250 + dice.below(100),
        1 => 1,
        _ => 1 + dice.below(world.prompt()),
    };
    let mut prompt = dice.prompt(length, world.vocabulary());
    if !before.is_empty() && dice.below(3) == 0 {
        let model = &before[dice.below(before.len())].prompt;
        let mut fork = model[..dice.below(model.len() + 1)].to_vec();
        fork.extend(prompt.iter().take(1 + dice.below(30)));
        prompt = fork;
    }
    prompt
}

/// Requests of a wave; `base` is the id of the first. `turns` are prompts that go on from what was said before.
fn wave(dice: &mut Dice, world: &dyn World, base: u64, turns: Vec<Vec<u32>>) -> Vec<Asked> {
    let count = world.requests().max(turns.len());
    let mut turns = turns.into_iter();
    let mut wave: Vec<Asked> = Vec::new();
    for number in 0..count {
        let mut prompt = turns.next().unwrap_or_else(|| prompt(dice, world, &wave));
        if world.poisoned() && dice.below(8) == 0 {
            let at = dice.below(prompt.len());
            prompt[at] = POISON;
        }
        let max_tokens = match dice.below(10) {
            0 => 1,
            1 => TIGHT,
            _ => 1 + dice.below(30),
        };
        let mut request = Request {
            session: (dice.below(2) == 0).then(|| format!("session {number}")),
            cancel_after_tokens: (dice.below(8) == 0 || max_tokens == TIGHT).then(|| 1 + dice.below(20)),
            cache: dice.below(6) > 0,
            ..request(&prompt, max_tokens)
        };
        if world.samples() {
            request.sampling = sampling(dice);
            request.logprobs = dice.below(4) > 0;
        }
        wave.push(Asked {
            // Close enough for rows to be many.
            at_step: dice.below(2 * count) as u64,
            part: part(dice, base..base + count as u64),
            request,
            prompt,
        });
    }
    wave.sort_by_key(|asked| asked.at_step);
    wave
}

/// Runs a wave to its end: all events in the order in which they were heard.
fn run(engine: &Arc<EngineHandle>, wave: &[Asked]) -> Vec<(RequestId, Event)> {
    let (out, mut events) = tokio::sync::mpsc::unbounded_channel();
    // An idle engine takes the next one at once; else these are steps from the wave's start.
    let steps = engine.snapshots().borrow().steps;
    let workload = wave.iter().map(|asked| {
        let actor: Box<dyn Consumer> = Box::new(Actor {
            part: asked.part,
            engine: Arc::downgrade(engine),
            out: out.clone(),
        });
        (steps + asked.at_step, asked.request.clone(), actor)
    });
    let outcomes = engine.schedule(workload.collect()).expect("the engine runs");
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    drop(out);
    let mut all = Vec::new();
    while let Some(event) = events.blocking_recv() {
        all.push(event);
    }
    all
}

/// Plays a round.
pub fn play(world: &mut dyn World, seed: u64, seen: &mut Seen) {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9) + 1);
    let options = any_options(&mut dice, world);
    let engine = Arc::new(engine_with(options.clone(), world.loader()));
    let what = format!("seed {seed}, {}, {options:?}", world.name());
    let mut turns = Vec::new();
    let mut base = 0;
    for number in 0..2 {
        let what = format!("{what}, wave {number}");
        let wave = wave(&mut dice, world, base, std::mem::take(&mut turns));
        let events = run(&engine, &wave);
        check_order(&events, &what);
        let mut heard: BTreeMap<u64, Heard> = BTreeMap::new();
        for (id, event) in events {
            let heard = heard.entry(id.0).or_default();
            match &event {
                Event::Token { token, .. } => heard.tokens.push(*token),
                Event::Finish(finish) => heard.finish = Some(finish.clone()),
                Event::Note(_) | Event::Admitted { .. } | Event::Prefill { .. } => {}
            }
            heard.events.push(event);
        }
        assert_eq!(heard.len(), wave.len(), "{what}: everyone is answered");
        for (at, asked) in wave.iter().enumerate() {
            let heard = &heard[&(base + at as u64)];
            let what = format!("{what}, request {at} of {:?}, {:?}", asked.request, asked.part);
            check_events(heard, &what);
            check_answer(world, &options, asked, heard, &what);
            let end = heard.end();
            seen.restored += usize::from(end.cached_tokens > 0);
            seen.cancelled += usize::from(end.reason == FinishReason::Cancelled);
            seen.failed += usize::from(end.reason == FinishReason::Error);
            seen.rejected += usize::from(end.reason == FinishReason::Rejected);
            if asked.prompt.len() < 900 && dice.below(2) == 0 {
                let mut turn = asked.prompt.clone();
                turn.extend(&heard.tokens);
                turn.retain(|&token| (token as usize) < world.vocabulary());
                turn.push(dice.below(world.vocabulary()) as u32);
                turns.push(turn);
                let fed_on = options.pipeline && options.max_batch > 1 && asked.request.cache;
                seen.tainted += usize::from(fed_on && end.reason == FinishReason::Length);
            }
        }
        turns.truncate(world.requests());
        base += wave.len() as u64;
    }
    engine.close();
    let snapshot = engine.snapshots().borrow().clone();
    let fails = world.fails() || world.poisoned();
    check_steps(&engine, &snapshot, &options, fails, seen, &what);
    memory::clear_cache().expect("MLX's cache can be cleared");
}

/// FIFO: whoever was asked first is admitted first. Ids count up in the order of arrival.
fn check_order(events: &[(RequestId, Event)], what: &str) {
    let admitted = events
        .iter()
        .filter(|(_, event)| matches!(event, Event::Admitted { .. }));
    let admitted: Vec<RequestId> = admitted.map(|(id, _)| *id).collect();
    assert!(admitted.is_sorted(), "{what}: admitted in the order {admitted:?}");
}

/// Events come in order, and the end is the last.
fn check_events(heard: &Heard, what: &str) {
    let last = heard.events.len() - 1;
    let (mut admitted, mut tokens) = (false, 0);
    for (at, event) in heard.events.iter().enumerate() {
        match event {
            Event::Admitted { .. } => {
                assert!(at == 0, "{what}: admitted late");
                admitted = true;
            }
            Event::Prefill { done, total } => assert!(admitted && tokens == 0 && done < total, "{what}"),
            Event::Token { index, .. } => {
                assert!(
                    admitted && *index == tokens,
                    "{what}: token {index} after {tokens}"
                );
                tokens += 1;
            }
            Event::Finish(_) => assert_eq!(at, last, "{what}: something follows the end"),
            Event::Note(note) => panic!("{what}: {note}"),
        }
    }
}

/// A request says what it says alone, up to where it was ended.
fn check_answer(world: &mut dyn World, options: &EngineOptions, asked: &Asked, heard: &Heard, what: &str) {
    let said = Said::of(heard);
    let end = heard.end();
    let what = format!("{what}: {:?} {:?}", end.reason, end.message);
    let budget = options.kv_budget;
    let need = Need {
        prompt: asked.prompt.len(),
        max_tokens: asked.request.max_tokens,
    };
    let needed = world.plan().reserved_bytes(&[need], options.chunk(usize::MAX));
    if end.reason == FinishReason::Rejected {
        assert!(Some(needed) > budget && said.tokens.is_empty(), "{what}");
        return;
    }
    let alone = world.alone(&asked.request, &asked.prompt);
    let (most, found) = (alone.len(), said.tokens.len());
    let differs = (0..found).find(|&at| alone.get(at) != said.tokens.get(at));
    assert_eq!(differs, None, "{what}: {:?} is {alone:?} alone", said.tokens);
    let acts = |act: Act| match asked.part {
        Some((When::Token(at), told)) if told == act => Some(at),
        _ => None,
    };
    let at = [Act::Fail, Act::Panic].into_iter().find_map(acts);
    match (end.reason, end.stop_reason) {
        (FinishReason::Stop, Some(StopReason::Consumer)) => {
            assert_eq!(acts(Act::Stop).map(|at| at + 1), Some(found), "{what}");
        }
        (FinishReason::Length | FinishReason::Stop, _) => {
            assert_eq!(found, most, "{what}: not all was said");
        }
        (FinishReason::Cancelled, _) => {
            let limit = asked.request.cancel_after_tokens.unwrap_or(usize::MAX);
            assert!(found <= limit, "{what}");
        }
        (FinishReason::Error, _) => {
            let told = asked
                .part
                .is_some_and(|(_, act)| matches!(act, Act::Fail | Act::Panic));
            let poisoned = asked.prompt[..asked.prompt.len() - 1].contains(&POISON);
            // A poisoned prompt that rides along takes the running batch with it.
            let beside = options.mixed_prefill != MixedPrefill::Off && world.poisoned();
            let at_token = at.is_some_and(|at| at + 1 == found);
            assert!(
                world.fails() || at_token || (told && found == 0) || (world.poisoned() && poisoned) || beside,
                "{what}"
            );
        }
        (FinishReason::Rejected, _) => unreachable!("left above"),
    }
}

/// Figures of each step, and of the end.
fn check_steps(
    engine: &EngineHandle,
    snapshot: &Snapshot,
    options: &EngineOptions,
    fails: bool,
    seen: &mut Seen,
    what: &str,
) {
    let mut samples = Vec::new();
    engine.drain_samples(&mut samples);
    assert_eq!(snapshot.dropped_samples, 0, "{what}");
    for sample in &samples {
        let kv = sample.kv;
        assert!(
            kv.used <= kv.allocated && kv.allocated <= kv.reserved && kv.reserved <= kv.budget,
            "{what}: {kv:?}"
        );
        // Rows whose last token of the prompt rides along are among those that run.
        let rows = sample.rows as usize;
        let most = options
            .mixed_tokens(usize::MAX)
            .map_or(0, |budget| budget.max(rows));
        // What rode along in a step that failed is in the next one's record.
        assert!(
            fails || sample.mixed_tokens as usize <= most,
            "{what}: {sample:?}"
        );
        seen.most_rows = seen.most_rows.max(sample.rows);
    }
    let totals = snapshot.totals;
    seen.steps += totals.steps;
    seen.mixed_tokens += totals.mixed_tokens;
    seen.tight += usize::from(options.kv_budget < Some(64 << 20));
    let kv = totals.kv_peak;
    assert!(
        kv.used <= kv.allocated && kv.allocated <= kv.reserved && kv.reserved <= kv.budget,
        "{what}: {kv:?}"
    );
    let left = snapshot.kv;
    assert_eq!(
        (left.used, left.allocated, left.reserved, snapshot.queued),
        (0, 0, 0, 0),
        "{what}"
    );
}
