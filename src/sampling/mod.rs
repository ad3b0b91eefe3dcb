//! From logits to a token: filters, temperature and a key per row.

pub mod chain;
pub mod params;
pub use params::Sampling;
