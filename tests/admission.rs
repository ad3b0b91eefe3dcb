//! Who is admitted, who waits, who is refused.

use std::collections::VecDeque;

use mlx_chat::engine::RequestId;
use mlx_chat::engine::admission::{Admitted, Limits, Need, Queue, Refused, Verdict, Waiting};
use proptest::prelude::*;

const LIMITS: Limits = Limits {
    max_batch: 2,
    max_queued: 3,
    kv_budget: 1000,
    positions: 500,
};

/// A padded layout of 2 bytes a position: every row is as long as the longest.
fn padded(needs: &[Need]) -> u64 {
    let longest = needs.iter().map(Need::final_length).max().unwrap_or(0) as u64;
    longest.saturating_mul(needs.len() as u64).saturating_mul(2)
}

/// Rows of these final lengths.
fn needs(lengths: &[usize]) -> Vec<Need> {
    let need = |&length: &usize| Need {
        prompt: length - 1,
        max_tokens: 1,
    };
    lengths.iter().map(need).collect()
}

fn waiting(id: u64, prompt: usize, max_tokens: usize) -> Waiting<(), u8> {
    Waiting {
        id: RequestId(id),
        need: Need { prompt, max_tokens },
        group: 0,
        item: (),
    }
}

/// The verdict over the head, beside rows of group 0 and these final lengths.
fn next(queue: &mut Queue<(), u8>, lengths: &[usize], reserve: impl Fn(&[Need]) -> u64) -> Verdict<(), u8> {
    let rows = Admitted {
        needs: &needs(lengths),
        group: Some(&0),
    };
    queue.next(rows, reserve)
}

fn queue(of: &[(u64, usize)]) -> Queue<(), u8> {
    let mut queue = Queue::new(LIMITS);
    for &(id, length) in of {
        queue.push(waiting(id, length - 1, 1), padded).expect("fits");
    }
    queue
}

#[test]
fn one_more_than_the_limit_is_refused_and_handed_back() {
    let mut queue = queue(&[(1, 10), (2, 10), (3, 10)]);
    let (back, why) = queue.push(waiting(4, 1, 1), padded).unwrap_err();
    assert_eq!(back.id, RequestId(4));
    assert_eq!(why, Refused::QueueFull { limit: 3 });
    assert!(why.to_string().contains("3 requests wait"), "{why}");
    assert_eq!(queue.len(), 3);
}

#[test]
fn requests_leave_in_the_order_in_which_they_came() {
    let mut queue = queue(&[(1, 10), (2, 10)]);
    assert!(matches!(
        next(&mut queue, &[], padded),
        Verdict::Admit(Waiting { id: RequestId(1), .. })
    ));
    assert!(matches!(
        next(&mut queue, &[10], padded),
        Verdict::Admit(Waiting { id: RequestId(2), .. })
    ));
    assert_eq!(next(&mut queue, &[10, 10], padded), Verdict::Empty);
}

#[test]
fn a_full_batch_admits_nobody() {
    assert_eq!(next(&mut queue(&[(1, 10)]), &[5, 5], padded), Verdict::BatchFull);
}

#[test]
fn a_head_over_the_budget_waits_and_nobody_overtakes_it() {
    let mut queue = queue(&[(1, 400), (2, 10)]);
    let verdict = next(&mut queue, &[300], padded);
    assert_eq!(
        verdict,
        Verdict::WaitForKv {
            need: 1600,
            reserved: 600,
            budget: 1000
        }
    );
    assert_eq!(queue.len(), 2);
    assert!(matches!(
        next(&mut queue, &[], padded),
        Verdict::Admit(Waiting { id: RequestId(1), .. })
    ));
}

#[test]
fn reserving_counts_the_padding_that_a_long_row_costs_the_short_ones() {
    // 10 + 400 positions would fit unpadded.
    let mut queue = queue(&[(1, 400)]);
    assert!(matches!(
        next(&mut queue, &[150], padded),
        Verdict::WaitForKv { need: 1600, .. }
    ));
    let plain = |needs: &[Need]| 2 * needs.iter().map(Need::final_length).sum::<usize>() as u64;
    assert!(matches!(next(&mut queue, &[100], plain), Verdict::Admit(_)));
}

#[test]
fn another_group_waits_until_the_batch_has_drained() {
    let mut queue = Queue::new(LIMITS);
    queue
        .push(
            Waiting {
                group: 7,
                ..waiting(1, 5, 5)
            },
            padded,
        )
        .unwrap();
    queue.push(waiting(2, 5, 5), padded).unwrap();
    assert_eq!(next(&mut queue, &[10], padded), Verdict::WaitForGroup);
    assert!(matches!(
        next(&mut queue, &[], padded),
        Verdict::Admit(Waiting { group: 7, .. })
    ));
}

