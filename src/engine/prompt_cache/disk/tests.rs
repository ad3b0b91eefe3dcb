//! Files, their folder and the thread that writes them, without arrays.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use mlx_rs::Dtype;
use tempfile::TempDir;

use super::file::{Entry, Header, Unusable, WriteError};
use super::folder::{Folder, Name};
use super::writer::{self, Holds, Job, Report};
use crate::cache::{LayerParts, Part};
use crate::engine::prompt_cache::index::{Class, Namespace};

fn namespace() -> Namespace {
    Namespace::new("model a")
}

/// An entry of two layers with arrays of several types.
fn entry(tokens: &[u32]) -> Entry {
    let part = |name: &str, dtype, shape: &[usize], size: usize| Part {
        name: name.into(),
        dtype,
        shape: shape.to_vec(),
        bytes: (0..shape.iter().product::<usize>() * size)
            .map(|n| (n * 7 % 251) as u8)
            .collect(),
    };
    Entry {
        namespace: namespace(),
        tokens: tokens.to_vec(),
        class: Class::Turn,
        trimmable: true,
        layers: vec![
            LayerParts {
                first: 3,
                arrays: vec![
                    part("codes", Dtype::Uint32, &[2, 5], 4),
                    part("scales", Dtype::Bfloat16, &[2, 3], 2),
                    part("biases", Dtype::Float16, &[3], 2),
                ],
            },
            LayerParts {
                first: 0,
                arrays: vec![part("state", Dtype::Float32, &[1, 2, 2], 4)],
            },
        ],
    }
}

fn system(tokens: &[u32]) -> Entry {
    Entry {
        class: Class::System,
        ..entry(tokens)
    }
}

fn folder(limit: u64) -> (TempDir, Folder) {
    let root = tempfile::tempdir().unwrap();
    let folder = Folder::new(root.path().join("prompts"), limit);
    folder.make().unwrap();
    (root, folder)
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
}

fn write(folder: &Folder, entry: &Entry, used: u64) -> Name {
    entry.write(folder, at(used), &AtomicBool::new(false)).unwrap();
    entry.name()
}

fn names(folder: &Folder) -> Vec<Name> {
    folder
        .list()
        .unwrap()
        .into_iter()
        .map(|listed| listed.name)
        .collect()
}

#[test]
fn an_entry_comes_back_as_it_was() {
    let (_root, folder) = folder(u64::MAX);
    for entry in [entry(&[1, 2, 3]), system(&[4])] {
        let name = write(&folder, &entry, 5);
        let path = folder.path_of(&name);
        assert_eq!(Entry::read(&path, &namespace()).unwrap(), entry);
        let header = Header::read(&path, &name, &namespace()).unwrap();
        assert_eq!((header.tokens, header.class), (entry.tokens.clone(), entry.class));
    }
}

#[test]
fn the_file_is_one_that_safetensors_reads() {
    let (_root, folder) = folder(u64::MAX);
    let name = write(&folder, &entry(&[1, 2]), 5);
    let bytes = fs::read(folder.path_of(&name)).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let codes = tensors.tensor("layers.0.codes").unwrap();
    assert_eq!(
        (codes.shape(), codes.data()),
        (&[2, 5][..], &entry(&[]).layers[0].arrays[0].bytes[..])
    );
}

#[cfg(unix)]
#[test]
fn files_and_folder_are_the_users_alone() {
    use std::os::unix::fs::PermissionsExt;
    let (_root, folder) = folder(u64::MAX);
    let name = write(&folder, &entry(&[1]), 5);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode(folder.path()), mode(&folder.path_of(&name))),
        (0o700, 0o600)
    );
}

#[test]
fn any_byte_that_has_changed_is_noticed() {
    let (_root, folder) = folder(u64::MAX);
    let entry = entry(&[1, 2, 3, 10]);
    let path = folder.path_of(&write(&folder, &entry, 5));
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&path, &bytes).unwrap();
        // White space of a header says nothing.
        match Entry::read(&path, &namespace()) {
            Ok(read) => assert_eq!(read, entry, "byte {at}"),
            Err(error) => assert!(matches!(error, Unusable::Damaged(_)), "byte {at}: {error}"),
        }
    }
    for length in [0, 7, 8, 100, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(
            matches!(Entry::read(&path, &namespace()), Err(Unusable::Damaged(_))),
            "{length} bytes"
        );
    }
    fs::write(&path, [&whole[..], &[0]].concat()).unwrap();
    assert!(matches!(
        Entry::read(&path, &namespace()),
        Err(Unusable::Damaged(_))
    ));
}

