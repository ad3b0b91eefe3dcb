//! The screen as it was last drawn. A frame is the difference to it, between marks that let the terminal show it at
//! once, and written in one piece.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, Write};
use std::rc::Rc;

use crossterm::queue;
use crossterm::terminal::{BeginSynchronizedUpdate, DisableLineWrap, EnableLineWrap, EndSynchronizedUpdate};
use ratatui::Terminal;
use ratatui::backend::{Backend, ClearType, CrosstermBackend, WindowSize};
use ratatui::buffer::{Buffer, Cell, CellDiffOption, CellWidth};
use ratatui::layout::{Position, Rect, Size};

use crate::ui::cells;

/// What frames are written to.
pub trait Target {
    /// Columns and rows, at present.
    fn size(&self) -> io::Result<(u16, u16)>;
    /// Writes a frame.
    fn write(&mut self, frame: &[u8]) -> io::Result<()>;
    /// Shows the screen of lines that stay, where there are two, or the one for frames again.
    fn show_lines(&mut self, lines: bool) -> io::Result<()> {
        let _ = lines;
        Ok(())
    }
}

/// Bytes that wait until their frame is whole.
#[derive(Debug, Clone, Default)]
struct Gathered(Rc<RefCell<Vec<u8>>>);

impl Write for Gathered {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The library's backend, over gathered bytes and with the target's size.
#[derive(Debug)]
struct Gathering<T> {
    inner: CrosstermBackend<Gathered>,
    target: T,
}

impl<T: Target> Backend for Gathering<T> {
    type Error = io::Error;

    /// Terminals don't agree on how far the cursor is behind a joined character, nor on what is left of its cells: they are
    /// emptied before it, no part of it may wrap, and the cursor is set anew after it.
    fn draw<'a, I: Iterator<Item = (u16, u16, &'a Cell)>>(&mut self, content: I) -> io::Result<()> {
        let joined = |cell: &Cell| cells::is_joined(cell.symbol());
        let mut content = content.peekable();
        while let Some((x, y, cell)) = content.peek().copied() {
            if !joined(cell) {
                let plain = std::iter::from_fn(|| content.next_if(|(.., cell)| !joined(cell)));
                self.inner.draw(plain)?;
                continue;
            }
            let mut blank = cell.clone();
            blank.set_symbol(" ");
            let end = x.saturating_add(cell.cell_width());
            self.inner.draw((x..end).map(|x| (x, y, &blank)))?;
            queue!(self.inner, DisableLineWrap)?;
            self.inner.draw(std::iter::once((x, y, cell)))?;
            queue!(self.inner, EnableLineWrap)?;
            while content
                .next_if(|(at, row, _)| *row == y && (x..end).contains(at))
                .is_some()
            {}
        }
        Ok(())
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.inner.hide_cursor()
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.inner.show_cursor()
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Err(io::Error::other("the terminal isn't asked where its cursor is"))
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        self.inner.set_cursor_position(position)
    }

    fn clear(&mut self) -> io::Result<()> {
        self.inner.clear()
    }

    fn clear_region(&mut self, clear_type: ClearType) -> io::Result<()> {
        self.inner.clear_region(clear_type)
    }

