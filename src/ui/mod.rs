//! The terminal: application loop, layout, input and views; draws from `&State`.
