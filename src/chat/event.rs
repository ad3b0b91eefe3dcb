//! What can happen to the conversations, and what is to be done about it. All of it is data.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::draft::Draft;
use super::pane::Settings;
use super::parameter::Sources;
use super::preset::Preset;
use super::record::{Marks, RecordId};
use super::writer::{Report, Write};
use super::{PaneId, SessionId, TurnId};
use crate::engine::telemetry::Snapshot;
use crate::engine::{self, Request, RequestId, SubmitError};
use crate::sampling::Sampling;

/// One thing that happened.
#[derive(Debug, Clone)]
pub enum Event {
    /// The focused pane's composer now holds this.
    Draft(Draft),
    /// The focused pane's composer is to be emptied; [`super::Pane::history`] still has the text.
    ClearDraft,
    /// A draft that the focused pane had, and that is neither sent nor in the composer any more: its history keeps it.
    GiveUp(Draft),
    /// The focused pane's draft is to be sent: there, or to every pane while broadcast is on. A blank one does nothing.
    Submit,
    /// This text is to be sent in the draft's place, as [`Event::Submit`] sends the draft: it is what that stands for.
    SubmitText {
        /// What the model is to be told.
        text: String,
    },
    /// An edit of a prompt is given up; else the focused pane's answer is to end here. Without one, a queued prompt returns to the draft.
    Stop,
    /// The focus goes to this pane, if there is one.
    Focus(PaneId),
    /// What ended in these panes is in view.
    Seen(Vec<PaneId>),
    /// The focus goes to the next pane, around the end.
    NextPane,
    /// The focus goes to the previous pane, around the beginning.
    PrevPane,
    /// A new conversation takes the place of the focused pane's, which is kept, and made as that was.
    NewConversation {
        /// What to call it: `SessionId::fresh()`.
        session: SessionId,
    },
    /// A pane with a new conversation opens under the lowest free number and is focused.
    NewPane {
        /// What to call its conversation: `SessionId::fresh()`.
        session: SessionId,
    },
    /// The same, with a conversation of which nothing is kept: neither on disk nor in the prompt cache.
    NewPrivatePane {
        /// What to call it.
        session: SessionId,
    },
    /// A stored conversation is to be shown: where it is open already, in the focused pane if that is as it was made, else
    /// in a new one.
    OpenStored {
        /// Which.
        session: SessionId,
    },
    /// A stored conversation gets another title, open or not.
    RenameStored {
        /// Which.
        session: SessionId,
        /// The new title; control characters become spaces.
        title: String,
    },
    /// A stored conversation is to be listed otherwise, open or not.
    MarkStored {
        /// Which.
        session: SessionId,
        /// How.
        marks: Marks,
    },
    /// The stored conversation that was deleted last is to be there again.
    RestoreRemoved,
    /// A stored conversation is to be deleted; one that a pane shows isn't.
    RemoveStored {
        /// Which.
        session: SessionId,
    },
    /// The focused pane closes; its request is cancelled and its conversation stays on disk. The last one doesn't close.
    ClosePane,
    /// The pane that was closed last opens again, with all that was in it, under its number where that is free.
    ReopenPane,
    /// The focused pane swaps its place with the next one, or the one before, around the ends.
    MovePane {
        /// With the next one.
        forward: bool,
    },
    /// The branch that the focused pane shows is copied into a new conversation, in a new pane that is focused.
    ForkPane {
        /// What to call it: `SessionId::fresh()`.
        session: SessionId,
        /// How much of it.
        at: ForkAt,
    },
    /// The focused pane's last prompt is to be answered once more; the answer that is there becomes a sibling.
    Regenerate,
    /// The focused pane's last prompt goes to the draft to be edited; again, the one before it. [`Event::Submit`] sends it
    /// as a sibling of its turn, [`Event::Stop`] and [`Event::ClearDraft`] give it up.
    EditPrompt,
    /// The focused pane shows a sibling of the turn that is being edited, else of the last one that has some.
    Sibling {
        /// The next one instead of the previous one, around the ends.
        forward: bool,
    },
    /// Broadcast is switched.
    ToggleBroadcast,
    /// Whether the focused pane takes part in broadcasts is switched.
    ToggleReceives,
    /// The focused pane's last answer, which was cut off, is to go on where it ended.
    Continue,
    /// Of several answers to the same prompt this one is kept: the other panes go back to where they were before it. All
    /// stay in their logs, as branches.
    Keep {
        /// The pane that shows it, or can.
        pane: PaneId,
        /// Its turn.
        turn: RecordId,
        /// The panes that go back.
        others: Vec<PaneId>,
    },
    /// The focused pane takes all the room, or gives it back.
    ToggleZoom,
    /// The focused pane's conversation gets this title.
    Rename {
        /// The new title; control characters become spaces.
        title: String,
    },
    /// The focused pane's settings from its next prompt on.
    Configure(Settings),
    /// The same, with where each comes from.
    ConfigureAs {
        /// The settings.
        settings: Settings,
        /// Where each comes from.
        sources: Sources,
    },
    /// The focused pane is to be as a preset has it, from its next prompt on.
    Preset(Box<Preset>),
    /// The user is to be told something.
    Notice {
        /// How bad it is; what isn't good to know alone is refused with a bell.
        kind: NoticeKind,
        /// What to say.
        text: String,
    },
    /// The user was told something where it is shown already: it is kept to be read again.
    Told {
        /// How bad it is.
        kind: NoticeKind,
        /// What was said.
        text: String,
    },
    /// How far something is that takes a while: what was said of it before goes.
    Progress {
        /// What to say.
        text: String,
    },
    /// What came of something that took a while: how far it was goes.
    Outcome {
        /// How bad it is.
        kind: NoticeKind,
        /// What to say.
        text: String,
    },
    /// Notices are to go.
    DismissNotices,
    /// The user did something of which the conversations need not know more: what was told before goes.
    Acted,
    /// The settings were read anew.
    SettingsRead {
        /// What is wrong with them now.
        wrong: Vec<String>,
    },
    /// The program is to end: requests are cancelled, partial answers and drafts written.
    Quit,
    /// Time passed: notices go whose time is over. Needed only while [`super::State::notices`] has any.
    Tick,
    /// The engine took a submission.
    Submitted {
        /// Which.
        turn: TurnId,
        /// Under which name.
        request: RequestId,
    },
    /// The engine refused a submission.
    SubmitFailed {
        /// Which.
        turn: TurnId,
        /// Why.
        error: SubmitError,
    },
    /// Something happened to a request.
    Engine {
        /// Which.
        request: RequestId,
        /// What.
        event: engine::Event,
    },
    /// No request is to begin until [`Event::Release`] or [`Event::NewEngine`]: prompts wait, answers that run go on.
    Hold,
    /// Requests may begin again; those that wait do.
    Release,
    /// The answers of all panes are to end here; what came of them is kept, and so are prompts that wait.
    StopAll,
    /// Another engine takes the place of the one before, which is gone; it is loading. Conversations go on with it.
    NewEngine {
        /// How its model's makers would have it sample, with what the person asked for everywhere. Panes take it where
        /// they have nothing of their own.
        recommended: Sampling,
    },
    /// The engine's state changed.
    Snapshot(Arc<Snapshot>),
    /// The engine could not be started or is lost: no event of it will come any more.
    EngineFailed {
        /// Why, and what to do.
        message: String,
    },
    /// What the writer has to say.
    Writer(Report),
}

