//! `cargo gpu-tuned`, run on small packages.

mod bench;
mod book;
mod check;
mod diagnose;
#[cfg(unix)]
mod diagnose_program;
mod explain;
mod help;
mod init;
mod init_checkout;
mod init_program;
mod measure;
mod monitor;
mod optimize;
mod packages;
mod plan;
mod plan_input;
mod project;
mod recordings;
mod report;
mod standard_streams;
mod structs;
mod targets;
mod warm;
