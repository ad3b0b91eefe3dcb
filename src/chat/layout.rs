//! Which conversations are open where: what `--resume` brings back.

use serde::{Deserialize, Serialize};

use super::{PaneId, SessionId};

/// One open pane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutPane {
    /// Its number.
    pub pane: PaneId,
    /// Its conversation.
    pub session: SessionId,
    /// Whether it takes part when a prompt goes to several panes.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub receives: bool,
}

fn yes() -> bool {
    true
}

/// The open panes. Drafts and messages are in the conversations' logs alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// The file's version: 1.
    pub version: u32,
    /// The panes, in order.
    pub panes: Vec<LayoutPane>,
    /// Which one has the focus.
    pub focused: PaneId,
    /// Whether prompts go to all of them.
    #[serde(default)]
    pub broadcast: bool,
    /// Whether the focused one takes all the room.
    #[serde(default)]
    pub zoomed: bool,
}

impl Layout {
    /// The version that this program writes.
    pub const VERSION: u32 = 1;
}