/// Where a copy of a conversation ends. One that names a turn which isn't shown is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForkAt {
    /// With its last turn.
    End,
    /// With this turn.
    After(RecordId),
    /// Before this turn, whose prompt goes to the draft.
    Before(RecordId),
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Give the engine a request; answer with [`Event::Submitted`] or [`Event::SubmitFailed`].
    Submit {
        /// For which pane.
        pane: PaneId,
        /// What to call it in the answer.
        turn: TurnId,
        /// The request.
        request: Request,
    },
    /// Cancel a request.
    Cancel(RequestId),
    /// Keep something on disk.
    Write(Write),
    /// Something was refused.
    Bell,
    /// End the program; every write that matters came before.
    Quit,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeKind {
    /// Good to know.
    Info,
    /// Something was refused, or is not as it should be.
    Warning,
    /// Something failed.
    Error,
}

/// What a notice is about that can be over before its time is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// Something that goes on: the next word of it takes this one's place.
    Progress,
    /// Whether conversations are saved.
    Saving,
    /// What the engine does.
    Engine,
    /// The answer that runs in a pane.
    Answer(PaneId),
    /// What is wrong with the settings.
    Settings,
    /// Conversations that were deleted.
    Removed,
}

impl Topic {
    /// Whether the last word of it takes the place of the one before; else there may be several.
    pub(super) fn is_one(self) -> bool {
        !matches!(self, Self::Settings | Self::Removed)
    }
}

