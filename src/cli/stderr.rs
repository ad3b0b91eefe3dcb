//! Standard error: where it is closed, or its disk is full, nobody is told, and nothing else ends for that.

/// Writes a line there.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write;
        let _nobody_reads = writeln!(std::io::stderr(), $($text)*);
    }};
}

/// Writes a part of a line there, at once.
macro_rules! say_part {
    ($($text:tt)*) => {{
        use std::io::Write;
        let _nobody_reads = write!(std::io::stderr(), $($text)*);
    }};
}

pub(super) use {say, say_part};
