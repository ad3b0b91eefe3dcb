//! What engines find of those before them that kept their prompt cache in the same folder.

use std::fs;
use std::path::{Path, PathBuf};

use mlx_chat::engine::options::PromptCacheLimit;
use mlx_chat::engine::prompt_cache::disk::tier::DiskOptions;
use mlx_chat::engine::telemetry::{DiskState, DiskStats};
use mlx_chat::engine::{Engine, EngineHandle, EngineOptions, Request};

use super::{alone, engine_over, plain};
use crate::support::{Dice, Heard, options, request, run, wait_for};

/// An engine with entries on disk, of a model of this name.
fn engine_of(model: &str, folder: &Path, limit: u64, options: EngineOptions) -> EngineHandle {
    let disk = DiskOptions {
        folder: folder.to_owned(),
        limit,
        model: model.into(),
    };
    let options = EngineOptions {
        prompt_cache_disk: Some(disk),
        ..options
    };
    engine_over(options, plain())
}

fn engine_at(folder: &Path) -> EngineHandle {
    engine_of("hashing", folder, 1 << 30, options())
}

/// Runs one request in a named session, and closes the engine.
fn once(engine: &EngineHandle, prompt: &[u32], max_tokens: usize) -> Heard {
    let request = Request {
        session: Some("s".into()),
        ..request(prompt, max_tokens)
    };
    let heard = run(engine, vec![(0, request)]).remove(0);
    assert_eq!(heard.tokens, alone(&plain(), prompt, max_tokens));
    heard
}

/// What the disk's figures were at the end.
fn closed(engine: &EngineHandle) -> DiskStats {
    engine.close();
    engine.snapshots().borrow().prompt_cache.disk
}

/// A prompt longer than what the sliding layers see.
fn prompt() -> Vec<u32> {
    Dice(5).prompt(70, 63)
}

/// The next turn of a conversation.
fn follow_up(prompt: &[u32], answer: &Heard) -> Vec<u32> {
    [prompt, &answer.tokens, &[10, 11, 12]].concat()
}

/// Files in a folder with this in their names.
fn files(folder: &Path, with: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|item| item.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().contains(with))
        .collect();
    files.sort();
    files
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    files(folder, ".safetensors")
}

#[test]
fn the_first_turn_after_a_restart_is_served_from_disk_and_says_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let prompt = prompt();
    let engine = engine_at(folder.path());
    let first = once(&engine, &prompt, 12);
    let stats = closed(&engine);
    assert!(stats.written > 0 && stats.entries == stats.written, "{stats:?}");
    assert_eq!((stats.pending, stats.dropped, stats.state), (0, 0, DiskState::On));

    let engine = engine_at(folder.path());
    let next = follow_up(&prompt, &first);
    let second = once(&engine, &next, 12);
    assert!(second.end().cached_tokens >= prompt.len() + first.tokens.len() - 1);
    let third = follow_up(&next, &second);
    once(&engine, &third, 4);
    let snapshot = wait_for(&engine, |snapshot| snapshot.prompt_cache.lookups == 2);
    assert_eq!(
        snapshot.prompt_cache.disk.restored, 1,
        "the turn after it is in memory"
    );
    assert!(snapshot.prompt_cache.restore_ns > 0);
    assert_eq!(closed(&engine).damaged, 0);
}

#[test]
fn what_is_on_disk_already_is_not_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine_at(folder.path());
    once(&engine, &prompt(), 1);
    closed(&engine);
    let before = entries(folder.path());
    let engine = engine_at(folder.path());
    assert_eq!(
        once(&engine, &prompt(), 1).end().cached_tokens,
        prompt().len() - 1
    );
    let stats = closed(&engine);
    assert_eq!((stats.restored, stats.written), (1, 0), "{stats:?}");
    assert_eq!(entries(folder.path()), before);
}

#[test]
fn what_memory_has_no_room_for_is_found_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let tiny = EngineOptions {
        prompt_cache: PromptCacheLimit::Bytes(1),
        ..options()
    };
    let engine = engine_of("hashing", folder.path(), 1 << 30, tiny);
    let prompt = prompt();
    let first = once(&engine, &prompt, 12);
    wait_for(&engine, |snapshot| {
        let disk = snapshot.prompt_cache.disk;
        disk.written > 0 && disk.pending == 0
    });
    let second = once(&engine, &follow_up(&prompt, &first), 12);
    assert!(second.end().cached_tokens >= prompt.len());
    assert_eq!(engine.snapshots().borrow().prompt_cache.entries, 0);
}

