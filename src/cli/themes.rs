//! Themes: ours, compiled in, and the person's, a file each in the folder `themes` beside the settings file.

use std::path::{Path, PathBuf};

use toml::Value;

use crate::config::paths::Paths;
use crate::config::{Config, Origin, Problem, file};
use crate::ui::styles::theme::{TERMINAL, Theme, Themes};

/// The setting that names the theme.
const SETTING: &str = "interface.theme";

/// Ours, by name.
const OURS: [(&str, &str); 4] = [
    ("dark", include_str!("../../assets/themes/dark.toml")),
    ("light", include_str!("../../assets/themes/light.toml")),
    ("contrast", include_str!("../../assets/themes/contrast.toml")),
    (
        "contrast-light",
        include_str!("../../assets/themes/contrast-light.toml"),
    ),
];

/// The files of the person's themes, in order.
pub fn files(paths: &Paths) -> Vec<PathBuf> {
    let folder = std::fs::read_dir(paths.config.join("themes"));
    let entries = folder.into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
        .collect();
    files.sort();
    files
}

/// All themes. What is wrong in a file, or with the name that was asked for, goes to the other problems, and doesn't count.
pub fn read(paths: &Paths, config: &mut Config) -> Themes {
    let mut all: Vec<(String, Theme)> = Vec::new();
    for (name, text) in OURS {
        all.push((
            name.to_owned(),
            theme(text, Path::new(name), &mut config.problems),
        ));
    }
    let mut broken = Vec::new();
    for path in files(paths) {
        let Some(name) = path.file_stem().and_then(|name| name.to_str()) else {
            continue;
        };
        match read_file(&path) {
            Ok(bytes) => match file::text(&bytes) {
                Ok(text) => all.push((name.to_owned(), theme(text, &path, &mut config.problems))),
                Err(fault) => {
                    let place = Origin::File(path.clone(), fault.number);
                    config.problems.push(Problem::at(place, fault.message));
                    broken.push(name.to_owned());
                }
            },
            Err(error) => {
                let what = format!("{}: it can't be read: {error}", path.display());
                config.problems.push(Problem::anywhere(what));
                broken.push(name.to_owned());
            }
        }
    }
    let themes = Themes::new(all);
    check_name(config, &themes, &broken);
    themes
}

/// What is in a regular file: others may never end, or never begin.
fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is no regular file"));
    }
    std::fs::read(path)
}

fn theme(text: &str, path: &Path, problems: &mut Vec<Problem>) -> Theme {
    let mut theme = Theme::default();
    let (lines, faults) = file::read(text);
    for fault in faults {
        let place = Origin::File(path.to_path_buf(), fault.number);
        problems.push(Problem::at(place, fault.message));
    }
    for line in lines {
        let text = match &line.value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        if let Err(why) = theme.set(&line.key, &text) {
            let place = Origin::File(path.to_path_buf(), line.number);
            problems.push(Problem::at(place, format!("{}: {why}", line.key)));
        }
    }
    theme
}

/// A name that is no theme's doesn't count. Of `broken` ones was told already why there is none.
fn check_name(config: &mut Config, themes: &Themes, broken: &[String]) {
    let entries = config.entries.iter_mut();
    let Some(entry) = entries.into_iter().find(|entry| entry.setting.key == SETTING) else {
        return;
    };
    let name = entry.value.as_str().unwrap_or_default().to_owned();
    if themes.names().any(|known| known == name) {
        return;
    }
    let known: Vec<&str> = themes.names().collect();
    let known = known.join(", ");
    let what = if broken.contains(&name) {
        format!("theme {name:?} has a file that can't be used")
    } else {
        format!("there is no theme {name:?}")
    };
    let what = format!("{SETTING}: {what}; there are {known}; {TERMINAL:?} counts instead");
    entry.value = Value::String(TERMINAL.to_owned());
    let place = std::mem::replace(&mut entry.origin, Origin::Default);
    config.problems.push(Problem::at(place, what));
}
