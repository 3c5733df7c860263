//! The command line of `cargo gpu-tuned export`.

use std::path::PathBuf;

use clap::ValueEnum;
use gpu_tuned_observe::export::Table;

use crate::args::no_standard_stream;

const HELP: &str = "\
Examples:
  cargo gpu-tuned export run.jsonl --tensorboard runs/first
  cargo gpu-tuned export run.jsonl --csv > steps.csv
  cargo gpu-tuned export run.jsonl --csv=gpus -o gpus.csv
  cargo gpu-tuned export run.jsonl --prometheus -o /var/lib/node_exporter/training.prom

Exit codes:
  0  fine
  2  bad input or usage, or a file that cannot be written";

/// Write a recording in a form that other programs read: TensorBoard's event files, CSV, or Prometheus' text format
#[derive(Debug, clap::Args)]
#[command(after_help = HELP, group = clap::ArgGroup::new("form").required(true))]
pub(crate) struct ExportArgs {
    /// The recording that a program or the monitor made, `-` for standard input
    #[arg(value_name = "RECORDING")]
    pub recording: PathBuf,
    /// Write an event file for TensorBoard into this folder
    #[arg(long, value_name = "DIR", group = "form", conflicts_with = "output", value_parser = no_standard_stream())]
    pub tensorboard: Option<PathBuf>,
    /// Write what is known in the end, in Prometheus' text format
    #[arg(long, group = "form")]
    pub prometheus: bool,
    /// Write a table: of steps, GPUs, the host, or the program's own values
    #[arg(long, value_name = "TABLE", group = "form", num_args = 0..=1, require_equals = true, default_missing_value = "steps")]
    pub csv: Option<TableArg>,
    /// The file to write; by default, and with `-`, it is standard output
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// A table of a recording.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum TableArg {
    Steps,
    Gpus,
    Host,
    Values,
}

impl From<TableArg> for Table {
    fn from(table: TableArg) -> Self {
        match table {
            TableArg::Steps => Self::Steps,
            TableArg::Gpus => Self::Gpus,
            TableArg::Host => Self::Host,
            TableArg::Values => Self::Values,
        }
    }
}
