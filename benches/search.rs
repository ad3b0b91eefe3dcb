//! How long the picker's full-text search takes in a folder of many conversations.
//!
//! `cargo bench --bench search -- [CONVERSATIONS]` writes so many (5,000 where nothing is said) of eight turns each, and
//! searches them: once as the first search of a program does, which reads all of them, and then as each key does.

use std::time::Instant;

use jiff::Timestamp;
use mlx_chat::chat::{SessionId, Store, import};

/// Words of which messages are made.
const WORDS: [&str; 12] = [
    "the", "river", "winds", "because", "its", "banks", "erode", "where", "water", "runs", "fastest",
    "outside",
];

/// A conversation of eight turns with some three hundred words an answer, one in a thousand about pearls.
fn talk(number: u64) -> String {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut word = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        WORDS[(state % WORDS.len() as u64) as usize]
    };
    let mut text = |count: usize| -> String { (0..count).map(|_| word()).collect::<Vec<_>>().join(" ") };
    let messages: Vec<serde_json::Value> = (0..8)
        .flat_map(|turn| {
            let pearl = if number % 1000 == 7 && turn == 4 {
                " A rare pearl."
            } else {
                ""
            };
            [
                serde_json::json!({"role": "user", "content": text(20)}),
                serde_json::json!({"role": "assistant", "content": text(300) + pearl}),
            ]
        })
        .collect();
    serde_json::json!({"title": format!("Talk {number}"), "messages": messages}).to_string()
}

fn main() {
    let count = std::env::args()
        .skip(1)
        .find_map(|word| word.parse().ok())
        .unwrap_or(5_000_u64);
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::at(folder.path());
    for number in 0..count {
        let session = SessionId::from_bits(u128::from(number) + 1);
        let imported = import(&talk(number))
            .expect("a conversation")
            .conversations
            .remove(0);
        let records = imported.into_records(session, Timestamp::UNIX_EPOCH);
        store.append(session, &records).expect("room on the disk");
        store.release(session);
    }
    let bytes: u64 = std::fs::read_dir(folder.path().join("sessions"))
        .expect("the logs")
        .filter_map(|entry| Some(entry.ok()?.metadata().ok()?.len()))
        .sum();
    println!("{count} conversations, {:.0} MB of logs", bytes as f64 / 1e6);
    let store = store.reader();
    let timed = |text: &str| {
        let started = Instant::now();
        let found = store.search(text, 200).expect("a search");
        (started.elapsed().as_secs_f64() * 1e3, found.hits.len())
    };
    let search = |what: &str, text: &str| {
        let (ms, hits) = timed(text);
        println!("{what:<28} {ms:>8.1} ms  {hits} hits");
    };
    search("the first, reads all", "pearl");
    for _ in 0..3 {
        search("rare words", "rare pearl");
        search("words that are nowhere", "xylophone");
        search("words that are everywhere", "river erode");
        search("a letter", "e");
    }
    // As one types: each key is a search. Words that are there, that nearly are, and of letters that are frequent.
    let mut all = Vec::new();
    for word in [
        "rare pearl",
        "talk 4321",
        "xylophone",
        "outsiders",
        "thereabout",
        "windsurfer",
        "because its",
        "ererere",
        "rune",
    ] {
        let (mut slowest, mut at) = (0.0, "");
        for (end, c) in word.char_indices() {
            let typed = &word[..end + c.len_utf8()];
            let (ms, _) = timed(typed);
            if ms > slowest {
                (slowest, at) = (ms, typed);
            }
            all.push(ms);
        }
        println!("typed: {word:<21} {slowest:>8.1} ms at most, for {at:?}");
        // The whole word at once, without what its beginning told.
        timed("e");
        all.push(timed(word).0);
    }
    all.sort_by(f64::total_cmp);
    let slowest = all.last().copied().unwrap_or_default();
    println!(
        "{} keys: median {:.1} ms, slowest {slowest:.1} ms",
        all.len(),
        all[all.len() / 2]
    );
}
