//! Waiting for locks that other processes hold.

use std::time::Duration;

use super::cancel::Cancel;
use super::error::HubError;
use super::progress::Progress;

/// How often a lock held by another process is tried again.
const AGAIN: Duration = Duration::from_millis(100);

/// What `take` gives once it gives something; none if stopped meanwhile.
pub(super) fn wait_for<T>(
    mut take: impl FnMut() -> Result<Option<T>, HubError>,
    progress: &mut dyn FnMut(Progress),
    cancel: &Cancel,
) -> Result<Option<T>, HubError> {
    let mut told = false;
    loop {
        if let Some(held) = take()? {
            return Ok(Some(held));
        }
        if !told {
            progress(Progress::Waiting);
            told = true;
        }
        if !cancel.wait(AGAIN) {
            return Ok(None);
        }
    }
}
