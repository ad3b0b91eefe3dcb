//! Where everything goes, computed by hand from the size: no constraint solver, so nothing flaps.

use ratatui::layout::Rect;

/// The least size at which more than a message is drawn.
pub const LEAST: (u16, u16) = (40, 10);
/// Columns of the dashboard at the side.
const SIDE: u16 = 62;
/// Columns of a pane at least, its border included.
const PANE_WIDTH: u16 = 38;
/// Rows of a pane at least where panes stand over each other.
const PANE_HEIGHT: u16 = 12;
/// The most text rows that the composer grows to.
const COMPOSER_ROWS: u16 = 8;

/// The parts of the chat screen. An absent part has no room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Regions {
    /// Model and totals.
    pub header: Option<Rect>,
    /// Panes that are shown: their index among all panes, and where.
    pub panes: Vec<(usize, Rect)>,
    /// The dashboard at the side.
    pub side: Option<Rect>,
    /// The composer, its border included.
    pub composer: Rect,
    /// The engine in one or two rows.
    pub strip: Option<Rect>,
    /// Keys and notices.
    pub footer: Option<Rect>,
}

/// Whether there is room for more than a message.
pub fn fits(area: Rect) -> bool {
    area.width >= LEAST.0 && area.height >= LEAST.1
}

/// Rows that a draft of so many rows gets in the composer.
pub fn composer_rows(area: Rect, draft_rows: usize) -> u16 {
    let most = COMPOSER_ROWS.min((area.height / 3).saturating_sub(2)).max(1);
    u16::try_from(draft_rows).unwrap_or(u16::MAX).clamp(1, most)
}

/// Divides `area` among `count` panes, the focused one at index `focus`, and all the rest.
pub fn regions(area: Rect, count: usize, focus: usize, zoomed: bool, draft_rows: usize) -> Regions {
    let mut rest = area;
    let mut side = None;
    if area.width >= 180 && area.height >= 20 {
        let (left, right) = split_right(rest, SIDE);
        (rest, side) = (left, Some(right));
    }
    let header = cut_top(&mut rest, 1);
    let footer = cut_bottom(&mut rest, 1);
    let strip_rows = match (side, area.width, area.height) {
        (Some(_), ..) => 0,
        (_, ..80, _) | (_, _, ..16) => 1,
        _ => 2,
    };
    let strip = (strip_rows > 0).then(|| cut_bottom(&mut rest, strip_rows));
    let composer = cut_bottom(&mut rest, composer_rows(area, draft_rows) + 2);
    Regions {
        header: Some(header),
        panes: tile(rest, area.width, count, focus, zoomed),
        side,
        composer,
        strip,
        footer: Some(footer),
    }
}

/// Tiles panes into rows of columns; where there isn't room for all, those around the focus are shown.
fn tile(area: Rect, screen: u16, count: usize, focus: usize, zoomed: bool) -> Vec<(usize, Rect)> {
    if count == 0 || area.is_empty() {
        return Vec::new();
    }
    if zoomed {
        return vec![(focus, area)];
    }
    let columns = match screen {
        ..80 => 1,
        80..120 => 2,
        120..180 => 3,
        _ => usize::from(area.width / PANE_WIDTH).max(1),
    };
    let lines = if screen < 80 {
        1
    } else {
        usize::from(area.height / PANE_HEIGHT).max(1)
    };
    let room = columns * lines;
    let first = (focus / room * room).min(count.saturating_sub(room));
    let shown = (count - first).min(room);
    let lines = shown.div_ceil(columns).max(1);
    let mut out = Vec::with_capacity(shown);
    for line in 0..lines {
        // Rows differ by one pane at most, the fuller ones first.
        let here = shown / lines + usize::from(line < shown % lines);
        let (y, height) = share(area.y, area.height, lines, line);
        for column in 0..here {
            let (x, width) = share(area.x, area.width, here, column);
            out.push((first + out.len(), Rect { x, y, width, height }));
        }
    }
    out
}

/// The `at`-th of `parts` parts of a length, the longer ones first.
fn share(start: u16, length: u16, parts: usize, at: usize) -> (u16, u16) {
    let (parts, at) = (parts.max(1) as u16, at as u16);
    let (each, more) = (length / parts, length % parts);
    (start + at * each + at.min(more), each + u16::from(at < more))
}

fn cut_top(rest: &mut Rect, rows: u16) -> Rect {
    let rows = rows.min(rest.height);
    let cut = Rect {
        height: rows,
        ..*rest
    };
    rest.y += rows;
    rest.height -= rows;
    cut
}

fn cut_bottom(rest: &mut Rect, rows: u16) -> Rect {
    let rows = rows.min(rest.height);
    rest.height -= rows;
    Rect {
        y: rest.y + rest.height,
        height: rows,
        ..*rest
    }
}

fn split_right(area: Rect, columns: u16) -> (Rect, Rect) {
    let columns = columns.min(area.width);
    let left = Rect {
        width: area.width - columns,
        ..area
    };
    (
        left,
        Rect {
            x: left.x + left.width,
            width: columns,
            ..area
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(width: u16, height: u16, count: usize, focus: usize) -> Vec<usize> {
        let regions = regions(Rect::new(0, 0, width, height), count, focus, false, 1);
        regions.panes.iter().map(|(index, _)| *index).collect()
    }

    #[test]
    fn panes_are_as_many_as_the_width_allows() {
        assert_eq!(shown(40, 10, 2, 1), [1]);
        assert_eq!(shown(79, 24, 2, 0), [0]);
        assert_eq!(shown(80, 24, 2, 0), [0, 1]);
        assert_eq!(shown(80, 24, 3, 2), [1, 2]);
        assert_eq!(shown(120, 24, 3, 0), [0, 1, 2]);
        assert_eq!(shown(200, 50, 9, 0), (0..9).collect::<Vec<_>>());
    }

    #[test]
    fn parts_cover_the_screen_once_at_every_size() {
        for width in (40..230).step_by(7) {
            for height in 10..60 {
                for count in 1..=9 {
                    for zoomed in [false, true] {
                        let area = Rect::new(0, 0, width, height);
                        let r = regions(area, count, count - 1, zoomed, 3);
                        let mut parts: Vec<Rect> = r.panes.iter().map(|(_, rect)| *rect).collect();
                        parts.extend([r.header, r.side, r.strip, r.footer].into_iter().flatten());
                        parts.push(r.composer);
                        let cells: u32 = parts.iter().map(|rect| rect.area()).sum();
                        assert_eq!(cells, area.area(), "{width}x{height}, {count} panes");
                        assert!(
                            r.panes.iter().any(|(index, _)| *index == count - 1),
                            "the focus is shown"
                        );
                        for (at, one) in parts.iter().enumerate() {
                            assert!(parts[at + 1..].iter().all(|other| !one.intersects(*other)));
                        }
                        let narrow = r.panes.iter().any(|(_, rect)| rect.width < PANE_WIDTH);
                        assert!(!narrow, "{width}x{height}, {count} panes: {:?}", r.panes);
                    }
                }
            }
        }
    }

    #[test]
    fn the_composer_grows_to_eight_rows_and_never_over_a_third() {
        let rows = |height, draft| composer_rows(Rect::new(0, 0, 80, height), draft);
        assert_eq!(
            [rows(50, 0), rows(50, 5), rows(50, 99), rows(24, 99), rows(10, 99)],
            [1, 5, 8, 6, 1]
        );
    }
}
