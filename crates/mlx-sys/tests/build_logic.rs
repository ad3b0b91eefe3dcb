//! The build script's decisions, without network or compiler.

#[path = "../build/archive.rs"]
#[allow(dead_code)]
mod archive;
#[path = "../build/backend.rs"]
#[allow(dead_code)]
mod backend;
#[path = "../build/cache.rs"]
#[allow(dead_code)]
mod cache;
#[path = "../build/failure.rs"]
#[allow(dead_code)]
mod failure;
#[path = "../build/key.rs"]
#[allow(dead_code)]
mod key;
#[path = "../build/pins.rs"]
#[allow(dead_code)]
mod pins;

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use backend::Backend;
use cache::Cache;
use failure::Failure;
use key::Key;
use pins::Machine;

const TABLE: &str = include_str!("../pins.txt");
const MAC: Machine<'static> = Machine {
    os: "macos",
    arch: "aarch64",
    macos: Some(15),
};
const LINUX: Machine<'static> = Machine {
    os: "linux",
    arch: "x86_64",
    macos: None,
};
const LINUX_ARM: Machine<'static> = Machine {
    os: "linux",
    arch: "aarch64",
    macos: None,
};

/// A folder of this test's own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mlx-sys-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a scratch folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn said<T: std::fmt::Debug>(result: Result<T, Failure>) -> String {
    result.expect_err("a failure").one_line()
}

#[test]
fn the_committed_table_serves_every_platform() {
    let pins = pins::parse(TABLE).expect("a sound table");
    let count = |set, machine| pins::choose(&pins, set, machine).len();
    assert_eq!(count("metal", MAC), 1);
    for machine in [LINUX, LINUX_ARM] {
        assert_eq!(count("cpu", machine), 1);
        assert_eq!(count("cuda12", machine), 7);
        assert_eq!(count("cuda13", machine), 8);
    }
    for machine in [MAC, LINUX, LINUX_ARM] {
        assert_eq!(count("libclang", machine), 1);
    }
    assert_eq!(count("cpu", MAC), 0);
    assert_eq!(count("metal", LINUX), 0);
    // The unpacked folder is named after the first.
    for set in ["cpu", "cuda12", "cuda13"] {
        let first = pins::choose(&pins, set, LINUX)[0];
        assert!(first.package.starts_with("mlx-"), "{}", first.package);
        assert_eq!(first.version, "0.32.2");
    }
}

#[test]
fn macos_gets_the_newest_wheel_that_runs_there() {
    let pins = pins::parse(TABLE).expect("a sound table");
    let platform = |macos| {
        let machine = Machine {
            macos: Some(macos),
            ..MAC
        };
        let chosen = pins::choose(&pins, "metal", machine);
        chosen.first().map(|pin| pin.platform.clone())
    };
    assert_eq!(platform(13), None);
    assert_eq!(platform(14).as_deref(), Some("macosx_14_0_arm64"));
    assert_eq!(platform(15).as_deref(), Some("macosx_15_0_arm64"));
    assert_eq!(platform(25).as_deref(), Some("macosx_15_0_arm64"));
    assert_eq!(platform(27).as_deref(), Some("macosx_26_0_arm64"));
}

#[test]
fn a_faulty_line_of_the_table_is_named() {
    let hash = "0".repeat(64);
    assert!(pins::parse("# only a comment\n\n").expect("fine").is_empty());
    assert!(said(pins::parse("\ncpu mlx-cpu")).contains("line 2: 2 fields"));
    let upper = format!("cpu p 1 any {} 5", "A".repeat(64));
    assert!(said(pins::parse(&upper)).contains("no SHA-256"));
    let size = format!("cpu p 1 any {hash} much");
    assert!(said(pins::parse(&size)).contains("`much` is no size"));
}

#[test]
fn glibc_is_read_from_the_tag() {
    assert_eq!(pins::glibc("manylinux_2_35_x86_64"), Some((2, 35)));
    assert_eq!(pins::glibc("manylinux2014_x86_64"), None);
}

