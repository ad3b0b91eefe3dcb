//! Which markers a model writes.

use std::sync::Arc;

use super::Span;
use super::scanner::Scanner;

/// A pair of markers. An empty closing one stands for the answer's end.
pub(super) struct Pair {
    pub(super) span: Span,
    pub(super) open: &'static str,
    pub(super) close: &'static str,
}

const fn thinking(open: &'static str, close: &'static str) -> Pair {
    let span = Span::Thinking;
    Pair { span, open, close }
}

const fn tool(open: &'static str, close: &'static str) -> Pair {
    let span = Span::ToolCall;
    Pair { span, open, close }
}

/// What published models write. No marker is the beginning of another one.
pub(super) const PAIRS: &[Pair] = &[
    thinking("<think>", "</think>"),
    thinking("<thinking>", "</thinking>"),
    thinking("<thought>", "</thought>"),
    thinking("<reasoning>", "</reasoning>"),
    thinking("<seed:think>", "</seed:think>"),
    thinking("[THINK]", "[/THINK]"),
    thinking("<|START_THINKING|>", "<|END_THINKING|>"),
    thinking("<|inner_prefix|>", "<|inner_suffix|>"),
    thinking("<|channel>thought", "<channel|>"),
    thinking("◁think▷", "◁/think▷"),
    thinking("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),
    tool("<tool_call>", "</tool_call>"),
    tool("<tool_calls>", "</tool_calls>"),
    tool("<TOOLCALL>", "</TOOLCALL>"),
    tool("<seed:tool_call>", "</seed:tool_call>"),
    tool("<minimax:tool_call>", "</minimax:tool_call>"),
    tool("<|tool_call|>", "<|/tool_call|>"),
    tool("<|tool_call>", "<tool_call|>"),
    tool("<|tool_call_start|>", "<|tool_call_end|>"),
    tool("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    tool("<|tools_prefix|>", "<|tools_suffix|>"),
    tool("<|START_ACTION|>", "<|END_ACTION|>"),
    tool("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    tool("<｜DSML｜function_calls>", "</｜DSML｜function_calls>"),
    tool("[TOOL_CALLS]", ""),
    tool("<|python_tag|>", ""),
];

/// What some models put around the answer itself.
pub(super) const WRAPPERS: &[&str] = &[
    "<|START_RESPONSE|>",
    "<|END_RESPONSE|>",
    "<|START_TEXT|>",
    "<|END_TEXT|>",
    "[END FINAL RESPONSE]",
];

pub(super) const CHANNEL: &str = "<|channel|>";
pub(super) const MESSAGE: &str = "<|message|>";
pub(super) const START: &str = "<|start|>";
pub(super) const CONSTRAIN: &str = "<|constrain|>";
/// What ends a channel's text.
pub(super) const ENDS: &[&str] = &["<|end|>", "<|call|>", "<|return|>"];

/// The markers that one model writes; clones share them. None by default: then all of an answer is answer.
#[derive(Debug, Clone, Default)]
pub struct Markup(Arc<Set>);

#[derive(Debug, Default)]
pub(super) struct Set {
    /// Indices into [`PAIRS`].
    pub(super) pairs: Vec<usize>,
    pub(super) wrappers: Vec<&'static str>,
    pub(super) channels: bool,
    /// Markers that are control tokens: wherever they stand, they are no text.
    pub(super) control: Vec<&'static str>,
}

impl Markup {
    /// Those that a chat template speaks of: it was written for what its model writes.
    pub fn of_template(source: &str) -> Self {
        let channels = source.contains(CHANNEL) && source.contains(MESSAGE);
        Self::new(channels, |pair| {
            source.contains(pair.open) || (!pair.close.is_empty() && source.contains(pair.close))
        })
        .with_wrappers(|wrapper| source.contains(wrapper))
    }

    /// Those whose both ends are tokens of a vocabulary of their own, for a model without a template.
    pub fn of_vocabulary(has: impl Fn(&str) -> bool) -> Self {
        let channels = has(CHANNEL) && has(MESSAGE);
        Self::new(channels, |pair| {
            has(pair.open) && !pair.close.is_empty() && has(pair.close)
        })
        .with_wrappers(|wrapper| has(wrapper))
    }

    fn new(channels: bool, applies: impl Fn(&Pair) -> bool) -> Self {
        let pairs = PAIRS.iter().enumerate().filter(|(_, pair)| applies(pair));
        Self(Arc::new(Set {
            // Channels have a syntax of their own.
            pairs: if channels {
                Vec::new()
            } else {
                pairs.map(|(at, _)| at).collect()
            },
            channels,
            ..Set::default()
        }))
    }

    fn with_wrappers(self, applies: impl Fn(&str) -> bool) -> Self {
        let wrappers = WRAPPERS.iter().copied().filter(|text| applies(text)).collect();
        Self(Arc::new(Set {
            pairs: self.0.pairs.clone(),
            wrappers,
            channels: self.0.channels,
            control: Vec::new(),
        }))
    }

    /// The same, where those that `is_control` names are control tokens: they are dropped even where they open or close
    /// nothing.
    pub fn with_control(&self, is_control: impl Fn(&str) -> bool) -> Self {
        let control = self
            .markers()
            .into_iter()
            .filter(|text| is_control(text))
            .collect();
        Self(Arc::new(Set {
            pairs: self.0.pairs.clone(),
            wrappers: self.0.wrappers.clone(),
            channels: self.0.channels,
            control,
        }))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.pairs.is_empty() && self.0.wrappers.is_empty() && !self.0.channels
    }

    /// All of them.
    pub fn markers(&self) -> Vec<&'static str> {
        let mut all: Vec<&'static str> = self.pairs().flat_map(|pair| [pair.open, pair.close]).collect();
        all.retain(|text| !text.is_empty());
        all.extend(&self.0.wrappers);
        if self.0.channels {
            all.extend([CHANNEL, MESSAGE, START, CONSTRAIN]);
            all.extend(ENDS);
        }
        all
    }

    /// What opens and closes a thought, where the model writes such a pair; the first that applies.
    pub fn thinking(&self) -> Option<(&'static str, &'static str)> {
        let pair = self.pairs().find(|pair| pair.span == Span::Thinking)?;
        Some((pair.open, pair.close))
    }

    /// A scanner for an answer to a prompt that ends with `tail`: the text behind the last message, which may have
    /// opened a span.
    pub fn scanner(&self, tail: &str) -> Scanner {
        Scanner::new(self.clone(), tail)
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = &'static Pair> {
        self.0.pairs.iter().filter_map(|at| PAIRS.get(*at))
    }

    pub(super) fn set(&self) -> &Set {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_marker_begins_another() {
        let all: Vec<&str> = PAIRS
            .iter()
            .flat_map(|pair| [pair.open, pair.close])
            .chain(WRAPPERS.iter().copied())
            .chain([CHANNEL, MESSAGE, START, CONSTRAIN])
            .chain(ENDS.iter().copied())
            .filter(|text| !text.is_empty())
            .collect();
        for (at, one) in all.iter().enumerate() {
            for (other, two) in all.iter().enumerate() {
                assert!(at == other || !two.starts_with(one), "{one} begins {two}");
            }
        }
    }

    #[test]
    fn a_template_names_the_markers_of_its_model() {
        let markup = Markup::of_template("{{ content.split('</think>')[-1] }} <tool_call>");
        assert_eq!(
            markup.markers(),
            ["<think>", "</think>", "<tool_call>", "</tool_call>"]
        );
        assert_eq!(markup.thinking(), Some(("<think>", "</think>")));
        assert!(Markup::of_template("{{ messages[0].content }}").is_empty());
        let channels = Markup::of_template("<|start|>{{ role }}<|channel|>final<|message|><think>");
        assert!(channels.markers().contains(&CHANNEL) && channels.thinking().is_none());
    }

    #[test]
    fn without_a_template_the_vocabulary_must_know_both_ends() {
        let both = Markup::of_vocabulary(|text| text.ends_with("think>"));
        assert_eq!(
            both.markers(),
            ["<think>", "</think>", "<seed:think>", "</seed:think>"]
        );
        assert!(Markup::of_vocabulary(|text| text == "<think>").is_empty());
        assert!(Markup::of_vocabulary(|_| false).is_empty());
    }
}
