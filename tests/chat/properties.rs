//! What holds whatever happens in whatever order.

use std::collections::{BTreeMap, BTreeSet};

use mlx_chat::chat::{
    Draft, Effect, Event, ForkAt, Kind, Pane, PaneId, Record, SessionId, Settings, Status, TurnId, Write,
    replay,
};
use mlx_chat::engine::telemetry::EngineState;
use mlx_chat::engine::{FinishReason, Prompt, RequestId, SubmitError};
use mlx_chat::text::message::{Message, Role};
use proptest::prelude::*;

use crate::rig::{Rig, session, snapshot, token};

/// Something that happens; numbers choose among what there is at the moment.
#[derive(Debug, Clone)]
enum Op {
    Draft(String),
    Plain(u8),
    Focus(u8),
    NewPane,
    Name(usize),
    RefuseName(usize),
    Token(usize, String),
    Finish(usize, u8),
    Ready,
    Fail(bool),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => "[a-z é\n]{0,12}".prop_map(Op::Draft),
        10 => (0_u8..22).prop_map(Op::Plain),
        2 => (1_u8..10).prop_map(Op::Focus),
        2 => Just(Op::NewPane),
        5 => (0_usize..4).prop_map(Op::Name),
        1 => (0_usize..4).prop_map(Op::RefuseName),
        6 => ((0_usize..6), "[a-z👍\n]{0,4}").prop_map(|(n, text)| Op::Token(n, text)),
        4 => ((0_usize..6), (0_u8..5)).prop_map(|(n, reason)| Op::Finish(n, reason)),
        3 => Just(Op::Ready),
        1 => any::<bool>().prop_map(Op::Fail),
    ]
}

/// The engine as far as the state can tell, and the logs as the writer gets them.
struct World {
    rig: Rig,
    unnamed: Vec<TurnId>,
    live: Vec<RequestId>,
    cancelled: BTreeSet<RequestId>,
    next: u64,
    logs: BTreeMap<SessionId, Vec<Record>>,
}

impl World {
    fn event(&self, op: Op) -> Option<Event> {
        const REASONS: [FinishReason; 5] = [
            FinishReason::Stop,
            FinishReason::Length,
            FinishReason::Cancelled,
            FinishReason::Rejected,
            FinishReason::Error,
        ];
        let request = |n: usize| (!self.live.is_empty()).then(|| self.live[n % self.live.len()]);
        let turn = |n: usize| (!self.unnamed.is_empty()).then(|| self.unnamed[n % self.unnamed.len()]);
        Some(match op {
            Op::Draft(text) => Event::Draft(Draft::new(&*text, text.len() / 2)),
            Op::Plain(0..=2) => Event::Submit,
            Op::Plain(3) => Event::Stop,
            Op::Plain(4) => Event::ToggleBroadcast,
            Op::Plain(5) => Event::ClosePane,
            Op::Plain(6) => Event::NextPane,
            Op::Plain(7) => Event::ClearDraft,
            Op::Plain(8) => Event::Rename {
                title: "a title".into(),
            },
            Op::Plain(9) => Event::ReopenPane,
            Op::Plain(10) => Event::Regenerate,
            Op::Plain(11 | 12) => Event::EditPrompt,
            Op::Plain(13) => Event::Sibling { forward: true },
            Op::Plain(14) => Event::Sibling { forward: false },
            Op::Plain(15) => {
                let last = self.rig.state.focused_pane().turns.last();
                let last = last.map(|turn| turn.record);
                Event::ForkPane {
                    session: session(1000 + u128::from(self.next)),
                    at: match self.next % 3 {
                        0 => ForkAt::End,
                        1 => ForkAt::After(last?),
                        _ => ForkAt::Before(last?),
                    },
                }
            }
            Op::Plain(16) => Event::MovePane {
                forward: self.next.is_multiple_of(2),
            },
            Op::Plain(17..=19) => Event::Continue,
            Op::Plain(20) => {
                let state = &self.rig.state;
                let turn = state.focused_pane().turns.last()?.record;
                Event::Keep {
                    pane: state.focused(),
                    turn,
                    others: state.panes().keys().copied().collect(),
                }
            }
            Op::Plain(_) => Event::Configure(Settings {
                max_tokens: Some(7),
                ..Settings::default()
            }),
            Op::Focus(n) => Event::Focus(PaneId::new(n)?),
            Op::NewPane => Event::NewPane {
                session: session(1000 + u128::from(self.next)),
            },
            Op::Name(n) => Event::Submitted {
                turn: turn(n)?,
                request: RequestId(self.next),
            },
            Op::RefuseName(n) => Event::SubmitFailed {
                turn: turn(n)?,
                error: SubmitError::QueueFull { limit: 1 },
            },
            Op::Token(n, text) => Event::Engine {
                request: request(n)?,
                event: token(&text),
            },
            Op::Finish(n, reason) => {
                let finish = crate::rig::finish(REASONS[usize::from(reason) % REASONS.len()]);
                Event::Engine {
                    request: request(n)?,
                    event: mlx_chat::engine::Event::Finish(finish),
                }
            }
            Op::Ready => snapshot(EngineState::Ready),
            // Rarely fatal, or most runs would end early.
            Op::Fail(true) if self.next % 5 == 4 => Event::EngineFailed {
                message: "gone".into(),
            },
            Op::Fail(_) => snapshot(EngineState::Loading {
                stage: "s".into(),
                done: 0,
                total: 0,
            }),
        })
    }

