//! What the person may switch while the program runs, besides what settings say: theme, mouse, screen reader, vim keys.

use crossterm::event::{KeyCode as K, KeyEvent, KeyModifiers};

use crate::ui::background::{self, Heard, Listening};
use crate::ui::input::Reaction;
use crate::ui::keymap::{Action, Binding, Group, Scope};
use crate::ui::mouse::MouseMode;
use crate::ui::session::Look;
use crate::ui::settings_file::Kept;
use crate::ui::styles::theme::{self, Background, Themes};
use crate::ui::styles::{ColorMode, Styles};
use crate::ui::view::View;
use crate::ui::worker::Job;

const ALT: KeyModifiers = KeyModifiers::ALT;

const fn key(
    action: Action,
    keys: &'static [(KeyModifiers, K)],
    name: &'static str,
    help: &'static str,
) -> Binding {
    Binding {
        action,
        scope: Scope::Everywhere,
        keys,
        name,
        help,
        group: Group::Screen,
        footer: None,
    }
}

/// The keys of what is switched.
pub(super) const LOOKS: &[Binding] = &[
    key(
        Action::Themes,
        &[(ALT, K::Char('t'))],
        "Alt-t",
        "choose colors: dark, light and others",
    ),
    key(
        Action::Mouse,
        &[(ALT, K::Char('w'))],
        "Alt-w",
        "the mouse: the terminal's, its wheel here, or all of it here",
    ),
    key(
        Action::Vim,
        &[(ALT, K::Char('i'))],
        "Alt-i",
        "vim's keys in the draft, or plain ones again",
    ),
    key(
        Action::ScreenReader,
        &[(ALT, K::Char('a'))],
        "Alt-a",
        "lines for a screen reader instead of a screen, or back",
    ),
    key(
        Action::KeepSwitches,
        &[],
        "",
        "keep mouse, vim's keys and screen reader as switched",
    ),
];

/// What a setting says and the person may change: the later of both counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Switch<T> {
    set: T,
    now: T,
}

impl<T: Clone + PartialEq> Switch<T> {
    /// What counts.
    pub fn now(&self) -> &T {
        &self.now
    }

    /// The person wants this.
    pub fn turn(&mut self, to: T) {
        self.now = to;
    }

    /// What counts, where the person wanted something else than the setting says.
    fn turned(&self) -> Option<&T> {
        (self.now != self.set).then_some(&self.now)
    }

    /// A setting says this; it counts if it said something else before.
    pub fn set(&mut self, to: T) {
        if to != self.set {
            self.set = to.clone();
            self.now = to;
        }
    }
}

/// What is switched.
#[derive(Debug, Clone)]
pub struct Looks {
    /// Which colors and characters there are.
    shapes: Styles,
    /// The themes that there are.
    pub themes: Themes,
    /// The theme's name.
    pub theme: Switch<String>,
    background: Option<Background>,
    /// What the mouse does.
    pub mouse: Switch<MouseMode>,
    /// Whether what is selected is copied at once.
    pub copy_on_select: bool,
    /// Whether lines are written for a screen reader.
    pub screen_reader: Switch<bool>,
    /// Whether drafts are edited by vim's keys.
    pub vim: Switch<bool>,
    /// What the terminal was told of the mouse.
    told: MouseMode,
    /// Settings that a variable or a flag decides, by their keys.
    decided: Vec<(&'static str, String)>,
    listening: Listening,
    asked: bool,
}

impl Looks {
    /// Before any setting is read.
    pub fn new(shapes: Styles) -> Self {
        let terminal = theme::TERMINAL.to_owned();
        Self {
            shapes,
            themes: Themes::default(),
            theme: Switch {
                set: terminal.clone(),
                now: terminal,
            },
            background: None,
            mouse: Switch::default(),
            copy_on_select: true,
            screen_reader: Switch::default(),
            vim: Switch::default(),
            told: MouseMode::Off,
            decided: Vec::new(),
            listening: Listening::default(),
            asked: false,
        }
    }

    /// Takes what settings say.
    pub fn take(&mut self, look: &Look) {
        self.shapes = look.styles;
        self.themes = look.themes.clone();
        self.theme.set(look.theme.clone());
        self.mouse.set(look.mouse);
        self.copy_on_select = look.copy_on_select;
        self.screen_reader.set(look.screen_reader);
        self.vim.set(look.vim);
        self.background = self.background.or(look.background);
        self.decided.clone_from(&look.decided);
    }

