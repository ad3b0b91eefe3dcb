//! Streams of tokens and text: nothing lost, doubled or shown too soon.

use mlx_chat::text::{Codec, StopStrings};
use proptest::prelude::*;

use super::Vocabulary;

/// Token `n` is the byte `n`; behind them a control token.
fn codec() -> (Codec, u32) {
    let vocabulary = Vocabulary::new(&[], &[("<|im_end|>", 3)]);
    let codec = Codec::from_gguf(&vocabulary.metadata(&[])).unwrap();
    (codec, vocabulary.id("<|im_end|>"))
}

fn pieces(codec: &Codec, tokens: &[u32]) -> Vec<String> {
    let mut detokenizer = codec.decoder();
    let mut pieces: Vec<String> = tokens.iter().map(|token| detokenizer.push(*token)).collect();
    pieces.push(detokenizer.finish());
    pieces
}

/// Token by token, others show U+FFFD for the parts of such characters, and flush half of one.
#[test]
fn emoji_cjk_and_accents_never_show_as_replacement_characters() {
    let (codec, _) = codec();
    for text in ["👩‍👩‍👧‍👦", "日本語", "Příliš žluťoučký kůň", "🇨🇭", "한국어", "مرحبا"]
    {
        let pieces = pieces(&codec, &codec.encode(text));
        assert!(
            pieces.iter().all(|piece| !piece.contains('\u{fffd}')),
            "{pieces:?}"
        );
        assert_eq!(pieces.concat(), text);
    }
}

/// Others compare graphemes of the text so far, and show these again once they grow.
#[test]
fn marks_that_join_the_character_before_are_shown_once() {
    let (codec, _) = codec();
    for text in [
        "☺\u{fe0f}",
        "e\u{301}\u{302}",
        "👩\u{200d}💻",
        "🏳\u{fe0f}\u{200d}🌈",
        "\u{200d}",
        "\u{fe0f}a",
    ] {
        assert_eq!(pieces(&codec, &codec.encode(text)).concat(), text);
    }
}

/// Others fail where a stream ends with a special token.
#[test]
fn a_stream_may_end_with_a_special_token_or_within_a_character() {
    let (codec, end) = codec();
    assert_eq!(pieces(&codec, &[104, 105, end]).concat(), "hi");
    assert_eq!(pieces(&codec, &[end]).concat(), "");
    assert_eq!(pieces(&codec, &[104, 0xe6, 0x97, end]).concat(), "h\u{fffd}");
    assert_eq!(pieces(&codec, &[0xe6, end, 0x97, 0xa5]).concat(), "日");
}

/// Others compare only the last token, or stop strings of one length, and show beginnings of them.
#[test]
fn stop_strings_of_different_lengths_are_found_across_tokens_and_never_shown() {
    let (codec, _) = codec();
    for (text, stops, shown, which) in [
        ("one\n\nUser: two", &["\nUser:", "\n\nUser:"][..], "one", Some(1)),
        ("a###b", &["####", "###", "##"], "a", Some(2)),
        ("日本語です", &["語"], "日本", Some(0)),
        ("ab ab abc", &["abc", "bca"], "ab ab ", Some(0)),
        ("the en", &["end"], "the en", None),
        ("é\u{301}|", &["\u{301}|", "\u{301}|x"], "é", Some(0)),
    ] {
        let stops: Vec<String> = stops.iter().map(ToString::to_string).collect();
        let mut detokenizer = codec.decoder();
        let mut scanner = StopStrings::new(&stops).unwrap();
        let mut out = String::new();
        let mut stopped = None;
        for token in codec.encode(text) {
            let scan = scanner.push(&detokenizer.push(token));
            out += &scan.text;
            stopped = scan.stopped;
            assert!(shown.starts_with(&out), "{out:?} of {shown:?}");
        }
        out += &scanner.push(&detokenizer.finish()).text;
        out += &scanner.finish();
        assert_eq!((out.as_str(), stopped), (shown, which), "{text:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// The whole of what a stream shows is the text of its bytes, however many of them are invalid; what is
    /// shown at any time is the beginning of that.
    #[test]
    fn a_stream_shows_a_growing_beginning_of_its_text(
        parts in prop::collection::vec(prop_oneof![
            "\\PC{1,3}".prop_map(String::into_bytes),
            "[é日👩\u{200d}\u{fe0f}\u{301}]{1,4}".prop_map(String::into_bytes),
            prop::collection::vec(any::<u8>(), 1..4),
        ], 0..12),
        ends in prop::collection::vec(any::<prop::sample::Index>(), 0..3),
    ) {
        let (codec, end) = codec();
        let bytes = parts.concat();
        let whole = String::from_utf8_lossy(&bytes).into_owned();
        let mut tokens: Vec<u32> = bytes.iter().map(|byte| u32::from(*byte)).collect();
        // Tokens without text change nothing, wherever they stand.
        for place in ends {
            tokens.insert(place.index(tokens.len() + 1), end);
        }
        let mut shown = String::new();
        for piece in pieces(&codec, &tokens) {
            shown += &piece;
            prop_assert!(whole.starts_with(&shown), "{:?} of {:?}", shown, whole);
        }
        prop_assert_eq!(shown, whole);
    }
}
