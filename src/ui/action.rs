//! What can be asked for by a key.

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send the draft.
    Send,
    /// Begin a new line in the draft.
    Newline,
    /// Close what lies on top, or stop the focused row.
    Stop,
    /// Clear the draft, else stop the row, else leave on the second press.
    Interrupt,
    /// Leave, if the draft is empty; else delete to the right.
    LeaveOrDelete,
    /// Focus the next pane.
    NextPane,
    /// Focus the pane before.
    PreviousPane,
    /// Focus a pane by its number, from 1.
    Pane(u8),
    /// Begin a new conversation in the focused pane.
    NewConversation,
    /// Open a pane.
    NewPane,
    /// Close the focused pane.
    ClosePane,
    /// Show the focused pane alone, or all again.
    Zoom,
    /// Send prompts to all panes, or to one again.
    Broadcast,
    /// Show the keys.
    Help,
    /// Show what was told lately.
    Messages,
    /// Show the engine on the full screen.
    Dashboard,
    /// Hold the engine's view still; the engine goes on.
    Freeze,
    /// Paint everything anew.
    Repaint,
    /// Go to the background.
    Suspend,
    /// Scroll up by a page.
    PageUp,
    /// Scroll down by a page.
    PageDown,
    /// Scroll up by a row.
    LineUp,
    /// Scroll down by a row.
    LineDown,
    /// Scroll to the beginning.
    Top,
    /// Scroll to the end and follow it.
    Bottom,
    /// Show thoughts in full, or a line of each.
    Thoughts,
    /// Move the caret.
    Move(Motion),
    /// Delete from the caret up to where the motion would take it.
    Delete(Motion),
    /// Have the last prompt answered once more.
    Regenerate,
    /// Take the last prompt into the draft to edit it; again, the one before.
    EditPrompt,
    /// Show the version of a turn before this one.
    PreviousSibling,
    /// Show the version of a turn after this one.
    NextSibling,
    /// Copy what the focused pane shows into a new pane.
    ForkPane,
    /// Reopen the pane that was closed last.
    ReopenPane,
    /// Swap the focused pane with the one before.
    MovePaneBack,
    /// Swap the focused pane with the next one.
    MovePaneOn,
    /// Find an action or a command by a few letters.
    Palette,
    /// Pick a stored conversation.
    Sessions,
    /// Pick by what was said, or by titles again.
    SearchText,
    /// Give the selected conversation another title.
    RenameSession,
    /// Delete the selected conversation.
    DeleteSession,
    /// Take the last change of the draft back.
    Undo,
    /// Make the change again that was taken back.
    Redo,
    /// Edit the draft in the editor that the environment names.
    ExternalEditor,
    /// Show answers as they were written, or as Markdown again.
    Raw,
    /// Read: single keys scroll, search and copy.
    Read,
    /// Search in the focused pane.
    Search,
    /// Copy the last answer, or a block of code by its number.
    Copy,
    /// While one reads.
    Reading(Reading),
    /// Choose a theme.
    Themes,
    /// The mouse is the terminal's, or its wheel counts here, or all of it.
    Mouse,
    /// Edit drafts by vim's keys, or by plain ones again.
    Vim,
    /// Write lines for a screen reader, or draw a screen again.
    ScreenReader,
    /// Keep what the mouse, vim's keys and the screen reader were switched to.
    KeepSwitches,
    /// Pick another model.
    Models,
    /// Delete the selected model.
    DeleteModel,
    /// Show and edit how answers are made in the focused pane.
    Settings,
    /// Pick a preset for the focused pane.
    Presets,
    /// Delete the selected preset.
    DeletePreset,
    /// Give the selected preset another name.
    RenamePreset,
    /// Reset the selected setting.
    ResetSetting,
    /// Reset all settings of the pane.
    ResetSettings,
    /// Edit the settings file in the editor that the environment names.
    Config,
    /// Have the focused pane take part in broadcasts, or no more.
    TakePart,
    /// Have the answer go on that was cut off.
    Continue,
    /// Look at the answers to the last prompt side by side.
    Compare,
    /// Open a pane of which nothing is kept.
    NewPrivatePane,
    /// Bring the conversation back that was deleted last.
    RestoreSession,
    /// Have the selected conversation before all others, or no more.
    PinSession,
    /// Put the selected conversation out of the list, or back.
    ArchiveSession,
    /// List archived conversations, too, or no more.
    ListArchived,
}

impl Action {
    /// Whether with it the person does something, so that what was told before may go: writing, scrolling and what concerns
    /// the terminal alone leave it. What closes or sends says so by itself.
    pub(super) fn goes_on(self) -> bool {
        use Reading as R;
        !matches!(
            self,
            Self::Move(_)
                | Self::Delete(_)
                | Self::Newline
                | Self::Undo
                | Self::Redo
                | Self::PageUp
                | Self::PageDown
                | Self::LineUp
                | Self::LineDown
                | Self::Top
                | Self::Bottom
                | Self::Reading(R::Up | R::Down | R::PageUp | R::PageDown | R::Top | R::Bottom)
                | Self::Repaint
                | Self::Suspend
                | Self::Send
                | Self::Stop
                | Self::Interrupt
                | Self::LeaveOrDelete
        )
    }
}

/// What single keys do while one reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reading {
    /// Write again.
    Write,
    /// Scroll up by a row.
    Up,
    /// Scroll down by a row.
    Down,
    /// Scroll up by a page.
    PageUp,
    /// Scroll down by a page.
    PageDown,
    /// Scroll to the beginning.
    Top,
    /// Scroll to the end and follow it.
    Bottom,
    /// Search.
    Search,
    /// Go to the next place that was found.
    NextHit,
    /// Go to the place that was found before.
    PreviousHit,
    /// Copy the last answer, or a block of code by its number.
    Copy,
    /// Copy the selected message, or the last answer.
    CopyMessage,
    /// Select the message before.
    PreviousMessage,
    /// Select the message after.
    NextMessage,
}

/// Where the caret goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Motion {
    /// A character to the left.
    Left,
    /// A character to the right.
    Right,
    /// To the beginning of a word.
    WordLeft,
    /// To the end of a word.
    WordRight,
    /// To the line's beginning.
    LineStart,
    /// To the line's end.
    LineEnd,
    /// A row up; at the first row, the prompt before.
    Up,
    /// A row down; at the last row, the prompt after.
    Down,
}