#[test]
fn a_private_request_writes_and_reads_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let private = |engine: &EngineHandle| {
        let request = Request {
            cache: false,
            session: Some("p".into()),
            ..request(&prompt(), 4)
        };
        run(engine, vec![(0, request)]).remove(0)
    };
    let engine = engine_at(folder.path());
    private(&engine);
    assert_eq!(closed(&engine).written, 0);
    assert_eq!(entries(folder.path()), Vec::<PathBuf>::new());
    once(&engine_at(folder.path()), &prompt(), 4);
    let engine = engine_at(folder.path());
    assert_eq!(private(&engine).end().cached_tokens, 0);
    assert_eq!(closed(&engine).restored, 0);
}

#[test]
fn another_models_entries_stay_and_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    once(&engine_at(folder.path()), &prompt(), 4);
    let theirs = entries(folder.path());
    let engine = engine_of("another", folder.path(), 1 << 30, options());
    let heard = once(&engine, &prompt(), 4);
    assert_eq!(heard.end().cached_tokens, 0);
    closed(&engine);
    let all = entries(folder.path());
    assert!(all.len() > theirs.len() && theirs.iter().all(|path| all.contains(path)));
}

/// One entry's file changed: the engine after it removes it, does without, and leaves a good one in its place.
fn changed(change: impl Fn(&Path)) {
    let folder = tempfile::tempdir().unwrap();
    once(&engine_at(folder.path()), &prompt(), 4);
    for path in entries(folder.path()) {
        change(&path);
    }
    let count = entries(folder.path()).len() as u64;
    let engine = engine_at(folder.path());
    let heard = once(&engine, &prompt(), 4);
    assert_eq!(heard.end().cached_tokens, 0);
    let stats = closed(&engine);
    assert!(stats.damaged > 0 && stats.damaged <= count, "{stats:?}");
    let engine = engine_at(folder.path());
    assert!(
        once(&engine, &[&prompt()[..], &[1]].concat(), 4)
            .end()
            .cached_tokens
            > 60
    );
    assert_eq!(closed(&engine).damaged, 0);
}

#[test]
fn a_file_that_is_cut_off_is_removed_and_done_without() {
    changed(|path| {
        let bytes = fs::read(path).unwrap();
        fs::write(path, &bytes[..bytes.len() - 1]).unwrap();
    });
    changed(|path| fs::write(path, b"1234567").unwrap());
    changed(|path| fs::write(path, b"").unwrap());
}

#[test]
fn a_file_whose_content_has_changed_is_removed_and_done_without() {
    changed(|path| {
        let mut bytes = fs::read(path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(path, bytes).unwrap();
    });
}

#[test]
fn a_file_of_another_version_is_removed_and_done_without() {
    changed(|path| {
        let bytes = fs::read(path).unwrap();
        let (said, version) = (b"prompt cache 1", b"prompt cache 0");
        let at = bytes
            .windows(said.len())
            .position(|window| window == said)
            .unwrap();
        let bytes = [&bytes[..at], version, &bytes[at + said.len()..]].concat();
        fs::write(path, bytes).unwrap();
    });
}

#[test]
fn files_that_are_not_ours_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "notes.txt",
        "model.safetensors",
        "x.part",
        "0-0.turn.safetensors.1-1.part",
    ] {
        fs::write(folder.path().join(name), "mine").unwrap();
    }
    once(&engine_of("hashing", folder.path(), 1, options()), &prompt(), 4);
    for name in [
        "notes.txt",
        "model.safetensors",
        "x.part",
        "0-0.turn.safetensors.1-1.part",
    ] {
        assert_eq!(fs::read(folder.path().join(name)).unwrap(), b"mine", "{name}");
    }
}

#[test]
fn what_a_writer_that_died_has_left_is_cleared_away_and_what_one_is_writing_is_not() {
    let folder = tempfile::tempdir().unwrap();
    once(&engine_at(folder.path()), &prompt(), 4);
    let entry = entries(folder.path()).remove(0);
    let aside = |writer: &str| PathBuf::from(format!("{}.{writer}.part", entry.display()));
    fs::write(aside("1-0"), "half of it").unwrap();
    fs::write(aside("2-0"), "half of it").unwrap();
    let writes = fs::File::open(aside("2-0")).unwrap();
    writes.lock().unwrap();
    let engine = engine_at(folder.path());
    assert!(
        once(&engine, &[&prompt()[..], &[1]].concat(), 4)
            .end()
            .cached_tokens
            > 60
    );
    assert_eq!(files(folder.path(), ".part"), [aside("2-0")]);
}