#[test]
fn the_budget_can_be_met_exactly() {
    let mut queue = queue(&[(1, 250)]);
    assert!(matches!(next(&mut queue, &[250], padded), Verdict::Admit(_)));
    assert!(
        Queue::<(), u8>::new(LIMITS)
            .check(
                Need {
                    prompt: 499,
                    max_tokens: 1
                },
                padded
            )
            .is_ok()
    );
}

fn refusal(prompt: usize, max_tokens: usize, limits: Limits) -> String {
    let (_, why) = Queue::new(limits)
        .push(waiting(1, prompt, max_tokens), padded)
        .unwrap_err();
    assert!(matches!(why, Refused::NeverFits(_)));
    why.to_string()
}

#[test]
fn one_over_the_budget_and_the_positions_is_told_to_change_both() {
    let limits = Limits {
        kv_budget: 1,
        positions: 100,
        ..LIMITS
    };
    for (prompt, change) in [
        (10, "lower max_tokens to at most 90, and raise --kv-budget"),
        (
            100,
            "shorten the prompt to fewer than 100 tokens, and raise --kv-budget",
        ),
    ] {
        let text = refusal(prompt, 95, limits);
        assert!(text.ends_with(&format!("; {change}")), "{text}");
    }
}

#[test]
fn one_over_the_budget_is_told_all_figures_and_what_to_change() {
    let limits = Limits {
        kv_budget: 1 << 20,
        positions: 10_000_000,
        ..LIMITS
    };
    assert_eq!(
        refusal(500_000, 50_000, limits),
        "the prompt of 500000 tokens and max_tokens 50000 come to 550000 \
         positions, which is too much for the KV budget (needed 1.0 MiB (1100000 bytes), budget 1.0 MiB \
         (1048576 bytes)); lower max_tokens to at most 24288, or raise --kv-budget"
    );
    let text = refusal(600_000, 50_000, limits);
    assert!(
        text.contains("shorten the prompt to fewer than 524288 tokens"),
        "{text}"
    );
    assert!(text.ends_with(", or raise --kv-budget"), "{text}");
    let text = refusal(
        5,
        5,
        Limits {
            kv_budget: 1,
            ..limits
        },
    );
    assert!(
        text.ends_with("(needed 20 bytes, budget 1 bytes); raise --kv-budget"),
        "{text}"
    );
}

#[test]
fn one_past_the_models_positions_is_told_whether_the_prompt_alone_is() {
    let limits = Limits {
        kv_budget: 1 << 30,
        positions: 8192,
        ..LIMITS
    };
    let text = refusal(8000, 512, limits);
    assert!(
        text.contains("come to 8512 positions, and the model takes 8192 with the answer"),
        "{text}"
    );
    assert!(text.ends_with("lower max_tokens to at most 192"), "{text}");
    let text = refusal(8192, 1, limits);
    assert!(
        text.contains("the prompt has 8192 tokens, and the model takes 8192 with the answer"),
        "{text}"
    );
    assert!(
        text.contains("shorten the prompt to fewer than 8192 tokens"),
        "{text}"
    );
    let text = refusal(9000, 1, limits);
    assert!(
        text.contains("the prompt has 9000 tokens, and the model takes 8192 with the answer"),
        "{text}"
    );
    assert!(
        !text.contains("KV") && !text.contains("raise --kv-budget"),
        "more memory gives no positions: {text}"
    );
}

#[test]
fn a_length_that_overflows_is_refused() {
    let text = refusal(usize::MAX, usize::MAX, LIMITS);
    assert!(text.contains("the model takes 500 with the answer"), "{text}");
}

#[test]
fn one_that_no_longer_fits_is_rejected_rather_than_kept_for_ever() {
    let mut queue = queue(&[(1, 400), (2, 10)]);
    queue.set_kv_budget(100);
    assert!(matches!(
        next(&mut queue, &[], padded),
        Verdict::Reject(Waiting { id: RequestId(1), .. }, _)
    ));
    assert!(matches!(
        next(&mut queue, &[], padded),
        Verdict::Admit(Waiting { id: RequestId(2), .. })
    ));
}

#[test]
fn removing_keeps_the_order_of_the_others() {
    let mut queue = queue(&[(1, 10), (2, 10), (3, 10)]);
    assert_eq!(
        queue.remove(RequestId(2)).map(|waiting| waiting.id),
        Some(RequestId(2))
    );
    assert!(queue.remove(RequestId(2)).is_none());
    assert_eq!(queue.position(RequestId(3)), Some(1));
    assert_eq!(
        queue.iter().map(|waiting| waiting.id.0).collect::<Vec<_>>(),
        [1, 3]
    );
    assert_eq!(
        queue.drain().map(|waiting| waiting.id.0).collect::<Vec<_>>(),
        [1, 3]
    );
    assert!(queue.is_empty());
}