    /// What decides these settings, whatever the file says of them, in words behind that they are kept there.
    pub fn decided(&self, keys: &[&str]) -> String {
        let decided = self.decided.iter().filter(|(key, _)| keys.contains(key));
        decided
            .map(|(_, by)| format!("; {by} counts before that, where it is given"))
            .collect()
    }

    /// How it looks in a theme.
    pub fn styles_in(&self, theme: &str) -> Styles {
        self.shapes.in_theme(self.themes.get(theme, self.background))
    }

    /// Whether themes can be seen.
    pub fn shows_themes(&self) -> bool {
        self.shapes.color_mode() > ColorMode::Sixteen
    }

    /// What the terminal has to be told; all of it, where it forgot.
    pub fn bytes(&mut self, anew: bool) -> Vec<u8> {
        let mut out = Vec::new();
        let mouse = match *self.screen_reader.now() {
            true => MouseMode::Off,
            false => *self.mouse.now(),
        };
        if anew && mouse != MouseMode::Off || mouse != self.told {
            out.extend_from_slice(mouse.bytes());
            self.told = mouse;
        }
        let themed = self.shows_themes() && !self.screen_reader.now();
        let wants = themed && self.theme.now() == theme::AUTO && self.background.is_none();
        if wants && !self.asked {
            self.asked = true;
            self.listening.begin();
            out.extend_from_slice(background::ASK);
        }
        out
    }
}

impl View {
    /// Takes a key as it comes from the terminal, and gives what was pressed: answers of the terminal are none.
    pub fn pressed(&mut self, key: &KeyEvent) -> Vec<KeyEvent> {
        match self.looks.listening.key(key) {
            Heard::Keys(keys) => keys,
            Heard::Part => Vec::new(),
            Heard::Answer(background) => {
                self.looks.background = background;
                self.show_theme(None);
                Vec::new()
            }
        }
    }

    /// Shows a theme, or the one that counts.
    pub(super) fn show_theme(&mut self, name: Option<&str>) {
        let styles = self.looks.styles_in(name.unwrap_or(self.looks.theme.now()));
        self.styles = styles;
    }

    /// Switches what an action of [`LOOKS`] says.
    pub(super) fn switch(&mut self, action: Action, out: &mut Vec<Reaction>) {
        let text = match action {
            Action::Mouse => {
                let next = self.looks.mouse.now().next();
                self.looks.mouse.turn(next);
                self.marked = None;
                next.told()
            }
            Action::Vim => {
                let on = !*self.looks.vim.now();
                self.looks.vim.turn(on);
                self.vim = Default::default();
                match on {
                    true => "vim's keys: Esc for commands, i to write",
                    false => "vim's keys are off",
                }
            }
            Action::ScreenReader => {
                let on = !*self.looks.screen_reader.now();
                self.looks.screen_reader.turn(on);
                out.push(Reaction::Repaint);
                match on {
                    true => "screen reader mode",
                    false => "screen reader mode is off",
                }
            }
            _ => return,
        };
        let keeps = self.keymap.way(Action::KeepSwitches);
        out.push(Reaction::Tell(format!(
            "{text}; until you leave: {keeps} keeps it"
        )));
    }

    /// Has the settings file say what was switched.
    pub(super) fn keep_switches(&self) -> Reaction {
        let mouse = self.looks.mouse.turned();
        let switch = |key, switch: &Switch<bool>| switch.turned().map(|on| (key, Kept::Switch(*on)));
        let turned = [
            mouse.map(|mouse| ("mouse", Kept::Text(mouse.name().to_owned()))),
            switch("vim", &self.looks.vim),
            switch("screen_reader", &self.looks.screen_reader),
        ];
        let settings: Vec<_> = turned.into_iter().flatten().collect();
        if settings.is_empty() {
            let text =
                "mouse, vim's keys and screen reader are as the settings have them: nothing is to be kept";
            return Reaction::Tell(text.into());
        }
        let keys: Vec<&str> = settings.iter().map(|(key, _)| *key).collect();
        Reaction::Work(Job::Keep {
            file: self.config_file.clone(),
            but: self.looks.decided(&keys),
            settings,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_of_a_setting_and_a_switch_counts() {
        let mut switch = Switch { set: 1, now: 1 };
        switch.turn(2);
        switch.set(1);
        assert_eq!(*switch.now(), 2, "the setting is the same as before");
        switch.set(3);
        assert_eq!(*switch.now(), 3);
    }
}
