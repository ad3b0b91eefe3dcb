//! What the folder of the prompt cache holds, of all models, and how it is emptied.

use std::io;
use std::path::Path;

use super::folder::Folder;

/// The entries' files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// How many.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// What a folder holds; nothing where there is none.
pub fn usage(folder: &Path) -> io::Result<Usage> {
    match Folder::new(folder.to_owned(), 0).list() {
        Ok(listed) => Ok(Usage {
            files: listed.len(),
            bytes: listed.iter().map(|listed| listed.bytes).sum(),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Usage::default()),
        Err(error) => Err(error),
    }
}

/// Deletes all entries, and what writers that died left; what went. An engine that runs finds that they are gone.
pub fn clear(folder: &Path) -> io::Result<Usage> {
    let before = usage(folder)?;
    if before.files > 0 {
        let folder = Folder::new(folder.to_owned(), 0);
        folder.shrink(None)?;
        folder.sweep()?;
    }
    let left = usage(folder)?;
    Ok(Usage {
        files: before.files.saturating_sub(left.files),
        bytes: before.bytes.saturating_sub(left.bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::prompt_cache::disk::folder::Name;
    use crate::engine::prompt_cache::index::{Class, Namespace};

    #[test]
    fn what_is_there_is_counted_and_deleted_and_files_of_others_stay() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("prompts");
        assert_eq!(usage(&folder).unwrap(), Usage::default());
        assert_eq!(clear(&folder).unwrap(), Usage::default());
        std::fs::create_dir(&folder).unwrap();
        for model in ["a", "b"] {
            let name = Name::new(&Namespace::new(model), &[1, 2], Class::Turn);
            std::fs::write(folder.join(name.to_string()), [0; 100]).unwrap();
        }
        std::fs::write(folder.join("notes.txt"), "mine").unwrap();
        let all = Usage { files: 2, bytes: 200 };
        assert_eq!(usage(&folder).unwrap(), all);
        assert_eq!(clear(&folder).unwrap(), all);
        assert_eq!(usage(&folder).unwrap(), Usage::default());
        assert!(folder.join("notes.txt").exists());
    }
}
