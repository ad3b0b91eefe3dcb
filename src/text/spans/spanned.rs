//! Text whose parts are known.

use super::Span;

/// Text with what each part of it is. All of what the model wrote is there, markers included, in its order.
///
/// It can be read as the whole text; [`Spanned::runs`] gives its parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spanned {
    text: String,
    /// What the runs are and where each ends; neighbours differ.
    ends: Vec<(Span, bool, usize)>,
}

/// The longest piece of a text that is all of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run<'a> {
    /// What it is, or delimits.
    pub span: Span,
    /// Whether it only delimits a span, and isn't to be shown.
    pub marker: bool,
    /// The text; never empty.
    pub text: &'a str,
}

impl Spanned {
    /// Appends a piece.
    pub fn push(&mut self, span: Span, marker: bool, text: &str) {
        if text.is_empty() {
            return;
        }
        self.text.push_str(text);
        let end = self.text.len();
        match self.ends.last_mut() {
            Some((last, of, at)) if *last == span && *of == marker => *at = end,
            _ => self.ends.push((span, marker, end)),
        }
    }

    /// Appends another text.
    pub fn append(&mut self, other: &Self) {
        for run in other.runs() {
            self.push(run.span, run.marker, run.text);
        }
    }

    /// Keeps so many bytes, less where that would cut a character.
    pub fn truncate(&mut self, bytes: usize) {
        self.text.truncate(self.text.floor_char_boundary(bytes));
        let end = self.text.len();
        let whole = self.ends.partition_point(|(_, _, at)| *at <= end);
        let last = whole.checked_sub(1).and_then(|at| self.ends.get(at));
        let covered = last.map_or(0, |(_, _, at)| *at) >= end;
        self.ends.truncate(if covered { whole } else { whole + 1 });
        if let Some((_, _, at)) = self.ends.last_mut() {
            *at = end;
        }
    }

    /// Takes away what follows so many bytes, and gives it.
    pub fn split_off(&mut self, bytes: usize) -> Self {
        let at = self.text.floor_char_boundary(bytes);
        let (mut rest, mut start) = (Self::default(), 0);
        for run in self.runs() {
            let after = run.text.get(at.saturating_sub(start)..).unwrap_or_default();
            if !after.is_empty() {
                rest.push(run.span, run.marker, after);
            }
            start += run.text.len();
        }
        self.truncate(at);
        rest
    }

    /// Its parts, in order.
    pub fn runs(&self) -> impl DoubleEndedIterator<Item = Run<'_>> + Clone {
        self.ends.iter().enumerate().map(|(at, (span, marker, end))| {
            let start = at
                .checked_sub(1)
                .and_then(|before| self.ends.get(before))
                .map_or(0, |(_, _, end)| *end);
            Run {
                span: *span,
                marker: *marker,
                text: self.text.get(start..*end).unwrap_or_default(),
            }
        })
    }

    /// What `span` says, without markers.
    pub fn of(&self, span: Span) -> String {
        let texts = self.runs().filter(|run| run.span == span && !run.marker);
        texts.map(|run| run.text).collect()
    }

    /// Whether all of it is answer.
    pub fn is_plain(&self) -> bool {
        self.runs().all(|run| run.span == Span::Answer && !run.marker)
    }

    /// The whole text, markers included.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// The whole text, markers included.
impl std::ops::Deref for Spanned {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl PartialEq<str> for Spanned {
    fn eq(&self, other: &str) -> bool {
        self.text == other
    }
}

impl PartialEq<&str> for Spanned {
    fn eq(&self, other: &&str) -> bool {
        self.text == *other
    }
}

/// All of it is answer.
impl From<&str> for Spanned {
    fn from(text: &str) -> Self {
        let mut spanned = Self::default();
        spanned.push(Span::Answer, false, text);
        spanned
    }
}

/// All of it is answer.
impl From<String> for Spanned {
    fn from(text: String) -> Self {
        let ends = match text.len() {
            0 => Vec::new(),
            end => vec![(Span::Answer, false, end)],
        };
        Self { text, ends }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_at_any_byte_and_its_parts_stay_what_they_are() {
        let mut whole = Spanned::default();
        whole.push(Span::Thinking, true, "<t>");
        whole.push(Span::Thinking, false, "hm");
        whole.push(Span::Answer, false, "žluť");
        for bytes in 0..=whole.len() + 1 {
            let mut cut = whole.clone();
            cut.truncate(bytes);
            assert_eq!(cut.as_str(), &whole[..whole.floor_char_boundary(bytes)]);
            let mut again = Spanned::default();
            cut.runs()
                .for_each(|run| again.push(run.span, run.marker, run.text));
            assert_eq!(again, cut, "cut at {bytes}");
            let parts: String = cut.runs().map(|run| run.text).collect();
            assert_eq!(parts, cut.as_str());
            let mut first = whole.clone();
            let rest = first.split_off(bytes);
            assert_eq!(first, cut, "split at {bytes}");
            first.append(&rest);
            assert_eq!(first, whole, "joined at {bytes}");
        }
    }
}
