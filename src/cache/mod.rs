//! Per-layer state of rows and its operations: merge, extend, filter, extract.