/// What can be done about what was told; the view knows the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Bring a deleted conversation back.
    BringBack,
    /// Send the draft.
    Send,
    /// Give the pane a temperature.
    Temperature,
    /// Edit a prompt, or have it answered once more.
    Another,
    /// Reopen the pane that was closed last.
    Reopen,
    /// Begin another conversation, or edit an earlier prompt.
    Full,
}

/// A word for the user. It is shown until the first of these, and stays in [`super::State::told`]:
/// - its time is over ([`Notice::lifetime`]);
/// - what it is about is over, or something else is said of it ([`Topic`]);
/// - something newer is told: only what was told less than [`Notice::SEEN`] ago stays beside that;
/// - the user does something else than write: at once, if it answered what the user did before, else when it was there
///   for [`Notice::SEEN`];
/// - the user sends it away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// How bad it is.
    pub kind: NoticeKind,
    /// What to say; may hold text of a file or the engine, so a view must sanitize it.
    pub text: String,
    /// Since when.
    pub at: Timestamp,
    /// What it is about, where that can be over.
    pub about: Option<Topic>,
    /// Whether it answers what the user did, rather than tells what happened by itself.
    pub answers: bool,
    /// Whether the user has done something else since.
    pub passed: bool,
    /// What can be done about it: follows the text.
    pub way: Option<Way>,
}

impl Notice {
    /// How long a notice is shown at least, unless its topic is over.
    pub const SEEN: Duration = Duration::from_secs(2);
    /// How long one is shown at most.
    pub const LONGEST: Duration = Duration::from_secs(15);
    /// How many are kept to be read again.
    pub const KEPT: usize = 100;

    /// How long it is shown: as long as it takes to read.
    pub fn lifetime(&self) -> Duration {
        let letters = u64::try_from(self.text.chars().count()).unwrap_or(u64::MAX);
        let reading = Duration::from_millis(letters.saturating_mul(50));
        (Duration::from_secs(4) + reading).min(Self::LONGEST)
    }

    /// For how long it will still be shown.
    pub fn left(&self, now: Timestamp) -> Duration {
        // Where the clock was set back, it begins anew.
        let age = Duration::try_from(now.duration_since(self.at)).unwrap_or_default();
        let whole = self.lifetime();
        let whole = if self.passed { whole.min(Self::SEEN) } else { whole };
        whole.saturating_sub(age)
    }

    /// Whether there was time enough to see it.
    pub(super) fn was_seen(&self, now: Timestamp) -> bool {
        Duration::try_from(now.duration_since(self.at)).is_ok_and(|age| age >= Self::SEEN)
    }
}

impl Event {
    /// Whether with it the user does something else than write.
    pub(super) fn goes_on(&self) -> bool {
        match self {
            Self::Submit
            | Self::SubmitText { .. }
            | Self::Focus(_)
            | Self::NextPane
            | Self::PrevPane
            | Self::NewConversation { .. }
            | Self::NewPane { .. }
            | Self::NewPrivatePane { .. }
            | Self::OpenStored { .. }
            | Self::RenameStored { .. }
            | Self::MarkStored { .. }
            | Self::RestoreRemoved
            | Self::ClosePane
            | Self::ReopenPane
            | Self::MovePane { .. }
            | Self::ForkPane { .. }
            | Self::Regenerate
            | Self::EditPrompt
            | Self::Sibling { .. }
            | Self::ToggleBroadcast
            | Self::ToggleReceives
            | Self::Continue
            | Self::Keep { .. }
            | Self::ToggleZoom
            | Self::Rename { .. }
            | Self::Configure(_)
            | Self::ConfigureAs { .. }
            | Self::Preset(_)
            | Self::Acted => true,
            // Several can go with one list.
            Self::RemoveStored { .. }
            | Self::Draft(_)
            | Self::ClearDraft
            | Self::GiveUp(_)
            | Self::Stop
            | Self::Seen(_)
            | Self::Notice { .. }
            | Self::Told { .. }
            | Self::Progress { .. }
            | Self::Outcome { .. }
            | Self::DismissNotices
            | Self::SettingsRead { .. }
            | Self::Quit
            | Self::Tick
            | Self::Submitted { .. }
            | Self::SubmitFailed { .. }
            | Self::Engine { .. }
            | Self::Hold
            | Self::Release
            | Self::StopAll
            | Self::NewEngine { .. }
            | Self::Snapshot(_)
            | Self::EngineFailed { .. }
            | Self::Writer(_) => false,
        }
    }
}
