//! Progress as text: one line rewritten in place on a terminal, else a plain line now and then.

use std::io::Write;
use std::time::Duration;

use super::progress::{Meter, Progress};

/// On a terminal, the line is rewritten at most this often.
const REDRAW: Duration = Duration::from_millis(100);
/// Elsewhere, a line at least every this many percent.
const STEP_PERCENT: u64 = 10;

/// Writes what a fetch tells. Reads no clock: times are given, counted from any start.
pub struct Reporter<W: Write> {
    out: W,
    name: String,
    /// Columns to stay within; none where the output is not a terminal.
    columns: Option<usize>,
    meter: Meter,
    /// The stage being reported, to notice a change.
    stage: Option<std::mem::Discriminant<Progress>>,
    drawn: Option<Duration>,
    percent: u64,
    line_open: bool,
}

impl<W: Write> Reporter<W> {
    /// Reports about model `name` to `out`; `columns` is the width of the terminal, none if `out` is not one.
    pub fn new(out: W, name: &str, columns: Option<usize>) -> Self {
        let (meter, name) = (Meter::new(), name.to_string());
        Self {
            out,
            name,
            columns,
            meter,
            stage: None,
            drawn: None,
            percent: 0,
            line_open: false,
        }
    }

    /// Tells one step of progress at time `now`.
    pub fn tell(&mut self, progress: &Progress, now: Duration) -> std::io::Result<()> {
        if let Progress::Note(note) = progress {
            return self.note(note);
        }
        let stage = std::mem::discriminant(progress);
        let changed = self.stage != Some(stage);
        if changed {
            self.stage = Some(stage);
            self.meter = Meter::new();
            self.percent = 0;
        }
        let (text, counts) = progress.stage();
        let Some((done, total)) = counts else {
            return self.line(&text, true, now);
        };
        self.meter.observe(done, now);
        let percent = done.saturating_mul(100).checked_div(total).unwrap_or(100);
        let step = percent / STEP_PERCENT != self.percent / STEP_PERCENT;
        self.percent = percent;
        let download = matches!(
            progress,
            Progress::Downloading { .. } | Progress::DownloadingFiles { .. }
        );
        match (self.columns, download) {
            (None, true) => self.line(
                &format!("{text} {}", self.meter.text(total, " · ")),
                changed || step,
                now,
            ),
            // These take seconds: that they began is enough.
            (None, false) => self.line(&text, changed, now),
            (Some(_), true) => self.line(
                &format!("{text} {}", self.meter.text(total, " · ")),
                changed || done == total,
                now,
            ),
            (Some(_), false) => self.line(&format!("{text} {percent} %"), changed || done == total, now),
        }
    }

    /// A line that stays, above the one being rewritten.
    fn note(&mut self, note: &str) -> std::io::Result<()> {
        if std::mem::take(&mut self.line_open) {
            write!(self.out, "\r\x1b[K")?;
        }
        let note: String = note.chars().filter(|c| !c.is_control()).collect();
        writeln!(self.out, "{}: {note}", self.name)
    }

    /// Ends the line being rewritten, so that what is printed next stands below it.
    pub fn end(&mut self) -> std::io::Result<()> {
        if std::mem::take(&mut self.line_open) {
            writeln!(self.out)
        } else {
            Ok(())
        }
    }

    fn line(&mut self, text: &str, must: bool, now: Duration) -> std::io::Result<()> {
        let text = format!("{}: {text}", self.name);
        match self.columns {
            None if must => writeln!(self.out, "{text}"),
            None => Ok(()),
            Some(columns) => {
                if !must && self.drawn.is_some_and(|drawn| now.saturating_sub(drawn) < REDRAW) {
                    return Ok(());
                }
                self.drawn = Some(now);
                self.line_open = true;
                // The last column stays free: a character there would wrap on some terminals.
                let shown: String = text
                    .chars()
                    .filter(|c| !c.is_control())
                    .take(columns.saturating_sub(1))
                    .collect();
                write!(self.out, "\r\x1b[K{shown}")?;
                self.out.flush()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(columns: Option<usize>, steps: &[(Progress, u64)]) -> String {
        let mut out = Vec::new();
        let mut reporter = Reporter::new(&mut out, "m", columns);
        for (progress, millis) in steps {
            reporter.tell(progress, Duration::from_millis(*millis)).unwrap();
        }
        reporter.end().unwrap();
        String::from_utf8(out).unwrap()
    }

    fn download() -> Vec<(Progress, u64)> {
        let mut steps = vec![(
            Progress::Connecting {
                to: "index.test".into(),
            },
            0,
        )];
        steps.extend((0..=1000).map(|i| {
            (
                Progress::Downloading {
                    done: i * 1000,
                    total: 1_000_000,
                },
                i * 10,
            )
        }));
        steps.push((
            Progress::Verifying {
                done: 0,
                total: 1_000_000,
            },
            10_010,
        ));
        steps.push((
            Progress::Verifying {
                done: 1_000_000,
                total: 1_000_000,
            },
            10_020,
        ));
        steps
    }

    #[test]
    fn not_on_a_terminal_there_is_a_plain_line_every_ten_percent() {
        let text = told(None, &download());
        assert!(!text.contains('\x1b') && !text.contains('\r'), "{text:?}");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1 + 11 + 1, "{text}");
        assert_eq!(lines[0], "m: asking index.test");
        assert_eq!(lines[6], "m: downloading 488K of 977K · 98K/s · 5 s left");
        assert_eq!(lines[12], "m: verifying");
    }

    #[test]
    fn on_a_terminal_one_line_is_rewritten_ten_times_a_second_at_most() {
        let text = told(Some(80), &download());
        assert_eq!(text.matches('\n').count(), 1);
        assert!(text.ends_with('\n'));
        let draws = text.matches('\r').count();
        assert!((100..=115).contains(&draws), "{draws}");
    }

    #[test]
    fn a_note_stays_above_the_line_being_rewritten() {
        let steps = [
            (Progress::Waiting, 0),
            (Progress::Note("pick\x1b one".into()), 1),
            (
                Progress::DownloadingFiles {
                    done: 5,
                    total: 10,
                    finished: 1,
                    files: 3,
                },
                2,
            ),
        ];
        let text = told(Some(80), &steps);
        let (before, after) = text.split_once("m: pick one\n").unwrap();
        assert!(before.ends_with("\r\x1b[K"), "{before:?}");
        assert!(
            after.contains("m: downloading, 1 of 3 files done, 5B of 10B"),
            "{after:?}"
        );
    }

    #[test]
    fn a_narrow_terminal_cuts_the_line_before_its_last_column() {
        let text = told(Some(10), &[(Progress::Waiting, 0)]);
        assert_eq!(text, "\r\x1b[Km: waitin\n");
    }

    #[test]
    fn control_characters_in_a_message_do_not_reach_the_terminal() {
        let because = "evil\x1b[2Jhost\nx".to_string();
        let text = told(
            Some(80),
            &[(
                Progress::Retrying {
                    attempt: 2,
                    after: Duration::ZERO,
                    because,
                },
                0,
            )],
        );
        assert!(
            !text.contains("\x1b[2J") && text.contains("evil[2Jhostx"),
            "{text:?}"
        );
    }

    #[test]
    fn nothing_told_leaves_no_line_to_end() {
        assert_eq!(told(Some(80), &[]), "");
    }
}