#[test]
fn auto_picks_by_platform_and_driver() {
    let pick = |machine, cuda| backend::resolve(None, machine, || cuda);
    assert_eq!(pick(MAC, Some(13)), Ok(Backend::Metal));
    assert_eq!(pick(LINUX, None), Ok(Backend::Cpu));
    assert_eq!(pick(LINUX, Some(11)), Ok(Backend::Cpu));
    assert_eq!(pick(LINUX, Some(12)), Ok(Backend::Cuda12));
    assert_eq!(pick(LINUX_ARM, Some(14)), Ok(Backend::Cuda13));
    assert_eq!(backend::resolve(Some(""), LINUX, || None), Ok(Backend::Cpu));
}

#[test]
fn a_named_backend_asks_no_driver() {
    let pick = |name, machine| backend::resolve(Some(name), machine, || panic!("asked"));
    assert_eq!(pick("cpu", LINUX), Ok(Backend::Cpu));
    assert_eq!(pick(" cuda13 ", LINUX), Ok(Backend::Cuda13));
    assert_eq!(pick("metal", MAC), Ok(Backend::Metal));
}

#[test]
fn wrong_backends_are_told_what_there_is() {
    let pick = |name, machine| said(backend::resolve(Some(name), machine, || None));
    let unknown = pick("vulkan", LINUX);
    assert!(unknown.contains("`vulkan`") && unknown.contains("auto, metal, cpu"));
    assert!(pick("metal", LINUX).contains("cpu, cuda12, cuda13"));
    assert!(pick("cpu", MAC).contains("CPU device is part of the Metal build"));
    let windows = Machine {
        os: "windows",
        ..LINUX
    };
    assert!(pick("cpu", windows).contains("windows on x86_64"));
}

#[test]
fn the_drivers_cuda_version_is_read() {
    let text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build\nGCC version: gcc 12.3.0\n";
    assert_eq!(backend::driver_major(text), Some(580));
    assert_eq!(backend::driver_major("nothing of the kind"), None);
    assert_eq!(backend::cuda_of_driver(580), Some(13));
    assert_eq!(backend::cuda_of_driver(550), Some(12));
    assert_eq!(backend::cuda_of_driver(470), None);
}

#[test]
fn keys_differ_by_label_value_and_order() {
    let key = |parts: &[(&str, &str)]| {
        let key = parts
            .iter()
            .fold(Key::new(), |key, (label, value)| key.part(label, value));
        key.finish()
    };
    let one = key(&[("a", "bc")]);
    assert_eq!(one.len(), 32);
    assert_eq!(one, key(&[("a", "bc")]));
    assert_ne!(one, key(&[("ab", "c")]));
    assert_ne!(key(&[("a", "b"), ("c", "d")]), key(&[("c", "d"), ("a", "b")]));
    assert_ne!(key(&[("a", "")]), key(&[]));
}

#[test]
fn a_wrong_hash_names_both() {
    let folder = Folder::new("hash");
    let file = folder.0.join("x");
    fs::write(&file, "abc").expect("a file");
    let right = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(key::verify(&file, "x", right), Ok(()));
    let wrong = "0".repeat(64);
    let message = said(key::verify(&file, "mlx-cpu", &wrong));
    assert!(message.contains(&format!("expected {wrong}, got {right}")));
    assert!(message.contains("mlx-cpu"));
}

#[test]
fn members_that_leave_the_folder_are_refused() {
    for name in ["a", "a/b.h", "./a", "mlx_cpu.libs/lib..so"] {
        assert!(archive::safe_path(name).is_some(), "{name}");
    }
    for name in ["", "../a", "a/../../b", "/etc/x", "a\\..\\b", "C:x", "a\0"] {
        assert_eq!(archive::safe_path(name), None, "{name}");
    }
}

#[test]
fn wheel_data_is_installed_where_it_belongs() {
    let name = archive::installed_name;
    assert_eq!(name("clang-1.data/platlib/clang/x.so"), "clang/x.so");
    assert_eq!(name("p-1.data/purelib/p/x"), "p/x");
    assert_eq!(name("p-1.data/scripts/x"), "p-1.data/scripts/x");
    assert_eq!(name("mlx/lib/libmlx.so"), "mlx/lib/libmlx.so");
}

fn zip_of(path: &Path, members: &[(&str, &str)]) {
    let file = fs::File::create(path).expect("a file");
    let mut writer = zip::ZipWriter::new(file);
    for (name, text) in members {
        let options = zip::write::SimpleFileOptions::default();
        writer.start_file(*name, options).expect("a member");
        writer.write_all(text.as_bytes()).expect("written");
    }
    writer.finish().expect("an archive");
}

