//! Tests of groups.

mod faults;
mod joining;
mod plain;
mod processes;
mod simulation;
mod strangers;
mod support;
