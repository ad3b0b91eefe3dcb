//! The one gate for color and for characters beyond ASCII. Views name what a thing means; this says how it looks.
//!
//! The terminal's own foreground and background stay as they are, and no meaning rests on color alone.

use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::border;

use crate::ui::reading::highlight::Token;
use crate::ui::reading::markdown::Ink;

/// Which colors may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColorMode {
    /// None: bold, dim and reverse alone.
    Off,
    /// The terminal's own sixteen.
    Sixteen,
}

/// How a screen looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Styles {
    color: ColorMode,
    ascii: bool,
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
        Self { color, ascii }
    }

    /// What the environment asks for, looked up by `var`: `NO_COLOR` (not empty) and `TERM=dumb` turn color off; a
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
        let off = set("NO_COLOR").is_some() || term == "dumb";
        Self {
            color: color.unwrap_or(if off { ColorMode::Off } else { ColorMode::Sixteen }),
            ascii: ascii || !utf8 || term == "dumb" || term == "linux",
        }
    }

    /// Whether only ASCII may be drawn by the interface itself.
    pub fn is_ascii(&self) -> bool {
        self.ascii
    }

    /// `fancy` where the terminal can show it, else `plain`.
    pub fn pick<'a>(&self, fancy: &'a str, plain: &'a str) -> &'a str {
        if self.ascii { plain } else { fancy }
    }

    fn fg(self, color: Color) -> Style {
        match self.color {
            ColorMode::Off => Style::new(),
            ColorMode::Sixteen => Style::new().fg(color),
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
            self.fg(Color::Cyan).add_modifier(Modifier::BOLD)
        } else {
            self.quiet()
        }
    }

    /// What stands back.
    pub fn quiet(&self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// What stands out.
    pub fn strong(&self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// What the person said.
    pub fn user(&self) -> Style {
        self.fg(Color::Cyan)
    }

    /// Code in an answer.
    pub fn code(&self) -> Style {
        self.fg(Color::Green)
    }

    /// Whether there is any color.
    pub fn has_color(&self) -> bool {
        self.color != ColorMode::Off
    }

    /// A piece of a block of code.
    pub fn token(&self, token: Token) -> Style {
        match token {
            Token::Plain => Style::new(),
            Token::Comment => self.quiet(),
            Token::Keyword => self.fg(Color::Magenta),
            Token::Text => self.fg(Color::Green),
            Token::Constant => self.fg(Color::Cyan),
            Token::Name => self.fg(Color::Blue),
            Token::Deleted => self.fg(Color::Red),
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
            ColorMode::Sixteen => "",
        }
    }

    /// Text of an answer.
    pub fn ink(&self, ink: Ink) -> Style {
        let mut style = if ink.code { self.code() } else { Style::new() };
        let modifiers = [
            (ink.strong, Modifier::BOLD),
            (ink.emphasis, Modifier::ITALIC),
            (ink.link && !ink.quiet, Modifier::UNDERLINED),
            (ink.quiet, Modifier::DIM),
        ];
        for (_, modifier) in modifiers.into_iter().filter(|(wanted, _)| *wanted) {
            style = style.add_modifier(modifier);
        }
        style
    }

    /// Something works.
    pub fn good(&self) -> Style {
        self.fg(Color::Green)
    }

    /// Something waits, or wants attention.
    pub fn warning(&self) -> Style {
        self.fg(Color::Magenta).add_modifier(Modifier::BOLD)
    }

    /// Something failed.
    pub fn error(&self) -> Style {
        self.fg(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// A mark laid over text.
    pub fn chip(&self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Letters that were looked for.
    pub fn found(&self) -> Style {
        self.fg(Color::Green).add_modifier(Modifier::BOLD)
    }

    /// A key's name.
    pub fn key(&self) -> Style {
        self.fg(Color::Cyan).add_modifier(Modifier::BOLD)
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
            Phase::Build => Color::Cyan,
            Phase::Read => Color::Blue,
            Phase::Emit => Color::Green,
            Phase::Gap => Color::Red,
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
