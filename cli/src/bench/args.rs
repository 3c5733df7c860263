//! Arguments of `bench`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use gpu_tuned_core::Precision;
use gpu_tuned_observe::bench::{Feed, powers_of_two};

use crate::args::{GpuNames, ProgramArgs, count, no_standard_stream, parse_time, precision};

/// Time the program's steps over a range of settings: speed, memory, utilization, and the Pareto frontier
///
/// The program is built in release mode, with the features of named GPUs, and run with `GPU_TUNED_BENCH` set: where it would be measured, it times its steps in
/// one configuration after the other, smaller batches first, and ends. Configurations that need more memory than is free are
/// skipped. One that fails, runs out of memory or kills the process is reported, and the others still run. Results are kept in
/// `gpu-tuned.bench.jsonl` beside Cargo.toml: after an interruption, the same command continues.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("help.txt"))]
pub(crate) struct BenchArgs {
    /// Micro-batches in samples: numbers, and ranges such as 16..512 for powers of two; by default from an eighth of the planned
    /// one to four times the planned one
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub batch: Vec<Batches>,
    /// Precisions: `f32`, `mixed_bf16` (bf16 AMP), `mixed_f16` (fp16 AMP), `bf16_params` (pure bf16); by default the planned one
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = precision)]
    pub precision: Vec<Precision>,
    /// Activation checkpointing: `off`, `on`
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "off,on", value_parser = switch(), hide_possible_values = true)]
    pub checkpointing: Vec<bool>,
    /// Loader workers, which prepare batches with the subject's `host_batch`; timed in addition to steps without a loader
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = count)]
    pub workers: Vec<u64>,
    /// Prefetch depth in batches [default: 2 with workers]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = depth, requires = "workers")]
    pub prefetch: Vec<u64>,
    /// Time for the repeats of a configuration; there are three to nine
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = repeats)]
    pub seconds: Duration,
    /// Run configurations again that have results
    #[arg(long)]
    pub again: bool,
    /// Draw throughput over memory into a file
    #[arg(long, value_name = "FILE", value_parser = no_standard_stream())]
    pub svg: Option<PathBuf>,
    /// Cargo profile to build with
    #[arg(long, value_name = "NAME", default_value = "release")]
    pub profile: String,
    #[command(flatten)]
    pub targets: GpuNames,
    #[command(flatten)]
    pub program: ProgramArgs,
}

fn depth(text: &str) -> Result<u64, String> {
    count(text).ok().filter(|depth| *depth > 0).ok_or_else(|| "expected a whole number from 1, such as 2".to_owned())
}

/// Micro-batches: one item of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Batches {
    One(u64),
    PowersOfTwo { from: u64, to: u64 },
}

impl FromStr for Batches {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| count(text).ok().filter(|batch| *batch > 0);
        let expected = || "expected a number of samples, or a range of them such as 16..512".to_owned();
        let Some((from, to)) = text.split_once("..") else { return number(text).map(Self::One).ok_or_else(expected) };
        let (from, to) = (number(from).ok_or_else(expected)?, number(to.trim_start_matches('=')).ok_or_else(expected)?);
        let range = Self::PowersOfTwo { from, to };
        if range.batches().is_empty() {
            return Err(format!("there is no power of two from {from} to {to}"));
        }
        Ok(range)
    }
}

impl Batches {
    fn batches(self) -> Vec<u64> {
        match self {
            Self::One(batch) => vec![batch],
            Self::PowersOfTwo { from, to } => powers_of_two(from, to),
        }
    }
}

impl BenchArgs {
    /// The micro-batches; none by default.
    pub(super) fn batches(&self) -> Vec<u64> {
        distinct(self.batch.iter().flat_map(|batches| batches.batches()))
    }

    /// Requested values of activation checkpointing.
    pub(super) fn checkpointing(&self) -> Vec<bool> {
        distinct(self.checkpointing.iter().copied())
    }

