//! Fuzzy matching: which of many texts a few typed letters mean, the best first.

use nucleo_matcher::pattern::{AtomKind, CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher, Utf32Str};
use unicode_segmentation::UnicodeSegmentation;

/// Finds texts by typed letters. Keeps the memory that matching takes.
pub struct Fuzzy {
    matcher: Matcher,
    characters: Vec<char>,
    places: Vec<u32>,
}

impl Default for Fuzzy {
    fn default() -> Self {
        Self {
            matcher: Matcher::new(Config::DEFAULT),
            characters: Vec::new(),
            places: Vec::new(),
        }
    }
}

impl std::fmt::Debug for Fuzzy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fuzzy")
    }
}

/// Letters that are looked for: words apart by spaces, all of which have to match, in any order and whatever their case.
#[derive(Debug, Clone)]
pub struct Query(Pattern);

impl Query {
    /// What a person typed; nothing matches everything.
    pub fn new(text: &str) -> Self {
        let (case, form) = (CaseMatching::Ignore, Normalization::Smart);
        Self(Pattern::new(text, case, form, AtomKind::Fuzzy))
    }
}

impl Fuzzy {
    /// How well a text matches; none where it doesn't.
    pub fn score(&mut self, query: &Query, text: &str) -> Option<u32> {
        let text = Utf32Str::new(text, &mut self.characters);
        query.0.score(text, &mut self.matcher)
    }

    /// How well something matches that has a name: what bears the name is meant before what only mentions it.
    pub fn named(&mut self, query: &Query, name: &str, whole: &str) -> Option<u32> {
        let name = self.score(query, name).map(|score| score * 2);
        name.max(self.score(query, whole))
    }

    /// Which characters (graphemes, from 0, in order) of a text the letters stand for; none where it doesn't match.
    pub fn places(&mut self, query: &Query, text: &str) -> Vec<usize> {
        self.places.clear();
        let wanted = Utf32Str::new(text, &mut self.characters);
        if query
            .0
            .indices(wanted, &mut self.matcher, &mut self.places)
            .is_none()
        {
            return Vec::new();
        }
        self.places.sort_unstable();
        self.places.dedup();
        self.places.iter().map(|place| *place as usize).collect()
    }

    /// The indices of the texts that match, the best first, those that match as well in their order.
    pub fn rank<'a>(&mut self, query: &Query, texts: impl IntoIterator<Item = &'a str>) -> Vec<usize> {
        let scores = texts.into_iter().map(|text| self.score(query, text));
        best_first(scores)
    }
}

/// The indices of those that have a score, the best first, those that have the same in their order.
pub fn best_first(scores: impl IntoIterator<Item = Option<u32>>) -> Vec<usize> {
    let scored = |(at, score): (usize, Option<u32>)| Some((score?, at));
    let mut found: Vec<(u32, usize)> = scores.into_iter().enumerate().filter_map(scored).collect();
    found.sort_by_key(|(score, at)| (std::cmp::Reverse(*score), *at));
    found.into_iter().map(|(_, at)| at).collect()
}

/// A text cut where matched characters begin and end; each piece with whether it is matched.
pub fn cut<'a>(text: &'a str, places: &[usize]) -> Vec<(&'a str, bool)> {
    let mut out: Vec<(&str, bool)> = Vec::new();
    let (mut start, mut matched) = (0, false);
    for (count, (at, _)) in text.grapheme_indices(true).enumerate() {
        let here = places.binary_search(&count).is_ok();
        if here != matched {
            out.extend((at > start).then(|| (&text[start..at], matched)));
            (start, matched) = (at, here);
        }
    }
    out.extend((start < text.len()).then(|| (&text[start..], matched)));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_in_order_match_and_the_nearer_is_first() {
        let texts = ["close this pane", "open a pane", "new pane", "repaint"];
        let found = Fuzzy::default().rank(&Query::new("newp"), texts);
        assert_eq!(found, [2]);
        let found = Fuzzy::default().rank(&Query::new("PANE"), texts);
        assert_eq!(found.len(), 3);
        assert_eq!(Fuzzy::default().rank(&Query::new(""), texts), [0, 1, 2, 3]);
        assert!(Fuzzy::default().rank(&Query::new("xyz"), texts).is_empty());
    }

    #[test]
    fn words_match_in_any_order() {
        let found = Fuzzy::default().rank(&Query::new("pane close"), ["close this pane", "open a pane"]);
        assert_eq!(found, [0]);
    }

    #[test]
    fn matched_characters_are_told_by_grapheme() {
        let mut fuzzy = Fuzzy::default();
        let places = fuzzy.places(&Query::new("bd"), "a👩‍👩‍👧bcd");
        assert_eq!(places, [2, 4]);
        assert_eq!(
            cut("a👩‍👩‍👧bcd", &places),
            [("a👩‍👩‍👧", false), ("b", true), ("c", false), ("d", true)]
        );
        assert_eq!(cut("", &[]), []);
    }
}
