//! Search in what a pane shows: hits are found in lines, whatever rows they are wrapped into.

use std::ops::Range;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{INDENT, Place, Transcript};
use crate::ui::cells;
use crate::ui::reading::answer::Readable;
use crate::ui::styles::Styles;

/// What is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Needle {
    text: String,
    /// Whether capitals count: only where there is one in what is looked for.
    exact: bool,
}

/// A place where it was found: the rows that it is in, and where in their texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hit(pub Vec<(usize, Range<usize>)>);

impl Hit {
    /// Its first row.
    pub fn row(&self) -> usize {
        self.0.first().map_or(0, |(row, _)| *row)
    }
}

impl Needle {
    /// Looks for a text; for nothing, if it is empty.
    pub fn new(text: &str) -> Option<Self> {
        let exact = text.chars().any(char::is_uppercase);
        let text = if exact {
            text.to_owned()
        } else {
            text.to_lowercase()
        };
        (!text.is_empty()).then_some(Self { text, exact })
    }

    /// Where it is in a line; places don't overlap.
    fn places(&self, line: &str) -> Vec<Range<usize>> {
        let found = |text: &str| -> Vec<Range<usize>> {
            let places = text.match_indices(&self.text);
            places.map(|(at, found)| at..at + found.len()).collect()
        };
        if self.exact {
            return found(line);
        }
        if line.is_ascii() {
            return found(&line.to_ascii_lowercase());
        }
        // Small letters may take other bytes than their capitals.
        let mut folded = String::with_capacity(line.len());
        let mut origins = Vec::with_capacity(line.len());
        for (at, c) in line.char_indices() {
            folded.extend(c.to_lowercase());
            origins.resize(folded.len(), at);
        }
        let origin = |place: Range<usize>| {
            let start = origins.get(place.start).copied().unwrap_or(line.len());
            let last = origins.get(place.end - 1).copied().unwrap_or(start);
            let end = line[last..].chars().next().map_or(last, |c| last + c.len_utf8());
            start..end
        };
        found(&folded).into_iter().map(origin).collect()
    }

    /// All places in rows, of which each has its number.
    pub fn hits<'a>(&self, rows: impl Iterator<Item = (usize, Readable<'a>)>) -> Vec<Hit> {
        let mut hits = Vec::new();
        let mut line = String::new();
        // For each row of the line: its place in the line, its number, and where its text begins in the row.
        let mut pieces: Vec<(Range<usize>, usize, usize)> = Vec::new();
        for (number, row) in rows {
            match row.joins {
                Some(true) => line.push(' '),
                Some(false) => {}
                None => {
                    self.line_hits(&line, &pieces, &mut hits);
                    line.clear();
                    pieces.clear();
                }
            }
            let start = line.len();
            line.push_str(row.text.get(row.margin..).unwrap_or_default());
            pieces.push((start..line.len(), number, row.margin));
        }
        self.line_hits(&line, &pieces, &mut hits);
        hits
    }

    fn line_hits(&self, line: &str, pieces: &[(Range<usize>, usize, usize)], hits: &mut Vec<Hit>) {
        for place in self.places(line) {
            let mut parts = Vec::new();
            for (text, number, margin) in pieces {
                let start = text.start;
                let part = place.start.max(start)..place.end.min(text.end);
                if part.start < part.end {
                    parts.push((*number, margin + part.start - start..margin + part.end - start));
                }
            }
            hits.push(Hit(parts));
        }
    }
}

/// What is looked for, and where it is.
#[derive(Debug, Clone)]
pub(super) struct Search {
    query: String,
    needle: Needle,
    /// For each block.
    pub hits: Vec<Vec<Hit>>,
    /// The block and the hit that one is at.
    at: Option<(usize, usize)>,
    /// Where one was before.
    origin: Option<(Place, Place)>,
}

impl Transcript {
    /// Looks for a text as it is typed, from where one was before; goes to the first place below the top, else to the
    /// last one. For nothing: goes back.
    pub fn find(&mut self, query: &str) {
        let origin = match self.search.take() {
            Some(search) => search.origin,
            None => self.reading,
        };
        self.reading = origin;
        let needle = Needle::new(query);
        self.search = needle.map(|needle| Search {
            query: query.to_owned(),
            needle,
            hits: Vec::new(),
            at: None,
            origin,
        });
        self.look();
        let top = self.top();
        let Some(search) = &mut self.search else { return };
        let mut places = Self::places(&search.hits);
        let below = places.clone().find(|(block, hit)| {
            let start = block.checked_sub(1).map_or(0, |before| self.ends[before]);
            start + search.hits[*block][*hit].row() >= top
        });
        search.at = below.or_else(|| places.next_back());
        drop(places);
        self.reveal_hit();
    }

    /// Ends the search; `back`: where one was before it.
    pub fn end_search(&mut self, back: bool) {
        if let Some(search) = self.search.take().filter(|_| back) {
            self.reading = search.origin;
        }
    }

    /// What is looked for, which of the places one is at (from 1; 0: none), and how many there are.
    pub fn search(&self) -> Option<(&str, usize, usize)> {
        let search = self.search.as_ref()?;
        let at = Self::places(&search.hits).position(|place| Some(place) == search.at);
        let count = search.hits.iter().map(Vec::len).sum();
        Some((&search.query, at.map_or(0, |at| at + 1), count))
    }

