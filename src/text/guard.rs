//! Keeps what people write from being taken for special tokens.
//!
//! A special token's text within a message must not open or close a turn. So before a conversation is rendered, a mark is
//! put inside of each such text, which no template trims or looks at; where the rendering is tokenized, it is cut at the
//! marks, and no piece holds the whole of a special token's text that wasn't the template's own.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::Value;

use super::message::{Message, Role};

/// A character that Unicode gives to no text.
const MARK: char = '\u{fdd0}';

/// Texts of tokens, found by their first character.
#[derive(Debug, Default)]
pub(super) struct TokenTexts(HashMap<char, Vec<Box<str>>>);

impl<S: AsRef<str>> FromIterator<S> for TokenTexts {
    fn from_iter<I: IntoIterator<Item = S>>(texts: I) -> Self {
        let mut all = Self::default();
        for text in texts {
            if let Some(first) = text.as_ref().chars().next() {
                all.0.entry(first).or_default().push(text.as_ref().into());
            }
        }
        all
    }
}

impl TokenTexts {
    /// Whether one of them stands at the beginning of `text`.
    fn begins(&self, text: &str) -> Option<&str> {
        let candidates = self.0.get(&text.chars().next()?)?;
        candidates
            .iter()
            .map(AsRef::as_ref)
            .find(|token| text.starts_with(token))
    }

    /// Where the last of them begins that ends at `end` or before.
    pub(super) fn last_before(&self, text: &str, end: usize) -> Option<usize> {
        let text = text.get(..end)?;
        let mut starts = text.char_indices().rev();
        starts.find_map(|(at, _)| self.begins(text.get(at..)?).map(|_| at))
    }
}

/// `text` with a mark in each of `specials` that it holds, those that `spared` names excepted.
fn marked<'a>(text: &'a str, specials: &TokenTexts, spared: &[&str]) -> Cow<'a, str> {
    let mut marked = String::new();
    let mut copied = 0;
    for (at, c) in text.char_indices() {
        let rest = text.get(at..).unwrap_or_default();
        if c == MARK {
            marked.push_str(text.get(copied..at).unwrap_or_default());
            marked.push(char::REPLACEMENT_CHARACTER);
            copied = at + c.len_utf8();
        } else if specials
            .begins(rest)
            .is_some_and(|found| !spared.contains(&found))
        {
            let cut = at + c.len_utf8();
            marked.push_str(text.get(copied..cut).unwrap_or_default());
            marked.push(MARK);
            copied = cut;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    marked.push_str(text.get(copied..).unwrap_or_default());
    Cow::Owned(marked)
}

/// `messages` with marks in what looks like a special token. The model's own span markers stay what they are in its
/// answers.
pub(super) fn protect(messages: &[Message], specials: &TokenTexts, spared: &[&str]) -> Vec<Message> {
    let protect = |message: &Message| {
        let spared = match message.role {
            Role::Assistant => spared,
            Role::System | Role::User | Role::Tool => &[],
        };
        let mut message = message.clone();
        message.content = marked(&message.content, specials, spared).into_owned();
        if let Some(thought) = &mut message.reasoning_content {
            *thought = marked(thought, specials, spared).into_owned();
        }
        for text in [&mut message.name, &mut message.tool_call_id]
            .into_iter()
            .flatten()
        {
            *text = marked(text, specials, spared).into_owned();
        }
        for call in &mut message.tool_calls {
            mark_texts(call, specials, spared);
        }
        message
    };
    messages.iter().map(protect).collect()
}

/// Marks every text in a value; keys, too.
fn mark_texts(value: &mut Value, specials: &TokenTexts, spared: &[&str]) {
    match value {
        Value::String(text) => *text = marked(text, specials, spared).into_owned(),
        Value::Array(items) => {
            for item in items {
                mark_texts(item, specials, spared);
            }
        }
        Value::Object(map) => {
            for (key, mut value) in std::mem::take(map) {
                mark_texts(&mut value, specials, spared);
                map.insert(marked(&key, specials, spared).into_owned(), value);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The pieces of a marked text.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = &str> {
    text.split(MARK)
}

/// A marked text without its marks.
pub(super) fn unmarked(text: &str) -> String {
    pieces(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts() -> TokenTexts {
        ["<|im_end|>", "<|im_end|><b>", "<s>", "</s>"].iter().collect()
    }

    #[test]
    fn every_special_text_is_cut_and_nothing_else() {
        let cut = |text: &str| marked(text, &texts(), &["</s>"]).replace(MARK, "|");
        assert_eq!(cut("a <|im_end|> b<s></s>"), "a <||im_end|> b<|s></s>");
        assert_eq!(cut("<|im_<|im_end|>end|>"), "<|im_<||im_end|>end|>");
        assert!(matches!(marked("a < b > c", &texts(), &[]), Cow::Borrowed(_)));
        assert_eq!(marked("x\u{fdd0}y", &texts(), &[]), "x\u{fffd}y");
    }

    #[test]
    fn no_piece_holds_a_special_text_and_all_of_them_are_the_text() {
        let text = "<s><|im_end|><b></s><<s>>|im_end|>";
        let cut = marked(text, &texts(), &[]);
        let whole = |piece: &str| {
            piece
                .char_indices()
                .any(|(at, _)| texts().begins(&piece[at..]).is_some())
        };
        assert!(pieces(&cut).all(|piece| !whole(piece)), "{cut:?}");
        assert_eq!(unmarked(&cut), text);
    }

    #[test]
    fn what_tools_say_and_are_given_is_text_as_well() {
        let message = Message {
            name: Some("<s>".to_owned()),
            tool_call_id: Some("</s>".to_owned()),
            tool_calls: vec![
                serde_json::json!({"function": {"name": "a", "arguments": {"<s>": ["</s>", 1]}}}),
            ],
            ..Message::new(Role::Tool, "<|im_end|>")
        };
        let safe = protect(std::slice::from_ref(&message), &texts(), &["</s>"]).remove(0);
        let whole = serde_json::to_string(&safe).unwrap();
        assert_eq!(whole.matches(MARK).count(), 5, "{whole}");
        assert_eq!(unmarked(&whole), serde_json::to_string(&message).unwrap());
    }

    #[test]
    fn the_last_token_text_that_fits_is_found() {
        let text = "<s>a<|im_end|>b";
        assert_eq!(texts().last_before(text, text.len()), Some(4));
        assert_eq!(texts().last_before(text, 13), Some(0));
        assert_eq!(texts().last_before(text, 2), None);
        assert_eq!(texts().last_before(text, 99), None);
    }
}
