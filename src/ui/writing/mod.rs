//! Writing: the draft and all that helps with it: the editor and its undo, pastes shown as a word, completion of commands and
//! paths, files that go along, the person's own editor.

pub mod attach;
pub(in crate::ui) mod burst;
mod changes;
pub mod complete;
pub(in crate::ui) mod composer;
pub mod editor;
pub mod external_editor;
pub mod folds;
pub(in crate::ui) mod keys;
pub mod undo;
pub mod vim;
