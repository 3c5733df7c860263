//! Observation of training runs, tested through its public functions.

#![allow(clippy::float_cmp, clippy::assigning_clones, reason = "expected values are exact, and tests need no speed")]

mod bench;
mod csv;
mod diagnose;
mod leak;
mod monitor;
mod plot;
mod prometheus;
mod recording;
mod summary;
mod trace;
