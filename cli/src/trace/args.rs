//! The command line of `cargo gpu-tuned trace`.

use std::path::PathBuf;

use gpu_tuned_observe::trace::Steps;

const HELP: &str = "\
Examples:
  GPU_TUNED_RECORD=run.jsonl cargo run --release --features h200,cuda
  cargo gpu-tuned trace run.jsonl --steps 100..120
  GPU_TUNED_TRACE=steps.json GPU_TUNED_TRACE_STEPS=11..20 cargo run --release --features h200,cuda

The last one needs no recording: the program traces ten steps itself, micro-batch by micro-batch and worker by worker.

Exit codes:
  0  fine
  1  the recording has none of these steps
  2  bad input or usage";

/// Turn a recording into a trace that opens in Perfetto (<https://ui.perfetto.dev>) or in `chrome://tracing`
///
/// Every optimizer step is shown with where the host's time went, and below it what the monitor saw of GPUs and host, if it
/// recorded into the same file, as counters.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct TraceArgs {
    /// The recording that a program or the monitor made, `-` for standard input
    #[arg(value_name = "RECORDING")]
    pub recording: PathBuf,
    /// The file to write, `-` for standard output; by default `run.trace.json` beside `run.jsonl`, and standard output where
    /// standard input is read
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Only these steps, the first and the last included: `100..120`
    #[arg(long, value_name = "FIRST..LAST")]
    pub steps: Option<Steps>,
}