    fn step(&mut self, op: Op) -> Result<(), TestCaseError> {
        let Some(event) = self.event(op) else {
            return Ok(());
        };
        self.next += 1;
        match &event {
            Event::Submitted { turn, request } => {
                self.unnamed.retain(|t| t != turn);
                self.live.push(*request);
            }
            Event::SubmitFailed { turn, .. } => self.unnamed.retain(|t| t != turn),
            Event::Engine {
                request,
                event: mlx_chat::engine::Event::Finish(_),
            } => {
                self.live.retain(|r| r != request);
            }
            _ => {}
        }
        let before = self.texts(false);
        let may_drop = matches!(event, Event::Draft(_) | Event::ClearDraft);
        let failing = matches!(event, Event::EngineFailed { .. });
        let effects = self.rig.event(event);
        if failing {
            self.live.clear();
            self.unnamed.clear();
        }
        for effect in effects {
            self.take(effect)?;
        }
        self.check()?;
        if !may_drop {
            let after = self.texts(true);
            for (session, texts) in before {
                let Some(now) = after.get(&session) else { continue };
                let state = &self.rig.state;
                // What is written for several panes goes along with the focus.
                let along = state.broadcast().then(|| state.focused_pane().draft.text());
                for text in texts {
                    let kept = now.iter().any(|t| t.contains(&text)) || along == Some(text.as_str());
                    prop_assert!(kept, "lost {text:?}: {now:?}");
                }
            }
        }
        Ok(())
    }

    /// Everything that a person wrote, by conversation; what was given up included, if asked for.
    fn texts(&self, given_up: bool) -> BTreeMap<SessionId, Vec<String>> {
        let of = |pane: &Pane| {
            let mut texts: Vec<String> = pane.turns.iter().map(|turn| turn.prompt.clone()).collect();
            texts.extend(pane.tree.aside().map(|turn| turn.prompt.clone()));
            texts.extend(pane.edit.as_ref().map(|edit| edit.stashed.clone()));
            texts.extend(
                pane.queued
                    .as_ref()
                    .map(|queued| queued.draft().text().to_owned()),
            );
            texts.push(pane.draft.text().to_owned());
            let given_up = pane.history().filter(|_| given_up);
            texts.extend(given_up.map(|draft| draft.text().to_owned()));
            texts.retain(|text| !text.trim().is_empty());
            texts
        };
        self.rig
            .state
            .panes()
            .values()
            .map(|pane| (pane.session, of(pane)))
            .collect()
    }

