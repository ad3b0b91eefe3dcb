//! Reading: what was said, in rows: Markdown, colors of code, search, selection and copy, and the keys for them.

pub(in crate::ui) mod answer;
pub mod clipboard;
pub mod highlight;
pub(in crate::ui) mod keys;
pub mod markdown;
pub mod reader;
pub mod transcript;
