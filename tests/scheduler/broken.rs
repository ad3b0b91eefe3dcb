//! Logits that are no numbers end the row that has them, and leave nothing behind.

use std::cell::RefCell;

use mlx_chat::cache::CachePlan;
use mlx_chat::engine::telemetry::{RowSnapshot, RowState};
use mlx_chat::engine::{EngineHandle, EngineOptions, FinishReason, Request};
use mlx_chat::model::hashing::HashingModel;
use mlx_chat::model::{Feed, LanguageModel, Loaded, ModelError, ModelInfo};
use mlx_chat::nn::Backend;
use mlx_chat::sampling::Sampling;
use mlx_rs::Array;
use mlx_rs::ops::{concatenate, logical_and, select};

use super::{alone, plain};
use crate::support::{Dice, engine_with, options, request, run, wait_for};

/// Which logits are what, in rows that were fed a token.
#[derive(Debug, Clone, Copy)]
struct Poison {
    token: u32,
    /// All of them, or that of one id.
    id: Option<u32>,
    logit: f32,
}

struct Poisoned {
    model: HashingModel,
    poison: Poison,
    fed: RefCell<Array>,
}

impl LanguageModel for Poisoned {
    fn info(&self) -> &ModelInfo {
        self.model.info()
    }

    fn plan(&self) -> &CachePlan {
        self.model.plan()
    }

    fn packed(&self, feed: &mut Feed<'_>) -> Result<Array, ModelError> {
        let fed: Vec<&Array> = feed.steps.iter().map(|step| step.tokens).collect();
        if !fed.is_empty() {
            self.fed.replace(concatenate(&fed, 0).expect("tokens"));
        }
        self.model.packed(feed)
    }

    fn head(&self, hidden: &Array) -> Result<Array, ModelError> {
        let logits = self.model.head(hidden)?;
        let ids: Vec<u32> = (0..64).collect();
        let ids = Array::from_slice(&ids, &[1, 64]);
        let poisoned = || {
            let rows = self
                .fed
                .borrow()
                .expand_dims(-1)?
                .eq(Array::from_slice(&[self.poison.token], &[1]))?;
            let columns = match self.poison.id {
                Some(id) => ids.eq(Array::from_slice(&[id], &[1]))?,
                None => ids.eq(&ids)?,
            };
            select(
                &logical_and(&rows, &columns)?,
                Array::from_f32(self.poison.logit),
                &logits,
            )
        };
        Ok(poisoned().expect("MLX compares"))
    }
}

fn poisoned(options: EngineOptions, poison: Poison) -> EngineHandle {
    engine_with(options, move || {
        Backend::Cpu.enter();
        Loaded {
            eos: Vec::new(),
            model: Box::new(Poisoned {
                model: HashingModel::new(plain()),
                poison,
                fed: RefCell::new(Array::from_slice(&[0u32], &[1])),
            }),
            name: "poisoned".into(),
        }
    })
}

const STEPS: usize = 12;

/// A prompt, and how many tokens its row delivers before it is fed one that its sibling never is.
fn broken_at(sibling: &[u32], wanted: usize) -> (Vec<u32>, u32) {
    let said = alone(&plain(), sibling, STEPS);
    let fed = |token: &u32| said.contains(token) || sibling.last() == Some(token);
    (1..)
        .find_map(|seed| {
            let prompt = Dice(seed).prompt(20, 63);
            let own: Vec<u32> = prompt
                .last()
                .copied()
                .into_iter()
                .chain(alone(&plain(), &prompt, STEPS))
                .collect();
            let token = own[wanted];
            (!fed(&token) && !own[..wanted].contains(&token)).then_some((prompt, token))
        })
        .expect("some prompt")
}

#[test]
fn a_row_of_broken_logits_ends_with_an_error_that_names_the_step_and_its_sibling_goes_on() {
    let sibling = [3, 1, 4, 1, 5];
    for (logit, id, said) in [
        (f32::NAN, None, "a logit that is not a number"),
        (f32::NAN, Some(40), "a logit that is not a number"),
        (f32::INFINITY, Some(40), "an infinite logit"),
        (f32::NEG_INFINITY, None, "logits that are all minus infinity"),
    ] {
        for (pipeline, seed_first_token) in [(true, false), (true, true), (false, false)] {
            for wanted in [0, 5] {
                let (prompt, token) = broken_at(&sibling, wanted);
                let options = EngineOptions {
                    pipeline,
                    seed_first_token,
                    ..options()
                };
                let engine = poisoned(options, Poison { token, id, logit });
                let workload = vec![(0, request(&prompt, STEPS)), (0, request(&sibling, STEPS))];
                let heard = run(&engine, workload);
                let end = heard[0].end();
                assert_eq!(heard[0].tokens, alone(&plain(), &prompt, STEPS)[..wanted]);
                assert_eq!(end.reason, FinishReason::Error);
                let message = end.message.as_deref().unwrap();
                let start = format!("step {} of the answer gave {said}: the model file", wanted + 1);
                assert!(message.starts_with(&start), "{message}");
                assert!(message.contains("damaged") && message.contains("quantization"));
                assert_eq!(end.generated_tokens, wanted);
                assert_eq!(heard[1].tokens, alone(&plain(), &sibling, STEPS));
                assert_eq!(heard[1].end().reason, FinishReason::Length);
            }
        }
    }
}

#[test]
fn tokens_that_are_drawn_are_checked_as_well() {
    let sibling = [3, 1, 4, 1, 5];
    let (prompt, token) = broken_at(&sibling, 0);
    let poison = Poison {
        token,
        id: Some(9),
        logit: f32::NAN,
    };
    let drawn = |prompt: &[u32]| Request {
        sampling: Sampling {
            temperature: 1.0,
            seed: Some(3),
            ..Sampling::default()
        },
        ..request(prompt, STEPS)
    };
    let engine = poisoned(options(), poison);
    let heard = run(&engine, vec![(0, drawn(&prompt)), (0, request(&sibling, STEPS))]);
    assert_eq!(heard[0].end().reason, FinishReason::Error);
    assert!(heard[0].tokens.is_empty());
    assert_eq!(heard[1].tokens, alone(&plain(), &sibling, STEPS));
}

#[test]
fn nothing_of_a_broken_row_stays_in_the_prompt_cache() {
    for wanted in [0, 5] {
        let (short, token) = broken_at(&[0], wanted);
        let broken = Poison {
            token,
            id: None,
            logit: f32::NAN,
        };
        // No id is this.
        let sound = Poison {
            token: 1000,
            ..broken
        };
        let entries = |poison| {
            let engine = poisoned(options(), poison);
            let session = Request {
                session: Some("s".into()),
                ..request(&short, STEPS)
            };
            run(&engine, vec![(0, session)]);
            let done = wait_for(&engine, |snapshot| {
                let done = |row: &RowSnapshot| row.state == RowState::Done;
                snapshot.prompt_cache.lookups == 1 && snapshot.rows.iter().all(done)
            });
            done.prompt_cache.entries
        };
        assert!(entries(sound) > 0);
        assert_eq!(entries(broken), 0);
    }
}
