//! The first and the last row of the screen: the engine in a line; keys, or what the user has to know.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::chat::{EngineStatus, NoticeKind, State};
use crate::engine::telemetry::RowState;
use crate::ui::cells;
use crate::ui::format::{self, percent};
use crate::ui::keymap::{Action, Scope};
use crate::ui::keys::{Bound, Keymap};
use crate::ui::overlay::models::Going;
use crate::ui::paint::{self, Piece, piece, plain};
use crate::ui::pane::one_line;
use crate::ui::styles::Styles;

/// Columns from which on the footer has room for a message and the way to the keys.
const WITH_HELP: u16 = 60;

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
        (EngineStatus::Ready, model) => piece(format!(" {model}"), styles.strong()),
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
        let panes = if hidden == 1 { "pane" } else { "panes" };
        let mut group = vec![piece(format!("+{hidden} {panes}"), styles.strong())];
        if unread > 0 {
            let mark = styles.pick("•", "!");
            group.push(piece(format!(" {mark}{unread} new"), styles.warning()));
        }
        groups.push(group);
    }
    groups.extend([
        vec![
            plain(format!("{} run", running.count())),
            piece(format!(" {} queued", snapshot.queued), queued),
        ],
        vec![plain(format!(
            "{} tok/s",
            format::rate(snapshot.decode_tokens_per_s)
        ))],
        vec![
            plain("KV "),
            piece(
                percent(kv.used, kv.budget),
                styles.fullness(kv.reserved, kv.budget),
            ),
            piece(
                format!(" (resv {})", percent(kv.reserved, kv.budget)),
                styles.quiet(),
            ),
        ],
        vec![plain(format!(
            "cache {}",
            percent(cache.tokens_served, cache.tokens_asked)
        ))],
    ]);
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

/// Draws the last row: a hint, else the newest notice, else the keys that count here. Without a scope something lies on top,
/// which names its own.
pub(super) fn footer(
    buffer: &mut Buffer,
    row: Rect,
    state: &State,
    (scope, searching, keymap): (Option<Scope>, bool, &Keymap),
    hint: Option<&str>,
    styles: &Styles,
) {
    if let Some(hint) = hint {
        let room = usize::from(row.width).saturating_sub(2);
        let text = cells::shorten(&one_line(hint), room, styles.cut());
        paint::text(buffer, row, 1, &text, styles.warning());
        return;
    }
    let help = keymap.written(Action::Help).map(|key| format!(" {key} help"));
    if let Some(notice) = state.notices().last() {
        let (mark, style) = match notice.kind {
            NoticeKind::Info => ("", ratatui::style::Style::new()),
            NoticeKind::Warning => (styles.pick("▲ ", "! "), styles.warning()),
            NoticeKind::Error => (styles.pick("✗ ", "x "), styles.error()),
        };
        // The way to the keys stays in sight.
        let help = help.filter(|_| row.width >= WITH_HELP).unwrap_or_default();
        let room = usize::from(row.width).saturating_sub(2 + help.len());
        let text = cells::shorten(&format!("{mark}{}", one_line(&notice.text)), room, styles.cut());
        paint::text(buffer, row, 1, &text, style);
        let column = row.width.saturating_sub(help.len() as u16 + 1);
        paint::text(buffer, row, column, &help, styles.quiet());
        return;
    }
    if let Some(why) = state.unsaved() {
        let text = format!("not saved: {}", one_line(why));
        paint::text(buffer, row, 1, &text, styles.error());
        return;
    }
    let mut groups: Vec<Vec<Piece>> = keys(scope, searching, keymap)
        .map(|(name, word)| vec![piece(name.to_owned(), styles.key()), plain(format!(" {word}"))])
        .collect();
    if let Some(first) = groups.first_mut() {
        first.insert(0, plain(" "));
    }
    paint::groups(buffer, row, 2, &groups);
}

/// Keys and their words for the footer. A scope's own come before those that count everywhere, on the dashboard; what lies on
/// top takes all of these but the help's.
fn keys(
    scope: Option<Scope>,
    searching: bool,
    keymap: &Keymap,
) -> impl Iterator<Item = (&str, &'static str)> {
    let chat = scope == Some(Scope::Chat);
    let on_top = matches!(scope, None | Some(Scope::Sessions | Scope::Models));
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
            _ => bound.binding.footer?,
        };
        Some((&*bound.name, word))
    })
}