    fn take(&mut self, effect: Effect) -> Result<(), TestCaseError> {
        match effect {
            Effect::Submit { pane, turn, request } => {
                let pane = self.rig.state.pane(pane);
                prop_assert!(pane.is_some(), "submitted for a pane that isn't there");
                let pane = pane.unwrap();
                prop_assert_eq!(&request.session, &Some(pane.session.to_string()));
                let Prompt::Messages(messages) = request.prompt else {
                    panic!("no messages")
                };
                check_messages(&messages, &pane.turns.last().unwrap().prompt)?;
                prop_assert!(!self.unnamed.contains(&turn), "a turn's name was used twice");
                self.unnamed.push(turn);
            }
            Effect::Cancel(request) => {
                prop_assert!(
                    self.live.contains(&request),
                    "cancelled a request that doesn't run"
                );
                prop_assert!(self.cancelled.insert(request), "cancelled twice");
            }
            Effect::Write(Write::Records { session, records }) => {
                let log = self.logs.entry(session).or_default();
                prop_assert!(!records.is_empty());
                for record in records {
                    prop_assert!(
                        log.last().is_none_or(|last| last.id < record.id),
                        "record names must grow"
                    );
                    let known = record.parent.is_none_or(|p| log.iter().any(|r| r.id == p));
                    prop_assert!(known && (record.parent.is_none() == log.is_empty()));
                    log.push(record);
                }
            }
            Effect::Write(Write::Layout(layout)) => prop_assert_eq!(layout, self.rig.state.layout()),
            Effect::Write(Write::Release(session)) => {
                prop_assert!(
                    self.rig
                        .state
                        .panes()
                        .values()
                        .all(|pane| pane.session != session)
                );
            }
            Effect::Write(Write::Ask(_)) => {}
            Effect::Bell => prop_assert!(!self.rig.state.notices().is_empty()),
            Effect::Quit => {}
        }
        Ok(())
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let state = &self.rig.state;
        prop_assert!((1..=9).contains(&state.panes().len()));
        prop_assert!(state.pane(state.focused()).is_some());
        let ready = *state.engine() == mlx_chat::chat::EngineStatus::Ready;
        let mut requests = BTreeSet::new();
        for pane in state.panes().values() {
            let (last, earlier) = pane
                .turns
                .split_last()
                .map_or((None, &[][..]), |(l, e)| (Some(l), e));
            prop_assert!(
                earlier.iter().all(|turn| !turn.is_running()),
                "only the last turn runs"
            );
            if let Some(Status::Submitting { turn, .. }) = last.map(|turn| &turn.status) {
                prop_assert!(self.unnamed.contains(turn));
            }
            if let Some(request) = pane.request() {
                prop_assert!(self.live.contains(&request) && requests.insert(request));
            }
            prop_assert!(
                pane.queued.is_none() || !ready || pane.running().is_some(),
                "nothing waits for nothing"
            );
            let draft = &pane.draft;
            prop_assert!(draft.text().is_char_boundary(draft.cursor()));
            self.check_log(pane)?;
        }
        Ok(())
    }

    /// The log tells what the pane shows, but for what only runs.
    fn check_log(&self, pane: &Pane) -> Result<(), TestCaseError> {
        let Some(log) = self.logs.get(&pane.session) else {
            prop_assert!(pane.turns.is_empty() && pane.draft.text().is_empty());
            return Ok(());
        };
        let told = replay(pane.session, log.iter().cloned());
        let mut turns = pane.turns.clone();
        for turn in turns.iter_mut().filter(|turn| turn.is_running()) {
            turn.status = Status::Stopped { stats: None };
        }
        prop_assert_eq!(&told.turns, &turns);
        prop_assert_eq!((&told.tree, &told.edit), (&pane.tree, &pane.edit));
        prop_assert_eq!(
            pane.tree.walk(&pane.turns).len(),
            turns.len() + pane.tree.aside().count()
        );
        for record in log {
            if let Kind::User { text, .. } = &record.kind {
                let kept = pane.tree.walk(&pane.turns);
                prop_assert!(
                    kept.iter()
                        .any(|(_, turn)| turn.record == record.id && turn.prompt == *text),
                    "a prompt left the tree"
                );
            }
        }
        prop_assert_eq!(
            (&told.title, &told.draft, &told.queued),
            (&pane.title, &pane.draft, &pane.queued)
        );
        prop_assert_eq!(&told.settings, &pane.settings);
        prop_assert!(told.notes.is_empty());
        Ok(())
    }
}

fn check_messages(messages: &[Message], prompt: &str) -> Result<(), TestCaseError> {
    for (index, message) in messages.iter().enumerate() {
        let expected = if index % 2 == 0 {
            Role::User
        } else {
            Role::Assistant
        };
        prop_assert_eq!(message.role, expected, "roles alternate from the person's");
    }
    prop_assert_eq!(messages.last().map(|m| m.content.as_str()), Some(prompt));
    prop_assert!(messages.len() % 2 == 1, "the person has the last word");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn invariants_hold_whatever_happens(panes in 1_u128..4, ops in prop::collection::vec(op(), 1..80)) {
        let mut world = World {
            rig: Rig::ready(panes),
            unnamed: Vec::new(),
            live: Vec::new(),
            cancelled: BTreeSet::new(),
            next: 0,
            logs: BTreeMap::new(),
        };
        for op in ops {
            world.step(op)?;
        }
        for effect in world.rig.event(Event::Quit) {
            world.take(effect)?;
        }
        for pane in world.rig.state.panes().values() {
            prop_assert!(pane.running().is_none() && pane.queued.is_none());
            world.check_log(pane)?;
        }
    }
}
