//! JSON files of a model folder.

use std::path::Path;

use serde_json::Value;

use super::ModelError;

/// The largest such file that is read: a vocabulary of hundreds of thousands of words fits.
const LARGEST: u64 = 64 << 20;

/// Reads a JSON file.
pub(super) fn read(path: &Path) -> Result<Value, ModelError> {
    let io = |source| ModelError::Io {
        path: path.to_owned(),
        source,
    };
    let wrong = |reason: String| ModelError::Json {
        path: path.to_owned(),
        reason,
    };
    let size = std::fs::metadata(path).map_err(io)?.len();
    if size > LARGEST {
        return Err(wrong(format!(
            "it has {size} bytes, more than such a file can have"
        )));
    }
    let bytes = std::fs::read(path).map_err(io)?;
    serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))
}
