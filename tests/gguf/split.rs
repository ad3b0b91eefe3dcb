//! Models that were split into several files.

use std::path::{Path, PathBuf};

use mlx_chat::gguf::Gguf;

use super::writer::{Writer, text};

/// What a part says of itself: its number, how many there are, tensors in all of them.
fn part(number: u16, count: u16, tensors: i32) -> Writer {
    Writer::new()
        .entry("split.no", 2, &number.to_le_bytes())
        .entry("split.count", 2, &count.to_le_bytes())
        .entry("split.tensors.count", 5, &tensors.to_le_bytes())
}

fn value(value: f32) -> [u8; 4] {
    value.to_le_bytes()
}

/// The parts of a model of four tensors, the first with its metadata.
fn parts() -> [Writer; 3] {
    [
        part(0, 3, 4)
            .entry("general.architecture", 8, &text("llama"))
            .tensor("a", &[1], 0, &value(1.0)),
        part(1, 3, 4)
            .tensor("b", &[1], 0, &value(2.0))
            .tensor("c", &[1], 0, &value(3.0)),
        part(2, 3, 4).tensor("d", &[1], 0, &value(4.0)),
    ]
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(parts: &[Writer]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for (at, part) in parts.iter().enumerate() {
            folder.write(at, part);
        }
        folder
    }

    fn path(&self, part: usize) -> PathBuf {
        self.0
            .path()
            .join(format!("model-q4-{:05}-of-00003.gguf", part + 1))
    }

    fn write(&self, part: usize, writer: &Writer) {
        std::fs::write(self.path(part), writer.bytes()).unwrap();
    }

    fn error(&self, part: usize) -> String {
        Gguf::open(&self.path(part)).unwrap_err().to_string()
    }
}

#[test]
fn opening_any_part_opens_all() {
    let folder = Folder::new(&parts());
    for opened in 0..3 {
        let file = Gguf::open(&folder.path(opened)).unwrap();
        let names: Vec<&str> = file.tensors().map(|info| info.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c", "d"]);
        for (name, expected) in names.into_iter().zip([1.0, 2.0, 3.0, 4.0]) {
            let tensor = file.tensor(name).unwrap();
            assert_eq!(tensor.to_f32().unwrap(), [expected]);
            file.release(&tensor);
        }
        assert_eq!(file.metadata().str("general.architecture").unwrap(), "llama");
        let bytes: usize = parts().iter().map(|part| part.bytes().len()).sum();
        assert_eq!(file.file_bytes(), bytes as u64);
    }
}

#[test]
fn a_missing_part_is_named() {
    let folder = Folder::new(&parts());
    std::fs::remove_file(folder.path(1)).unwrap();
    for opened in [0, 2] {
        let error = folder.error(opened);
        assert!(
            error.contains("model-q4-00002-of-00003.gguf is missing"),
            "{error}"
        );
    }
}

#[test]
fn a_foreign_or_damaged_part_is_named() {
    for (foreign, said) in [
        (part(1, 4, 4), "number 1 of 4"),
        (part(2, 3, 4), "number 2 of 3"),
        (part(1, 3, 5), "another number of tensors"),
        (Writer::new(), "number 0 of 1"),
    ] {
        let folder = Folder::new(&parts());
        folder.write(1, &foreign);
        let error = folder.error(0);
        assert!(
            error.contains("00002-of-00003.gguf doesn't belong") && error.contains(said),
            "{error}"
        );
    }
    let folder = Folder::new(&parts());
    std::fs::write(folder.path(2), "hello").unwrap();
    let error = folder.error(0);
    assert!(
        error.contains("00003-of-00003.gguf is not a GGUF file"),
        "{error}"
    );
}

#[test]
fn parts_of_different_models_hold_too_few_tensors_or_some_twice() {
    let folder = Folder::new(&parts());
    folder.write(1, &part(1, 3, 4).tensor("b", &[1], 0, &value(2.0)));
    assert!(
        folder.error(0).contains("should hold 4 tensors, but hold 3"),
        "{}",
        folder.error(0)
    );
    let twice = part(1, 3, 4)
        .tensor("b", &[1], 0, &value(2.0))
        .tensor("a", &[1], 0, &value(3.0));
    folder.write(1, &twice);
    assert!(
        folder.error(0).contains("two of them hold the tensor `a`"),
        "{}",
        folder.error(0)
    );
}

#[test]
fn a_part_is_found_by_its_name_only() {
    let folder = Folder::new(&parts());
    let other = folder.0.path().join("first.gguf");
    std::fs::rename(folder.path(0), &other).unwrap();
    let error = Gguf::open(&other).unwrap_err().to_string();
    assert!(error.contains("should be named …-00001-of-00003.gguf"), "{error}");
}

#[test]
fn numbers_of_parts_that_cannot_be_are_refused() {
    let alone = |writer: Writer, path: &Path| {
        std::fs::write(path, writer.bytes()).unwrap();
        Gguf::open(path).map(|_| ()).map_err(|error| error.to_string())
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m-00001-of-00003.gguf");
    let error = alone(part(3, 3, 1), &path).unwrap_err();
    assert!(error.contains("number 3 of 3"), "{error}");
    let huge = Writer::new().entry("split.count", 10, &u64::MAX.to_le_bytes());
    assert!(
        alone(huge, &path)
            .unwrap_err()
            .contains("of 18446744073709551615")
    );
    // A model in one part is a file like others.
    alone(part(0, 1, 0), &path).unwrap();
}
