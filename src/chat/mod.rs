//! Conversations without a screen: a pure `handle(Event) -> Vec<Effect>`, their log, store and export.
