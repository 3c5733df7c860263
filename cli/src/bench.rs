//! `cargo gpu-tuned bench`.

mod table;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::str::FromStr;
use std::time::{Duration, Instant};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use gpu_tuned_core::atomic_file;
use gpu_tuned_core::{Kernels, Precision, Setting, regular_file};
use gpu_tuned_observe::bench::{
    Begin, Comparison, Feed, Header, Line, Outcome, Planned, Request, Row, Section, Sections, Setup, powers_of_two,
};
use gpu_tuned_observe::plot::MemorySpeedPlot;
use serde::Serialize;

use crate::args::{Common, GpuNames, ProgramArgs, count, no_standard_stream, parse_time, positive, precision};
use crate::error::Error;
use crate::files::{check_replaceable, write};
use crate::output::{Answer, Code, note};
use crate::process::describe;
use crate::program::{Program, Run, counting_feature, set_with};
use crate::project::Project;

#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    header: &'a Header,
    planned: Planned,
    points: Vec<Point<'a>>,
    results: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    svg: Option<String>,
    seconds: f64,
}

#[derive(Serialize)]
struct Point<'a> {
    #[serde(flatten)]
    row: &'a Row,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// Runs the program until every configuration has a result, and reports the results.
///
/// The program appends results line by line, so that an interruption keeps them.
pub(crate) fn run(common: &Common, args: &BenchArgs) -> Result<Answer, Error> {
    if let Some(path) = &args.svg {
        check_replaceable(path, "a picture of this command", MemorySpeedPlot::SVG_BEGIN)?;
        // A file that cannot be written is refused before the long run.
        atomic_file::check(path).map_err(|source| Error::Write { path: path.clone(), source })?;
    }
    let project = Project::read(common)?;
    let results = Results::below(&project.root)?;
    let clock = Instant::now();
    let ignored_bytes = if args.again { results.len()? } else { 0 };
    let drive = Drive { project: &project, common, args, results: &results, ignored_bytes };
    let begun = drive.run_all()?;
    let lost = || Error::Lost { path: results.path().to_owned() };
    let comparison = Comparison::new(&results.since(ignored_bytes)?, &begun).ok_or_else(lost)?;
    let mut notes = Vec::new();
    let svg = args.svg.as_deref().filter(|_| comparison.has_memory());
    if let Some(path) = svg {
        write(path, |file| file.write_all(comparison.plot().svg().as_bytes()))?;
    }
    if args.svg.is_some() && svg.is_none() {
        notes.push(format!("no picture: {}", comparison.without_memory()));
    }
    let seconds = clock.elapsed().as_secs_f64();
    let Comparison { header, planned, rows } = &comparison;
    let report = Report {
        header,
        planned: *planned,
        points: rows.iter().map(|row| Point { row, why: comparison.why_not(row) }).collect(),
        results: results.path().display().to_string(),
        svg: svg.map(|path| path.display().to_string()),
        seconds,
    };
    let is_ok =
        comparison.rows.iter().any(|row| row.outcome.figures().is_some()) && svg.is_some() == args.svg.is_some();
    let code = if is_ok { Code::Ok } else { Code::No };
    Ok(Answer::new(("bench", common.json), &report, || table::text(&comparison, svg, seconds), notes, code))
}

/// Time the program's steps over a range of settings: speed, memory, utilization, and the Pareto frontier
///
/// The program is built in release mode, with the features of named GPUs, and run with `GPU_TUNED_BENCH` set: where it would be measured, it times its steps in
/// one configuration after the other, smaller batches first, and ends. Configurations that need more memory than is free are
/// skipped. One that fails, runs out of memory or kills the process is reported, and the others still run. On a GPU, steps with
/// modules of `gpu_tuned::nn` run with Burn's kernels and with the library's, unless the goal asks for `kernels`. Results are
/// kept in `gpu-tuned.bench.jsonl` beside Cargo.toml: after an interruption, the same command continues.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("bench/help.txt"))]
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
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = positive, requires = "workers")]
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
    fn batches(&self) -> Vec<u64> {
        distinct(self.batch.iter().flat_map(|batches| batches.batches()))
    }

    /// Requested values of activation checkpointing.
    fn checkpointing(&self) -> Vec<bool> {
        distinct(self.checkpointing.iter().copied())
    }

    /// Workers with prefetch depths, in all combinations; without workers there is no prefetch.
    fn feeds(&self) -> Vec<Feed> {
        let depths = if self.prefetch.is_empty() { &[2][..] } else { &self.prefetch };
        let feed = |workers: u64, depth: u64| Feed { workers, prefetch: if workers == 0 { 0 } else { depth } };
        distinct(self.workers.iter().flat_map(|workers| depths.iter().map(move |depth| feed(*workers, *depth))))
    }

    /// The precisions; `None` for the planned one.
    fn precisions(&self) -> Vec<Option<Precision>> {
        let all = distinct(self.precision.iter().copied().map(Some));
        if all.is_empty() { vec![None] } else { all }
    }
}