#[test]
fn a_file_under_another_entrys_name_is_damaged_and_one_that_is_gone_is_gone() {
    let (_root, folder) = folder(u64::MAX);
    let name = write(&folder, &entry(&[1]), 5);
    let other = entry(&[2]).name();
    fs::rename(folder.path_of(&name), folder.path_of(&other)).unwrap();
    let read = |name| Header::read(&folder.path_of(name), name, &namespace()).unwrap_err();
    assert!(matches!(read(&other), Unusable::Damaged(_)));
    assert!(read(&name).is_gone());
    let elsewhere = Header::read(&folder.path_of(&other), &other, &Namespace::new("model b"));
    assert!(elsewhere.unwrap_err().to_string().contains("another model"));
}

#[test]
fn names_are_read_back_and_others_are_not_ours() {
    for name in [entry(&[1, 2]).name(), system(&[7]).name()] {
        assert_eq!(Name::parse(&name.to_string()), Some(name.clone()));
        assert!(name.is_of(&namespace()) && !name.is_of(&Namespace::new("model b")));
    }
    let name = entry(&[1]).name().to_string();
    for other in [
        "model.safetensors".to_owned(),
        format!("{name}.1-2.part"),
        name.replace("turn", "other"),
        name.to_uppercase(),
        name[1..].to_owned(),
        format!("../{name}"),
    ] {
        assert_eq!(Name::parse(&other), None, "{other}");
    }
}

#[test]
fn turns_go_before_system_prompts_and_each_by_last_use() {
    let (_root, all) = folder(u64::MAX);
    let old_system = write(&all, &system(&[1]), 1);
    let turns: Vec<Name> = [(2, 30), (3, 20), (4, 40)]
        .map(|(token, used)| write(&all, &entry(&[token]), used))
        .to_vec();
    let each = all.list().unwrap()[0].bytes;
    let with_room_for = |entries: u64| Folder::new(all.path().to_owned(), entries * each + each / 2);
    let (left, gone) = with_room_for(3).shrink(None).unwrap();
    assert_eq!((left.len(), gone), (3, vec![turns[1].clone()]));
    let (_, gone) = with_room_for(1).shrink(None).unwrap();
    assert_eq!(gone, [turns[0].clone(), turns[2].clone()]);
    assert_eq!(names(&all), [old_system]);
}

#[test]
fn a_use_is_kept_and_what_was_just_written_is_spared() {
    let (_root, all) = folder(u64::MAX);
    let [first, second, third] = [1, 2, 3].map(|token| write(&all, &entry(&[token]), u64::from(token)));
    let kept = write(&all, &system(&[4]), 4);
    all.used(&first, at(50));
    Entry::read(&all.path_of(&second), &namespace()).unwrap();
    let each = all.list().unwrap()[0].bytes;
    let one = Folder::new(all.path().to_owned(), each + each / 2);
    let (_, gone) = one.shrink(Some(Class::Turn)).unwrap();
    assert_eq!(gone, [third, first, kept], "read now, the second was used last");
    assert_eq!(names(&all), [second]);
}

#[test]
fn at_exit_an_older_turn_does_not_push_out_a_newer_one_that_was_written_before() {
    let (_root, all) = folder(u64::MAX);
    for token in [1, 2] {
        write(&all, &system(&[token]), u64::from(token));
    }
    let each = all.list().unwrap()[0].bytes;
    let three = Folder::new(all.path().to_owned(), 3 * each + each / 2);
    let newer = write(&three, &entry(&[3]), 20);
    three.shrink(Some(Class::Turn)).unwrap();
    let older = write(&three, &entry(&[4]), 10);
    let (left, gone) = three.shrink(Some(Class::Turn)).unwrap();
    assert_eq!(gone, [older]);
    assert!(left.iter().any(|listed| listed.name == newer));
}

