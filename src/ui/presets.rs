//! Presets on disk: the person's files are read with the program's own, and settings are saved as one. For the worker.

use std::path::{Path, PathBuf};

use toml_edit::{DocumentMut, Key};

use crate::chat::{Preset, Settings, own_presets, read_presets, write_preset};
use crate::ui::settings_file::replace;
use crate::ui::worker::shown;

/// The presets that there are.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Library {
    /// The person's own first, then the program's; each name once.
    pub presets: Vec<Preset>,
    /// What is wrong in the files, and left out: with the line, in words.
    pub problems: Vec<String>,
}

impl Library {
    /// Those of the program and of the files `*.toml` in a folder, which need not be there.
    pub fn read(folder: &Path) -> Self {
        let mut library = Self::default();
        let mut files = Vec::new();
        match std::fs::read_dir(folder) {
            Ok(entries) => files.extend(entries.filter_map(|entry| Some(entry.ok()?.path()))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => library.problems.push(format!("{}: {error}", folder.display())),
        }
        files.retain(|path| path.extension().is_some_and(|ending| ending == "toml") && path.is_file());
        files.sort();
        for path in files {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            match std::fs::read(&path) {
                Ok(bytes) => {
                    let (presets, problems) = read_presets(&bytes, Some(&name));
                    library.problems.extend(problems);
                    library.tell_hidden(&presets, &name);
                    library.add(presets);
                }
                Err(error) => library.problems.push(format!("{name}: {error}")),
            }
        }
        library.add(own_presets());
        library
    }

    /// Tells which presets of a file don't count since an earlier file has their names.
    fn tell_hidden(&mut self, presets: &[Preset], file: &str) {
        for preset in presets {
            let first = self.named(&preset.name).and_then(|first| first.file.as_deref());
            if let Some(first) = first {
                let name = &preset.name;
                self.problems.push(format!(
                    "{file}: preset {name:?}: it is in {first}, too, which counts"
                ));
            }
        }
    }

    fn add(&mut self, presets: Vec<Preset>) {
        for preset in presets {
            if self.named(&preset.name).is_none() {
                self.presets.push(preset);
            }
        }
    }

    /// The preset of a name.
    pub fn named(&self, name: &str) -> Option<&Preset> {
        self.presets.iter().find(|preset| preset.name == name)
    }
}

/// The file in which a preset of a name is saved.
fn file_of(folder: &Path, name: &str) -> PathBuf {
    let letter = |c: char| {
        if c.is_alphanumeric() || c == '-' || c == '_' {
            c
        } else {
            '-'
        }
    };
    let stem: String = name.chars().map(letter).collect();
    folder.join(format!("{stem}.toml"))
}

/// Saves settings as a preset in a file of its own. A name that is there already is refused, with what to do.
pub fn save(folder: &Path, name: &str, settings: &Settings) -> Result<String, String> {
    let path = file_of(folder, name);
    match Library::read(folder).named(name).map(|preset| &preset.file) {
        Some(None) => {
            return Err(format!(
                "preset {name:?} comes with the program: save it under another name"
            ));
        }
        Some(Some(file)) => {
            return Err(format!(
                "preset {name:?} is there already, in {}: save it under another name, or delete that one in the list \
                 (/presets)",
                shown(&folder.join(file))
            ));
        }
        None => {}
    }
    if path.exists() {
        return Err(format!(
            "{} is there already, and holds something else: save it under another name",
            shown(&path)
        ));
    }
    replace(&path, &write_preset(name, settings))
        .map_err(|error| format!("can't write {}: {error}", shown(&path)))?;
    Ok(format!("preset {name:?} is saved in {}", shown(&path)))
}

/// Deletes a preset of the person's own; a file that holds others keeps them.
pub fn delete(folder: &Path, name: &str) -> Result<String, String> {
    let library = Library::read(folder);
    change(&library, folder, name, "deleted", |document| {
        document.remove(name);
    })?;
    Ok(format!("preset {name:?} is deleted"))
}

/// Gives a preset of the person's own another name, in the same file and place. A name that is there already is refused.
pub fn rename(folder: &Path, name: &str, to: &str) -> Result<String, String> {
    let library = Library::read(folder);
    if let Some(there) = library.named(to) {
        let file = there.file.as_ref().map(|file| shown(&folder.join(file)));
        let place = file.unwrap_or_else(|| "the program".to_owned());
        return Err(format!(
            "preset {to:?} is there already, in {place}: take another name"
        ));
    }
    change(&library, folder, name, "renamed", |document| {
        if let Some((key, item)) = document.remove_entry(name) {
            let key = Key::new(to)
                .with_leaf_decor(key.leaf_decor().clone())
                .with_dotted_decor(key.dotted_decor().clone());
            document.insert_formatted(&key, item);
        }
    })?;
    Ok(format!("preset {name:?} is now called {to:?}"))
}

/// Changes the file that holds a preset of the person's own; one that holds none then goes.
fn change(
    library: &Library,
    folder: &Path,
    name: &str,
    verb: &str,
    change: impl Fn(&mut DocumentMut),
) -> Result<(), String> {
    let preset = library.named(name);
    let preset = preset.ok_or_else(|| format!("there is no preset {name:?} any more"))?;
    let file = preset.file.as_ref();
    let file = file.ok_or_else(|| format!("preset {name:?} comes with the program, and stays"))?;
    let path = folder.join(file);
    let wrong = |why: String| format!("preset {name:?} is not {verb} in {}: {why}", shown(&path));
    let text = std::fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
    let parsed = text.parse();
    let mut document: DocumentMut =
        parsed.map_err(|error: toml_edit::TomlError| wrong(error.message().into()))?;
    change(&mut document);
    let written = if document.is_empty() {
        std::fs::remove_file(&path)
    } else {
        replace(&path, &document.to_string())
    };
    written.map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::Parameter;

    #[test]
    fn a_preset_gets_another_name_where_it_stands_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mine.toml");
        let text =
            "# all mine\n[first]\nseed = 1\n\n# the second\n[second]\nseed = 2 # two\n\n[third]\nseed = 3\n";
        std::fs::write(&file, text).unwrap();
        let said = rename(folder.path(), "second", "two words").unwrap();
        assert_eq!(said, "preset \"second\" is now called \"two words\"");
        let written = std::fs::read_to_string(&file).unwrap();
        assert_eq!(written, text.replace("[second]", "[\"two words\"]"));
        for (name, to, why) in [
            ("first", "third", "is there already, in "),
            ("first", "precise", "is there already, in the program"),
            ("precise", "exact", "comes with the program, and stays"),
            ("second", "other", "there is no preset \"second\" any more"),
        ] {
            let said = rename(folder.path(), name, to).unwrap_err();
            assert!(said.contains(why), "{said}");
            assert_eq!(std::fs::read_to_string(&file).unwrap(), written);
        }
    }

