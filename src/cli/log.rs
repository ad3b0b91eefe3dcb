//! The log file: nothing of it ever goes to the screen.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;

use super::stderr::say;
use super::version;

/// A log file over this size is set aside (as `….1`) when the program starts.
const LARGEST: u64 = 4 << 20;

/// Starts logging to `path`; the variable `MLX_CHAT_LOG` filters, as in `debug` or `mlx_chat::engine=trace`. Without a
/// log file the program goes on.
pub fn start(path: &Path) {
    let file = match open(path) {
        Ok(file) => file,
        Err(error) => {
            say!("mlx-chat: no log file: can't write {}: {error}", path.display());
            return;
        }
    };
    let filter = EnvFilter::try_from_env("MLX_CHAT_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(Mutex::new(file))
        .finish();
    if tracing::subscriber::set_global_default(subscriber).is_ok() {
        tracing::info!(version = version::LINE, pid = std::process::id(), "started");
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    if let Some(folder) = path.parent() {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(folder)?;
    }
    if std::fs::metadata(path).is_ok_and(|metadata| metadata.len() > LARGEST) {
        std::fs::rename(path, path.with_extension("log.1"))?;
    }
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}
