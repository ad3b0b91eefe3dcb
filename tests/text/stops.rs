use mlx_chat::text::StopStrings;
use proptest::prelude::*;

/// What a stream should come to: the first place where a stop string is complete, and the longest that is.
fn reference(text: &str, stops: &[String]) -> (String, Option<usize>) {
    for (end, c) in text.char_indices() {
        let until = &text[..end + c.len_utf8()];
        let complete = stops
            .iter()
            .enumerate()
            .filter(|(_, stop)| until.ends_with(*stop));
        // Of equal ones the first; `max_by_key` would give the last.
        if let Some((index, stop)) = complete.rev().max_by_key(|(_, stop)| stop.len()) {
            return (until[..until.len() - stop.len()].to_owned(), Some(index));
        }
    }
    (text.to_owned(), None)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn however_a_stream_is_cut_it_shows_the_text_before_the_first_match(
        text in "[abé日]{0,40}",
        stops in prop::collection::vec("[abé日]{1,5}", 0..4),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let chars: Vec<char> = text.chars().collect();
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(chars.len() + 1)).collect();
        places.extend([0, chars.len()]);
        places.sort_unstable();
        let mut scanner = StopStrings::new(&stops).unwrap();
        let mut shown = String::new();
        let mut stopped = None;
        for pair in places.windows(2) {
            let piece: String = chars[pair[0]..pair[1]].iter().collect();
            let scan = scanner.push(&piece);
            prop_assert!(stopped.is_none() || scan.text.is_empty());
            shown += &scan.text;
            stopped = scan.stopped;
            // What is shown is never taken back.
            prop_assert!(reference(&text, &stops).0.starts_with(&shown));
        }
        shown += &scanner.finish();
        prop_assert_eq!((shown, stopped), reference(&text, &stops));
    }
}
