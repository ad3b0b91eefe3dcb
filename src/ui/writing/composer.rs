//! The composer: the focused pane's draft in a box, with the terminal's own cursor at the caret.

use std::ops::Range;

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use crate::chat::{Access, Draft, State};
use crate::ui::cells;
use crate::ui::format;
use crate::ui::keymap::Action;
use crate::ui::keys::Keymap;
use crate::ui::paint::{self, Piece, piece, plain};
use crate::ui::pane::one_line;
use crate::ui::sanitize::sanitize;
use crate::ui::slash::{self, Line};
use crate::ui::styles::Styles;
use crate::ui::writing::attach::Seen;
use crate::ui::writing::editor::Layout;
use crate::ui::writing::folds::Folded;

/// What is kept between frames.
#[derive(Debug, Clone, Default)]
pub struct ComposerView {
    /// The first row that is shown.
    top: usize,
    /// The draft that was last laid out, and how.
    laid: Option<Laid>,
}

/// A draft in rows.
#[derive(Debug, Clone)]
struct Laid {
    draft: Draft,
    width: usize,
    folded: Folded,
    layout: Layout,
}

impl ComposerView {
    /// Columns of the draft's rows on a screen of this width: the caret has one more.
    pub fn text_width(screen: usize) -> usize {
        screen.saturating_sub(3).max(1)
    }

    /// The draft in rows of `width`; laid out again only when one of them changed.
    pub fn layout(&mut self, draft: &Draft, width: usize) -> (&Folded, &Layout) {
        let same = |known: &Draft| known.text() == draft.text() && known.pastes() == draft.pastes();
        if !self
            .laid
            .as_ref()
            .is_some_and(|laid| laid.width == width && same(&laid.draft))
        {
            self.laid = None;
        }
        let laid = self.laid.get_or_insert_with(|| {
            let folded = Folded::new(draft.text(), draft.pastes());
            let layout = Layout::new(folded.text(), width);
            let draft = draft.clone();
            Laid {
                draft,
                width,
                folded,
                layout,
            }
        });
        (&laid.folded, &laid.layout)
    }

    /// Has the draft laid out anew.
    pub fn forget(&mut self) {
        self.laid = None;
    }

    /// The place in a draft at a cell of the composer, which was last drawn in `area`.
    pub(in crate::ui) fn position(&mut self, draft: &Draft, area: Rect, at: Position) -> usize {
        let row = self.top + usize::from(at.y.saturating_sub(area.y + 1));
        let column = usize::from(at.x.saturating_sub(area.x + 1));
        let (folded, layout) = self.layout(draft, Self::text_width(usize::from(area.width)));
        let row = row.min(layout.height().saturating_sub(1));
        folded.position(layout.position(folded.text(), row, column))
    }

    /// Draws the composer and gives the cell of the caret.
    pub(in crate::ui) fn draw(
        &mut self,
        buffer: &mut Buffer,
        area: Rect,
        state: &State,
        (files, mode): (&[(String, Seen)], Option<&str>),
        keymap: &Keymap,
        styles: &Styles,
    ) -> Option<Position> {
        let mode = mode.map_or_else(String::new, |mode| format!(" {mode} "));
        let title_room = Rect {
            width: area.width.saturating_sub(mode.len() as u16),
            ..area
        };
        let mut title = title(state, title_room, keymap, styles);
        title.push(piece(mode, styles.good()));
        let inner = paint::boxed(buffer, area, &title, styles, true);
        if inner.is_empty() {
            return None;
        }
        let draft = &state.focused_pane().draft;
        let height = usize::from(inner.height);
        let top = self.top;
        let (folded, layout) = self.layout(draft, Self::text_width(usize::from(area.width)));
        let (row, column) = layout.place(folded.text(), folded.shown(draft.cursor()));
        let top = top
            .min(row)
            .max((row + 1).saturating_sub(height))
            .min(layout.height().saturating_sub(height));
        for y in 0..inner.height {
            let Some(range) = layout.row(top + usize::from(y)) else {
                break;
            };
            paint::pieces(buffer, paint::row(inner, y), &shown(folded, range, styles));
        }
        if draft.text().is_empty() {
            let hint = if state.focused_pane().access != Access::Write {
                "read-only"
            } else {
                ""
            };
            paint::text(buffer, paint::row(inner, 0), 1, hint, styles.quiet());
        }
        let more = (layout.height() > height).then(|| format!(" {}/{} ", row + 1, layout.height()));
        self.top = top;
        let foot = Rect {
            x: inner.x,
            y: area.bottom().saturating_sub(1),
            width: inner.width,
            height: 1,
        };
        let room = usize::from(inner.width).saturating_sub(more.as_ref().map_or(0, String::len) + 1);
        let mark = styles.pick("▲", "!");
        let too_long = too_long(state, files).map(|text| piece(format!(" {mark} {text} "), styles.error()));
        let mut below: Vec<Piece> = too_long.into_iter().collect();
        let used: usize = below.iter().map(|piece| cells::width(&piece.text)).sum();
        below.extend(with_files(files, room.saturating_sub(used), styles));
        paint::pieces(buffer, foot, &below);
        if let Some(more) = more {
            let column = inner.width.saturating_sub(more.len() as u16);
            paint::text(buffer, foot, column, &more, styles.quiet());
        }
        let x = inner.x + (column as u16).min(inner.width - 1);
        Some(Position {
            x,
            y: inner.y + (row - top) as u16,
        })
    }
}

