//! KV memory, prompt cache and rates.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::Context;
use crate::engine::telemetry::{DiskState, RowState};
use crate::ui::format::{self, NONE, bytes, count, percent};
use crate::ui::paint::{self, Piece, piece, plain};

pub(super) fn draw(buffer: &mut Buffer, area: Rect, cx: &Context) {
    if area.height < 3 {
        return;
    }
    let inner = paint::boxed(
        buffer,
        area,
        &[plain(" memory and prompt cache ")],
        cx.styles,
        false,
    );
    let gauge = usize::from(inner.width).saturating_sub(40).clamp(8, 40);
    for (at, groups) in [kv(cx, gauge), cache(cx, gauge), hits(cx), rates(cx)]
        .into_iter()
        .enumerate()
    {
        paint::groups(buffer, paint::row(inner, at as u16), 2, &groups);
    }
}

/// `limit` in bytes, unknown where it is 0.
fn limit(limit: u64) -> String {
    if limit == 0 { NONE.into() } else { bytes(limit) }
}

fn labelled(label: &str, gauge: Vec<Piece>) -> Vec<Piece> {
    let mut pieces = vec![plain(format!("{label:<6}"))];
    pieces.extend(gauge);
    pieces
}

fn kv(cx: &Context, width: usize) -> Vec<Vec<Piece>> {
    let styles = cx.styles;
    let kv = cx.snapshot.kv;
    let style = styles.fullness(kv.reserved, kv.budget);
    let gauge = paint::gauge(
        width,
        &[(kv.used, "#", style), (kv.reserved, "=", style)],
        kv.budget,
        styles,
    );
    vec![
        labelled("KV", gauge),
        vec![plain(format!(
            "use {} rsv {} of {}{}",
            bytes(kv.used),
            bytes(kv.reserved),
            limit(kv.budget),
            if cx.snapshot.info.default_kv_budget {
                " (default)"
            } else {
                ""
            }
        ))],
        vec![piece(
            format!("peak {}", percent(cx.snapshot.kv_peak_reserved, kv.budget)),
            styles.quiet(),
        )],
    ]
}

fn cache(cx: &Context, width: usize) -> Vec<Vec<Piece>> {
    let cache = cx.snapshot.prompt_cache;
    if !cache.enabled {
        return vec![labelled("cache", vec![piece("off", cx.styles.quiet())])];
    }
    let gauge = paint::gauge(
        width,
        &[(cache.bytes, "#", cx.styles.good())],
        cache.limit,
        cx.styles,
    );
    vec![
        labelled("cache", gauge),
        vec![plain(format!("{} of {}", bytes(cache.bytes), limit(cache.limit)))],
        vec![plain(entries(cache.entries))],
        vec![piece(format!("evicted {}", cache.evictions), cx.styles.quiet())],
    ]
}

fn entries(count: u64) -> String {
    match count {
        1 => "1 entry".into(),
        count => format!("{count} entries"),
    }
}

/// What of the prompt cache is on disk; nothing if it doesn't go there.
fn disk(cx: &Context) -> Vec<Piece> {
    let disk = cx.snapshot.prompt_cache.disk;
    match disk.state {
        DiskState::Off => Vec::new(),
        DiskState::On => vec![plain(format!(
            "disk {}, {}",
            bytes(disk.bytes),
            entries(disk.entries)
        ))],
        DiskState::Paused => vec![piece("disk can't be written", cx.styles.warning())],
    }
}

fn hits(cx: &Context) -> Vec<Vec<Piece>> {
    let cache = cx.snapshot.prompt_cache;
    let hit = percent(cache.tokens_served, cache.tokens_asked);
    let tokens = format!(
        "({} of {} tokens)",
        count(cache.tokens_served),
        count(cache.tokens_asked)
    );
    vec![
        vec![
            plain(format!("{:<6}{hit}", "hit")),
            piece(format!(" {tokens}"), cx.styles.quiet()),
        ],
        vec![plain(format!(
            "full {} part {} miss {}",
            cache.full, cache.partial, cache.miss
        ))],
        disk(cx),
        vec![piece(format!("lookups {}", cache.lookups), cx.styles.quiet())],
    ]
}

fn rates(cx: &Context) -> Vec<Vec<Piece>> {
    let mlx = cx.snapshot.mlx;
    let known = |n: u64| if n == 0 { NONE.into() } else { bytes(n) };
    let waits = cx
        .snapshot
        .rows
        .iter()
        .filter(|row| matches!(row.state, RowState::Queued { .. }));
    let longest = waits.map(|row| row.queued_ms).fold(0.0, f64::max);
    let queue = match cx.snapshot.queued {
        0 => "queue 0".to_owned(),
        queued => format!("queue {queued}, {}", format::seconds(longest)),
    };
    vec![
        vec![plain(format!(
            "{:<6}decode {}",
            "tok/s",
            format::rate(cx.snapshot.decode_tokens_per_s)
        ))],
        vec![plain(format!(
            "prefill {}",
            format::rate(cx.snapshot.prefill_tokens_per_s)
        ))],
        vec![plain(queue)],
        vec![piece(
            format!("MLX {} peak {}", known(mlx.active), known(mlx.peak)),
            cx.styles.quiet(),
        )],
    ]
}
