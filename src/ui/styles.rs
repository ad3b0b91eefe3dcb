//! The one gate for color and for characters beyond ASCII. Views name what a thing means; this says how it looks.
//!
//! Where no [theme] says otherwise, the terminal's own foreground and background stay as they are; no meaning
//! rests on color alone.

pub mod theme;

use ratatui::style::{Modifier, Style};
use ratatui::symbols::border;

use crate::ui::reading::highlight::Token;
use crate::ui::reading::markdown::Ink;
use crate::ui::styles::theme::{Role, Theme};

/// Which colors may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ColorMode {
    /// None: bold, dim and reverse alone.
    Off,
    /// The terminal's own sixteen.
    Sixteen,
    /// The 256 that most terminals have.
    Indexed,
    /// All there are.
    True,
}

impl ColorMode {
    /// What the environment asks for, looked up by `var`: `NO_COLOR` (not empty) and `TERM=dumb` turn color off;
    /// `COLORTERM`, and terminals that are known by `TERM`, tell how many there are.
    fn from_env(var: &impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| var(name).filter(|value| !value.is_empty());
        let term = set("TERM").unwrap_or_default();
        let colors = set("COLORTERM").unwrap_or_default();
        // Through ssh, COLORTERM is lost, and these still say who they are.
        let known = ["kitty", "alacritty", "ghostty", "wezterm", "foot", "direct"];
        match () {
            () if set("NO_COLOR").is_some() || term == "dumb" => Self::Off,
            () if term == "linux" => Self::Sixteen,
            () if matches!(&*colors, "truecolor" | "24bit") => Self::True,
            () if known.iter().any(|known| term.contains(known)) => Self::True,
            () if term.contains("256color") => Self::Indexed,
            () => Self::Sixteen,
        }
    }
}

/// How a screen looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Styles {
    color: ColorMode,
    ascii: bool,
    theme: Theme,
}

/// The four parts of a decode step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Making and starting the step.
    Build,
    /// Waiting for tokens.
    Read,
    /// Delivering tokens.
    Emit,
    /// Between two steps.
    Gap,
}

impl Phase {
    /// All of them, in the order of a step, which is the order of the chart from the bottom up.
    pub const ALL: [Self; 4] = [Self::Build, Self::Read, Self::Emit, Self::Gap];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Build => "build",
            Self::Read => "read",
            Self::Emit => "emit",
            Self::Gap => "gap",
        }
    }
}

impl Styles {
    /// Looks as asked for.
    pub fn new(color: ColorMode, ascii: bool) -> Self {
        Self {
            color,
            ascii,
            theme: Theme::default(),
        }
    }

    /// The same in the colors of a theme.
    pub fn in_theme(self, theme: Theme) -> Self {
        Self { theme, ..self }
    }

    /// What the environment asks for, looked up by `var`: `NO_COLOR`, `TERM` and `COLORTERM` say which colors there are; a
    /// locale that isn't UTF-8, `TERM=dumb` and `TERM=linux` turn characters beyond ASCII off. `ascii` turns them off, too;
    /// a color mode that was asked for counts whatever the environment says.
    pub fn from_env(var: impl Fn(&str) -> Option<String>, ascii: bool, color: Option<ColorMode>) -> Self {
        let set = |name: &str| var(name).filter(|value| !value.is_empty());
        let term = set("TERM").unwrap_or_default();
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .iter()
            .find_map(|name| set(name))
            .unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        let utf8 = locale.contains("utf-8") || locale.contains("utf8");
        let ascii = ascii || !utf8 || term == "dumb" || term == "linux";
        Self::new(color.unwrap_or_else(|| ColorMode::from_env(&var)), ascii)
    }

    /// Whether only ASCII may be drawn by the interface itself.
    pub fn is_ascii(&self) -> bool {
        self.ascii
    }

    /// `fancy` where the terminal can show it, else `plain`.
    pub fn pick<'a>(&self, fancy: &'a str, plain: &'a str) -> &'a str {
        if self.ascii { plain } else { fancy }
    }

    /// Whether texts are laid out as in other looks: all but colors are the same.
    pub fn lays_out_as(&self, other: &Self) -> bool {
        (self.ascii, self.has_color()) == (other.ascii, other.has_color())
    }

    fn fg(self, role: Role) -> Style {
        let color = self.theme.color(role, self.color);
        color.map_or_else(Style::new, |color| Style::new().fg(color))
    }

    /// What everything is painted on.
    pub fn base(&self) -> Style {
        let background = self.theme.color(Role::Background, self.color);
        let text = self.fg(Role::Text);
        background.map_or(text, |background| text.bg(background))
    }

