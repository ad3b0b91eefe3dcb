//! Words that are searched for.

use memchr::memmem::Finder;

/// Words, all of which have to be in a text. Both are in lowercase.
#[derive(Debug)]
pub(super) struct Words {
    /// The longest first: it is the rarest, as a rule.
    words: Vec<String>,
    /// What finds each.
    finders: Vec<Finder<'static>>,
}

impl Words {
    /// The words of a text, whatever their case.
    pub(super) fn new(text: &str) -> Self {
        let mut words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
        words.sort_by_key(|word| std::cmp::Reverse(word.len()));
        let finders = words.iter().map(|word| Finder::new(word).into_owned());
        Self {
            finders: finders.collect(),
            words,
        }
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Whether all of them are in a text.
    pub(super) fn are_in(&self, lower: &str) -> bool {
        self.finders
            .iter()
            .all(|word| word.find(lower.as_bytes()).is_some())
    }

    /// Where in a text the one is first that is likely to be the rarest.
    pub(super) fn rarest_in(&self, lower: &[u8]) -> Option<usize> {
        self.finders.first()?.find(lower)
    }

    /// Where each of those that are in a text is first.
    pub(super) fn places(&self, lower: &str) -> impl Iterator<Item = usize> {
        self.finders.iter().filter_map(|word| word.find(lower.as_bytes()))
    }

    /// Whether what holds all of these holds all of the others, too.
    pub(super) fn imply(&self, others: &Self) -> bool {
        let implied = |other: &String| self.words.iter().any(|word| word.contains(other.as_str()));
        others.words.iter().all(implied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_words_have_to_be_there_whatever_their_case() {
        let words = Words::new("  Two\tWORDS ");
        assert!(words.are_in("words, two of them") && !words.are_in("two"));
        assert_eq!(words.places("two words").min(), Some(0));
        assert!(Words::new(" ").is_empty());
    }

    #[test]
    fn a_text_that_was_typed_on_implies_the_one_before() {
        for (longer, shorter, implied) in [
            ("pearls", "pearl", true),
            ("pearl rare", "pearl", true),
            ("rare pearl", "pearl ra", true),
            ("pear", "pearl", false),
            ("pearl", "pearl rare", false),
        ] {
            assert_eq!(
                Words::new(longer).imply(&Words::new(shorter)),
                implied,
                "{longer}"
            );
        }
    }
}