#[test]
fn the_least_recently_used_make_room_and_the_limit_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut dice = Dice(9);
    let prompts: Vec<Vec<u32>> = (0..4).map(|_| dice.prompt(60, 63)).collect();
    once(&engine_at(folder.path()), &prompts[0], 1);
    let sizes = entries(folder.path())
        .iter()
        .map(|path| fs::metadata(path).unwrap().len())
        .sum::<u64>();
    let limit = sizes * 2 + sizes / 2;
    for prompt in &prompts[1..] {
        let engine = engine_of("hashing", folder.path(), limit, options());
        once(&engine, prompt, 1);
        let stats = closed(&engine);
        assert!(stats.bytes <= limit && stats.bytes > 0, "{stats:?}");
    }
    let served = |prompt: &[u32]| {
        let engine = engine_of("hashing", folder.path(), limit, options());
        let request = Request {
            cache: true,
            ..request(&[prompt, &[1]].concat(), 1)
        };
        engine.hurry();
        run(&engine, vec![(0, request)])[0].end().cached_tokens
    };
    assert_eq!(served(&prompts[0]), 0, "the first to go");
    assert!(served(&prompts[3]) > 50);
}

#[test]
fn an_entry_larger_than_the_limit_leaves_the_others_their_room_at_exit() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine_at(folder.path());
    once(&engine, &prompt(), 4);
    let small = closed(&engine).bytes;
    let folder = tempfile::tempdir().unwrap();
    let engine = engine_of("hashing", folder.path(), 2 * small, options());
    once(&engine, &prompt(), 4);
    once(&engine, &Dice(6).prompt(1400, 63), 4);
    let stats = closed(&engine);
    assert!(stats.written > 0 && stats.dropped > 0, "{stats:?}");
    let engine = engine_at(folder.path());
    let again = once(&engine, &[&prompt()[..], &[1]].concat(), 4);
    assert!(again.end().cached_tokens > 60);
}

#[test]
fn whoever_is_in_a_hurry_closes_without_what_was_still_to_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine_at(folder.path());
    once(&engine, &prompt(), 4);
    engine.hurry();
    let stats = closed(&engine);
    assert!(
        stats.written == 0 && stats.dropped > 0 && stats.pending == 0,
        "{stats:?}"
    );
    assert_eq!(entries(folder.path()), Vec::<PathBuf>::new());
}

#[test]
fn two_engines_share_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (engine_at(folder.path()), engine_at(folder.path()));
    let mut dice = Dice(3);
    let prompts = [dice.prompt(60, 63), dice.prompt(60, 63)];
    once(&one, &prompts[0], 3);
    once(&other, &prompts[1], 3);
    once(&other, &prompts[0], 3);
    std::thread::scope(|scope| {
        scope.spawn(|| one.close());
        other.close();
    });
    let engine = engine_at(folder.path());
    for prompt in &prompts {
        assert!(
            once(&engine, &[&prompt[..], &[1]].concat(), 3)
                .end()
                .cached_tokens
                > 50
        );
    }
    assert_eq!(closed(&engine).damaged, 0);
}

#[test]
fn a_folder_that_cannot_be_made_is_told_and_nothing_else_suffers() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a file");
    fs::write(&file, "").unwrap();
    let engine = engine_at(&file.join("below"));
    let first = once(&engine, &prompt(), 4);
    let second = once(&engine, &follow_up(&prompt(), &first), 4);
    assert!(second.end().cached_tokens > 60, "from memory");
    let stats = closed(&engine);
    assert_eq!(
        (stats.state, stats.written, stats.pending),
        (DiskState::Paused, 0, 0)
    );
}

#[test]
fn the_cache_gives_way_where_the_device_runs_short_and_requests_run() {
    for (memory, served) in [(0, false), (u64::MAX, true)] {
        let engine = engine_over(
            EngineOptions {
                device_memory: Some(memory),
                ..options()
            },
            plain(),
        );
        let prompt = prompt();
        let first = once(&engine, &prompt, 4);
        // Another comes first: it needs what the cache holds.
        once(&engine, &[1, 2, 3], 40);
        let second = once(&engine, &follow_up(&prompt, &first), 4);
        assert_eq!(second.end().cached_tokens > 0, served, "{memory} bytes");
    }
}
