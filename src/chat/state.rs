//! All that a screen shows of conversations.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;

use super::event::{Notice, NoticeKind, Topic};
use super::layout::{Layout, LayoutPane};
use super::pane::{Access, Pane, Settings};
use super::parameter::Origins;
use super::replay::Conversation;
use super::{PaneId, SessionId};
use crate::engine::telemetry::{EngineState, Snapshot};
use crate::engine::{self, RequestId};

/// Whether prompts can be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineStatus {
    /// The model is being loaded; prompts wait.
    Loading {
        /// What is being done.
        stage: String,
        /// Bytes done.
        done: u64,
        /// Bytes in all; 0 if unknown.
        total: u64,
    },
    /// Prompts are answered.
    Ready,
    /// There is no engine any more, or none came up: why.
    Failed(String),
}

/// The conversations on the screen.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    pub(super) panes: BTreeMap<PaneId, Pane>,
    pub(super) focused: PaneId,
    /// Panes that were closed and can be reopened, with their numbers, the last one last.
    pub(super) closed: Vec<(PaneId, Pane)>,
    pub(super) broadcast: bool,
    /// The panes of which was told that they would answer alike.
    pub(super) told_alike: Vec<Vec<PaneId>>,
    pub(super) zoomed: bool,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) engine: EngineStatus,
    pub(super) notices: Vec<Notice>,
    pub(super) told: VecDeque<Notice>,
    /// Whether what is told now answers what the user did.
    pub(super) answering: bool,
    pub(super) unsaved: Option<String>,
    pub(super) quitting: bool,
    pub(super) defaults: Settings,
    /// Where these come from.
    pub(super) origins: Origins,
    pub(super) saved_layout: Option<Layout>,
    /// Whether the last layout stays until something is said here.
    pub(super) spares_layout: bool,
    pub(super) next_turn: u64,
    /// Submissions that the engine has not named yet, those of closed panes included.
    pub(super) unnamed: usize,
    /// Events that overtook their `Submitted`; kept only while there are unnamed submissions.
    pub(super) early: Vec<(RequestId, engine::Event)>,
    /// Whether no request is to begin.
    pub(super) held: bool,
    /// When the engine came that there is.
    pub(super) began: Option<Timestamp>,
    /// How many there were.
    pub(super) engines: u32,
}

impl State {
    /// New conversations, one a pane: `first` and as many of `more` as there can be panes. The first one is focused.
    pub fn new(defaults: Settings, first: SessionId, more: &[SessionId]) -> Self {
        let sessions = std::iter::once(first).chain(more.iter().copied());
        let panes: BTreeMap<_, _> = PaneId::all()
            .zip(sessions)
            .map(|(id, s)| (id, Pane::new(s, defaults.clone())))
            .collect();
        Self::with_panes(defaults, panes)
    }

    /// The panes of a layout, with the conversations that the store could load. A pane whose conversation isn't among
    /// them is empty (it had not begun, or is lost); a layout without panes gives one with `fallback`.
    pub fn resume(
        defaults: Settings,
        layout: &Layout,
        conversations: Vec<(Conversation, Access)>,
        fallback: SessionId,
    ) -> Self {
        let mut loaded: BTreeMap<SessionId, (Conversation, Access)> = conversations
            .into_iter()
            .map(|(c, access)| (c.session, (c, access)))
            .collect();
        let mut panes = BTreeMap::new();
        let mut seen = std::collections::BTreeSet::new();
        for LayoutPane {
            pane,
            session,
            receives,
        } in &layout.panes
        {
            if panes.contains_key(pane) || !seen.insert(*session) {
                continue;
            }
            let mut restored = match loaded.remove(session) {
                Some((conversation, access)) => Pane::restore(conversation, access),
                None => Pane::new(*session, defaults.clone()),
            };
            restored.receives = *receives;
            panes.insert(*pane, restored);
        }
        if panes.is_empty() {
            panes.insert(PaneId::FIRST, Pane::new(fallback, defaults.clone()));
        }
        let mut state = Self::with_panes(defaults, panes);
        if state.panes.contains_key(&layout.focused) {
            state.focused = layout.focused;
        }
        state.broadcast = layout.broadcast;
        state.zoomed = layout.zoomed;
        state.saved_layout = Some(state.layout());
        state
    }

    fn with_panes(defaults: Settings, panes: BTreeMap<PaneId, Pane>) -> Self {
        let focused = panes.keys().next().copied().unwrap_or(PaneId::FIRST);
        Self {
            panes,
            focused,
            closed: Vec::new(),
            broadcast: false,
            told_alike: Vec::new(),
            zoomed: false,
            snapshot: Arc::new(Snapshot::loading("starting")),
            engine: EngineStatus::Loading {
                stage: "starting".into(),
                done: 0,
                total: 0,
            },
            notices: Vec::new(),
            answering: false,
            told: VecDeque::new(),
            unsaved: None,
            quitting: false,
            defaults,
            origins: Origins::default(),
            saved_layout: None,
            spares_layout: false,
            next_turn: 0,
            unnamed: 0,
            early: Vec::new(),
            held: false,
            began: None,
            engines: 0,
        }
    }

    /// The panes, by number.
    pub fn panes(&self) -> &BTreeMap<PaneId, Pane> {
        &self.panes
    }