    /// Workers with prefetch depths, in all combinations; without workers there is no prefetch.
    pub(super) fn feeds(&self) -> Vec<Feed> {
        let depths = if self.prefetch.is_empty() { &[2][..] } else { &self.prefetch };
        let feed = |workers: u64, depth: u64| Feed { workers, prefetch: if workers == 0 { 0 } else { depth } };
        distinct(self.workers.iter().flat_map(|workers| depths.iter().map(move |depth| feed(*workers, *depth))))
    }

    /// The precisions; `None` for the planned one.
    pub(super) fn precisions(&self) -> Vec<Option<Precision>> {
        let all = distinct(self.precision.iter().copied().map(Some));
        if all.is_empty() { vec![None] } else { all }
    }
}

/// Sorted items, each once.
fn distinct<T: Ord>(items: impl Iterator<Item = T>) -> Vec<T> {
    items.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Parses `off` or `on`.
fn switch() -> impl TypedValueParser<Value = bool> {
    PossibleValuesParser::new(["off", "on"]).map(|word| word == "on")
}

/// Parses the time for the repeats of a configuration.
fn repeats(text: &str) -> Result<Duration, String> {
    let time = parse_time(text)?;
    if time <= Duration::from_secs(3600) { Ok(time) } else { Err("expected at most 1h".to_owned()) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use gpu_tuned_core::Precision;

    use super::BenchArgs;

    #[derive(Parser)]
    struct Args {
        #[command(flatten)]
        bench: BenchArgs,
    }

    fn args(words: &[&str]) -> Result<BenchArgs, String> {
        let parsed = Args::try_parse_from(["bench"].iter().chain(words));
        parsed.map(|args| args.bench).map_err(|error| error.to_string())
    }

    #[test]
    fn batches_are_numbers_and_powers_of_two_in_ranges() {
        let batches = |list| args(&["--batch", list]).expect("a list").batches();
        assert_eq!(batches("48,16..70,16"), [16, 32, 48, 64]);
        assert_eq!(batches("16..=64"), [16, 32, 64]);
        assert_eq!(args(&[]).expect("nothing is needed").batches(), [0; 0]);
        for wrong in ["0", "16..", "a", "5..7", "64..16", ""] {
            assert!(args(&["--batch", wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn workers_and_prefetch_depths_are_combined() {
        let feeds = |words: &[&str]| -> Vec<_> {
            let feeds = args(words).expect("lists").feeds();
            feeds.iter().map(|feed| (feed.workers, feed.prefetch)).collect()
        };
        assert_eq!(feeds(&["--workers", "2,0", "--prefetch", "4,1"]), [(0, 0), (2, 1), (2, 4)]);
        assert_eq!(feeds(&["--workers", "3"]), [(3, 2)]);
        assert_eq!(feeds(&[]), []);
        assert!(args(&["--prefetch", "2"]).is_err() && args(&["--workers", "1", "--prefetch", "0"]).is_err());
    }

    #[test]
    fn precisions_are_distinct() {
        let precisions = |words: &[&str]| args(words).map(|args| args.precisions());
        let both = precisions(&["--precision", "bf16_params,f32,f32"]).expect("a list");
        assert_eq!(both, [Some(Precision::F32), Some(Precision::Bf16Params)]);
        assert_eq!(precisions(&[]).expect("nothing is needed"), [None]);
        assert_eq!(precisions(&["--precision", "mixed_bf16"]).expect("one"), [Some(Precision::MixedBf16)]);
        let unknown = precisions(&["--precision", "f8"]).expect_err("there is none such");
        assert!(unknown.contains("expected f32, mixed_bf16 (bf16 AMP), mixed_f16"), "{unknown}");
        assert_eq!(precisions(&["--precision", "fp32, bf16-true"]).expect("a list"), both);
    }

    #[test]
    fn checkpointing_is_tried_both_ways_by_default() {
        let switches = |words: &[&str]| args(words).expect("a list").checkpointing();
        assert_eq!(switches(&[]), [false, true]);
        assert_eq!(switches(&["--checkpointing", "on,off"]), [false, true]);
        assert_eq!(switches(&["--checkpointing", "on"]), [true]);
    }
}
