//! `cargo gpu-tuned`, run on small packages.

mod bench;
mod book;
#[cfg(unix)]
mod browser;
#[cfg(unix)]
mod cases;
mod check;
mod described;
mod diagnose;
#[cfg(unix)]
mod diagnose_program;
mod documents;
mod explain;
mod generate;
mod help;
mod here;
mod init;
mod init_compiles;
mod init_here;
mod init_layouts;
mod init_sources;
#[cfg(unix)]
mod launch;
#[cfg(unix)]
mod launch_end;
mod manifest;
mod measure;
mod monitor;
mod monitor_end;
mod optimize;
mod plan;
mod plan_input;
mod project;
mod recorded_run;
mod recordings;
mod report;
#[cfg(unix)]
mod serve;
mod standard_streams;
#[cfg(unix)]
mod started;
mod targets;
mod warm;
