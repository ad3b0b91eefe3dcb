//! The first and the last row of the screen: the engine in a line; keys, or what the user has to know.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::chat::{EngineStatus, NoticeKind, State};
use crate::engine::telemetry::RowState;
use crate::ui::cells;
use crate::ui::format::{self, percent};
use crate::ui::keymap::{Action, Reading, Scope};
use crate::ui::keys::{Bound, Keymap};
use crate::ui::overlay::models::Going;
use crate::ui::paint::{self, Piece, piece, plain};
use crate::ui::pane::one_line;
use crate::ui::styles::Styles;
use crate::ui::told;
use crate::ui::wrap::wrap_line;

/// Columns from which on the footer has room for a message and the way to the keys.
pub(super) const WITH_HELP: u16 = 60;

/// Columns between two keys of the footer.
const GAP: u16 = 2;

/// Columns that a model's name has in the first row at least.
const LEAST_NAME: usize = 12;

/// Columns from which on the first row has room for what is reserved, and the rate comes before memory.
const ROOMY: u16 = 60;

/// Draws the first row. `hidden` panes have no room on the screen; something new may be in `unread` of them.
pub(super) fn header(
    buffer: &mut Buffer,
    row: Rect,
    (state, going): (&State, &Going),
    (hidden, unread): (usize, usize),
    keymap: &Keymap,
    styles: &Styles,
) {
    let snapshot = state.snapshot();
    let running = snapshot
        .rows
        .iter()
        .filter(|r| matches!(r.state, RowState::Decode | RowState::Prefill { .. }));
    let model = match (state.engine(), one_line(&snapshot.info.model)) {
        (EngineStatus::Failed(_), _) => piece(" engine failed", styles.error()),
        (EngineStatus::Loading { .. }, _) => piece(" loading the model", styles.warning()),
        (EngineStatus::Ready, model) if model.is_empty() => piece(" -", styles.strong()),
        // What else there is to know has room beside a long name.
        (EngineStatus::Ready, model) => {
            let room = usize::from(row.width / 3).max(LEAST_NAME);
            piece(
                format!(" {}", cells::shorten(&model, room, styles.cut())),
                styles.strong(),
            )
        }
    };
    let kv = snapshot.kv;
    let cache = snapshot.prompt_cache;
    let queued = if snapshot.queued > 0 {
        styles.warning()
    } else {
        styles.quiet()
    };
    let mut groups = vec![vec![model]];
    if state.unsaved().is_some() {
        groups.push(vec![piece("NOT SAVED", styles.error())]);
    }
    groups.extend(going.pieces(styles));
    if state.broadcast() {
        groups.push(vec![piece("broadcast", styles.warning())]);
    }
    if hidden > 0 {
        let panes = match hidden {
            // So that both have room.
            _ if unread > 0 && row.width < ROOMY => "",
            1 => " pane",
            _ => " panes",
        };
        let mut group = vec![piece(format!("+{hidden}{panes}"), styles.strong())];
        if unread > 0 {
            let mark = styles.pick("•", "!");
            group.push(piece(format!(" {mark}{unread} new"), styles.warning()));
        }
        groups.push(group);
    }
    groups.push(vec![
        plain(format!("{} run", running.count())),
        piece(format!(" {} queued", snapshot.queued), queued),
    ]);
    let rate = vec![plain(format!(
        "{} tok/s",
        format::rate(snapshot.decode_tokens_per_s)
    ))];
    let mut memory = vec![
        plain("KV "),
        piece(
            percent(kv.used, kv.budget),
            styles.fullness(kv.reserved, kv.budget),
        ),
    ];
    // Where there is room for one of them, memory says why a prompt waits.
    groups.extend(if row.width < ROOMY {
        [memory, rate]
    } else {
        let reserved = percent(kv.reserved, kv.budget);
        memory.push(piece(format!(" (resv {reserved})"), styles.quiet()));
        [rate, memory]
    });
    groups.push(vec![plain(format!(
        "cache {}",
        percent(cache.tokens_served, cache.tokens_asked)
    ))]);
    if let Some(key) = keymap.written(Action::Help) {
        groups.push(vec![piece(key.to_owned(), styles.key()), plain(" help")]);
    }
    if row.width >= 110 {
        let prefill = format::rate(snapshot.prefill_tokens_per_s);
        groups.push(vec![piece(format!("prefill {prefill} tok/s"), styles.quiet())]);
        groups.push(vec![piece(one_line(&snapshot.info.device), styles.quiet())]);
    }
    groups.retain(|group| group.iter().any(|piece| !piece.text.is_empty()));
    paint::groups(buffer, row, 2, &groups);
}

