//! Conversations without a screen: transitions, properties, the store, the writer.

mod branches;
mod hold;
mod panes;
mod properties;
mod rig;
mod store;
mod stored;
mod thinking;
mod transitions;
mod writer;