#[test]
fn a_pipe_in_the_locks_place_is_an_error_and_no_wait() {
    let (_root, folder) = folder(u64::MAX);
    let pipe = |name: &str| {
        let made = std::process::Command::new("mkfifo")
            .arg(folder.path().join(name))
            .status();
        assert!(made.unwrap().success());
    };
    pipe("lock");
    assert!(folder.shrink(None).is_err());
    fs::remove_file(folder.path().join("lock")).unwrap();
    pipe(&format!("{}.1-2.part", entry(&[1]).name()));
    folder.sweep().unwrap();
}

#[test]
fn a_folder_that_can_only_be_read_still_serves() {
    let (_root, folder) = folder(u64::MAX);
    let name = write(&folder, &entry(&[1]), 5);
    // Nobody, not even root, opens a folder for writing.
    fs::remove_file(folder.path().join("lock")).unwrap();
    fs::create_dir(folder.path().join("lock")).unwrap();
    let writer = writer::start(folder.clone(), namespace(), Arc::default()).unwrap();
    match writer.reports.recv().unwrap() {
        Report::Scanned(found, 0) => assert_eq!(found[0].0, name),
        _ => panic!("the first report is of what was found"),
    }
    match writer.reports.recv().unwrap() {
        Report::Holds(holds) => assert!(holds.paused),
        _ => panic!("then that nothing can be written"),
    }
}

#[test]
fn a_writer_that_is_stopped_leaves_nothing() {
    let (_root, folder) = folder(u64::MAX);
    let stopped = entry(&[1]).write(&folder, at(1), &AtomicBool::new(true));
    assert!(matches!(stopped, Err(WriteError::Stopped)));
    let left: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|item| item.unwrap().file_name())
        .collect();
    assert_eq!(left, ["lock"]);
}

/// Room on the disk of the test below; no other uses it.
static ROOM: AtomicU64 = AtomicU64::new(0);

#[test]
fn a_full_disk_pauses_writing_until_there_is_room_and_loses_nothing() {
    let (_root, folder) = folder(u64::MAX);
    let kept = write(&folder, &entry(&[1]), 1);
    let disk = folder.clone().with_free(|_| Some(ROOM.load(Ordering::Relaxed)));
    let writer = writer::start(disk, namespace(), Arc::default()).unwrap();
    let next = || loop {
        match writer.reports.recv().unwrap() {
            Report::Holds(holds) => return holds,
            Report::Written(..) | Report::Dropped(_) | Report::Scanned(..) => {}
            Report::Gone(names) => panic!("{names:?}"),
        }
    };
    let held = |entries, paused| move |holds: Holds| (holds.entries, holds.paused) == (entries, paused);
    assert!(held(1, false)(next()));
    writer
        .jobs
        .send(Job::Write(Box::new(entry(&[2])), at(2)))
        .unwrap();
    assert!(held(1, true)(next()));
    ROOM.store(u64::MAX, Ordering::Relaxed);
    writer
        .jobs
        .send(Job::Write(Box::new(entry(&[3])), at(3)))
        .unwrap();
    assert!(held(2, false)(next()));
    drop(writer.jobs);
    writer.thread.join().unwrap();
    let names = names(&folder);
    assert!(names.contains(&kept) && names.contains(&entry(&[3]).name()));
}

#[test]
fn what_is_larger_than_the_limit_is_not_written_and_pushes_nothing_out() {
    let (_root, all) = folder(u64::MAX);
    let kept = write(&all, &entry(&[1]), 1);
    let bytes = all.list().unwrap()[0].bytes;
    let mut large = entry(&[2]);
    large.layers[0].arrays[0].shape = vec![usize::try_from(bytes).unwrap()];
    large.layers[0].arrays[0].bytes = vec![0; usize::try_from(bytes).unwrap() * 4];
    let limited = Folder::new(all.path().to_owned(), bytes);
    let writer = writer::start(limited, namespace(), Arc::default()).unwrap();
    writer.jobs.send(Job::Write(Box::new(large), at(2))).unwrap();
    drop(writer.jobs);
    writer.thread.join().unwrap();
    let reports: Vec<Report> = writer.reports.iter().collect();
    assert!(reports.iter().any(|report| matches!(report, Report::Dropped(_))));
    assert!(
        !reports
            .iter()
            .any(|report| matches!(report, Report::Holds(Holds { paused: true, .. })))
    );
    assert_eq!(names(&all), [kept]);
}