/// Draws the last row: a hint, else what there is to tell, else the keys that count here. What there is to tell may cover so
/// many rows `above`. Without a scope something lies on top, which names its own keys: `on_top`, where its title has no room
/// for them.
pub(super) fn footer(
    buffer: &mut Buffer,
    (row, above): (Rect, u16),
    state: &State,
    (scope, searching, keymap): (Option<Scope>, bool, &Keymap),
    (hint, on_top): (Option<String>, Option<String>),
    styles: &Styles,
) {
    if let Some(hint) = hint {
        let room = usize::from(row.width).saturating_sub(2);
        let text = cells::shorten(&one_line(&hint), room, styles.cut());
        paint::text(buffer, row, 1, &text, styles.warning());
        return;
    }
    if !state.notices().is_empty() {
        let notices = state.notices().iter();
        let told: Vec<_> = notices
            .map(|notice| (notice.kind, told::text(notice, keymap)))
            .collect();
        return messages(buffer, (row, above), &told, keymap, styles);
    }
    if let Some(why) = state.unsaved() {
        let why = format!("not saved: {}", one_line(why));
        return messages(buffer, (row, 0), &[(NoticeKind::Error, why)], keymap, styles);
    }
    let nowhere = state.targets().is_empty();
    let on_top = on_top.unwrap_or_default();
    let named = on_top
        .trim_end()
        .split(", ")
        .filter_map(|key| key.split_once(' '));
    let mut groups: Vec<Vec<Piece>> = named
        .map(|(key, word)| vec![piece(key.to_owned(), styles.key()), plain(format!(" {word}"))])
        .collect();
    // How to close it is in every title.
    groups.pop();
    // Whether the way to all others, or out of here, is told: these stay.
    let mut stays = vec![false; groups.len()];
    for (action, name, word) in keys(scope, searching, keymap) {
        if nowhere && action == Action::Send {
            continue;
        }
        groups.push(vec![
            piece(name.to_owned(), styles.key()),
            plain(format!(" {word}")),
        ]);
        stays.push(action == Action::Help || (scope == Some(Scope::Reading) && action == Action::Stop));
    }
    if let Some(first) = groups.first_mut() {
        first.insert(0, plain(" "));
    }
    let width = |group: &Vec<Piece>| -> usize {
        let pieces: usize = group.iter().map(|piece| cells::width(&piece.text)).sum();
        pieces + usize::from(GAP)
    };
    while groups.iter().map(width).sum::<usize>() > usize::from(row.width + GAP) {
        let Some(last) = stays.iter().rposition(|stays| !stays) else {
            break;
        };
        groups.remove(last);
        stays.remove(last);
    }
    paint::groups(buffer, row, GAP, &groups);
}

/// The mark and the style of a message.
pub(super) fn mark(kind: NoticeKind, styles: &Styles) -> (&'static str, Style) {
    match kind {
        NoticeKind::Info => ("", Style::new()),
        NoticeKind::Warning => (styles.pick("▲ ", "! "), styles.warning()),
        NoticeKind::Error => (styles.pick("✗ ", "x "), styles.error()),
    }
}

/// Draws messages, a line each, the newest last, into the last row and those above it that they need. The newest is there, as far as there is room; where
/// something is left out, the way to it is told.
fn messages(
    buffer: &mut Buffer,
    (row, above): (Rect, u16),
    messages: &[(NoticeKind, String)],
    keymap: &Keymap,
    styles: &Styles,
) {
    let key = |action, word: &str| keymap.written(action).map(|key| format!(" {key} {word}"));
    // The way to the keys stays in sight.
    let help = key(Action::Help, "help").filter(|_| row.width >= WITH_HELP);
    let help = help.unwrap_or_default();
    let more = key(Action::Messages, "all").unwrap_or_default();
    let width = usize::from(row.width).saturating_sub(2 + help.len());
    let rows = usize::from(above) + 1;
    let mut lines: Vec<(String, Style)> = Vec::new();
    // Whether the newest is cut, and whether older ones are left out.
    let (mut cut, mut older) = (false, false);
    for (kind, text) in messages.iter().rev() {
        let (mark, style) = mark(*kind, styles);
        let text = format!("{mark}{text}");
        let mut own: Vec<String> = wrap_line(&text, width)
            .into_iter()
            .map(|line| text[line].to_owned())
            .collect();
        let room = rows - lines.len();
        if own.len() > room {
            if !lines.is_empty() {
                older = true;
                break;
            }
            cut = true;
            own.truncate(room);
        }
        lines.splice(0..0, own.into_iter().map(|line| (line, style)));
    }
    let hint = if cut || older {
        format!("{more}{help}")
    } else {
        help
    };
    let top = row.y - (lines.len() as u16).saturating_sub(1);
    let last = lines.len().saturating_sub(1);
    for (at, (line, style)) in lines.into_iter().enumerate() {
        let row = Rect {
            y: top + at as u16,
            ..row
        };
        paint::clear(buffer, row, styles);
        let room = usize::from(row.width).saturating_sub(2 + if at == last { hint.len() } else { 0 });
        let mut line = cells::shorten(&line, room, styles.cut());
        if cut && at == last && !line.ends_with(styles.cut()) {
            line = cells::prefix(&line, room.saturating_sub(cells::width(styles.cut()))).to_owned()
                + styles.cut();
        }
        paint::text(buffer, row, 1, &line, style);
    }
    let column = row.width.saturating_sub(hint.len() as u16 + 1);
    paint::text(buffer, row, column, &hint, styles.quiet());
}

/// Actions, their keys and their words for the footer. A scope's own come before those that count everywhere, on the dashboard; what lies on
/// top takes all of these but the help's.
fn keys(
    scope: Option<Scope>,
    searching: bool,
    keymap: &Keymap,
) -> impl Iterator<Item = (Action, &str, &'static str)> {
    let chat = scope == Some(Scope::Chat);
    let on_top = scope.is_none_or(Scope::is_on_top);
    let counts = move |b: &&Bound| match b.binding.scope {
        Scope::Everywhere => !on_top || b.binding.action == Action::Help,
        own => scope == Some(own),
    };
    let own = keymap
        .bound()
        .filter(move |b| chat || b.binding.scope != Scope::Everywhere);
    let all = keymap
        .bound()
        .filter(move |b| !chat && b.binding.scope == Scope::Everywhere);
    own.chain(all).filter(counts).filter_map(move |bound| {
        let word = match (bound.binding.action, scope) {
            (Action::Stop, Some(Scope::Dashboard)) => "back",
            (Action::Stop, Some(Scope::Reading)) if searching => "end search",
            (Action::Stop, Some(Scope::Reading)) => "write",
            (Action::Reading(Reading::NextHit), _) if !searching => return None,
            _ => bound.binding.footer?,
        };
        Some((bound.binding.action, &*bound.name, word))
    })
}
