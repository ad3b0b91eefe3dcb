//! What is left for an answer of which nobody said how long it may get.

use super::admission::NeverFits;

/// The limit of an answer, lowered to what there is room for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    /// The most tokens of the answer; at least 1.
    pub max_tokens: usize,
    /// What to tell where the answer reaches them.
    pub told: String,
}

impl Room {
    /// What a request that doesn't fit leaves for its answer; `None` where not even one token would fit.
    pub fn left(never: &NeverFits) -> Option<Self> {
        let max_tokens = never.longest.checked_sub(never.need.prompt)?;
        if max_tokens == 0 {
            return None;
        }
        let told = if never.longest >= never.positions {
            format!("prompt and answer fill the model's {} positions", never.positions)
        } else {
            format!(
                "prompt and answer take the {} tokens that the KV budget has room for; raise --kv-budget",
                never.longest
            )
        };
        Some(Self { max_tokens, told })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::admission::{Limits, Need, Queue};

    fn left(prompt: usize, max_tokens: usize, budget: u64, positions: usize) -> Option<Room> {
        let queue: Queue<()> = Queue::new(Limits::new(budget, positions));
        let never = queue.check(Need { prompt, max_tokens }, |lengths| {
            lengths.iter().sum::<usize>() as u64
        });
        Room::left(&never.unwrap_err())
    }

    #[test]
    fn what_the_context_leaves_is_all_of_it() {
        let room = left(90, 1024, 1 << 20, 100).unwrap();
        assert_eq!(room.max_tokens, 10);
        assert!(room.told.contains("the model's 100 positions"), "{}", room.told);
    }

    #[test]
    fn what_the_budget_leaves_is_told_apart() {
        let room = left(10, 1024, 40, 100).unwrap();
        assert_eq!(room.max_tokens, 30);
        assert!(
            room.told.contains("40 tokens") && room.told.contains("--kv-budget"),
            "{}",
            room.told
        );
    }

    #[test]
    fn beside_a_prompt_that_takes_everything_there_is_no_room() {
        assert_eq!(left(100, 1024, 1 << 20, 100), None);
        assert_eq!(left(200, 1024, 1 << 20, 100), None);
        assert_eq!(left(40, 1024, 40, 100), None);
    }
}
