//! Bytes as people read and write them: in powers of 1024, with K, M, G.

/// Bytes in at most 5 cells: `0`, `812B`, `9.4K`, `310M`, `1.2G`.
pub fn shown(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["K", "M", "G", "T", "P"];
    if bytes == 0 {
        return "0".into();
    }
    if bytes < 1000 {
        return format!("{bytes}B");
    }
    let mut value = bytes as f64 / 1024.0;
    for (at, unit) in UNITS.iter().enumerate() {
        if value < 9.95 {
            return format!("{value:.1}{unit}");
        }
        if value < 999.5 || at + 1 == UNITS.len() {
            return format!("{value:.0}{unit}");
        }
        value /= 1024.0;
    }
    "-".into()
}

/// Parses bytes, or a number with K, M or G (powers of 1024).
pub fn parse(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("{text:?} is no size: expected bytes, or a number with K, M or G, like 512M or 1.5G");
    let trimmed = text.trim();
    let (digits, unit) = match trimmed.char_indices().last() {
        Some((at, 'k' | 'K')) => (&trimmed[..at], 1u64 << 10),
        Some((at, 'm' | 'M')) => (&trimmed[..at], 1 << 20),
        Some((at, 'g' | 'G')) => (&trimmed[..at], 1 << 30),
        _ => (trimmed, 1),
    };
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(unit).ok_or_else(wrong);
    }
    let fraction: f64 = digits.parse().map_err(|_| wrong())?;
    let bytes = fraction * unit as f64;
    if unit > 1 && bytes.is_finite() && (0.0..9.0e18).contains(&bytes) {
        Ok(bytes as u64)
    } else {
        Err(wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_in_few_cells() {
        let all = [0, 812, 300_000, 58 << 20, 98_400_000, 1_288_490_189];
        assert_eq!(all.map(shown), ["0", "812B", "293K", "58M", "94M", "1.2G"]);
        for bits in 0..62 {
            for bytes in [1u64 << bits, (1 << bits) - 1, 999 << (bits % 50)] {
                assert!(shown(bytes).len() <= 5, "{bytes}: {}", shown(bytes));
            }
        }
    }

    #[test]
    fn what_is_shown_can_be_written() {
        for bytes in [1 << 10, 3 << 19, 512 << 20, 4 << 30] {
            assert_eq!(parse(&shown(bytes)), Ok(bytes));
        }
    }

    #[test]
    fn sizes_are_bytes_or_powers_of_1024() {
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("4K"), Ok(4096));
        assert_eq!(parse("1.5m"), Ok(1_572_864));
        assert_eq!(parse("2G"), Ok(2 << 30));
    }

    #[test]
    fn what_is_no_size_is_refused_with_the_text() {
        for wrong in ["", "G", "-1", "1.5", "12Q", "NaNG", "99999999999G", "1e30G"] {
            assert!(
                parse(wrong).unwrap_err().contains(&format!("{wrong:?}")),
                "{wrong}"
            );
        }
    }
}
