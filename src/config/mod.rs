//! Settings: defaults, then file, then environment, then flags.

pub mod paths;
