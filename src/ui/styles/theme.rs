//! Themes: which color stands for which meaning, and what is left of it where a terminal has fewer colors.
//!
//! A theme is a list of shades by meaning. What it says nothing of keeps the terminal's own color for that meaning, and
//! so does everything on a terminal of sixteen colors: there, the terminal's palette is the theme.

use std::sync::Arc;

use ratatui::style::Color;

use crate::ui::styles::ColorMode;

/// What a color stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Text.
    Text,
    /// What lies behind everything.
    Background,
    /// What stands back.
    Quiet,
    /// Keys, and the lines around what has the focus.
    Accent,
    /// What the person said.
    User,
    /// Code within text.
    Code,
    /// Something works.
    Good,
    /// Something waits, or wants attention.
    Warning,
    /// Something failed.
    Error,
    /// A comment in code.
    Comment,
    /// A word of the language.
    Keyword,
    /// A text in code.
    String,
    /// A number or another constant.
    Constant,
    /// A name in code.
    Name,
    /// What a difference takes away.
    Deleted,
    /// Making and starting a step.
    Build,
    /// Waiting for tokens.
    Read,
    /// Delivering tokens.
    Emit,
    /// Between two steps.
    Gap,
}

/// Every role with its key in a theme's file, and its color among the terminal's own sixteen: none for the terminal's
/// text and background, and for what stands back by being dim.
pub const ROLES: [(Role, &str, Option<Color>); 19] = [
    (Role::Text, "text", None),
    (Role::Background, "background", None),
    (Role::Quiet, "quiet", None),
    (Role::Accent, "accent", Some(Color::Cyan)),
    (Role::User, "user", Some(Color::Cyan)),
    (Role::Code, "code", Some(Color::Green)),
    (Role::Good, "good", Some(Color::Green)),
    (Role::Warning, "warning", Some(Color::Magenta)),
    (Role::Error, "error", Some(Color::Red)),
    (Role::Comment, "syntax.comment", None),
    (Role::Keyword, "syntax.keyword", Some(Color::Magenta)),
    (Role::String, "syntax.string", Some(Color::Green)),
    (Role::Constant, "syntax.constant", Some(Color::Cyan)),
    (Role::Name, "syntax.name", Some(Color::Blue)),
    (Role::Deleted, "syntax.deleted", Some(Color::Red)),
    (Role::Build, "steps.build", Some(Color::Cyan)),
    (Role::Read, "steps.read", Some(Color::Blue)),
    (Role::Emit, "steps.emit", Some(Color::Green)),
    (Role::Gap, "steps.gap", Some(Color::Red)),
];

/// Names of the terminal's sixteen colors in a theme's file.
const NAMES: [(&str, Color); 16] = [
    ("black", Color::Black),
    ("red", Color::Red),
    ("green", Color::Green),
    ("yellow", Color::Yellow),
    ("blue", Color::Blue),
    ("magenta", Color::Magenta),
    ("cyan", Color::Cyan),
    ("white", Color::Gray),
    ("bright-black", Color::DarkGray),
    ("bright-red", Color::LightRed),
    ("bright-green", Color::LightGreen),
    ("bright-yellow", Color::LightYellow),
    ("bright-blue", Color::LightBlue),
    ("bright-magenta", Color::LightMagenta),
    ("bright-cyan", Color::LightCyan),
    ("bright-white", Color::White),
];

/// The theme of which every color is the terminal's own.
pub const TERMINAL: &str = "terminal";
/// The theme that follows the terminal's background: [`DARK`] or [`LIGHT`].
pub const AUTO: &str = "auto";
/// The theme for a dark terminal.
pub const DARK: &str = "dark";
/// The theme for a light terminal.
pub const LIGHT: &str = "light";

/// Colors by role. Where there is none, the terminal's own counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Theme([Option<Color>; ROLES.len()]);

impl Theme {
    /// Takes a line of a theme's file: a key like `syntax.name`, and `#rrggbb`, one of the sixteen names, or `default`
    /// for the terminal's own.
    ///
    /// # Errors
    ///
    /// What is wrong with the line.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let Some(at) = ROLES.iter().position(|(_, name, _)| *name == key) else {
            let known: Vec<&str> = ROLES.iter().map(|(_, name, _)| *name).collect();
            return Err(format!("there is no such color; there are {}", known.join(", ")));
        };
        let named = NAMES.iter().find(|(name, _)| *name == value);
        self.0[at] = match (value, named) {
            ("default", _) => None,
            (_, Some((_, color))) => Some(*color),
            _ => Some(rgb(value).ok_or_else(|| {
                format!(
                    "expected a color like \"#5fafd7\" or \"bright-blue\", or \"default\", found {value:?}"
                )
            })?),
        };
        Ok(())
    }

    /// The color of a role; none where nothing is to be said, so that the terminal's own stays.
    pub fn color(&self, role: Role, mode: ColorMode) -> Option<Color> {
        let at = role as usize;
        let own = ROLES[at].2;
        match (mode, self.0[at]) {
            (ColorMode::Off, _) => None,
            (ColorMode::Sixteen, _) | (_, None) => own,
            (ColorMode::Indexed, Some(Color::Rgb(r, g, b))) => Some(Color::Indexed(indexed([r, g, b]))),
            (_, color) => color,
        }
    }
}

