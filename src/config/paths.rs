//! Where the program keeps its files: the XDG variables where set (on macOS, too), else what the platform says.

use std::path::PathBuf;

/// The folders of the program; none needs to exist yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// Settings: `$XDG_CONFIG_HOME/mlx-chat`.
    pub config: PathBuf,
    /// Models: `$XDG_DATA_HOME/mlx-chat`.
    pub data: PathBuf,
    /// Conversations and the log file: `$XDG_STATE_HOME/mlx-chat`.
    pub state: PathBuf,
    /// MLX binaries and the prompt cache: `$XDG_CACHE_HOME/mlx-chat`.
    pub cache: PathBuf,
}

/// No folder can be named: neither an XDG variable nor a home directory is set.
#[derive(Debug, thiserror::Error)]
#[error(
    "no home directory found: set HOME, or XDG_CONFIG_HOME, XDG_DATA_HOME, XDG_STATE_HOME and XDG_CACHE_HOME"
)]
pub struct NoHome;

impl Paths {
    /// The folders for this user, read from the process's environment.
    pub fn for_user() -> Result<Self, NoHome> {
        Self::from_env(|name| std::env::var_os(name))
    }

    /// The folders, with variables looked up by `var`. A relative XDG path is ignored, as its specification asks.
    pub fn from_env(var: impl Fn(&str) -> Option<std::ffi::OsString>) -> Result<Self, NoHome> {
        let platform = directories::ProjectDirs::from("", "", "mlx-chat");
        let folder = |name: &str, fallback: fn(&directories::ProjectDirs) -> PathBuf| {
            let set = var(name).map(PathBuf::from).filter(|path| path.is_absolute());
            match (set, &platform) {
                (Some(path), _) => Ok(path.join("mlx-chat")),
                (None, Some(dirs)) => Ok(fallback(dirs)),
                (None, None) => Err(NoHome),
            }
        };
        Ok(Self {
            config: folder("XDG_CONFIG_HOME", |d| d.config_dir().to_path_buf())?,
            data: folder("XDG_DATA_HOME", |d| d.data_dir().to_path_buf())?,
            state: folder("XDG_STATE_HOME", |d| {
                d.state_dir().unwrap_or(d.data_local_dir()).to_path_buf()
            })?,
            cache: folder("XDG_CACHE_HOME", |d| d.cache_dir().to_path_buf())?,
        })
    }

    /// The settings file.
    pub fn config_file(&self) -> PathBuf {
        self.config.join("config.toml")
    }

    /// Where a person's presets are.
    pub fn presets(&self) -> PathBuf {
        self.config.join("presets")
    }

    /// Where models live: a folder or a file each.
    pub fn models(&self) -> PathBuf {
        self.data.join("models")
    }

    /// Where conversations live: a log each.
    pub fn sessions(&self) -> PathBuf {
        self.state.join("sessions")
    }

    /// Where the prompt cache lies on disk.
    pub fn prompts(&self) -> PathBuf {
        self.cache.join("prompts")
    }

    /// The log file.
    pub fn log_file(&self) -> PathBuf {
        self.state.join("mlx-chat.log")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xdg_variables_win_on_every_platform() {
        let paths = Paths::from_env(|name| Some(format!("/x/{name}").into())).unwrap();
        assert_eq!(paths.data, PathBuf::from("/x/XDG_DATA_HOME/mlx-chat"));
        assert_eq!(
            paths.sessions(),
            PathBuf::from("/x/XDG_STATE_HOME/mlx-chat/sessions")
        );
    }

    #[test]
    fn a_relative_xdg_variable_is_ignored() {
        let relative = Paths::from_env(|name| (name == "XDG_DATA_HOME").then(|| "rel".into())).unwrap();
        assert!(relative.data.is_absolute());
    }
}
