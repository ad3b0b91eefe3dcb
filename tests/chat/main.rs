//! Conversations without a screen: transitions, properties, the store, the writer.

mod as_typed;
mod branches;
mod comparing;
mod exporting;
mod going_on;
mod hold;
mod listing;
mod notices;
mod panes;
mod private;
mod properties;
mod rig;
mod room;
mod searching;
mod shared;
mod store;
mod stored;
mod thinking;
mod transitions;
mod writer;
