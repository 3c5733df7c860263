//! Observation of training runs, tested through its public functions.

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