/// A row of a draft as it is painted; words that stand for pastes are marked.
fn shown(folded: &Folded, row: Range<usize>, styles: &Styles) -> Vec<Piece> {
    let clean = |part: Range<usize>| {
        let text = folded.text().get(part).unwrap_or_default();
        sanitize(&text.replace('\t', &" ".repeat(cells::TAB))).into_owned()
    };
    let mut pieces = Vec::new();
    let mut done = row.start;
    for word in folded.words() {
        let (start, end) = (word.start.clamp(done, row.end), word.end.clamp(done, row.end));
        if start < end {
            pieces.extend([plain(clean(done..start)), piece(clean(start..end), styles.chip())]);
            done = end;
        }
    }
    pieces.push(plain(clean(done..row.end)));
    pieces
}

/// That the draft, with the files that go along, is more than there is room for, as far as that can be known before its
/// tokens are counted.
pub(in crate::ui) fn too_long(state: &State, files: &[(String, Seen)]) -> Option<String> {
    let pane = state.focused_pane();
    let Line::Text(text) = slash::read(pane.draft.text()) else {
        return None;
    };
    let along = files.iter().map(|(_, seen)| match seen {
        Seen::Goes { bytes, .. } => *bytes,
        Seen::Nothing | Seen::Folder | Seen::Wrong(_) => 0,
    });
    let (about, limit) = state.overflow(text.len() + along.sum::<usize>())?;
    (pane.access == Access::Write).then(|| format!("too long: about {about} of {limit} tokens"))
}

/// What a file that the draft mentions adds, or why it adds nothing; nothing of what may become one.
pub(in crate::ui) fn along(path: &str, seen: &Seen) -> Option<String> {
    let path = one_line(path);
    Some(match seen {
        Seen::Nothing => return None,
        Seen::Folder => format!("{path} is a folder: nothing of it goes along"),
        Seen::Goes { bytes, lines } => {
            let size = format::bytes(*bytes as u64);
            let unit = if *lines == 1 { "line" } else { "lines" };
            format!("+ {path} {size}, {} {unit}", format::grouped(*lines))
        }
        Seen::Wrong(why) => format!("{path}: {}", one_line(why)),
    })
}

/// What goes along with a prompt, and what can't, as far as there is room.
fn with_files(files: &[(String, Seen)], room: usize, styles: &Styles) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut used = 0;
    for (path, seen) in files {
        let Some(text) = along(path, seen) else { continue };
        let style = match seen {
            Seen::Goes { .. } => styles.good(),
            Seen::Wrong(_) => styles.error(),
            Seen::Nothing | Seen::Folder => styles.warning(),
        };
        let text = cells::shorten(&format!(" {text} "), room.saturating_sub(used), styles.cut());
        used += cells::width(&text);
        pieces.push(piece(text, style));
    }
    pieces
}

/// To whom a prompt goes, or which one it takes the place of.
pub(in crate::ui) fn recipients(state: &State) -> String {
    let focused = state.focused();
    if let Some(turn) = state.focused_pane().edited() {
        return format!("{focused} edits prompt {}", turn + 1);
    }
    if !state.broadcast() {
        return format!("to {focused}");
    }
    match state.targets().as_slice() {
        [] => "to no pane".to_owned(),
        [one] => format!("to pane {one} alone"),
        all if all.len() == state.panes().len() => format!("to all {} panes", all.len()),
        some => {
            let numbers: Vec<String> = some.iter().map(ToString::to_string).collect();
            format!("to panes {}", numbers.join(", "))
        }
    }
}

/// To whom a prompt goes, and how to change it.
fn title(state: &State, area: Rect, keymap: &Keymap, styles: &Styles) -> Vec<Piece> {
    let room = usize::from(area.width.saturating_sub(2));
    let hint = |does: &str| {
        let key = keymap.written(Action::Broadcast);
        key.map_or_else(String::new, |key| format!("({key} {does}) "))
    };
    let edited = state.focused_pane().edited().is_some();
    let mut to = format!(" {}", recipients(state));
    let hint = if edited {
        let key = keymap.written(Action::Stop);
        key.map_or_else(String::new, |key| format!("({key} gives it up) "))
    } else if state.broadcast() {
        hint("to one")
    } else {
        to.push_str(&format!(" {}", one_line(&state.focused_pane().title)));
        hint("broadcast")
    };
    let to = cells::shorten(to.trim_end(), room.saturating_sub(hint.len() + 1), styles.cut());
    let style = if state.broadcast() || edited {
        styles.warning()
    } else {
        styles.strong()
    };
    vec![piece(format!("{to} "), style), piece(hint, styles.quiet())]
}

/// Whether there is something in a draft, blank or not.
pub(in crate::ui) fn is_empty(draft: &Draft) -> bool {
    draft.text().is_empty()
}
