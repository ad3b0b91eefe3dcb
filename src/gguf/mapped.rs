//! A file of weights, read through a memory map.

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};

use memmap2::{Mmap, UncheckedAdvice};

/// A file in memory, as it was when it was opened.
#[derive(Debug)]
pub struct MappedFile {
    path: PathBuf,
    file: File,
    map: Mmap,
}

impl MappedFile {
    /// Maps a file, which is a regular one.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(path: &Path, file: File) -> io::Result<Self> {
        #[expect(
            unsafe_code,
            reason = "a memory map is the only way to read weights without copying them"
        )]
        // SAFETY: the map is private to this process and read-only. A model file is never written in place by
        // this program (downloads are renamed into place); whether another process shortened it is asked before each
        // part is read.
        let map = unsafe { Mmap::map(&file) }?;
        Ok(Self {
            path: path.to_owned(),
            file,
            map,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A part of it; none where it never had that. The length is asked anew: to read what another process has cut off
    /// would end this one.
    ///
    /// # Errors
    /// If the file became shorter since it was opened.
    pub fn part(&self, range: Range<usize>) -> io::Result<Option<&[u8]>> {
        let now = self.file.metadata()?.len();
        let Some(bytes) = self.map.get(range.clone()) else {
            return Ok(None);
        };
        if (range.end as u64) > now {
            return Err(io::Error::other(format!(
                "it became shorter while it was read, {now} bytes instead of {}; fetch it again",
                self.map.len()
            )));
        }
        Ok(Some(bytes))
    }

    /// Gives back the memory that reading a part has filled: copied, it is not to be there twice.
    pub fn release(&self, range: Range<usize>) {
        #[expect(unsafe_code, reason = "the map's pages are to be dropped while it lives")]
        // SAFETY: nobody writes to the map, so that its pages hold what the file holds, and whoever reads them again gets
        // the same.
        let released = unsafe {
            self.map
                .unchecked_advise_range(UncheckedAdvice::DontNeed, range.start, range.len())
        };
        if let Err(error) = released {
            tracing::debug!(%error, path = %self.path.display(), "a tensor's pages are kept");
        }
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_process_cut_off_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights");
        std::fs::write(&path, [7; 9000]).unwrap();
        let mapped = MappedFile::new(&path, File::open(&path).unwrap()).unwrap();
        assert_eq!(mapped.part(8990..9000).unwrap(), Some(&[7; 10][..]));
        assert_eq!(mapped.part(8990..9001).unwrap(), None);
        let writer = File::options().write(true).open(&path).unwrap();
        writer.set_len(100).unwrap();
        assert_eq!(mapped.part(0..100).unwrap().map(<[u8]>::len), Some(100));
        let error = mapped.part(90..101).unwrap_err().to_string();
        assert!(error.contains("100 bytes instead of 9000"), "{error}");
    }
}
