//! The parts of an answer, told apart by the markers in its text: what the model thought, which tools it called, and
//! the answer itself.

mod markup;
mod scanner;
mod spanned;
mod tool_call;

pub use markup::Markup;
pub use scanner::Scanner;
pub use spanned::{Run, Spanned};
pub use tool_call::{ToolCall, tool_calls};

use serde::{Deserialize, Serialize};

/// What a piece of an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Span {
    /// What the person is told.
    #[default]
    Answer,
    /// What the model thought before.
    Thinking,
    /// A call of a tool.
    ToolCall,
}

impl Span {
    /// The word that scripts see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Answer => "answer",
            Self::Thinking => "thinking",
            Self::ToolCall => "tool_call",
        }
    }

    /// Whether it is plain answer, which records leave out.
    pub fn is_answer(&self) -> bool {
        *self == Self::Answer
    }
}
