//! From logits to a token: filters, temperature and a key per row.

pub mod params;
pub mod reference;
pub use params::Sampling;
