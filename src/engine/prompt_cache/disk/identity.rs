//! Which model, in which layout of caches, entries are of.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use sha2::{Digest, Sha256};

use super::file::hex;
use super::folder::Name;
use crate::cache::CachePlan;
use crate::engine::prompt_cache::index::Namespace;

/// Endings of the files that make a model: weights, and what says how to run them.
const MAKE_A_MODEL: [&str; 3] = ["safetensors", "gguf", "json"];

/// What tells a model from others: path, length and time of change of its file, or of those of its folder. Links are
/// followed. Of a file that is a part of several, those beside it with names of the same pattern count, too.
pub fn of_model(path: &Path) -> io::Result<String> {
    let path = path.canonicalize()?;
    let mut files = vec![path.clone()];
    if path.is_dir() {
        files = beside(&path, |file| {
            let ending = file.extension().and_then(|ending| ending.to_str());
            // The prompt cache may have been sent to this very folder.
            let name = file.file_name().and_then(|name| name.to_str());
            let entry = name.and_then(Name::parse).is_some();
            !entry && ending.is_some_and(|ending| MAKE_A_MODEL.contains(&ending))
        })?;
    } else if let (Some(folder), Some(stem)) = (path.parent(), stem_of_parts(&path)) {
        files = beside(folder, |file| stem_of_parts(file) == Some(stem))?;
    }
    files.sort();
    let mut hash = Sha256::new();
    for file in files {
        let file = file.canonicalize()?;
        let meta = std::fs::metadata(&file)?;
        hash.update(format!("{}\n{} {}\n", file.display(), meta.len(), changed(&meta)));
    }
    Ok(hex(&hash.finalize()))
}

/// Nanoseconds since the epoch; 0 where nobody knows.
fn changed(meta: &Metadata) -> u128 {
    let since = meta
        .modified()
        .ok()
        .and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_nanos())
}

fn beside(folder: &Path, wanted: impl Fn(&Path) -> bool) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for item in std::fs::read_dir(folder)? {
        let path = item?.path();
        if path.is_file() && wanted(&path) {
            files.push(path);
        }
    }
    Ok(files)
}

/// `MODEL` of `MODEL-00001-of-00003.gguf`.
fn stem_of_parts(file: &Path) -> Option<&str> {
    let name = file.file_name()?.to_str()?.strip_suffix(".gguf")?;
    let (rest, count) = name.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    (is_number(count) && is_number(number)).then_some(stem)
}

/// The namespace of a model's entries: other models, other kinds of layers, other schemes and layouts of their caches, and
/// other versions of this program have others.
pub fn namespace(model: &str, plan: &CachePlan) -> Namespace {
    let said = format!("{}\n{model}\n{plan:?}", env!("CARGO_PKG_VERSION"));
    Namespace::new(&hex(&Sha256::digest(said)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{KvShape, LayerPlan};

    #[test]
    fn a_model_is_another_once_a_file_of_it_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        for name in ["config.json", "model.safetensors", "notes.txt"] {
            std::fs::write(file(name), "1").unwrap();
        }
        let before = of_model(folder.path()).unwrap();
        std::fs::write(file("notes.txt"), "22").unwrap();
        assert_eq!(of_model(folder.path()).unwrap(), before, "no part of the model");
        std::fs::write(file("model.safetensors"), "22").unwrap();
        assert_ne!(of_model(folder.path()).unwrap(), before);
        assert!(of_model(&file("nothing")).is_err());
    }

    #[test]
    fn any_part_of_a_split_file_names_the_same_model() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        for name in ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "other.gguf"] {
            std::fs::write(file(name), name).unwrap();
        }
        let of = |name: &str| of_model(&file(name)).unwrap();
        let before = of("m-00001-of-00002.gguf");
        assert_eq!(of("m-00002-of-00002.gguf"), before);
        assert_ne!(of("other.gguf"), before);
        std::fs::write(file("m-00002-of-00002.gguf"), "changed").unwrap();
        assert_ne!(of("m-00001-of-00002.gguf"), before);
    }

    #[test]
    fn layouts_and_kinds_of_layers_have_namespaces_of_their_own() {
        let kv = KvShape::float32(2, 8, 8);
        let sliding = LayerPlan::Sliding { kv, window: 8 };
        let all = [
            namespace("m", &CachePlan::new(vec![kv])),
            namespace("m", &CachePlan::own_buffers(vec![kv])),
            namespace("m", &CachePlan::new(vec![sliding])),
            namespace("n", &CachePlan::new(vec![kv])),
        ];
        let distinct: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(namespace("m", &CachePlan::new(vec![kv])), all[0]);
    }
}