/// Sorted items, each once.
fn distinct<T: Ord>(items: impl Iterator<Item = T>) -> Vec<T> {
    items.collect::<BTreeSet<_>>().into_iter().collect()
}

fn switch() -> impl TypedValueParser<Value = bool> {
    PossibleValuesParser::new(["off", "on"]).map(|word| word == "on")
}

fn repeats(text: &str) -> Result<Duration, String> {
    let time = parse_time(text)?;
    if time <= Duration::from_hours(1) { Ok(time) } else { Err("expected at most 1h".to_owned()) }
}

struct Drive<'a> {
    project: &'a Project,
    common: &'a Common,
    args: &'a BenchArgs,
    results: &'a Results,
    /// Bytes at the start of the results that are ignored.
    ignored_bytes: u64,
}

const KEPT: &str = "; results are kept, and the same command continues";

/// Steps of one process: precision and kernels are selected once.
struct Steps {
    /// Precision; `None` for the planned one.
    precision: Option<Precision>,
    /// Kernels; `None` for the planned ones.
    kernels: Option<Kernels>,
    /// Micro-batches; empty for those around the planned one.
    batches: Vec<u64>,
}

impl Drive<'_> {
    /// Runs the configurations of all precisions, and the same with other kernels where the program has them. Returns the
    /// configurations with their headers, those of the planned kernels first.
    fn run_all(&self) -> Result<Vec<(Header, Begin)>, Error> {
        let mut begun = Vec::new();
        let mut others = Vec::new();
        for precision in self.args.precisions() {
            let (header, begin) = self.run(&Steps { precision, batches: self.args.batches(), kernels: None })?;
            let record = self.results.since(self.ignored_bytes)?;
            if let Some(kernels) = record.section(&header).and_then(|section| section.other_kernels) {
                let precision = begin.setups.first().map(|setup| setup.precision);
                let batches = distinct(begin.setups.iter().map(|setup| setup.batch));
                others.push((kernels, Steps { precision, batches, kernels: Some(kernels) }));
            }
            begun.push((header, begin));
        }
        for (kernels, steps) in others {
            note(&format!(
                "timing the same steps with kernels = {kernels}, which the planner compares with the planned ones"
            ));
            match self.run(&steps) {
                Ok(run) => begun.push(run),
                Err(Error::ProgramFailed { how, .. }) => {
                    note(&format!("steps with kernels = {kernels} were not timed ({how}): see the error above"));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(begun)
    }

    /// Runs all configurations of one precision with one kind of kernels, and returns these with their header.
    fn run(&self, steps: &Steps) -> Result<(Header, Begin), Error> {
        // Every process makes progress, so that the loop ends.
        loop {
            let before = self.results.len()?;
            let status = self.program(steps)?.run_to_end().map_err(|error| error.leaving(KEPT))?;
            let record = self.results.since(before)?;
            let (Some(section), true) = (record.last(), self.results.len()? >= before) else {
                return Err(self.without_results(status));
            };
            if let Some(begin) = self.after(section, status)? {
                return Ok((section.header.clone(), begin));
            }
        }
    }

    fn program(&self, steps: &Steps) -> Result<Program, Error> {
        let request = Request {
            results: self.results.path().to_owned(),
            precision: steps.precision,
            batches: steps.batches.clone(),
            checkpointing: self.args.checkpointing(),
            feeds: self.args.feeds(),
            seconds: self.args.seconds.as_secs_f64(),
            ignored_bytes: self.ignored_bytes,
        };
        let request = serde_json::to_string(&request).expect("BUG: a request is always JSON");
        let BenchArgs { program: args, targets, .. } = self.args;
        let features = self.project.features_of(targets)?.into_iter().chain(counting_feature(self.project, args)?);
        let run = Run { args, features: features.collect() };
        let program = Program::in_profile(self.project, self.common.color, run, &self.args.profile)?;
        let settings = steps.kernels.map(|kernels| set_with(&format!("{}={kernels}", Setting::Kernels)));
        Ok(program.with([(Request::VARIABLE, request)]).with(settings))
    }

    fn without_results(&self, status: ExitStatus) -> Error {
        match (status.success(), was_interrupted(status)) {
            (true, _) => Error::NothingMeasured { package: self.project.name().to_owned() },
            (false, true) => interrupted(status),
            (false, false) => Error::ProgramFailed { how: describe(status), left: "" },
        }
    }

    /// Returns the start of a process after which every configuration has a result; `None` if another process has to run. The
    /// configuration that killed the process is recorded.
    fn after(&self, section: &Section, status: ExitStatus) -> Result<Option<Begin>, Error> {
        if was_interrupted(status) {
            return Err(interrupted(status));
        }
        let Some(begin) = &section.begin else { return Err(self.without_results(status)) };
        if let Some(setup) = section.open {
            self.results.add(setup, Outcome::Died { how: describe(status) })?;
            return Ok(None);
        }
        let all = self.outcomes(section)?;
        // Temporary failures count only if they are of this process.
        let lasts = |setup: &Setup| all.get(setup).is_some_and(|outcome| !outcome.is_transient());
        if begin.setups.iter().all(|setup| section.outcomes.contains_key(setup) || lasts(setup)) {
            if !status.success() {
                note(&format!("the program failed after its last configuration: {}", describe(status)));
            }
            return Ok(Some(begin.clone()));
        }
        // With temporary failures only, the next process would end in the same way.
        if section.outcomes.values().all(Outcome::is_transient) {
            return Err(self.without_results(status).leaving(KEPT));
        }
        Ok(None)
    }

    /// Results of configurations with the section's header.
    fn outcomes(&self, section: &Section) -> Result<BTreeMap<Setup, Outcome>, Error> {
        let record = self.results.since(self.ignored_bytes)?;
        Ok(record.section(&section.header).map(|section| section.outcomes.clone()).unwrap_or_default())
    }
}

fn interrupted(status: ExitStatus) -> Error {
    Error::Interrupted { how: describe(status), file: Results::NAME }
}

#[cfg(unix)]
fn was_interrupted(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt as _;
    // SIGHUP, SIGINT and SIGTERM, also as exit codes of shells.
    const SIGNALS: [i32; 3] = [1, 2, 15];
    let code = |signal: &i32| status.code() == Some(128 + signal);
    SIGNALS.iter().any(|signal| status.signal() == Some(*signal) || code(signal))
}

#[cfg(not(unix))]
fn was_interrupted(_: ExitStatus) -> bool {
    false
}

struct Results {
    path: PathBuf,
}

impl Results {
    /// Name of the file, beside Cargo.toml.
    const NAME: &'static str = "gpu-tuned.bench.jsonl";

    /// The results in a folder. A file with other content is refused.
    fn below(root: &Path) -> Result<Self, Error> {
        let results = Self { path: root.join(Self::NAME) };
        let bytes = results.bytes()?;
        if !bytes.is_empty() && lines(&bytes).next().is_none() {
            return Err(Error::NoResults { path: results.path });
        }
        Ok(results)
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> Result<u64, Error> {
        Ok(self.bytes()?.len() as u64)
    }

    fn since(&self, byte: u64) -> Result<Sections, Error> {
        let bytes = self.bytes()?;
        let from = usize::try_from(byte).unwrap_or(usize::MAX).min(bytes.len());
        Ok(Sections::from_lines(lines(&bytes[from..])))
    }

    fn add(&self, setup: Setup, outcome: Outcome) -> Result<(), Error> {
        let cut_off = self.bytes()?.last().is_some_and(|last| *last != b'\n');
        let line = serde_json::to_string(&Line::Ended { setup, outcome: Box::new(outcome) });
        let line = line.expect("BUG: a line is always JSON");
        let text = format!("{}{line}\n", if cut_off { "\n" } else { "" });
        let append = || File::options().append(true).open(&self.path)?.write_all(text.as_bytes());
        append().map_err(|source: io::Error| Error::Write { path: self.path.clone(), source })
    }

    fn bytes(&self) -> Result<Vec<u8>, Error> {
        match regular_file::read(&self.path, regular_file::LARGEST) {
            Ok(bytes) => Ok(bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(source) => Err(Error::Read { path: self.path.clone(), source }),
        }
    }
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = Line> {
    bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok())
}
