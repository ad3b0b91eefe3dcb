//! The settings file, as far as the screen writes it: what was asked for, all else as it stands. For the worker.

use std::io::Write;
use std::path::Path;

use toml_edit::{DocumentMut, Item, Table, Value, value};

use crate::ui::worker::shown;

/// The table of what is switched on the screen.
const TABLE: &str = "interface";

/// A setting's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// A name.
    Text(String),
    /// On or off.
    Switch(bool),
}

impl Kept {
    fn value(&self) -> Value {
        match self {
            Self::Text(text) => text.into(),
            Self::Switch(on) => (*on).into(),
        }
    }

    /// As a person reads it.
    fn told(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Switch(true) => "on",
            Self::Switch(false) => "off",
        }
    }
}

/// Keeps settings of `[interface]` in the file, which need not be there, with its comments and its order; what to say of
/// it. A file that is no TOML stays as it is.
pub fn keep(file: &Path, settings: &[(&str, Kept)]) -> Result<String, String> {
    let name = shown(file);
    let keys: Vec<&str> = settings.iter().map(|(key, _)| *key).collect();
    let verb = if keys.len() == 1 { "is" } else { "are" };
    let lost = format!("{} {verb} not kept", keys.join(", "));
    let before = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(format!("can't read {name}: {error}")),
    };
    let mut document: DocumentMut = before.parse().map_err(|error: toml_edit::TomlError| {
        let line = error
            .span()
            .map_or(0, |span| before[..span.start].matches('\n').count());
        format!("{lost}: {name}:{}: {}", line + 1, error.message())
    })?;
    let table = document
        .entry(TABLE)
        .or_insert_with(|| Item::Table(Table::new()))
        .as_table_like_mut()
        .ok_or_else(|| format!("{lost}: {TABLE} is no table in {name}"))?;
    for (key, kept) in settings {
        match table.get_mut(key).and_then(Item::as_value_mut) {
            Some(there) => {
                let decor = there.decor().clone();
                *there = kept.value();
                *there.decor_mut() = decor;
            }
            None => {
                table.insert(key, value(kept.value()));
            }
        }
    }
    replace(file, &document.to_string()).map_err(|error| format!("can't write {name}: {error}"))?;
    let told: Vec<String> = settings
        .iter()
        .map(|(key, kept)| format!("{} {}", key.replace('_', " "), kept.told()))
        .collect();
    Ok(format!("{} {verb} kept in {name}", told.join(", ")))
}

/// Puts a text in a file's place, at once: who reads it sees the one or the other. A link stays one.
pub(super) fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    let file = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let draft = file.with_file_name(name);
    let write = || -> std::io::Result<()> {
        let mut written = std::fs::File::create(&draft)?;
        if let Ok(there) = std::fs::metadata(&file) {
            written.set_permissions(there.permissions())?;
        }
        written.write_all(text.as_bytes())?;
        written.sync_data()?;
        std::fs::rename(&draft, &file)
    };
    write().inspect_err(|_| {
        let _ = std::fs::remove_file(&draft);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(before: &str) -> (Result<String, String>, String) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        std::fs::write(&file, before).unwrap();
        let said = keep(&file, &[("theme", Kept::Text("dark".into()))]);
        let names = folder.path().read_dir().unwrap().count();
        assert_eq!(names, 1, "nothing is left beside it");
        (said, std::fs::read_to_string(&file).unwrap())
    }

    #[test]
    fn one_setting_changes_and_all_else_stays_as_it_was_written() {
        for (before, after) in [
            ("", "[interface]\ntheme = \"dark\"\n"),
            (
                "# mine\npanes = 2\n",
                "# mine\npanes = 2\n\n[interface]\ntheme = \"dark\"\n",
            ),
            (
                "[interface]\n# no bell\nbell = false\ntheme = 'light' # for days\n\n[keys]\nzoom = ['f8']\n",
                "[interface]\n# no bell\nbell = false\ntheme = \"dark\" # for days\n\n[keys]\nzoom = ['f8']\n",
            ),
            (
                "interface.bell = false\n",
                "interface.bell = false\ninterface.theme = \"dark\"\n",
            ),
            (
                "interface = { bell = true }\n",
                "interface = { bell = true , theme = \"dark\" }\n",
            ),
        ] {
            let (said, now) = kept(before);
            assert!(said.unwrap().starts_with("theme dark is kept in "));
            let parsed: toml::Table = now.parse().unwrap();
            assert_eq!(parsed["interface"]["theme"].as_str(), Some("dark"), "{now}");
            if !before.contains('{') {
                assert_eq!(now, after);
            }
            let twice = kept(&now).1;
            assert_eq!(twice, now, "once more changes nothing");
        }
    }

    #[test]
    fn several_are_kept_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        std::fs::write(&file, "[interface]\nvim = false # for guests\n").unwrap();
        let settings = [
            ("mouse", Kept::Text("wheel".into())),
            ("vim", Kept::Switch(true)),
            ("screen_reader", Kept::Switch(false)),
        ];
        let said = keep(&file, &settings).unwrap();
        assert!(
            said.starts_with("mouse wheel, vim on, screen reader off are kept in "),
            "{said}"
        );
        let written = std::fs::read_to_string(&file).unwrap();
        assert_eq!(
            written,
            "[interface]\nvim = true # for guests\nmouse = \"wheel\"\nscreen_reader = false\n"
        );
    }

    #[test]
    fn what_is_no_toml_is_left_alone_and_told_with_its_line() {
        let broken = "panes = 2\n[keys\n";
        let (said, now) = kept(broken);
        assert_eq!(now, broken);
        let why = said.unwrap_err();
        assert!(why.contains("config.toml:2: "), "{why}");
        let (said, now) = kept("interface = 3\n");
        assert_eq!((now.as_str(), said.is_err()), ("interface = 3\n", true));
    }

    #[test]
    fn a_link_stays_a_link_and_a_missing_folder_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let (link, file) = (
            folder.path().join("link.toml"),
            folder.path().join("deep/file.toml"),
        );
        std::os::unix::fs::symlink(&file, &link).unwrap();
        std::fs::create_dir(folder.path().join("deep")).unwrap();
        std::fs::write(&file, "").unwrap();
        let light = [("theme", Kept::Text("light".into()))];
        keep(&link, &light).unwrap();
        assert!(link.is_symlink());
        assert!(std::fs::read_to_string(&file).unwrap().contains("light"));
        let other = folder.path().join("a/b/config.toml");
        keep(&other, &light).unwrap();
        assert!(other.is_file());
    }
}