    fn size(&self) -> io::Result<Size> {
        let (width, height) = self.target.size()?;
        Ok(Size { width, height })
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize {
            columns_rows: self.size()?,
            pixels: Size::default(),
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The screen as it was last drawn.
#[derive(Debug)]
pub struct Canvas<T: Target> {
    terminal: Terminal<Gathering<T>>,
    gathered: Gathered,
    draws: u64,
    /// Whether the mark that begins a frame is written already.
    begun: bool,
    /// Cells that the last frame covered with the right half of a wide character.
    halves: Vec<Position>,
    /// Characters of several code points that the last frame had.
    joined: HashMap<Position, Cell>,
}

impl<T: Target> Canvas<T> {
    /// An empty screen.
    pub fn new(target: T) -> io::Result<Self> {
        let gathered = Gathered::default();
        let inner = CrosstermBackend::new(gathered.clone());
        Ok(Self {
            terminal: Terminal::new(Gathering { inner, target })?,
            gathered,
            draws: 0,
            begun: false,
            halves: Vec::new(),
            joined: HashMap::new(),
        })
    }

    /// Draws a frame at the target's present size; `paint` gives the cursor's cell.
    pub fn draw(&mut self, paint: impl FnOnce(&mut Buffer) -> Option<Position>) -> io::Result<()> {
        self.begin()?;
        let (halves, joined) = (&mut self.halves, &mut self.joined);
        self.terminal.draw(|frame| {
            let cursor = paint(frame.buffer_mut());
            uncover(frame.buffer_mut(), halves);
            rewrite_behind(frame.buffer_mut(), joined);
            if let Some(cursor) = cursor {
                frame.set_cursor_position(cursor);
            }
        })?;
        queue!(self.gathered, EndSynchronizedUpdate)?;
        self.begun = false;
        self.draws += 1;
        self.present()
    }

    /// Forgets what is on the screen: the next frame paints all of it.
    pub fn forget(&mut self) -> io::Result<()> {
        let size = self.terminal.size()?;
        self.begin()?;
        self.joined.clear();
        self.terminal.resize(Rect::new(0, 0, size.width, size.height))
    }

    fn begin(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(());
        }
        queue!(self.gathered, BeginSynchronizedUpdate)
    }

    /// Writes something that isn't shown, like the bell, between two frames.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.gathered.write_all(bytes)?;
        self.present()
    }

    fn present(&mut self) -> io::Result<()> {
        let frame = std::mem::take(&mut *self.gathered.0.borrow_mut());
        self.terminal.backend_mut().target.write(&frame)
    }

    /// How many frames were drawn.
    pub fn draws(&self) -> u64 {
        self.draws
    }

    /// What frames are written to.
    pub fn target(&self) -> &T {
        &self.terminal.backend().target
    }

    /// What frames are written to.
    pub fn target_mut(&mut self) -> &mut T {
        &mut self.terminal.backend_mut().target
    }
}

/// Has cells written anew that a wide character covered in the last frame, since terminals differ in what they leave
/// there when its left half is overwritten; notes those that are covered now.
fn uncover(buffer: &mut Buffer, halves: &mut Vec<Position>) {
    let wide = |buffer: &Buffer, at: Position| {
        let cell = buffer.cell(at);
        cell.is_some_and(|cell| cell.symbol().len() > 1 && cells::width(cell.symbol()) > 1)
    };
    for &at in halves.iter() {
        let left = Position {
            x: at.x.saturating_sub(1),
            ..at
        };
        if !wide(buffer, left)
            && let Some(cell) = buffer.cell_mut(at)
        {
            cell.set_diff_option(CellDiffOption::AlwaysUpdate);
        }
    }
    let area = buffer.area;
    let places = area
        .rows()
        .flat_map(|row| (area.left()..area.right()).map(move |x| Position { x, y: row.y }));
    *halves = places
        .filter(|&at| wide(buffer, at))
        .map(|at| Position {
            x: at.x.saturating_add(1),
            ..at
        })
        .collect();
}

/// Has cells written anew that lie behind a joined character which is new: terminals that don't join its parts draw these
/// there.
fn rewrite_behind(buffer: &mut Buffer, joined: &mut HashMap<Position, Cell>) {
    let before = std::mem::take(joined);
    for row in buffer.area.rows() {
        // What lies before this column may have been drawn over.
        let mut until = row.left();
        for x in row.left()..row.right() {
            let at = Position { x, y: row.y };
            let Some(cell) = buffer.cell_mut(at) else { continue };
            let drawn_over = x < until;
            if cells::is_joined(cell.symbol()) {
                if drawn_over || before.get(&at) != Some(cell) {
                    until = until.max(x.saturating_add(cells::parts_width(cell.symbol()) as u16));
                }
                joined.insert(at, cell.clone());
            }
            if drawn_over && cell.diff_option == CellDiffOption::None {
                cell.set_diff_option(CellDiffOption::AlwaysUpdate);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ratatui::style::Style;

    use super::*;

    #[derive(Debug)]
    struct Paper(Vec<u8>);

    impl Target for Paper {
        fn size(&self) -> io::Result<(u16, u16)> {
            Ok((10, 1))
        }

        fn write(&mut self, frame: &[u8]) -> io::Result<()> {
            self.0 = frame.to_vec();
            Ok(())
        }
    }

    fn frame(canvas: &mut Canvas<Paper>, text: &str) -> String {
        let drawn = canvas.draw(|buffer| {
            buffer.set_string(0, 0, text, Style::new());
            None
        });
        drawn.unwrap();
        String::from_utf8(canvas.target().0.clone()).unwrap()
    }

    #[test]
    fn both_halves_of_a_wide_character_are_written_when_it_goes() {
        let mut canvas = Canvas::new(Paper(Vec::new())).unwrap();
        frame(&mut canvas, "a漢");
        let gone = frame(&mut canvas, "a");
        assert!(gone.contains("  "), "two blanks: {gone:?}");
        frame(&mut canvas, "a漢b");
        let stays = frame(&mut canvas, "a漢c");
        assert!(
            stays.contains('c') && !stays.contains(' ') && !stays.contains('漢'),
            "{stays:?}"
        );
    }

    /// What a terminal shows that gives the parts of joined characters two cells each.
    fn apart(frame: &str, row: &mut [char; 10]) {
        let mut at = 0;
        let mut rest = frame;
        while let Some(c) = rest.chars().next() {
            if let Some(sequence) = rest.strip_prefix("\x1b[") {
                let end = sequence.find(|c: char| c.is_ascii_alphabetic()).unwrap();
                if sequence[end..].starts_with('H') {
                    let (_, column) = sequence[..end].split_once(';').unwrap();
                    at = column.parse::<usize>().unwrap() - 1;
                }
                rest = &sequence[end + 1..];
                continue;
            }
            rest = &rest[c.len_utf8()..];
            let width = if c.is_ascii() || c == '│' { 1 } else { 2 };
            for (more, cell) in row.iter_mut().skip(at).take(width).enumerate() {
                *cell = if more == 0 { c } else { '_' };
            }
            at += width;
        }
    }

    #[test]
    fn what_lies_behind_a_character_of_several_code_points_is_where_it_belongs_in_every_terminal() {
        let mut canvas = Canvas::new(Paper(Vec::new())).unwrap();
        let mut row = [' '; 10];
        for (text, seen) in [
            ("│ab    │", "│ab    │  "),
            ("│👍🏽b   │", "│👍_b   │  "),
            ("│👍🏽c   │", "│👍_c   │  "),
            ("│a👍🏽👍🏽 │", "│a👍_👍_ │  "),
            ("│a👍🏽 b │", "│a👍_ b │  "),
        ] {
            apart(&frame(&mut canvas, text), &mut row);
            assert_eq!(row.iter().collect::<String>(), seen, "{text}");
        }
        canvas.forget().unwrap();
        row = [' '; 10];
        apart(&frame(&mut canvas, "│a👍🏽 b │"), &mut row);
        assert_eq!(row.iter().collect::<String>(), "│a👍_ b │  ");
        let stays = frame(&mut canvas, "│a👍🏽 c │");
        assert!(!stays.contains('👍') && !stays.contains('a'), "{stays:?}");
    }

    #[test]
    fn the_cursor_is_set_anew_behind_a_character_of_several_code_points() {
        let mut canvas = Canvas::new(Paper(Vec::new())).unwrap();
        frame(&mut canvas, "abcdef");
        for (text, behind) in [("e\u{301}x", "e\u{301}"), ("☝\u{fe0f}x", "☝\u{fe0f}")] {
            let drawn = frame(&mut canvas, text);
            let (_, rest) = drawn.split_once(behind).unwrap();
            let (between, _) = rest.split_once('x').unwrap();
            assert!(
                between.contains(&format!("\x1b[1;{}H", 1 + cells::width(behind))),
                "{drawn:?}"
            );
        }
    }
}
