//! Diagnoses of recordings that are made up, and of runs that are simulated.

mod advice;
mod predictions;
mod recorded;
mod runs;
mod scenarios;
mod simulation;
