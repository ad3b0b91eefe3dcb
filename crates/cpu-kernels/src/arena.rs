//! Memory for weights, in pages of 2 MiB where the system has such.
//!
//! With pages of 4 KiB, looking up addresses takes up to a third of the time in which a model's weights can be read.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use memmap2::MmapMut;

/// Where large pages begin.
const LARGE_PAGE: usize = 2 << 20;

/// Memory that is asked of the system at once. Pages that nothing was put on take none.
const CHUNK: usize = 64 << 20;

/// Alignment of what is given out: a cache line.
const LINE: usize = 64;

/// Bytes that all arenas of this process have given out, and have not given back to the system.
static HELD: AtomicU64 = AtomicU64::new(0);

/// Gives out memory that weights are packed into; given back when all weights of a chunk are gone.
#[derive(Default)]
pub struct Arena {
    /// The chunk that was begun last, while anyone has a part of it, and where its free memory begins.
    last: Mutex<(Weak<Chunk>, usize)>,
}

struct Chunk {
    /// Only kept to be unmapped in the end.
    _map: MmapMut,
    start: *mut u8,
    len: usize,
    /// Bytes of it that were given out.
    taken: AtomicU64,
}

// SAFETY: the memory is given out in parts that don't overlap.
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Sync for Chunk {}

/// A part of a chunk that nobody else has.
pub(crate) struct Region {
    chunk: Arc<Chunk>,
    offset: usize,
    len: usize,
}

impl Arena {
    /// Zeroed memory.
    ///
    /// # Errors
    /// If the system has none left.
    pub(crate) fn take(&self, bytes: usize) -> io::Result<Region> {
        let bytes = bytes.next_multiple_of(LINE);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (chunk, offset) = match (last.0.upgrade(), last.1) {
            (Some(chunk), free) if free + bytes <= chunk.len => (chunk, free),
            _ => (Arc::new(Chunk::new(bytes.max(CHUNK))?), 0),
        };
        *last = (Arc::downgrade(&chunk), offset + bytes);
        chunk.taken.fetch_add(bytes as u64, Ordering::Relaxed);
        HELD.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(Region {
            chunk,
            offset,
            len: bytes,
        })
    }

    /// Takes memory back, to give it out again, zeroed, if it is what was given out last.
    pub(crate) fn take_back(&self, mut region: Region) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = last.0.as_ptr() == Arc::as_ptr(&region.chunk) && last.1 == region.offset + region.len;
        if newest {
            region.bytes_mut().fill(0);
            last.1 = region.offset;
            region.chunk.taken.fetch_sub(region.len as u64, Ordering::Relaxed);
            HELD.fetch_sub(region.len as u64, Ordering::Relaxed);
        }
    }

    /// Bytes that all arenas of this process hold now. Pages that nothing was put on don't count.
    pub fn held() -> u64 {
        HELD.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").finish_non_exhaustive()
    }
}

impl Chunk {
    fn new(len: usize) -> io::Result<Self> {
        let len = len.next_multiple_of(LARGE_PAGE);
        // Room to begin where a large page does.
        let mut map = MmapMut::map_anon(len + LARGE_PAGE)?;
        // Refused where the system has no large pages: then small ones have to do.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        let skip = map.as_ptr().align_offset(LARGE_PAGE);
        let skip = if skip < LARGE_PAGE { skip } else { 0 };
        Ok(Self {
            start: map[skip..].as_mut_ptr(),
            len,
            taken: AtomicU64::new(0),
            _map: map,
        })
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        HELD.fetch_sub(self.taken.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl Region {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: within the chunk, which lives as long as this; nobody else has the part, and it is written through `bytes_mut`
        // alone.
        unsafe { std::slice::from_raw_parts(self.chunk.start.add(self.offset), self.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.chunk.start.add(self.offset), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_zeroed_aligned_and_apart() {
        let arena = Arena::default();
        let mut regions: Vec<Region> = [1, 64, 65, 3 << 20, CHUNK, 7]
            .into_iter()
            .map(|bytes| arena.take(bytes).unwrap())
            .collect();
        for (index, region) in regions.iter_mut().enumerate() {
            assert!(region.bytes().iter().all(|&byte| byte == 0));
            assert_eq!(region.bytes().as_ptr().align_offset(LINE), 0);
            region.bytes_mut().fill(index as u8 + 1);
        }
        for (index, region) in regions.iter().enumerate() {
            assert!(region.bytes().iter().all(|&byte| byte == index as u8 + 1));
        }
        // The small ones share a chunk, and it begins with a large page.
        assert!(Arc::ptr_eq(&regions[0].chunk, &regions[3].chunk));
        assert_eq!(regions[0].bytes().as_ptr().align_offset(LARGE_PAGE), 0);
    }

    #[test]
    fn what_was_given_out_last_is_given_out_again() {
        let arena = Arena::default();
        let _kept = arena.take(64).unwrap();
        let mut region = arena.take(128).unwrap();
        region.bytes_mut().fill(1);
        let at = region.bytes().as_ptr();
        arena.take_back(region);
        let again = arena.take(256).unwrap();
        assert_eq!(again.bytes().as_ptr(), at);
        assert!(again.bytes().iter().all(|&byte| byte == 0));
        // Of what is not the last, the memory stays taken.
        let later = arena.take(64).unwrap();
        arena.take_back(again);
        assert!(arena.take(64).unwrap().bytes().as_ptr() > later.bytes().as_ptr());
    }
}
