//! Stop strings in a stream of text.

use super::TextError;

/// What a piece of the stream comes to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scan {
    /// Text that can be shown: no part of it belongs to a stop string, nor may come to.
    pub text: String,
    /// The stop string that ended the stream, by its place in the list given to [`StopStrings::new`].
    pub stopped: Option<usize>,
}

/// Looks for stop strings in a stream, and holds back whatever may still become one.
///
/// The stream ends at the first place where some stop string is complete, and its text is what comes before
/// that string; of several that are complete there, the longest counts. So the outcome doesn't depend on how
/// the stream is cut.
#[derive(Debug, Clone)]
pub struct StopStrings {
    stops: Vec<Stop>,
    held: String,
    stopped: Option<usize>,
}

/// One stop string, searched for with the Knuth–Morris–Pratt automaton: each byte of the stream is looked at
/// once.
#[derive(Debug, Clone)]
struct Stop {
    pattern: Vec<u8>,
    /// For each length of a matched beginning, the length of its longest proper suffix that is a beginning,
    /// too.
    fallback: Vec<usize>,
    /// How long a beginning of the pattern the stream ends with.
    matched: usize,
}

impl Stop {
    fn new(text: &str) -> Self {
        let mut stop = Self {
            pattern: text.as_bytes().to_vec(),
            fallback: vec![0, 0],
            matched: 0,
        };
        for &byte in text.as_bytes().iter().skip(1) {
            stop.advance(byte);
            stop.fallback.push(stop.matched);
        }
        stop.matched = 0;
        stop
    }

    /// Takes one byte; whether the pattern is complete with it.
    fn advance(&mut self, byte: u8) -> bool {
        loop {
            if self.pattern.get(self.matched) == Some(&byte) {
                self.matched += 1;
                return self.matched == self.pattern.len();
            }
            if self.matched == 0 {
                return false;
            }
            self.matched = self.fallback.get(self.matched).copied().unwrap_or(0);
        }
    }
}

impl StopStrings {
    /// A scanner at the beginning of a stream. Fails when one of `stops` is empty.
    pub fn new(stops: &[String]) -> Result<Self, TextError> {
        if let Some(empty) = stops.iter().position(String::is_empty) {
            return Err(TextError::EmptyStopString { number: empty + 1 });
        }
        let stops = stops.iter().map(|text| Stop::new(text)).collect();
        Ok(Self {
            stops,
            held: String::new(),
            stopped: None,
        })
    }

    /// Takes the next piece of the stream. Once it stopped, every further piece is dropped.
    pub fn push(&mut self, text: &str) -> Scan {
        if self.stopped.is_some() {
            return Scan {
                text: String::new(),
                stopped: self.stopped,
            };
        }
        let start = self.held.len();
        self.held.push_str(text);
        for (at, &byte) in self.held.as_bytes().iter().enumerate().skip(start) {
            let mut longest: Option<(usize, usize)> = None;
            for (index, stop) in self.stops.iter_mut().enumerate() {
                let length = stop.pattern.len();
                if stop.advance(byte) && longest.is_none_or(|(found, _)| length > found) {
                    longest = Some((length, index));
                }
            }
            if let Some((length, index)) = longest {
                self.stopped = Some(index);
                let mut text = std::mem::take(&mut self.held);
                text.truncate(at + 1 - length);
                return Scan {
                    text,
                    stopped: self.stopped,
                };
            }
        }
        let hold = self.stops.iter().map(|stop| stop.matched).max().unwrap_or(0);
        let text = self.held.drain(..self.held.len() - hold).collect();
        Scan { text, stopped: None }
    }

    /// The stream ended by itself: what was held back is text after all. Empty where a stop string ended it.
    pub fn finish(&mut self) -> String {
        for stop in &mut self.stops {
            stop.matched = 0;
        }
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(stops: &[&str], pieces: &[&str]) -> (String, Option<usize>) {
        let stops: Vec<String> = stops.iter().map(ToString::to_string).collect();
        let mut scanner = StopStrings::new(&stops).unwrap();
        let mut shown = String::new();
        let mut stopped = None;
        for piece in pieces {
            let scan = scanner.push(piece);
            shown += &scan.text;
            stopped = stopped.or(scan.stopped);
        }
        shown += &scanner.finish();
        (shown, stopped)
    }

    #[test]
    fn a_stop_string_in_pieces_is_never_shown() {
        assert_eq!(scan(&["END"], &["one E", "N", "D two"]), ("one ".into(), Some(0)));
    }

    #[test]
    fn what_turns_out_not_to_be_a_stop_string_is_shown() {
        assert_eq!(scan(&["END"], &["E", "N", "E", "N", "x"]), ("ENENx".into(), None));
        assert_eq!(scan(&["END"], &["the EN"]), ("the EN".into(), None));
    }

    #[test]
    fn only_what_may_still_become_a_stop_string_is_held_back() {
        let mut scanner = StopStrings::new(&["abc".into()]).unwrap();
        assert_eq!(scanner.push("xab").text, "x");
        assert_eq!(scanner.push("ab").text, "ab");
        assert_eq!(scanner.push("d").text, "abd");
    }

    #[test]
    fn a_stop_string_that_overlaps_itself_is_found() {
        assert_eq!(scan(&["aab"], &["a", "a", "a", "b", "c"]), ("a".into(), Some(0)));
        assert_eq!(
            scan(&["\n\nUser:"], &["hi\n", "\n\nUs", "er: x"]),
            ("hi\n".into(), Some(0))
        );
    }

    #[test]
    fn the_first_to_be_complete_wins_and_of_several_the_longest() {
        assert_eq!(scan(&["bcd", "ab"], &["xabcd"]), ("x".into(), Some(1)));
        assert_eq!(scan(&["c", "bc"], &["abc"]), ("a".into(), Some(1)));
        assert_eq!(scan(&["b", "abc"], &["xabc"]), ("xa".into(), Some(0)));
    }

    #[test]
    fn after_a_stop_everything_is_dropped() {
        let mut scanner = StopStrings::new(&["#".into()]).unwrap();
        assert_eq!(
            scanner.push("a#b"),
            Scan {
                text: "a".into(),
                stopped: Some(0)
            }
        );
        assert_eq!(
            scanner.push("more"),
            Scan {
                text: String::new(),
                stopped: Some(0)
            }
        );
        assert_eq!(scanner.finish(), "");
    }

    #[test]
    fn an_empty_stop_string_is_refused_by_its_number() {
        let error = StopStrings::new(&["a".into(), String::new()]).unwrap_err();
        assert!(error.to_string().contains("stop string 2"), "{error}");
    }

    #[test]
    fn without_stop_strings_all_passes_at_once() {
        assert_eq!(scan(&[], &["a", "日本"]), ("a日本".into(), None));
    }
}