#[derive(Debug, Clone)]
enum Act {
    Push {
        prompt: usize,
        max_tokens: usize,
        group: u8,
    },
    Admit,
    Finish(usize),
    Cancel(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (1usize..600, 1usize..200, 0u8..2)
            .prop_map(|(prompt, max_tokens, group)| Act::Push { prompt, max_tokens, group }),
        4 => Just(Act::Admit),
        2 => (0usize..4).prop_map(Act::Finish),
        1 => (0usize..8).prop_map(Act::Cancel),
    ]
}

/// The rows of a run, and whom the queue must hold.
#[derive(Default)]
struct Model {
    waiting: VecDeque<(u64, u8)>,
    running: Vec<(Need, u8)>,
}

impl Model {
    /// Admits one if the queue says so, and checks that it is the one who must be next.
    fn admit(&mut self, queue: &mut Queue<(), u8>, limits: Limits) -> Result<bool, TestCaseError> {
        let needs: Vec<Need> = self.running.iter().map(|row| row.0).collect();
        let group = self.running.first().map(|row| row.1);
        match queue.next(
            Admitted {
                needs: &needs,
                group: group.as_ref(),
            },
            padded,
        ) {
            Verdict::Admit(head) => {
                prop_assert_eq!(self.waiting.pop_front(), Some((head.id.0, head.group)), "FIFO");
                prop_assert!(group.is_none_or(|group| group == head.group));
                self.running.push((head.need, head.group));
                let needs: Vec<Need> = self.running.iter().map(|row| row.0).collect();
                prop_assert!(padded(&needs) <= limits.kv_budget);
                prop_assert!(self.running.len() <= limits.max_batch);
                return Ok(true);
            }
            Verdict::Empty => prop_assert!(self.waiting.is_empty()),
            Verdict::BatchFull => prop_assert_eq!(self.running.len(), limits.max_batch),
            Verdict::WaitForKv {
                need,
                reserved,
                budget,
            } => {
                prop_assert!(need > budget && reserved <= budget);
                prop_assert!(!self.running.is_empty(), "who waits for KV waits for a row");
            }
            Verdict::WaitForGroup => {
                prop_assert_ne!(self.waiting.front().map(|head| head.1), group);
                prop_assert!(group.is_some());
            }
            Verdict::Reject(..) => prop_assert!(false, "what was queued fits alone"),
        }
        Ok(false)
    }
}

proptest! {
    #[test]
    fn nobody_overtakes_and_the_budget_holds_and_everyone_gets_in(
        acts in prop::collection::vec(act(), 1..120), max_batch in 1usize..4, max_queued in 1usize..6
    ) {
        let limits = Limits { max_batch, max_queued, ..LIMITS };
        let mut queue = Queue::new(limits);
        let mut model = Model::default();
        for (id, act) in acts.into_iter().enumerate() {
            match act {
                Act::Push { prompt, max_tokens, group } => {
                    let request = Waiting { group, ..waiting(id as u64, prompt, max_tokens) };
                    let total = prompt + max_tokens;
                    let need = Need { prompt, max_tokens };
                    let fits = total <= limits.positions && padded(&[need]) <= limits.kv_budget;
                    match queue.push(request, padded) {
                        Ok(()) => {
                            prop_assert!(fits && model.waiting.len() < max_queued);
                            model.waiting.push_back((id as u64, group));
                        }
                        Err((_, Refused::QueueFull { .. })) => prop_assert_eq!(model.waiting.len(), max_queued),
                        Err((_, Refused::NeverFits(never))) => {
                            prop_assert!(!fits);
                            prop_assert!(padded(&needs(&[never.longest])) <= limits.kv_budget);
                            prop_assert!(never.longest < total);
                        }
                    }
                }
                Act::Admit => {
                    model.admit(&mut queue, limits)?;
                }
                Act::Finish(row) if row < model.running.len() => {
                    model.running.remove(row);
                }
                Act::Cancel(place) => {
                    if let Some((id, _)) = model.waiting.remove(place) {
                        prop_assert!(queue.remove(RequestId(id)).is_some());
                    }
                }
                Act::Finish(_) => {}
            }
            prop_assert_eq!(queue.len(), model.waiting.len());
            prop_assert!(queue.len() <= max_queued);
        }
        // Nobody starves: as rows finish one after the other, everyone is admitted in the end.
        while !model.waiting.is_empty() {
            if !model.admit(&mut queue, limits)? {
                prop_assert!(!model.running.is_empty());
                model.running.remove(0);
            }
        }
        prop_assert!(queue.is_empty());
    }
}
