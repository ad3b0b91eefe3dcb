//! Finds, downloads, verifies and lists models.