#[test]
fn unpacking_takes_what_is_wanted_and_nothing_outside() {
    let folder = Folder::new("zip");
    let wheel = folder.0.join("a.whl");
    zip_of(&wheel, &[("mlx/lib/x", "1"), ("mlx/share/y", "2")]);
    let into = folder.0.join("out");
    archive::unpack(&wheel, &into, |name| !name.contains("share")).expect("unpacked");
    assert_eq!(fs::read_to_string(into.join("mlx/lib/x")).expect("x"), "1");
    assert!(!into.join("mlx/share").exists());

    zip_of(&wheel, &[("fine", "1"), ("../evil", "2")]);
    let message = said(archive::unpack(&wheel, &into, |_| true));
    assert!(message.contains("`../evil`"), "{message}");
    assert!(!folder.0.join("evil").exists());

    fs::write(&wheel, "no zip").expect("a file");
    assert!(said(archive::unpack(&wheel, &into, |_| true)).contains("could not unpack"));
}

#[test]
fn the_cache_is_where_the_environment_says() {
    let root = |set: &[(&str, &str)], mac| {
        let set: Vec<(String, String)> = set
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
            .collect();
        cache::root_from(
            |name| {
                let found = set.iter().find(|(n, _)| n == name);
                found.map(|(_, v)| OsString::from(v))
            },
            mac,
        )
        .map(|path| path.display().to_string())
    };
    let home = ("HOME", "/h");
    let xdg = ("XDG_CACHE_HOME", "/x");
    assert_eq!(root(&[home], false).as_deref(), Ok("/h/.cache/mlx-chat"));
    assert_eq!(root(&[home], true).as_deref(), Ok("/h/Library/Caches/mlx-chat"));
    assert_eq!(root(&[home, xdg], true).as_deref(), Ok("/x/mlx-chat"));
    assert_eq!(
        root(&[home, xdg, ("MLX_CHAT_CACHE_DIR", "/own")], false).as_deref(),
        Ok("/own")
    );
    assert_eq!(
        root(&[home, ("XDG_CACHE_HOME", "relative")], false).as_deref(),
        Ok("/h/.cache/mlx-chat")
    );
    assert!(said(root(&[("MLX_CHAT_CACHE_DIR", "here")], false)).contains("`here`"));
    assert!(said(root(&[], false)).contains("HOME is not set"));
}

#[test]
fn a_folder_of_the_cache_is_made_once_and_whole() {
    let folder = Folder::new("cache");
    let runs = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let cache = Cache::open(folder.0.clone()).expect("a cache");
                let made = cache.folder("kind", "key", "file", |scratch| {
                    runs.fetch_add(1, Ordering::SeqCst);
                    fs::write(scratch.join("file"), "whole").expect("written");
                    Ok(())
                });
                let file = made.expect("a folder").join("file");
                assert_eq!(fs::read_to_string(file).expect("a file"), "whole");
            });
        }
    });
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[test]
fn a_failed_or_damaged_folder_is_made_again() {
    let folder = Folder::new("again");
    let cache = Cache::open(folder.0.clone()).expect("a cache");
    let broken = cache.folder("kind", "key", "file", |scratch| {
        fs::write(scratch.join("half"), "").expect("written");
        Err(Failure::new("no network"))
    });
    assert_eq!(said(broken), "no network");
    assert!(!folder.0.join("kind/key").exists());
    assert_eq!(fs::read_dir(folder.0.join("tmp")).expect("tmp").count(), 0);

    let lacking = cache.folder("kind", "key", "file", |_| Ok(()));
    assert!(said(lacking).contains("without its file file"));

    let fill = |scratch: &Path| {
        fs::write(scratch.join("file"), "").expect("written");
        Ok(())
    };
    let place = cache.folder("kind", "key", "file", fill).expect("made");
    fs::remove_file(place.join("file")).expect("removed");
    cache.folder("kind", "key", "file", fill).expect("made again");
    assert!(place.join("file").is_file());
}

#[test]
fn messages_are_one_line() {
    let failure = Failure::new("first\n\n  second\r\nthird");
    assert_eq!(failure.one_line(), "first | second | third");
}