/// `#rrggbb` as a color.
fn rgb(text: &str) -> Option<Color> {
    let digits = text.strip_prefix('#').filter(|digits| digits.len() == 6)?;
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let number = u32::from_str_radix(digits, 16).ok()?;
    let [_, r, g, b] = number.to_be_bytes();
    Some(Color::Rgb(r, g, b))
}

/// Levels of red, green and blue in the cube of the 256 colors.
const LEVELS: [u8; 6] = [0, 95, 135, 175, 215, 255];

/// Red, green and blue of one of the 256 colors from 16 on: a cube, and grays.
fn channels(index: u8) -> [u8; 3] {
    match index {
        232.. => [8 + 10 * (index - 232); 3],
        _ => {
            let at = usize::from(index.saturating_sub(16));
            [LEVELS[at / 36 % 6], LEVELS[at / 6 % 6], LEVELS[at % 6]]
        }
    }
}

/// The nearest of the 256 colors; the first sixteen are left out, since terminals give them any color.
fn indexed(wanted: [u8; 3]) -> u8 {
    let away = |index: &u8| -> u32 {
        let channels = channels(*index).into_iter().zip(wanted);
        channels
            .map(|(is, wanted)| u32::from(is.abs_diff(wanted)).pow(2))
            .sum()
    };
    (16..=255).min_by_key(away).unwrap_or(16)
}

/// The themes that there are, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Themes(Arc<[(String, Theme)]>);

impl Themes {
    /// These, in this order. Of two with one name, the later counts.
    pub fn new(all: Vec<(String, Theme)>) -> Self {
        let mut kept: Vec<(String, Theme)> = Vec::new();
        for (name, theme) in all {
            match kept.iter_mut().find(|(known, _)| *known == name) {
                Some(known) => known.1 = theme,
                None => kept.push((name, theme)),
            }
        }
        Self(kept.into())
    }

    /// Every name that can be asked for.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        [TERMINAL, AUTO]
            .into_iter()
            .chain(self.0.iter().map(|(name, _)| &**name))
    }

    /// The theme of a name, on a terminal with this background; for a name that isn't there, the terminal's own colors.
    pub fn get(&self, name: &str, background: Option<Background>) -> Theme {
        let name = match (name, background) {
            (AUTO, Some(Background::Light)) => LIGHT,
            (AUTO, _) => DARK,
            (name, _) => name,
        };
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map_or_else(Theme::default, |(_, theme)| *theme)
    }
}

/// What a terminal's text stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Background {
    /// Light text on dark.
    Dark,
    /// Dark text on light.
    Light,
}

impl Background {
    /// What `COLORFGBG` says, as `15;0` or `0;default;15`: the last number is one of the sixteen colors.
    pub fn from_variable(value: &str) -> Option<Self> {
        let (_, last) = value.rsplit_once(';')?;
        match last.parse::<u8>().ok()? {
            7 | 9..=15 => Some(Self::Light),
            0..=6 | 8 => Some(Self::Dark),
            _ => None,
        }
    }

    /// What a color like `rgb:ffff/ffff/eeee` is, as terminals answer.
    pub fn from_answer(color: &str) -> Option<Self> {
        let color = color
            .strip_prefix("rgb:")
            .or_else(|| color.strip_prefix("rgba:"))?;
        let mut channels = color.split('/').map(|digits| {
            let most = 16_u32
                .checked_pow(u32::try_from(digits.len()).ok()?)?
                .checked_sub(1)?;
            let value = u32::from_str_radix(digits, 16).ok()?;
            (most > 0).then(|| f64::from(value) / f64::from(most))
        });
        let mut next = || channels.next().flatten();
        let luminance = 0.2126 * next()? + 0.7152 * next()? + 0.0722 * next()?;
        Some(if luminance > 0.5 { Self::Light } else { Self::Dark })
    }
}

#[cfg(test)]
mod tests;
