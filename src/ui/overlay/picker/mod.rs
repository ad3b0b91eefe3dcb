//! The picker of stored conversations: by the letters of their titles, or by words of what was said in them.
//!
//! It holds no file: the [worker](crate::ui::worker) lists and searches, and the newest answer to the newest question counts.
//! What is deleted here is only struck out, and goes when the picker closes; it can be brought back even then.

mod draw;

use std::collections::BTreeSet;

use crossterm::event::KeyEvent;

use crate::chat::store::{Found, Hit, Listing, Summary};
use crate::chat::{Event, Marks, SessionId, State};
use crate::ui::keymap::Action;
use crate::ui::keys::Keymap;
use crate::ui::overlay::field::Field;
use crate::ui::overlay::fuzzy::{Fuzzy, Query, best_first};
use crate::ui::overlay::rename::Rename;
use crate::ui::overlay::select::{self, Selection};
use crate::ui::worker::Job;

/// The most hits that are asked for.
const HITS: usize = 200;

/// By what conversations are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Letters of their titles.
    Title,
    /// Words of titles and messages.
    Text,
}

/// What comes of a key.
#[derive(Debug, Clone)]
pub enum Step {
    /// Something for the conversations.
    Tell(Event),
    /// Something for the worker.
    Work(Job),
    /// The picker closes.
    Close,
}

/// The picker, while it lies on top.
#[derive(Debug)]
pub struct Picker {
    by: By,
    field: Field,
    /// The new title that is being written, and whose.
    rename: Option<Rename<SessionId>>,
    /// Whether archived ones are listed.
    archived: bool,
    /// Those that were archived here: they stay where they are until the picker closes.
    lately: Vec<SessionId>,
    /// None while they are being read.
    sessions: Option<Vec<Summary>>,
    /// Titles that several have.
    shared: BTreeSet<String>,
    /// Those whose titles match, by their place.
    titles: Vec<usize>,
    hits: Vec<Hit>,
    /// The last question's number, and whether its answer is still to come.
    asked: (u64, bool),
    selection: Selection,
    /// What goes when the picker closes, in the order in which it was struck out.
    struck: Vec<SessionId>,
    /// What was refused, or can't be read.
    word: Option<String>,
    fuzzy: Fuzzy,
}

impl Picker {
    /// A picker, and the question to ask for it.
    pub fn new() -> (Self, Job) {
        let picker = Self {
            by: By::Title,
            field: Field::default(),
            rename: None,
            archived: false,
            lately: Vec::new(),
            sessions: None,
            shared: BTreeSet::new(),
            titles: Vec::new(),
            hits: Vec::new(),
            asked: (0, false),
            selection: Selection::default(),
            struck: Vec::new(),
            word: None,
            fuzzy: Fuzzy::default(),
        };
        (picker, Job::List)
    }

    /// The conversations that are shown, in order; one with several hits comes several times.
    pub fn shown(&self) -> Vec<SessionId> {
        match self.by {
            By::Title => self.summaries().map(|summary| summary.session).collect(),
            By::Text => self.hits.iter().map(|hit| hit.session).collect(),
        }
    }

    fn summaries(&self) -> impl Iterator<Item = &Summary> {
        let sessions = self.sessions.as_deref().unwrap_or_default();
        self.titles.iter().filter_map(|at| sessions.get(*at))
    }

    fn count(&self) -> usize {
        match self.by {
            By::Title => self.titles.len(),
            By::Text => self.hits.len(),
        }
    }

    fn selected(&self) -> Option<SessionId> {
        self.shown().get(self.selection.at()).copied()
    }

    /// Takes the list.
    pub fn take_list(&mut self, listing: Result<Listing, String>) {
        let (sessions, word) = match listing {
            Ok(listing) => (listing.sessions, listing.notes.into_iter().next()),
            Err(why) => (Vec::new(), Some(why)),
        };
        for summary in &sessions {
            for hit in self.hits.iter_mut().filter(|hit| hit.session == summary.session) {
                hit.title.clone_from(&summary.title);
                hit.marks = summary.marks;
            }
        }
        self.sessions = Some(sessions);
        self.word = word;
        self.find_shared();
        self.match_titles();
    }

