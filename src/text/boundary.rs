//! Up to where a conversation's rendering will be that of its next turn, too.

use super::codec::Inner;
use super::guard;
use super::message::{ChatOptions, Message, Role};
use super::template::Rendered;

/// What an answer, or what follows, may begin with: a token that ends where it begins may swallow any of it.
const CONTINUATIONS: &[&str] = &[
    "a", " a", "\n", "\n\n", "  ", "1", ".", "é", "\u{301}", "日", "\"", "<",
];

/// A rendering in tokens, and how many of them others share.
pub(super) struct Bounded {
    pub(super) tokens: Vec<u32>,
    pub(super) stable: usize,
    pub(super) system: Option<usize>,
}

impl Inner {
    /// Tokenizes `now`, the marked rendering of `messages`, and finds its boundaries.
    ///
    /// What the next turn will look like is tried with several answers and questions, so that nothing they happen to
    /// share lengthens the boundary. It is then moved back to where no continuation can change the tokens.
    pub(super) fn bounded(&self, now: &Rendered, messages: &[Message], options: &ChatOptions) -> Bounded {
        let text = now.text.as_str();
        let stable = self.shared(now, next_turns(messages), options).unwrap_or(0);
        let system = messages
            .first()
            .filter(|first| first.role == Role::System && messages.len() > 1)
            .and_then(|first| {
                let other = |content: &str| vec![first.clone(), Message::new(Role::User, content)];
                self.shared(now, ["\u{1}", "a"].map(other), options)
            });
        let cut = self.hard.last_before(text, stable).unwrap_or(0);
        let (head, tail) = text.split_at_checked(cut).unwrap_or(("", text));
        let mut tokens = self.encode_marked(head);
        let before = tokens.len();
        let rest = self.encode_marked(tail);
        let shared = tail.get(..stable - cut).unwrap_or_default();
        let kept = self.unchanging(shared, &rest);
        tokens.extend(rest);
        Bounded {
            stable: before + kept,
            system: system.map(|end| self.count_unchanging(text, end, &tokens)),
            tokens,
        }
    }

    /// The length of what a rendering shares with those of all of `others`; `None` where none of them renders as it did.
    fn shared(
        &self,
        now: &Rendered,
        others: impl IntoIterator<Item = Vec<Message>>,
        options: &ChatOptions,
    ) -> Option<usize> {
        let render = |messages: Vec<Message>| self.parts.template.render(&messages, options);
        let length = |other: &str| {
            let same = now
                .text
                .bytes()
                .zip(other.bytes())
                .take_while(|(a, b)| a == b)
                .count();
            now.text.floor_char_boundary(same)
        };
        let rendered = others.into_iter().map(render);
        let own = rendered.filter(|other| other.replaced == now.replaced);
        own.map(|other| length(&other.text)).min()
    }

    /// The end of a rendering that no message wrote: what opens the answer.
    ///
    /// That is what is missing where the template is told not to open it. A template that always does shows it by what stays
    /// when the last message says something else.
    pub(super) fn opening(&self, now: &Rendered, messages: &[Message], options: &ChatOptions) -> String {
        if now.replaced {
            return String::new();
        }
        let text = now.text.as_str();
        let closed = self.parts.template.render_closed(messages, options);
        let opening = closed.and_then(|closed| text.strip_prefix(closed.as_str()));
        if let Some(opening) = opening.filter(|opening| !opening.is_empty()) {
            return opening.to_owned();
        }
        let Some((last, before)) = messages.split_last() else {
            return String::new();
        };
        let same = |other: &str| {
            let same = text.bytes().rev().zip(other.bytes().rev());
            same.take_while(|(a, b)| a == b).count()
        };
        let shared = ["Question?", "\u{1}1", "a"].map(|content| {
            let other = Message {
                content: content.to_owned(),
                ..last.clone()
            };
            let other = self.parts.template.render(&[before, &[other]].concat(), options);
            // One that isn't shown leaves all as it was.
            (!other.replaced && other.text != text).then(|| same(&other.text))
        });
        let shared = shared.into_iter().min().flatten().unwrap_or(0);
        let start = text.len() - shared;
        text.get(text.ceil_char_boundary(start)..)
            .unwrap_or_default()
            .to_owned()
    }

    /// How many of `tokens` begin every text that begins with `text`.
    fn unchanging(&self, text: &str, tokens: &[u32]) -> usize {
        let with = |more: &&str| {
            let other = self.encode_marked(&format!("{text}{more}"));
            tokens.iter().zip(&other).take_while(|(a, b)| a == b).count()
        };
        let counts = CONTINUATIONS.iter().map(with);
        counts.min().unwrap_or(0)
    }

    /// How many of `tokens`, those of `text`, are its first `end` bytes, whatever follows them.
    fn count_unchanging(&self, text: &str, end: usize, tokens: &[u32]) -> usize {
        let cut = self.hard.last_before(text, end).unwrap_or(0);
        let head = text.get(..cut).unwrap_or_default();
        let tail = text.get(cut..end).unwrap_or_default();
        let before = self.encode_marked(head).len();
        before + self.unchanging(tail, tokens.get(before..).unwrap_or_default())
    }
}

/// `messages`, answered and asked again, in ways that have nothing in common.
fn next_turns(messages: &[Message]) -> [Vec<Message>; 3] {
    let next = |answer: Message, question: &str| {
        let mut next = messages.to_vec();
        next.extend([answer, Message::new(Role::User, question)]);
        next
    };
    let thought = Message {
        reasoning_content: Some("Reasons.".to_owned()),
        ..Message::new(Role::Assistant, "Answer.")
    };
    [
        next(thought, "Question?"),
        next(Message::new(Role::Assistant, "\u{1}1"), "a"),
        next(Message::new(Role::Assistant, ""), "\u{1}"),
    ]
}

impl Inner {
    /// The tokens of a marked text.
    pub(super) fn encode_marked(&self, text: &str) -> Vec<u32> {
        guard::pieces(text).flat_map(|piece| self.encode(piece)).collect()
    }
}
