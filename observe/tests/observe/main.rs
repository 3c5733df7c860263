//! Observation of training runs, tested through its public functions.

mod csv;
mod diagnose;
mod leak;
mod monitor;
mod prometheus;
mod recording;
mod summary;
mod trace;