    /// Takes whether a conversation that was struck out is open elsewhere: then it stays.
    pub fn take_held(&mut self, session: SessionId, elsewhere: bool) {
        let before = self.struck.len();
        self.struck.retain(|struck| !elsewhere || *struck != session);
        if self.struck.len() < before {
            let title = draw::titled(&self.title(session).unwrap_or_default());
            self.word = Some(format!(
                "{title:?} is open in another process: close it there first"
            ));
        }
    }

    /// The title of a conversation that is listed or found.
    fn title(&self, session: SessionId) -> Option<String> {
        let listed = self.summary(session).map(|summary| &summary.title);
        let mut hits = self.hits.iter();
        listed
            .or_else(|| Some(&hits.find(|hit| hit.session == session)?.title))
            .cloned()
    }

    fn summary(&self, session: SessionId) -> Option<&Summary> {
        let mut all = self.sessions.iter().flatten();
        all.find(|summary| summary.session == session)
    }

    /// Takes what was found, if it answers the last question.
    pub fn take_found(&mut self, number: u64, found: Result<Found, String>) {
        if number != self.asked.0 {
            return;
        }
        self.asked.1 = false;
        match found {
            Ok(found) => {
                self.hits = found.hits;
                self.word = found.notes.into_iter().next();
            }
            Err(why) => (self.hits, self.word) = (Vec::new(), Some(why)),
        }
        self.selection.keep(self.count());
    }

    /// What was refused, or can't be read.
    pub(in crate::ui) fn word(&self) -> Option<&str> {
        self.word.as_deref()
    }

    /// The keys that count here.
    pub(in crate::ui) fn keys(&self, keymap: &Keymap) -> String {
        draw::keys(keymap, self.by)
    }

    /// Takes a key: what it asks for here, or what it types.
    pub fn key(&mut self, key: &KeyEvent, action: Option<Action>, state: &State) -> Vec<Step> {
        if Rename::key(&mut self.rename, key, action) {
            return Vec::new();
        }
        if self
            .selection
            .key(select::ends(action, self.field.text()), self.count())
        {
            return Vec::new();
        }
        match action {
            Some(Action::Stop | Action::Interrupt | Action::Sessions) => return self.close(),
            Some(Action::SearchText) => {
                self.by = match self.by {
                    By::Title => By::Text,
                    By::Text => By::Title,
                };
                return self.changed();
            }
            Some(Action::RenameSession) => self.begin_rename(state),
            Some(Action::DeleteSession) => return self.strike(state),
            Some(Action::PinSession) => return self.mark(state, |marks| marks.pinned = !marks.pinned),
            Some(Action::ArchiveSession) => {
                return self.mark(state, |marks| marks.archived = !marks.archived);
            }
            Some(Action::ListArchived) => {
                self.archived = !self.archived;
                self.match_titles();
            }
            Some(Action::Undo) => {
                self.word = None;
                self.struck.pop();
            }
            action => {
                if self.field.key(key, action) {
                    return self.changed();
                }
            }
        }
        Vec::new()
    }

    /// Puts text into the line.
    pub fn insert(&mut self, text: &str) -> Vec<Step> {
        match &mut self.rename {
            Some(rename) => rename.insert(text),
            None => {
                self.field.insert(text);
                return self.changed();
            }
        }
        Vec::new()
    }

    /// Opens what is selected, or gives it the title that was written.
    pub fn accept(&mut self) -> Vec<Step> {
        match Rename::accept(&mut self.rename) {
            None => {}
            Some(Err(why)) => {
                self.word = Some(why);
                return Vec::new();
            }
            Some(Ok((session, title))) => {
                self.change(
                    session,
                    |summary| summary.title.clone_from(&title),
                    |hit| hit.title.clone_from(&title),
                );
                return vec![Step::Tell(Event::RenameStored { session, title })];
            }
        }
        let Some(session) = self.selected() else {
            return Vec::new();
        };
        self.struck.retain(|struck| *struck != session);
        let mut steps = self.close();
        steps.push(Step::Tell(Event::OpenStored { session }));
        steps
    }

    /// What is struck out goes, and the picker with it.
    fn close(&mut self) -> Vec<Step> {
        let gone = self.struck.drain(..);
        let mut steps: Vec<Step> = gone
            .map(|session| Step::Tell(Event::RemoveStored { session }))
            .collect();
        steps.push(Step::Close);
        steps
    }

