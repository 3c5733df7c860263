//! Tests of edits; `cargo gpu-tuned init` has those of whole programs.

mod build_scripts;
mod line_endings;
mod names;
mod releases;
mod toml_entries;