    /// A color for what stands back, or dim where there is none.
    fn faint(self, role: Role) -> Style {
        match self.theme.color(role, self.color) {
            Some(color) => Style::new().fg(color),
            None => Style::new().add_modifier(Modifier::DIM),
        }
    }

    /// The mark where text was cut.
    pub fn cut(&self) -> &'static str {
        if self.ascii { "~" } else { "…" }
    }

    /// The lines around boxes.
    pub fn border(&self) -> border::Set<'static> {
        if !self.ascii {
            return border::PLAIN;
        }
        border::Set {
            top_left: "+",
            top_right: "+",
            bottom_left: "+",
            bottom_right: "+",
            vertical_left: "|",
            vertical_right: "|",
            horizontal_top: "-",
            horizontal_bottom: "-",
        }
    }

    /// Lines around the focused box, or another.
    pub fn frame(&self, focused: bool) -> Style {
        if focused {
            self.fg(Role::Accent).add_modifier(Modifier::BOLD)
        } else {
            self.quiet()
        }
    }

    /// What stands back.
    pub fn quiet(&self) -> Style {
        self.faint(Role::Quiet)
    }

    /// What stands out.
    pub fn strong(&self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// What the person said.
    pub fn user(&self) -> Style {
        self.fg(Role::User)
    }

    /// Code in an answer.
    pub fn code(&self) -> Style {
        self.fg(Role::Code)
    }

    /// Which colors may be used.
    pub fn color_mode(&self) -> ColorMode {
        self.color
    }

    /// Whether there is any color.
    pub fn has_color(&self) -> bool {
        self.color != ColorMode::Off
    }

    /// A piece of a block of code.
    pub fn token(&self, token: Token) -> Style {
        match token {
            Token::Plain => Style::new(),
            Token::Comment => self.faint(Role::Comment),
            Token::Keyword => self.fg(Role::Keyword),
            Token::Text => self.fg(Role::String),
            Token::Constant => self.fg(Role::Constant),
            Token::Name => self.fg(Role::Name),
            Token::Deleted => self.fg(Role::Deleted),
        }
    }

    /// What is looked for, laid over text: where one is at, and elsewhere.
    pub fn hit(&self, current: bool) -> Style {
        let style = Style::new().add_modifier(Modifier::REVERSED);
        if current {
            style.add_modifier(Modifier::BOLD | Modifier::UNDERLINED)
        } else {
            style
        }
    }

    /// What stands around code within text, where no color tells it apart.
    pub fn code_mark(&self) -> &'static str {
        match self.color {
            ColorMode::Off => "`",
            ColorMode::Sixteen | ColorMode::Indexed | ColorMode::True => "",
        }
    }

    /// What stands around text that is struck out, where no line through it tells.
    pub fn strike_mark(&self) -> &'static str {
        match self.color {
            ColorMode::Off => "~~",
            _ if self.ascii => "~~",
            ColorMode::Sixteen | ColorMode::Indexed | ColorMode::True => "",
        }
    }

    /// Text of an answer.
    pub fn ink(&self, ink: Ink) -> Style {
        let mut style = if ink.code { self.code() } else { Style::new() };
        if ink.quiet {
            style = style.patch(self.quiet());
        }
        let modifiers = [
            (ink.strong, Modifier::BOLD),
            (ink.emphasis, Modifier::ITALIC),
            (ink.struck && self.strike_mark().is_empty(), Modifier::CROSSED_OUT),
            (ink.link && !ink.quiet, Modifier::UNDERLINED),
        ];
        for (_, modifier) in modifiers.into_iter().filter(|(wanted, _)| *wanted) {
            style = style.add_modifier(modifier);
        }
        style
    }

    /// Something works.
    pub fn good(&self) -> Style {
        self.fg(Role::Good)
    }

    /// Something waits, or wants attention.
    pub fn warning(&self) -> Style {
        self.fg(Role::Warning).add_modifier(Modifier::BOLD)
    }

    /// Something failed.
    pub fn error(&self) -> Style {
        self.fg(Role::Error).add_modifier(Modifier::BOLD)
    }

    /// A mark laid over text.
    pub fn chip(&self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Letters that were looked for.
    pub fn found(&self) -> Style {
        self.fg(Role::Good).add_modifier(Modifier::BOLD)
    }

    /// A key's name.
    pub fn key(&self) -> Style {
        self.fg(Role::Accent).add_modifier(Modifier::BOLD)
    }

    /// A phase's mark.
    pub fn phase_glyph(&self, phase: Phase) -> &'static str {
        match (phase, self.ascii) {
            (Phase::Build, false) => "▓",
            (Phase::Read, false) => "█",
            (Phase::Emit, false) => "▒",
            (Phase::Gap, false) => "░",
            (Phase::Build, true) => "b",
            (Phase::Read, true) => "r",
            (Phase::Emit, true) => "e",
            (Phase::Gap, true) => ".",
        }
    }

    /// A phase's color.
    pub fn phase(&self, phase: Phase) -> Style {
        self.fg(match phase {
            Phase::Build => Role::Build,
            Phase::Read => Role::Read,
            Phase::Emit => Role::Emit,
            Phase::Gap => Role::Gap,
        })
    }

    /// How full a thing is: calm below 90 %, a warning from there, an alarm from 98 %.
    pub fn fullness(&self, part: u64, whole: u64) -> Style {
        let share = if whole == 0 {
            0.0
        } else {
            part as f64 / whole as f64
        };
        match share {
            share if share >= 0.98 => self.error(),
            share if share >= 0.90 => self.warning(),
            _ => self.good(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(pairs: &[(&str, &str)]) -> Styles {
        let var = |name: &str| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        };
        Styles::from_env(var, false, None)
    }

    #[test]
    fn the_environment_decides_on_color_and_ascii() {
        let utf8 = ("LANG", "en_US.UTF-8");
        assert_eq!(
            from(&[utf8, ("TERM", "xterm")]),
            Styles::new(ColorMode::Sixteen, false)
        );
        assert_eq!(
            from(&[utf8, ("NO_COLOR", "1")]),
            Styles::new(ColorMode::Off, false)
        );
        assert_eq!(
            from(&[utf8, ("NO_COLOR", "")]),
            Styles::new(ColorMode::Sixteen, false)
        );
        assert_eq!(from(&[utf8, ("TERM", "dumb")]), Styles::new(ColorMode::Off, true));
        assert_eq!(
            from(&[utf8, ("TERM", "linux")]),
            Styles::new(ColorMode::Sixteen, true)
        );
        assert_eq!(from(&[("LANG", "C")]), Styles::new(ColorMode::Sixteen, true));
        assert_eq!(
            from(&[utf8, ("LC_ALL", "POSIX")]),
            Styles::new(ColorMode::Sixteen, true)
        );
        assert_eq!(
            from(&[("LC_CTYPE", "C.utf8"), ("LANG", "C")]),
            Styles::new(ColorMode::Sixteen, false)
        );
    }

    #[test]
    fn the_environment_tells_how_many_colors_there_are() {
        for (variable, value, mode) in [
            ("TERM", "xterm", ColorMode::Sixteen),
            ("TERM", "xterm-256color", ColorMode::Indexed),
            ("TERM", "xterm-kitty", ColorMode::True),
            ("TERM", "alacritty", ColorMode::True),
            ("COLORTERM", "truecolor", ColorMode::True),
            ("COLORTERM", "24bit", ColorMode::True),
            ("COLORTERM", "yes", ColorMode::Sixteen),
        ] {
            let utf8 = ("LANG", "C.UTF-8");
            assert_eq!(
                from(&[utf8, (variable, value)]),
                Styles::new(mode, false),
                "{value}"
            );
            let off = [utf8, (variable, value), ("NO_COLOR", "1")];
            assert_eq!(from(&off), Styles::new(ColorMode::Off, false));
        }
    }

    #[test]
    fn what_is_asked_for_counts_whatever_the_environment_says() {
        let var = |name: &str| (name == "NO_COLOR").then(|| "1".to_owned());
        let asked = Styles::from_env(var, true, Some(ColorMode::Sixteen));
        assert_eq!(asked, Styles::new(ColorMode::Sixteen, true));
        let utf8 = |name: &str| (name == "LANG").then(|| "C.UTF-8".to_owned());
        let asked = Styles::from_env(utf8, false, Some(ColorMode::Off));
        assert_eq!(asked, Styles::new(ColorMode::Off, false));
    }

    #[test]
    fn without_color_nothing_is_told_by_color() {
        let plain = Styles::new(ColorMode::Off, false);
        let all = [
            plain.frame(true),
            plain.user(),
            plain.code(),
            plain.good(),
            plain.warning(),
            plain.error(),
        ];
        assert!(all.iter().all(|style| style.fg.is_none() && style.bg.is_none()));
        assert!(Phase::ALL.iter().all(|phase| plain.phase(*phase).fg.is_none()));
        let glyphs: std::collections::BTreeSet<_> = Phase::ALL.map(|p| plain.phase_glyph(p)).into();
        assert_eq!(glyphs.len(), 4);
    }
}
