//! Observation of training runs, tested through its public functions.

mod csv;
mod leak;
mod monitor;
mod prometheus;
mod trace;
