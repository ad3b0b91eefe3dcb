//! Fetches pinned wheels from the user's package index, through pip and its settings.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use crate::archive;
use crate::cache::Cache;
use crate::failure::{Failure, Outcome, io_failure};
use crate::key::{self, Key};
use crate::pins::Pin;

/// Pauses before the second and third try.
const PAUSES: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(8)];

/// The folder with all these wheels unpacked side by side; fetched if the cache hasn't got it. `witness` is a file in it.
pub fn unpacked(
    cache: &Cache,
    kind: &str,
    pins: &[&Pin],
    witness: &str,
    wanted: impl Fn(&str) -> bool + Copy,
) -> Outcome<PathBuf> {
    let first = pins.first().ok_or_else(|| {
        Failure::new(format!(
            "pins.txt holds nothing for {kind} on this platform: add a line for it"
        ))
    })?;
    cache.folder(kind, &folder_name(first, pins), witness, |scratch| {
        for pin in pins {
            let wheel = wheel(cache, pin)?;
            archive::unpack(&wheel, scratch, wanted)?;
        }
        // Kept until all is unpacked, so that a build that broke off goes on where it was.
        for pin in pins {
            cache.forget("wheels", &pin.sha256);
        }
        Ok(())
    })
}

/// A verified wheel in the cache.
fn wheel(cache: &Cache, pin: &Pin) -> Outcome<PathBuf> {
    const NAME: &str = "package.whl";
    let folder = cache.folder("wheels", &pin.sha256, NAME, |scratch| {
        let wheel = fetch(pin, scratch)?;
        key::verify(&wheel, &pin.label(), &pin.sha256)?;
        let place = scratch.join(NAME);
        std::fs::rename(&wheel, &place).map_err(|e| io_failure("put in place", &place, &e))
    })?;
    Ok(folder.join(NAME))
}

/// `package-version-hash`: readable, and other contents get another folder.
fn folder_name(first: &Pin, pins: &[&Pin]) -> String {
    let key = pins
        .iter()
        .fold(Key::new(), |key, pin| key.part(&pin.package, &pin.sha256));
    format!("{}-{}-{}", first.package, first.version, &key.finish()[..12])
}

/// Downloads one wheel into the folder, in up to three tries.
fn fetch(pin: &Pin, into: &Path) -> Outcome<PathBuf> {
    let python = python()?;
    let mut tries = 0;
    loop {
        let output = pip(&python, pin, into)?;
        if output.status.success() {
            return wheel_in(into, pin);
        }
        let said = last_words(&output);
        if said.contains("No module named pip") {
            return Err(Failure::new(format!(
                "{python} has no pip, which fetches {}: install it (`{python} -m ensurepip`, or your system's python3-pip package), \
                 or set MLX_DIR to an unpacked MLX 0.32.2 (the folder that holds lib/ and include/)",
                pin.label()
            )));
        }
        let Some(pause) = PAUSES.get(tries) else {
            return Err(Failure::new(format!(
                "could not fetch {} ({} MB) from your Python package index in {} tries; pip said: {said}. \
                 Check the network and `{python} -m pip config list`, then build again{}",
                pin.label(),
                pin.bytes.div_ceil(1_000_000),
                tries + 1,
                advice(pin)
            )));
        };
        tries += 1;
        std::thread::sleep(*pause);
    }
}

/// What helps without the index.
fn advice(pin: &Pin) -> &'static str {
    if pin.set == "libclang" {
        "; a system libclang (packages libclang-dev or clang; LIBCLANG_PATH names its folder) does as well"
    } else {
        "; or set MLX_DIR to an unpacked MLX 0.32.2 (the folder that holds lib/ and include/)"
    }
}

/// The Python to ask for pip.
fn python() -> Outcome<String> {
    for name in ["python3", "python"] {
        let answers = Command::new(name)
            .args(["-c", "import sys; sys.exit(sys.version_info < (3, 7))"])
            .output()
            .is_ok_and(|output| output.status.success());
        if answers {
            return Ok(name.to_owned());
        }
    }
    Err(Failure::new(
        "found no python3 on PATH, whose pip fetches MLX's binaries: install Python 3 with pip, \
         or set MLX_DIR to an unpacked MLX 0.32.2 (the folder that holds lib/ and include/)",
    ))
}

/// One `pip download`. The wheels hold no Python code, so the running Python's version doesn't matter.
fn pip(python: &str, pin: &Pin, into: &Path) -> Outcome<Output> {
    Command::new(python)
        .args([
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-input",
            "--disable-pip-version-check",
        ])
        .args(["--no-deps", "--only-binary=:all:", "--no-cache-dir"])
        .args([
            "--python-version",
            "3.12",
            "--implementation",
            "py",
            "--abi",
            "none",
        ])
        .args(["--platform", &pin.platform])
        // Nothing is installed, so this setting of the user's isn't meant.
        .env("PIP_REQUIRE_VIRTUALENV", "0")
        .arg("--dest")
        .arg(into)
        .arg(format!("{}=={}", pin.package, pin.version))
        .output()
        .map_err(|e| Failure::new(format!("could not start {python}: {e}")))
}

/// The wheel that pip left in the folder.
fn wheel_in(folder: &Path, pin: &Pin) -> Outcome<PathBuf> {
    std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|e| e == "whl"))
        .ok_or_else(|| {
            Failure::new(format!(
                "pip reported success for {} but left no wheel in {}: build again, and if it stays so, update pip",
                pin.label(),
                folder.display()
            ))
        })
}

/// The end of what a program wrote to its standard error: its errors, not its warnings.
fn last_words(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let errors: Vec<&str> = lines.iter().copied().filter(|l| l.starts_with("ERROR")).collect();
    let from = if errors.is_empty() { &lines } else { &errors };
    let tail = &from[from.len().saturating_sub(2)..];
    if tail.is_empty() {
        return format!("nothing ({})", output.status);
    }
    tail.join(" | ")
}
