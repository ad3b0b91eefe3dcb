//! Figures as short texts of a known greatest width; what isn't known is `-`.

use std::time::Duration;

pub use crate::size::shown as bytes;

/// What stands where there is no data.
pub const NONE: &str = "-";

/// Nanoseconds as milliseconds in at most 5 cells: `0.04`, `2.1`, `16.2`, `310`.
pub fn millis(ns: u64) -> String {
    let ms = ns as f64 / 1e6;
    if ms < 0.095 {
        format!("{ms:.2}")
    } else if ms < 99.95 {
        format!("{ms:.1}")
    } else {
        format!("{ms:.0}")
    }
}

/// Milliseconds as seconds in at most 5 cells: `.21s`, `1.4s`, `12s`, `3m05`.
pub fn seconds(ms: f64) -> String {
    let s = ms / 1000.0;
    if s < 0.995 {
        format!(".{:02.0}s", (s * 100.0).max(0.0))
    } else if s < 9.95 {
        format!("{s:.1}s")
    } else if s < 99.5 {
        format!("{s:.0}s")
    } else {
        let whole = s.round() as u64;
        if whole < 6000 {
            format!("{}m{:02}", whole / 60, whole % 60)
        } else {
            format!("{}h", whole / 3600)
        }
    }
}

/// A rate per second in at most 5 cells: `0.4`, `61`, `1240`, `12k`.
pub fn rate(per_s: Option<f64>) -> String {
    match per_s {
        Some(rate) if rate.is_finite() && rate >= 9999.5 => format!("{:.0}k", rate / 1000.0),
        Some(rate) if rate.is_finite() && rate >= 9.95 => format!("{rate:.0}"),
        Some(rate) if rate.is_finite() => format!("{rate:.1}"),
        _ => NONE.into(),
    }
}

/// A count in at most 5 cells: `812`, `5.1k`, `131k`.
pub fn count(n: u64) -> String {
    if n < 10_000 {
        n.to_string()
    } else if n < 999_500 {
        format!("{:.0}k", n as f64 / 1e3)
    } else {
        format!("{:.1}M", n as f64 / 1e6)
    }
}

/// A count in full, its thousands apart: `2 114`.
pub fn grouped(n: usize) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// A share of a whole, in percent; unknown where the whole is 0.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        NONE.into()
    } else {
        format!("{:.0}%", part as f64 * 100.0 / whole as f64)
    }
}

/// A stretch of time, for what is still to wait.
pub fn time_left(left: Duration) -> String {
    let s = left.as_secs();
    if s < 60 {
        format!("{s} s")
    } else if s < 3600 {
        format!("{} min {:02} s", s / 60, s % 60)
    } else {
        format!("{} h {:02} min", s / 3600, s / 60 % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_their_width_over_their_whole_range() {
        let mut n = 1u64;
        while n < 1 << 55 {
            for n in [n - 1, n, n + 1, n * 3 / 2] {
                assert!(bytes(n).len() <= 5, "{n}: {}", bytes(n));
            }
            n *= 2;
        }
        for ns in [
            0,
            40_000,
            99_000,
            2_100_000,
            16_240_000,
            99_960_000,
            310_000_000,
            9_999_000_000,
        ] {
            assert!(millis(ns).len() <= 5, "{}", millis(ns));
        }
        for ms in [
            0.0,
            4.0,
            210.0,
            994.0,
            996.0,
            1400.0,
            9960.0,
            99_600.0,
            185_000.0,
            5_999_400.0,
            8e6,
        ] {
            assert!(seconds(ms).len() <= 5, "{}", seconds(ms));
        }
    }

    #[test]
    fn figures_read_as_people_write_them() {
        assert_eq!(
            [bytes(0), bytes(812), bytes(58 << 20), bytes(1_288_490_189)],
            ["0", "812B", "58M", "1.2G"]
        );
        assert_eq!(
            [millis(2_100_000), millis(40_000), millis(16_240_000)],
            ["2.1", "0.04", "16.2"]
        );
        assert_eq!(
            [seconds(210.0), seconds(1400.0), seconds(185_000.0)],
            [".21s", "1.4s", "3m05"]
        );
        assert_eq!(
            [
                rate(Some(61.4)),
                rate(Some(0.42)),
                rate(None),
                rate(Some(f64::NAN))
            ],
            ["61", "0.4", "-", "-"]
        );
        assert_eq!([percent(71, 100), percent(0, 0)], ["71%", "-"]);
        assert_eq!(time_left(Duration::from_secs(125)), "2 min 05 s");
    }
}