    fn warm(text: &str) -> Settings {
        let mut settings = Settings::default();
        Parameter::Temperature.set(&mut settings, text).unwrap();
        settings
    }

    #[test]
    fn what_was_saved_is_found_before_the_programs_own() {
        let folder = tempfile::tempdir().unwrap();
        let own = Library::read(&folder.path().join("none"));
        assert!(own.named("precise").is_some() && own.problems.is_empty());
        std::fs::write(folder.path().join("a.toml"), "[precise]\ntemperature = 0.25\n").unwrap();
        save(folder.path(), "my own", &warm("0.75")).unwrap();
        let library = Library::read(folder.path());
        assert_eq!(library.problems, [""; 0]);
        assert_eq!(library.presets.len(), own.presets.len() + 1);
        let temperature = |name: &str| {
            let preset = library.named(name).unwrap();
            preset.settings(&Settings::default()).0.sampling.temperature
        };
        assert_eq!((temperature("precise"), temperature("my own")), (0.25, 0.75));
    }

    #[test]
    fn a_name_that_is_there_is_not_saved_over() {
        let folder = tempfile::tempdir().unwrap();
        save(folder.path(), "mine", &warm("0.5")).unwrap();
        let again = save(folder.path(), "mine", &warm("0.75")).unwrap_err();
        assert!(
            again.contains("mine.toml") && again.contains("another name"),
            "{again}"
        );
        let own = save(folder.path(), "precise", &warm("0.75")).unwrap_err();
        assert!(own.contains("comes with the program"), "{own}");
        let library = Library::read(folder.path());
        let mine = library.named("mine").unwrap().settings(&Settings::default());
        assert_eq!(mine.0.sampling.temperature, 0.5);
    }

    #[test]
    fn a_preset_of_ones_own_is_deleted_and_what_is_beside_it_stays() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("two.toml");
        std::fs::write(&file, "# mine\n[a]\ntop_k = 1\n\n# kept\n[b]\ntop_k = 2\n").unwrap();
        delete(folder.path(), "a").unwrap();
        let rest = std::fs::read_to_string(&file).unwrap();
        assert!(
            rest.contains("# kept\n[b]\ntop_k = 2") && !rest.contains("[a]"),
            "{rest}"
        );
        delete(folder.path(), "b").unwrap();
        assert!(!file.exists());
        assert!(delete(folder.path(), "b").unwrap_err().contains("no preset"));
        let own = delete(folder.path(), "precise").unwrap_err();
        assert!(own.contains("comes with the program"), "{own}");
    }

    #[test]
    fn what_is_bad_in_a_file_is_told_and_the_rest_counts() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.toml"), "[x]\nwarmth = 1\n").unwrap();
        std::fs::write(folder.path().join("b.toml"), "[y]\ntop_k = 3\n").unwrap();
        std::fs::write(folder.path().join("c.txt"), "no").unwrap();
        let library = Library::read(folder.path());
        assert!(library.named("y").is_some() && library.named("x").is_some());
        let [problem] = &library.problems[..] else {
            panic!("{:?}", library.problems)
        };
        assert!(problem.starts_with("a.toml:2: "), "{problem}");
    }

    #[test]
    fn a_preset_that_an_earlier_file_has_is_told_by_name() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.toml"), "[x]\ntop_k = 3\n").unwrap();
        std::fs::write(folder.path().join("b.toml"), "[x]\ntop_k = 4\n[precise]\n").unwrap();
        let library = Library::read(folder.path());
        let told = "b.toml: preset \"x\": it is in a.toml, too, which counts";
        assert_eq!(library.problems, [told], "that it is the program's is no fault");
        assert_eq!(library.named("x").unwrap().file.as_deref(), Some("a.toml"));
    }

    #[test]
    fn a_file_that_holds_something_else_is_not_written_over() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a-b.toml"), "[x]\n[y]\n").unwrap();
        let why = save(folder.path(), "a b", &warm("1")).unwrap_err();
        assert!(why.contains("another name"), "{why}");
    }
}
