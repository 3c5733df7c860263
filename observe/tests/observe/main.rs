//! Observation of training runs, tested through its public functions.

mod leak;
