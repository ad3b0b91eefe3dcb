//! How much of the model's context a conversation takes, and what is left of it for a prompt.

use super::answer::{Refused, Status, Turn};
use super::pane::Pane;
use super::state::State;

/// Bytes of text that are about a token.
const BYTES_PER_TOKEN: usize = 4;
/// Bytes of text that are about a token, cautiously: a prompt that takes more tokens doesn't fit.
const CAUTIOUSLY: usize = 5;

/// How a refusal begins where the conversation, with what was said before, is too long for the model.
pub(super) const FULL: &str = "the conversation is full";

/// The most tokens that a conversation can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// So many, prompt and answer together.
    pub tokens: usize,
    /// Whether it is the KV budget's, which is less than the model takes.
    pub by_memory: bool,
}

impl Limit {
    /// So many tokens beside it, in words; `of` says what they are.
    fn beside(&self, tokens: usize, of: &str) -> String {
        match self.by_memory {
            true => format!(
                "{tokens} tokens{of}, and --kv-budget has room for {}",
                self.tokens
            ),
            false => format!("{tokens} of {} tokens{of}", self.tokens),
        }
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.beside(self.tokens, ""))
    }
}

impl State {
    /// Tokens of a pane's turns that have ended, and whether all of them were counted, by this model; none before the first
    /// turn.
    pub fn taken(&self, pane: &Pane) -> Option<(usize, bool)> {
        self.taken_by(pane, &pane.turns)
    }

    fn taken_by(&self, pane: &Pane, turns: &[Turn]) -> Option<(usize, bool)> {
        let since = self.counts_since(pane);
        let counted = |turn: &Turn| match turn.status {
            _ if since.is_some_and(|since| turn.at < since) => None,
            Status::Done { stats, .. } | Status::Stopped { stats: Some(stats) } => {
                // Who imports a conversation counts nothing.
                Some(stats.prompt_tokens + stats.generated_tokens).filter(|count| *count > 0)
            }
            _ => None,
        };
        let mut ended = turns.iter().rev().filter(|turn| !turn.is_running());
        let (mut text, mut known, mut any) = (0, None, false);
        for turn in &mut ended {
            known = counted(turn);
            if known.is_some() {
                break;
            }
            if turn.in_history() {
                (text, any) = (text + turn.prompt.len() + turn.answer.len(), true);
            }
        }
        match known {
            Some(count) => Some((count + text.div_ceil(BYTES_PER_TOKEN), text == 0)),
            None if any => {
                let system = pane.settings.system.as_ref().map_or(0, String::len);
                Some(((text + system).div_ceil(BYTES_PER_TOKEN), false))
            }
            None => None,
        }
    }

    /// The most tokens that a conversation can have; 0 where that isn't known.
    fn limit(&self) -> Limit {
        let (context, longest) = (self.snapshot.info.context_length, self.snapshot.longest_row);
        let by_memory = (1..context).contains(&longest);
        Limit {
            tokens: if by_memory { longest } else { context },
            by_memory,
        }
    }

    /// The limit, where a conversation was counted to have come to it: no answer can go on there, and no prompt follow.
    pub fn full(&self, pane: &Pane) -> Option<Limit> {
        let limit = self.limit();
        let (taken, counted) = self.taken(pane)?;
        let full = counted && limit.tokens > 0 && taken >= limit.tokens;
        (full && pane.running().is_none()).then_some(limit)
    }

    /// About how many tokens there would be with a prompt of so many bytes in the focused pane, and how many there can be, where
    /// those are too many.
    pub fn overflow(&self, bytes: usize) -> Option<(usize, usize)> {
        let (pane, limit) = (self.focused_pane(), self.limit().tokens);
        // An edited prompt takes the place of all from there on.
        let turns = &pane.turns[..pane.edited().unwrap_or(pane.turns.len())];
        let taken = self.taken_by(pane, turns).map_or(0, |(taken, _)| taken);
        let about = taken + bytes / CAUTIOUSLY;
        (bytes > 0 && limit > 0 && about >= limit).then_some((about, limit))
    }

    /// Why the engine refused a pane's last prompt, of so many tokens with all that was said before, where that is because of
    /// the limit.
    pub(super) fn why_too_long(&self, pane: &Pane, tokens: usize) -> Option<(String, Refused)> {
        let limit = self.limit();
        if limit.tokens == 0 || tokens < limit.tokens {
            return None;
        }
        let said = |turn: &Turn| !turn.is_running() && turn.in_history();
        // Without what was said before, it would be too long, too.
        let alone = tokens.saturating_sub(self.taken(pane).map_or(0, |(taken, _)| taken));
        Some(match pane.turns.iter().any(said) && alone < limit.tokens {
            true => (
                format!("{FULL}: {}", limit.beside(tokens, " with this prompt")),
                Refused::Full,
            ),
            false => (
                format!("the prompt is too long: {}", limit.beside(tokens, "")),
                Refused::Otherwise,
            ),
        })
    }
}
