//! The hub against a server of the test's own, which speaks the Simple API and misbehaves as scripted.

mod command;
mod fetching;
mod parts;
mod searching;
mod storing;
mod trouble;
mod world;
