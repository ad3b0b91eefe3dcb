//! The hub against a server of the test's own, which speaks the Simple API or a model hub's protocol and misbehaves as scripted.

mod command;
mod fetching;
mod hub_server;
mod parts;
mod repositories;
mod repository_trouble;
mod searching;
mod shared_cache;
mod storing;
mod trouble;
mod world;
