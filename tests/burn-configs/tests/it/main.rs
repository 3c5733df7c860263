//! Configs of Burn's examples, before and after they were annotated.

mod changed_lines;
mod configs;
mod workloads;
