//! How answers are made in a pane: changing it, and what of it can't be had.

use jiff::Timestamp;

use super::PaneId;
use super::event::{Effect, NoticeKind};
use super::pane::{Pane, Settings};
use super::parameter::{Parameter, Source, Sources, check};
use super::record::Kind;
use super::state::{EngineStatus, State};
use super::turn::{begin_log, write};

impl State {
    /// Whether the focused pane's settings are these now.
    pub(super) fn configure(
        &mut self,
        at: Timestamp,
        settings: Settings,
        sources: Sources,
        out: &mut Vec<Effect>,
    ) -> bool {
        let why = self.focused_pane().access.refusal("change its settings there");
        let why = if why.is_some() {
            why
        } else if settings.max_tokens == Some(0) {
            Some("max-tokens is 0, but must be at least 1".to_owned())
        } else {
            check(&settings.sampling).err()
        };
        if let Some(why) = why {
            self.refuse(at, why, out);
            return false;
        }
        let Some(pane) = self.panes.get_mut(&self.focused) else {
            return false;
        };
        let thinks = settings
            .thinking
            .filter(|_| pane.settings.thinking != settings.thinking);
        pane.settings = settings.clone();
        pane.sources = sources;
        let mut records = Vec::new();
        // A log that has not begun says it in its first record.
        if pane.log.next > 0 {
            records.push(pane.record(at, pane.log.head, Kind::Settings { settings }));
        } else {
            begin_log(pane, at, &self.snapshot.info.model, &mut records);
        }
        write(pane, records, out);
        if thinks.is_some() && self.engine == EngineStatus::Ready {
            self.tell_switchless(at, &[self.focused]);
        }
        true
    }

    /// Tells that whether to think can't be set in these panes, where it can't.
    pub(super) fn tell_switchless(&mut self, at: Timestamp, panes: &[PaneId]) {
        if panes.is_empty() || self.snapshot.info.thinking_switch {
            return;
        }
        let panes: Vec<String> = panes.iter().map(PaneId::to_string).collect();
        let text = format!(
            "thinking: this model's chat template has no switch for it, so nothing changes in pane {}",
            panes.join(", ")
        );
        self.notify(at, NoticeKind::Warning, text);
    }

    /// Why the focused pane should not get these settings, where that is known: what a person means by them can't be had.
    pub fn objection(&self, settings: &Settings) -> Option<String> {
        let context = self.snapshot.info.context_length;
        let most = settings
            .max_tokens
            .filter(|most| context > 0 && *most >= context)?;
        (self.focused_pane().settings.max_tokens != Some(most)).then(|| {
            format!(
                "max-tokens is {most}, but this model has room for {context} tokens, prompt and answer together; auto: \
                 as there is room"
            )
        })
    }
}

/// Whether a person said in this run whether the pane's model is to think; what a log or a file says is no news.
pub(super) fn switches_thinking(pane: &Pane) -> bool {
    let source = pane.sources.of(Parameter::Thinking);
    pane.settings.thinking.is_some() && matches!(source, Source::Set | Source::Preset(_))
}
