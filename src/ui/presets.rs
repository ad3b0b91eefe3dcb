//! Presets on disk: the person's files are read with the program's own, and settings are saved as one. For the worker.

use std::io::Write;
use std::path::Path;

use crate::chat::{Preset, Settings, own_presets, read_presets, write_preset};

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

/// Saves settings as a preset in a file of its own; one of the same name that was saved so before is replaced.
pub fn save(folder: &Path, name: &str, settings: &Settings) -> Result<String, String> {
    let letter = |c: char| {
        if c.is_alphanumeric() || c == '-' || c == '_' {
            c
        } else {
            '-'
        }
    };
    let stem: String = name.chars().map(letter).collect();
    let path = folder.join(format!("{stem}.toml"));
    let wrong = |error: std::io::Error| format!("can't write {}: {error}", path.display());
    if let Ok(there) = std::fs::read(&path) {
        let (all, problems) = read_presets(&there, None);
        if !problems.is_empty() || !matches!(&all[..], [one] if one.name == name) {
            return Err(format!(
                "{} is there already, and holds something else: save it under another name",
                path.display()
            ));
        }
    }
    std::fs::create_dir_all(folder).map_err(wrong)?;
    // A reader sees the old one or the new one.
    let draft = folder.join(format!("{stem}.toml.{}", std::process::id()));
    let write = || -> std::io::Result<()> {
        let mut file = std::fs::File::create(&draft)?;
        file.write_all(write_preset(name, settings).as_bytes())?;
        file.sync_data()?;
        std::fs::rename(&draft, &path)
    };
    write().map_err(|error| {
        let _ = std::fs::remove_file(&draft);
        wrong(error)
    })?;
    Ok(format!("preset {name:?} is saved in {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::Parameter;

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
        save(folder.path(), "precise", &warm("0.25")).unwrap();
        save(folder.path(), "my own", &warm("0.5")).unwrap();
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