    /// Goes to the next place, or to the one before, around the ends.
    pub fn step(&mut self, forward: bool) {
        let Some(search) = &mut self.search else { return };
        let places = || Self::places(&search.hits);
        let at = search.at.unwrap_or_default();
        let to = if forward {
            places().find(|place| *place > at).or_else(|| places().next())
        } else {
            places()
                .rfind(|place| *place < at)
                .or_else(|| places().next_back())
        };
        search.at = to;
        self.reveal_hit();
    }

    fn places(hits: &[Vec<Hit>]) -> impl DoubleEndedIterator<Item = (usize, usize)> + Clone {
        let block = |(block, hits): (usize, &Vec<Hit>)| (0..hits.len()).map(move |hit| (block, hit));
        hits.iter().enumerate().flat_map(block)
    }

    /// Searches blocks that were not searched as they are now.
    pub(super) fn look(&mut self) {
        let Some(search) = &mut self.search else { return };
        for block in self.blocks.iter().skip(search.hits.len()) {
            let rows = (0..block.rows()).filter_map(|row| Some((row, block.readable(row)?)));
            search.hits.push(search.needle.hits(rows));
        }
        let there =
            |(block, hit): &(usize, usize)| search.hits.get(*block).is_some_and(|hits| *hit < hits.len());
        search.at = search.at.filter(there);
    }

    /// The row of the place that one is at.
    pub fn hit_row(&self) -> Option<usize> {
        let search = self.search.as_ref()?;
        let (block, hit) = search.at?;
        Some(self.start(block) + search.hits.get(block)?.get(hit)?.row())
    }

    fn reveal_hit(&mut self) {
        if let Some(row) = self.hit_row() {
            self.reveal(row);
        }
    }

    /// Marks what is looked for in a row that was painted.
    pub(super) fn mark_hits(&self, buffer: &mut Buffer, row: Rect, at: usize, styles: &Styles) {
        let number = self.ends.partition_point(|end| *end <= at);
        let (Some(search), Some(block)) = (&self.search, self.blocks.get(number)) else {
            return;
        };
        let hits = search.hits.get(number).map_or(&[][..], Vec::as_slice);
        let at = at - self.start(number);
        // A hit may begin some rows before.
        let first = hits.partition_point(|hit| hit.0.last().is_some_and(|(row, _)| *row < at));
        let indent = if at < block.lead + block.prompt.len() {
            INDENT
        } else {
            0
        };
        let Some(text) = block.readable(at).filter(|_| first < hits.len()) else {
            return;
        };
        for (index, hit) in hits
            .iter()
            .enumerate()
            .skip(first)
            .take_while(|(_, hit)| hit.row() <= at)
        {
            for (_, place) in hit.0.iter().filter(|(row, _)| *row == at) {
                let before = indent + cells::width(text.text.get(..place.start).unwrap_or_default());
                let width = cells::width(text.text.get(place.clone()).unwrap_or_default());
                let left = row.x.saturating_add(before.min(usize::from(row.width)) as u16);
                let area = Rect {
                    x: left,
                    width: (width.min(usize::from(row.right().saturating_sub(left)))) as u16,
                    ..row
                };
                buffer.set_style(area, styles.hit(search.at == Some((number, index))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(needle: &str, rows: &[(&str, Option<bool>)]) -> Vec<Vec<(usize, Range<usize>)>> {
        let readable = rows.iter().map(|(text, joins)| Readable {
            text,
            margin: 0,
            joins: *joins,
            drawn: None,
        });
        let needle = Needle::new(needle).unwrap();
        needle
            .hits(readable.enumerate())
            .into_iter()
            .map(|hit| hit.0)
            .collect()
    }

    #[test]
    fn a_hit_may_go_over_the_end_of_a_row_but_not_of_a_line() {
        let rows = [
            ("one two", None),
            ("three", Some(true)),
            ("fo", None),
            ("ur", Some(false)),
        ];
        assert_eq!(hits("two thr", &rows), [vec![(0, 4..7), (1, 0..3)]]);
        assert_eq!(hits("four", &rows), [vec![(2, 0..2), (3, 0..2)]]);
        assert_eq!(hits("threefo", &rows), Vec::<Vec<_>>::new());
    }

    #[test]
    fn capitals_count_only_where_one_is_looked_for() {
        let rows = [("Rope rope ROPE", None)];
        assert_eq!(hits("rope", &rows).len(), 3);
        assert_eq!(hits("Rope", &rows), [vec![(0, 0..4)]]);
        assert_eq!(hits("är", &[("İÄR", None)]), [vec![(0, 2..5)]]);
    }

    #[test]
    fn marks_of_lists_are_not_searched() {
        let readable = Readable {
            text: "• a",
            margin: 4,
            joins: None,
            drawn: None,
        };
        let needle = Needle::new("a").unwrap();
        assert_eq!(
            needle.hits(std::iter::once((7, readable))),
            [Hit(vec![(7, 4..5)])]
        );
        assert_eq!(Needle::new(""), None);
    }
}
