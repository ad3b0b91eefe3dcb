//! What is going on with the engine and its models, as the screen shows it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::chat::Pane;
use crate::ui::loading::LoadMeter;
use crate::ui::models::Fetching;
use crate::ui::paint::{Piece, piece};
use crate::ui::pane::one_line;
use crate::ui::styles::Styles;
use crate::ui::{cells, format};

/// What is going on.
#[derive(Debug, Clone, Default)]
pub struct Going {
    /// The model that is there, by the name under which it was asked for.
    pub current: Option<String>,
    /// The one that is to take its place.
    pub to: Option<String>,
    /// Whether that waits for answers to end.
    pub waits: bool,
    /// What Esc does meanwhile.
    pub escape: Option<Escape>,
    /// A download.
    pub fetch: Option<Fetch>,
    /// Why models could not be downloaded, by their names, until that is tried again.
    pub missed: BTreeMap<String, String>,
}

/// What Esc does while a model is on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Escape {
    /// The model of this name stays, in a pane that doesn't answer itself: there, Esc stops the answer.
    Stay(String),
    /// The model of this name comes back.
    Back(String),
    /// The download ends.
    StopFetch,
}

impl Escape {
    /// The same in words, as it stands behind the key's name.
    pub fn words(&self) -> String {
        match self {
            Self::Stay(name) => format!("stays with {}", one_line(name)),
            Self::Back(name) => format!("goes back to {}", one_line(name)),
            Self::StopFetch => "stops the download; what came is kept".into(),
        }
    }
}

/// A download as it goes on.
#[derive(Debug, Clone)]
pub struct Fetch {
    /// Which model.
    pub name: String,
    /// How far it is.
    pub fetching: Fetching,
    meter: LoadMeter,
}

impl Going {
    /// Whether a model is there, or on its way there.
    pub fn involves(&self, name: &str) -> bool {
        self.current.as_deref() == Some(name) || self.to.as_deref() == Some(name)
    }

    /// A download begins.
    pub(in crate::ui) fn fetches(&mut self, name: &str) {
        self.missed.remove(name);
        self.fetch = Some(Fetch::new(name));
    }

    /// What Esc does in a pane.
    pub(in crate::ui) fn escape_in(&self, pane: &Pane) -> Option<&Escape> {
        let counts = |escape: &&Escape| match escape {
            Escape::Stay(_) => pane.running().is_none(),
            Escape::Back(_) | Escape::StopFetch => true,
        };
        self.escape
            .as_ref()
            .filter(|_| pane.edit.is_none())
            .filter(counts)
    }

    /// What the first row of the screen says of it.
    pub(in crate::ui) fn pieces(&self, styles: &Styles) -> Vec<Vec<Piece>> {
        let mut groups = Vec::new();
        if let Some(to) = self.to.as_ref().filter(|_| self.waits) {
            groups.push(vec![piece(format!("then {}", one_line(to)), styles.warning())]);
        }
        if let Some(fetch) = &self.fetch {
            let Fetching { done, total, .. } = fetch.fetching;
            let share = match total {
                0 => String::new(),
                total => format!(" {}", format::percent(done.min(total), total)),
            };
            let text = format!("gets {}{share}", one_line(&fetch.name));
            groups.push(vec![piece(text, styles.warning())]);
        }
        groups
    }
}

impl Fetch {
    /// A download that begins.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            fetching: Fetching::default(),
            meter: LoadMeter::default(),
        }
    }

    /// Takes how far it is at `now`.
    pub fn take(&mut self, fetching: Fetching, now: Duration) {
        self.meter.observe(&fetching.stage, fetching.done, now);
        self.fetching = fetching;
    }

    /// Stage, bar, bytes, rate and time left, as far as they are known and fit into `width`.
    pub fn progress(&self, width: usize, styles: &Styles) -> String {
        let Fetching { stage, done, total } = &self.fetching;
        // What else is counted than bytes that come is named.
        let named = match stage.starts_with("downloading") {
            true => String::new(),
            false => format!("{} ", one_line(stage)),
        };
        let left = width.saturating_sub(cells::width(&named));
        match self.meter.progress(*done, *total, left, styles) {
            Some(progress) => named + &progress,
            None if stage.is_empty() => "asking for it".into(),
            None => one_line(stage),
        }
    }
}