    fn begin_rename(&mut self, state: &State) {
        self.word = None;
        let Some(session) = self.selected() else { return };
        if let Some(why) = read_only(session, state) {
            self.word = Some(why);
            return;
        }
        self.rename = self.title(session).map(|title| Rename::new(session, &title));
    }

    /// Lists the selected conversation otherwise, from now on and here at once.
    fn mark(&mut self, state: &State, change: impl Fn(&mut Marks)) -> Vec<Step> {
        self.word = None;
        let Some(session) = self.selected() else {
            return Vec::new();
        };
        if let Some(why) = read_only(session, state) {
            self.word = Some(why);
            return Vec::new();
        }
        let known = self.summary(session).map(|summary| summary.marks);
        let mut hits = self.hits.iter();
        let hit = || Some(hits.find(|hit| hit.session == session)?.marks);
        let Some(mut marks) = known.or_else(hit) else {
            return Vec::new();
        };
        change(&mut marks);
        self.lately.push(session);
        self.change(session, |summary| summary.marks = marks, |hit| hit.marks = marks);
        vec![Step::Tell(Event::MarkStored { session, marks })]
    }

    /// Finds the titles that several conversations have.
    fn find_shared(&mut self) {
        let mut titles: Vec<&str> = self.sessions.iter().flatten().map(|s| s.title.as_str()).collect();
        titles.sort_unstable();
        let pairs = titles.iter().zip(titles.iter().skip(1));
        self.shared = pairs
            .filter(|(one, next)| one == next)
            .map(|(title, _)| (*title).to_owned())
            .collect();
    }

    /// Changes what is known of a conversation, which stays selected wherever it is listed then.
    fn change(&mut self, session: SessionId, known: impl Fn(&mut Summary), found: impl Fn(&mut Hit)) {
        for summary in self.sessions.iter_mut().flatten() {
            if summary.session == session {
                known(summary);
            }
        }
        if let Some(sessions) = &mut self.sessions {
            sessions.sort_by_key(|summary| std::cmp::Reverse(summary.rank()));
        }
        self.find_shared();
        self.hits
            .iter_mut()
            .filter(|hit| hit.session == session)
            .for_each(found);
        self.match_titles();
        if self.by == By::Title
            && let Some(at) = self.shown().iter().position(|shown| *shown == session)
        {
            self.selection.go_to(at);
        }
    }

    fn strike(&mut self, state: &State) -> Vec<Step> {
        self.word = None;
        let Some(session) = self.selected() else {
            return Vec::new();
        };
        if let Some(pane) = state.pane_with(session) {
            self.word = Some(format!("it is open in pane {pane}: close that first"));
        } else if !self.struck.contains(&session) {
            self.struck.push(session);
            // What is in a closed pane is held by this process itself.
            if !state.is_closed(session) {
                return vec![Step::Work(Job::Held(session))];
            }
        }
        Vec::new()
    }

    fn changed(&mut self) -> Vec<Step> {
        (self.selection, self.word) = (Selection::default(), None);
        if self.by == By::Title {
            self.match_titles();
            return Vec::new();
        }
        self.asked = (self.asked.0 + 1, true);
        vec![Step::Work(Job::Search {
            number: self.asked.0,
            text: self.field.text().to_owned(),
            limit: HITS,
        })]
    }

    fn match_titles(&mut self) {
        let query = Query::new(self.field.text());
        let sessions = self.sessions.as_deref().unwrap_or_default();
        let (fuzzy, archived, lately) = (&mut self.fuzzy, self.archived, &self.lately);
        let score = |summary: &Summary| {
            let listed = archived || !summary.marks.archived || lately.contains(&summary.session);
            listed.then(|| fuzzy.score(&query, &summary.title)).flatten()
        };
        self.titles = best_first(sessions.iter().map(score));
        self.selection.keep(self.count());
    }
}

/// Why nothing of a conversation can be changed here, where that is so.
fn read_only(session: SessionId, state: &State) -> Option<String> {
    let pane = state.pane_with(session).and_then(|pane| state.pane(pane))?;
    pane.access.refusal("change it there")
}
