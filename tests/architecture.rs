//! Who may know whom: reads the sources' paths and holds the layout.

#[path = "architecture/known_faults.rs"]
mod known_faults;
#[path = "architecture/terminal_faults.rs"]
mod terminal_faults;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The rooms, and which others each may name.
const MAY_KNOW: [(&str, &[&str]); 11] = [
    ("ui", &["chat", "engine", "text"]),
    ("chat", &["engine", "text", "sampling", "config"]),
    ("engine", &["model", "cache", "sampling", "text"]),
    ("model", &["nn", "cache", "gguf"]),
    ("nn", &["cache"]),
    ("cache", &[]),
    ("sampling", &[]),
    ("text", &["gguf"]),
    ("gguf", &[]),
    ("hub", &["config"]),
    ("config", &[]),
];

/// Crates that only these rooms may name.
const ONLY_IN: [(&str, &[&str]); 7] = [
    ("mlx_rs", &["nn", "cache", "model", "sampling", "engine"]),
    ("mlx_sys", &["nn", "engine"]),
    ("cpu_kernels", &["nn", "model"]),
    ("ratatui", &["ui"]),
    ("crossterm", &["ui"]),
    ("tokenizers", &["text"]),
    ("ureq", &["hub"]),
];

/// Files of `engine` and `sampling` that hold no array.
const PURE: [&str; 9] = [
    "engine/admission.rs",
    "engine/budget.rs",
    "engine/chunks.rs",
    "engine/prompt_cache/index.rs",
    "engine/prompt_cache/trie.rs",
    "engine/rates.rs",
    "engine/step_log.rs",
    "sampling/reference.rs",
    "sampling/params.rs",
];

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// Every source file by its path below `src`, without comments.
fn code() -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    sources(&root, &mut paths);
    let strip = |text: &str| -> String {
        text.lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .fold(String::new(), |all, line| all + line + "\n")
    };
    let read = |path: PathBuf| {
        let name = path
            .strip_prefix(&root)
            .expect("below src")
            .to_string_lossy()
            .replace('\\', "/");
        (name, strip(&std::fs::read_to_string(&path).expect("readable")))
    };
    paths.into_iter().map(read).collect()
}

fn room(file: &str) -> &str {
    file.split('/').next().unwrap_or(file)
}

/// Whether `name` is followed by `::` as a path of its own.
fn names(code: &str, name: &str) -> bool {
    let path = format!("{name}::");
    code.match_indices(&path).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':')
    })
}

#[test]
fn rooms_know_only_whom_they_may() {
    for (file, code) in code() {
        let Some((_, allowed)) = MAY_KNOW.iter().find(|(name, _)| *name == room(&file)) else {
            continue;
        };
        for (other, _) in MAY_KNOW.iter().filter(|(other, _)| *other != room(&file)) {
            let known = code.contains(&format!("crate::{other}"));
            assert!(!known || allowed.contains(other), "{file} names crate::{other}");
        }
        assert!(!code.contains("crate::cli"), "{file} names crate::cli");
    }
}

#[test]
fn no_circle_joins_two_rooms() {
    let edges: BTreeMap<&str, BTreeSet<&str>> = MAY_KNOW
        .iter()
        .map(|(room, others)| (*room, others.iter().copied().collect()))
        .collect();
    for (start, _) in MAY_KNOW {
        let mut seen = BTreeSet::new();
        let mut todo: Vec<&str> = edges[start].iter().copied().collect();
        while let Some(next) = todo.pop() {
            assert_ne!(next, start, "a circle through {start}");
            if seen.insert(next) {
                todo.extend(&edges[next]);
            }
        }
    }
}

#[test]
fn libraries_stay_in_their_rooms() {
    for (file, code) in code() {
        for (library, rooms) in ONLY_IN {
            assert!(
                !names(&code, library) || rooms.contains(&room(&file)),
                "{file} names {library}"
            );
        }
    }
}

#[test]
fn pure_parts_hold_no_array() {
    let code = code();
    for file in PURE {
        let code = code.get(file).unwrap_or_else(|| panic!("{file} is gone"));
        assert!(!names(code, "mlx_rs"), "{file} names mlx_rs");
    }
    for (file, code) in code.iter().filter(|(file, _)| file.starts_with("chat/")) {
        assert!(
            !code.contains("Instant::now") || file.contains("writer"),
            "{file} reads a clock"
        );
    }
}

/// Files that are excused as a whole.
const UNSAFE: [&str; 2] = ["nn/cuda/kernel.rs", "nn/kernels/node.rs"];

#[test]
fn unsafe_code_stays_in_crates() {
    for (file, code) in code() {
        if UNSAFE.contains(&file.as_str()) {
            assert!(code.contains("unsafe {"), "{file} needs no excuse any more");
            continue;
        }
        let blocks = code.matches("unsafe {").count() + code.matches("unsafe fn").count();
        let excused = code.matches("unsafe_code").count();
        assert!(
            blocks <= excused,
            "{file} has {blocks} unsafe blocks and excuses {excused}"
        );
    }
}

#[test]
fn files_are_of_one_subject_and_readable_length() {
    let mut paths = Vec::new();
    for folder in ["src", "crates/mlx-sys/src", "crates/mlx-sys/build"] {
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut paths);
    }
    for path in paths {
        let lines = std::fs::read_to_string(&path).expect("readable").lines().count();
        assert!(lines <= 600, "{} has {lines} lines", path.display());
        let stem = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let vague = ["util", "utils", "common", "helpers", "helper", "manager", "misc"];
        assert!(
            !vague.contains(&stem.as_str()),
            "{} says nothing by its name",
            path.display()
        );
    }
}
