//! Diagnoses of made-up recordings and of simulated runs.

mod advice;
mod cases;
mod predictions;
mod recorded;
mod runs;
mod scenarios;
mod simulated_recording;
mod simulation;
