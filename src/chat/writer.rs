//! What is to be kept on disk, and how it goes.

use super::SessionId;
use super::layout::Layout;
use super::record::Record;

/// Something to keep.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// The next records of a conversation's log.
    Records {
        /// Whose.
        session: SessionId,
        /// In order.
        records: Vec<Record>,
    },
    /// The open panes.
    Layout(Layout),
    /// A conversation is shown no more: another process may have it once its records are written.
    Release(SessionId),
}

/// What the writer has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// Something could not be written; it is kept and tried again.
    Failing {
        /// Why.
        message: String,
    },
    /// Everything is written again.
    Recovered,
}