    /// A pane.
    pub fn pane(&self, id: PaneId) -> Option<&Pane> {
        self.panes.get(&id)
    }

    /// The focused pane's number.
    pub fn focused(&self) -> PaneId {
        self.focused
    }

    /// The focused pane.
    pub fn focused_pane(&self) -> &Pane {
        // The focus is always on a pane: `handle` alone moves it, and the last pane never closes.
        &self.panes[&self.focused]
    }

    /// Whether a prompt goes to all panes.
    pub fn broadcast(&self) -> bool {
        self.broadcast
    }

    /// The panes to which the next prompt goes: the focused one, or while broadcast is on those that take part. Panes that
    /// can only be read are left out.
    pub fn targets(&self) -> Vec<PaneId> {
        let wanted = |id: &PaneId, pane: &Pane| {
            let receives = if self.broadcast {
                pane.receives
            } else {
                *id == self.focused
            };
            receives && pane.access == Access::Write
        };
        let panes = self.panes.iter().filter(|(id, pane)| wanted(id, pane));
        panes.map(|(id, _)| *id).collect()
    }

    /// How requests of new panes are made.
    pub fn defaults(&self) -> &Settings {
        &self.defaults
    }

    /// Where that comes from.
    pub fn origins(&self) -> &Origins {
        &self.origins
    }

    /// Tells where the settings of new panes come from.
    pub fn with_origins(mut self, origins: Origins) -> Self {
        self.origins = origins;
        self
    }

    /// Has the layout of last time stay until something is said here: drafts alone don't replace it.
    pub fn spare_last_layout(&mut self) {
        self.spares_layout = true;
    }

    /// Whether the focused pane takes all the room.
    pub fn zoomed(&self) -> bool {
        self.zoomed
    }

    /// The engine's state, as last told.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Whether prompts can be answered.
    pub fn engine(&self) -> &EngineStatus {
        &self.engine
    }

    /// Whether requests wait until [`super::Event::Release`], or another engine.
    pub fn held(&self) -> bool {
        self.held
    }

    /// Since when the tokens of a pane's turns are those of the model that there is, where earlier ones were counted by
    /// another model: since the engine was changed, or came, if the conversation began with another model.
    pub fn counts_since(&self, pane: &Pane) -> Option<Timestamp> {
        let model = &self.snapshot.info.model;
        let named = &pane.log.model;
        let foreign = !named.is_empty() && !model.is_empty() && named != model;
        self.began.filter(|_| self.engines > 1 || foreign)
    }

    /// Conversations that another process writes to.
    pub fn followed(&self) -> impl Iterator<Item = SessionId> {
        let elsewhere = self
            .panes
            .values()
            .filter(|pane| pane.access == Access::Elsewhere);
        elsewhere.map(|pane| pane.session)
    }

    /// Whether anything of these conversations is on disk, to be resumed.
    pub fn is_stored(&self) -> bool {
        self.saved_layout.is_some()
    }

    /// What to tell the user, oldest first.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// What the user was told lately, oldest first, shown or not.
    pub fn told(&self) -> impl DoubleEndedIterator<Item = &Notice> + ExactSizeIterator {
        self.told.iter()
    }

    /// Adds warnings before the loop runs, such as a store's notes; their time is the first event's.
    pub fn note(&mut self, about: Option<Topic>, notes: impl IntoIterator<Item = String>) {
        for text in notes {
            self.tell(Timestamp::MIN, NoticeKind::Warning, text, about);
        }
    }

    /// Why conversations can't be written at present; they are kept in memory and tried again.
    pub fn unsaved(&self) -> Option<&str> {
        self.unsaved.as_deref()
    }

    /// Whether the program is ending.
    pub fn quitting(&self) -> bool {
        self.quitting
    }

    /// The pane in which a request runs.
    pub fn pane_of(&self, request: RequestId) -> Option<PaneId> {
        self.panes
            .iter()
            .find(|(_, pane)| pane.request() == Some(request))
            .map(|(id, _)| *id)
    }

    /// Whether a conversation is in a pane that was closed, and can be reopened: it stays locked until then.
    pub fn is_closed(&self, session: SessionId) -> bool {
        self.closed.iter().any(|(_, pane)| pane.session == session)
    }

    /// The open panes, for the store.
    pub fn layout(&self) -> Layout {
        Layout {
            version: Layout::VERSION,
            panes: self
                .panes
                .iter()
                .filter(|(_, p)| !p.private)
                .map(|(id, p)| LayoutPane {
                    pane: *id,
                    session: p.session,
                    receives: p.receives,
                })
                .collect(),
            focused: self.focused,
            broadcast: self.broadcast,
            zoomed: self.zoomed,
        }
    }

    /// The engine's status that a snapshot tells of.
    pub(super) fn status_of(snapshot: &Snapshot) -> EngineStatus {
        match &snapshot.state {
            EngineState::Loading { stage, done, total } => EngineStatus::Loading {
                stage: stage.clone(),
                done: *done,
                total: *total,
            },
            EngineState::Ready => EngineStatus::Ready,
            EngineState::Failed(message) => EngineStatus::Failed(message.clone()),
            EngineState::Closed => EngineStatus::Failed("the engine was closed".into()),
        }
    }
}
