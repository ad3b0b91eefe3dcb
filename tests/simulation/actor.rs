//! Consumers that do something at a token or while their prompts are processed.

use std::sync::Weak;

use mlx_chat::engine::{Consumer, ConsumerError, Engine, EngineHandle, Event, Flow, RequestId};
use tokio::sync::mpsc::UnboundedSender;

use crate::support::Dice;

/// What a consumer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Stop,
    Fail,
    Panic,
    /// Cancels a request, its own among them.
    Cancel(RequestId),
    /// Asks for the model alone; says whether it then changed.
    Hold {
        cancel_running: bool,
        changed: bool,
    },
}

/// When: at the first event that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    Admitted,
    Prefill,
    Token(usize),
}

/// What a request's consumer is told to do.
pub type Part = Option<(When, Act)>;

/// A part for a request of a wave whose ids are these.
pub fn part(dice: &mut Dice, ids: std::ops::Range<u64>) -> Part {
    if dice.below(3) > 0 {
        return None;
    }
    let when = match dice.below(6) {
        0 => When::Admitted,
        1 => When::Prefill,
        _ => When::Token(dice.below(12)),
    };
    let anyone = RequestId(ids.start + dice.below((ids.end - ids.start) as usize) as u64);
    let act = match dice.below(8) {
        0 => Act::Stop,
        1 => Act::Fail,
        2 => Act::Panic,
        3 => Act::Hold {
            cancel_running: dice.below(3) == 0,
            changed: dice.below(4) == 0,
        },
        _ => Act::Cancel(anyone),
    };
    Some((when, act))
}

/// Sends what it hears, and plays its part.
pub struct Actor {
    pub part: Part,
    pub engine: Weak<EngineHandle>,
    pub out: UnboundedSender<(RequestId, Event)>,
}

impl Consumer for Actor {
    fn deliver(&mut self, id: RequestId, event: Event) -> Result<Flow, ConsumerError> {
        let due = match (self.part, &event) {
            (Some((When::Admitted, _)), Event::Admitted { .. }) => true,
            (Some((When::Prefill, _)), Event::Prefill { .. }) => true,
            (Some((When::Token(at), _)), Event::Token { index, .. }) => at == *index,
            _ => false,
        };
        let act = self.part.filter(|_| due).map(|(_, act)| act);
        // Before the event goes out: with the last one, the engine may be dropped.
        if let Some(engine) = self.engine.upgrade() {
            match act {
                Some(Act::Cancel(id)) => engine.cancel(id),
                Some(Act::Hold {
                    cancel_running,
                    changed,
                }) => engine
                    .hold(cancel_running, Box::new(move |_| changed))
                    .expect("the engine runs"),
                _ => {}
            }
        }
        self.out.send((id, event)).expect("the test listens");
        match act {
            Some(Act::Stop) => Ok(Flow::Stop),
            Some(Act::Fail) => Err(ConsumerError("told to".into())),
            Some(Act::Panic) => panic!("told to"),
            _ => Ok(Flow::Continue),
        }
    }
}
