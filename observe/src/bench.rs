//! Requests and results of a bench run, which times steps over a range of settings.
//!
//! `cargo gpu-tuned bench` runs the program with a [`Request`] in its environment. The program appends a [`Line`] of JSON to
//! the file of results when a setup starts and when it ends. A setup that started and did not end is where the process died.
//! Both sides read the lines as [`Sections`].

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use gpu_tuned_core::device::DeviceKind;
use gpu_tuned_core::measured::Mode;
use gpu_tuned_core::workload::WorkloadSpec;
use gpu_tuned_core::{Bytes, Kernels, Precision, grouped, three_digits};
use serde::{Deserialize, Serialize};

use crate::plot::{Limit, Mark, MarkKind, MemorySpeedPlot, ModeLine, Point};
use crate::stats::median;

/// A request to a program, for one precision: a process selects the precision of a device once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// File of results that lines are appended to.
    pub results: PathBuf,
    /// Precision; `None` for the planned one.
    pub precision: Option<Precision>,
    /// Micro-batches; empty for [those around the planned one](Self::around).
    pub batches: Vec<u64>,
    /// Values of activation checkpointing: off, on, or both.
    pub checkpointing: Vec<bool>,
    /// Feeds, each in addition to none.
    pub feeds: Vec<Feed>,
    /// Seconds for the repeats of a setup.
    pub seconds: f64,
    /// Bytes at the begin of the file of results that are ignored: their setups run again.
    pub ignored_bytes: u64,
}

impl Request {
    /// Environment variable with a request, as JSON.
    pub const VARIABLE: &'static str = "GPU_TUNED_BENCH";

    /// Returns the powers of two from an eighth to four times the planned micro-batch, and that itself, up to `largest`.
    pub fn around(planned: u64, largest: u64) -> Vec<u64> {
        let up_to = planned.saturating_mul(4).min(largest);
        let mut batches = powers_of_two(planned.div_ceil(8), up_to);
        batches.push(planned.min(largest));
        batches.sort_unstable();
        batches.dedup();
        batches
    }

    /// Returns the setups in their order: small batches first, since they predict larger ones, and each without a feed first.
    pub fn setups(&self, precision: Precision, batches: &[u64]) -> Vec<Setup> {
        let mut batches = batches.to_vec();
        batches.sort_unstable();
        batches.dedup();
        let mut setups = Vec::new();
        for &checkpointing in &self.checkpointing {
            for &batch in &batches {
                let unfed = Setup { precision, checkpointing, batch, feed: None };
                setups.push(unfed);
                setups.extend(self.feeds.iter().map(|feed| Setup { feed: Some(*feed), ..unfed }));
            }
        }
        setups
    }
}

/// Returns the powers of two between two numbers, both included.
pub fn powers_of_two(from: u64, to: u64) -> Vec<u64> {
    (0..u64::BITS).map(|power| 1 << power).filter(|batch| (from..=to).contains(batch)).collect()
}

/// A configuration for optimizer steps of one micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Setup {
    /// Precision.
    pub precision: Precision,
    /// Activation checkpointing is on.
    pub checkpointing: bool,
    /// Samples of the micro-batch.
    pub batch: u64,
    /// Loader that prepares the batches; `None` if the batch is on the device all along.
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    pub feed: Option<Feed>,
}

/// A loader that prepares batches during the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Feed {
    /// Workers; without workers, the training thread prepares each batch when needed.
    pub workers: u64,
    /// Prefetched batches.
    pub prefetch: u64,
}

impl Setup {
    /// Precision and checkpointing.
    pub const fn mode(&self) -> Mode {
        Mode::new(self.precision, self.checkpointing)
    }

    /// Returns the setup without a feed.
    #[must_use]
    pub const fn unfed(self) -> Self {
        Self { feed: None, ..self }
    }
}

/// Formats as `f32-checkpointed, batch 32, 2 workers, prefetch 2`.
impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, batch {}", self.mode(), self.batch)?;
        let Some(Feed { workers, prefetch }) = self.feed else { return Ok(()) };
        let s = if workers == 1 { "" } else { "s" };
        write!(f, ", {workers} worker{s}, prefetch {prefetch}")
    }
}

/// A line of a file of results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// Header of all lines up to the next header.
    Header(Box<Header>),
    /// A process starts.
    Begin(Begin),
    /// A setup starts.
    Started(Setup),
    /// A setup ended.
    Ended {
        /// The setup.
        #[serde(flatten)]
        setup: Setup,
        /// Its outcome.
        outcome: Box<Outcome>,
    },
    /// Kernels that can compute these steps, too. A process selects its kernels once.
    OtherKernels(Kernels),
}

/// Most sections of a file that are kept, so that reading takes linear time.
const MAX_SECTIONS: usize = 1000;

/// The newest results of a file, at most those of the last thousand sections.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sections {
    /// Sections by header, that of the last line last.
    sections: Vec<Section>,
}

/// Results below a header.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// The header.
    pub header: Header,
    /// Start of the last process.
    pub begin: Option<Begin>,
    /// Last outcome of each setup.
    pub outcomes: BTreeMap<Setup, Outcome>,
    /// Setup that started last and has not ended.
    pub open: Option<Setup>,
    /// Kernels that can compute the same steps, too.
    pub other_kernels: Option<Kernels>,
}

impl Sections {
    /// Collects lines. Lines before the first header are ignored.
    pub fn from_lines(lines: impl IntoIterator<Item = Line>) -> Self {
        let mut sections = Self::default();
        lines.into_iter().for_each(|line| sections.add(line));
        sections
    }

    fn add(&mut self, line: Line) {
        match (line, self.sections.last_mut()) {
            (Line::Header(header), _) => self.select(*header),
            (Line::Begin(begin), Some(section)) => (section.begin, section.open) = (Some(begin), None),
            (Line::Started(setup), Some(section)) => section.open = Some(setup),
            (Line::Ended { setup, outcome }, Some(section)) => {
                section.open = None;
                section.outcomes.insert(setup, *outcome);
            }
            (Line::OtherKernels(kernels), Some(section)) => section.other_kernels = Some(kernels),
            (_, None) => {}
        }
    }

    fn select(&mut self, header: Header) {
        let known = self.sections.iter().position(|section| section.header == header);
        let section = known.map(|at| self.sections.remove(at));
        let new = || Section { header, begin: None, outcomes: BTreeMap::new(), open: None, other_kernels: None };
        self.sections.push(section.unwrap_or_else(new));
        if self.sections.len() > MAX_SECTIONS {
            self.sections.remove(0);
        }
    }

    /// Returns the section of the last line.
    pub fn last(&self) -> Option<&Section> {
        self.sections.last()
    }

    /// Returns the section below a header.
    pub fn section(&self, header: &Header) -> Option<&Section> {
        self.sections.iter().find(|section| section.header == *header)
    }
}

/// Program, device and versions that results belong to. Results below different headers are not comparable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the format: [`FORMAT`](Self::FORMAT).
    pub format: u32,
    /// Name of the workload.
    pub workload: String,
    /// The driver's name of the device.
    pub device: String,
    /// GPU or CPU.
    pub kind: DeviceKind,
    /// Memory of the device.
    pub memory_bytes: Bytes,
    /// Streaming multiprocessors; 0 for a CPU.
    pub sm_count: u32,
    /// Training threads; `None` for a GPU.
    pub cpu_threads: Option<u64>,
    /// Version of the driver; `None` for a CPU.
    pub driver: Option<String>,
    /// Version of Burn.
    pub burn: String,
    /// Version of `CubeCL`; `None` for a CPU.
    pub cubecl: Option<String>,
    /// Trainable parameters.
    pub parameters: u64,
    /// Hash of the names and shapes of the model's parameters.
    pub shape: String,
    /// The model's description, with dimensions that no parameter has, such as the sequence length.
    pub described: WorkloadSpec,
    /// The build checks its arithmetic, as the profile `dev` does.
    pub debug: bool,
    /// Memory is counted, which takes another allocator on a CPU.
    pub counts_memory: bool,
    /// Steps in fp32 ran without TF32 on a device that has TF32.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub full_f32: bool,
    /// Kernels of the steps.
    #[serde(default, skip_serializing_if = "gpu_tuned_core::sparse::Sparse::is_absent")]
    pub kernels: Kernels,
}

impl Header {
    /// The present version of the format.
    pub const FORMAT: u32 = 1;
}

/// The start of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Begin {
    /// Planned settings of the program.
    pub planned: Planned,
    /// Requested setups in their order, recorded ones included.
    pub setups: Vec<Setup>,
}

/// Planned settings of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// Precision.
    pub precision: Precision,
    /// Activation checkpointing is on.
    pub checkpointing: bool,
    /// Samples of a micro-batch.
    pub batch: u64,
    /// Loader workers.
    pub workers: u64,
    /// Prefetched batches.
    pub prefetch: u64,
    /// Micro-batches of a step.
    pub accumulation: u64,
    /// Kernels of the steps.
    #[serde(default, skip_serializing_if = "gpu_tuned_core::sparse::Sparse::is_absent")]
    pub kernels: Kernels,
}

impl Planned {
    /// Returns whether the setup with these kernels has the plan's steps, however its batches are prepared.
    pub fn matches(&self, setup: &Setup, kernels: Kernels) -> bool {
        let planned = (self.precision, self.checkpointing, self.batch, self.kernels);
        planned == (setup.precision, setup.checkpointing, setup.batch, kernels)
    }
}

gpu_tuned_core::sparse! {
    /// Measured figures of a setup.
    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
    pub struct Figures {
        /// Samples per second of whole steps, over the repeats.
        pub samples_per_s: Interval,
        /// Number of repeats.
        pub repeats: u64,
        /// Median milliseconds of a whole step, with overlapping parts.
        pub step_ms: f64,
        /// Parts of the step, each timed with a wait: their sum exceeds the step if the host runs ahead of the device.
        #[serde(flatten)]
        pub phases: Option<Phases>,
        /// Percent of the time in which a step waits for its batch, for batches prepared meanwhile.
        pub waiting_percent: Option<f64>,
        /// Bytes reserved by a GPU's pools after the steps; on a CPU, the peak of allocations. `None` if nothing counts.
        pub reserved_bytes: Option<Bytes>,
        /// Bytes in use after the forward pass.
        pub in_use_bytes: Option<Bytes>,
        /// Reserved bytes that a dry run predicted.
        pub predicted_bytes: Option<Bytes>,
        /// GPU utilization by all processes, in percent: the mean of the driver's samples.
        pub gpu_percent: Option<f64>,
        /// CPU time of the process in percent of all cores that it may use.
        pub cpu_percent: Option<f64>,
        /// The loss after the steps is finite; the weights are, where steps return no loss.
        pub is_finite: bool,
    }
}

/// Median and range of some repeats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The median.
    pub median: f64,
    /// The minimum.
    pub least: f64,
    /// The maximum.
    pub most: f64,
}

/// Median times of the parts of a step, each timed with a wait.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phases {
    /// Milliseconds of the forward pass.
    pub forward_ms: f64,
    /// Milliseconds of the backward pass.
    pub backward_ms: f64,
    /// Milliseconds of the optimizer.
    pub optimizer_ms: f64,
}

/// The outcome of a setup.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the messages describe the fields")]
pub enum Outcome {
    /// Measured figures.
    Measured(Figures),
    /// Not run: by smaller batches or a dry run, it needs more memory than is available.
    DoesNotFit { needed_bytes: Bytes, available_bytes: Bytes },
    /// Not run: a step has fewer samples.
    TooLarge {
        /// Samples of a step on one rank.
        samples: u64,
    },
    /// Not run: the program does not describe how batches are prepared.
    Unfed,
    /// Out of memory.
    OutOfMemory { message: String },
    /// The program panicked, or a step failed.
    Failed { message: String },
    /// The process died.
    Died { how: String },
}

impl Interval {
    /// Computes median and range; `None` without figures.
    pub fn from_figures(figures: &[f64]) -> Option<Self> {
        let all = || figures.iter().copied();
        Some(Self { median: median(all())?, least: all().reduce(f64::min)?, most: all().reduce(f64::max)? })
    }
}

impl Outcome {
    /// Returns the figures of a measured setup.
    pub const fn figures(&self) -> Option<&Figures> {
        if let Self::Measured(figures) = self { Some(figures) } else { None }
    }

    /// Returns whether the outcome depends on the moment, so that the setup is tried again.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::DoesNotFit { .. } | Self::TooLarge { .. } | Self::Unfed)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measured(figures) => write!(f, "{} samples/s", three_digits(figures.samples_per_s.median)),
            Self::DoesNotFit { needed_bytes, available_bytes } => {
                write!(f, "does not fit: needs {needed_bytes} of {available_bytes}")
            }
            Self::TooLarge { samples } => write!(f, "not run: a step has {} samples", grouped(*samples)),
            Self::Unfed => f.write_str("not run: the program has no `host_batch` to prepare batches with"),
            Self::OutOfMemory { message } => write!(f, "out of memory: {}", first_line(message)),
            Self::Failed { message } => write!(f, "failed: {}", first_line(message)),
            Self::Died { how } => write!(f, "the process died: {how}"),
        }
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Marks the points on the Pareto frontier of memory and speed: no other point is as fast with less memory, or faster with
/// no more. Equal points are all marked.
pub fn frontier(points: &[(Bytes, f64)]) -> Vec<bool> {
    let beats = |a: &(Bytes, f64), b: &(Bytes, f64)| a.0 <= b.0 && a.1 >= b.1 && (a.0 < b.0 || a.1 > b.1);
    points.iter().map(|point| !points.iter().any(|other| beats(other, point))).collect()
}

/// Results of all configurations of a bench.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Header of all rows, without the fields that rows have themselves.
    pub header: Header,
    /// The planned settings.
    pub planned: Planned,
    /// Rows in the order of the runs.
    pub rows: Vec<Row>,
}

/// One configuration with its result.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The configuration.
    #[serde(flatten)]
    pub setup: Setup,
    /// Its result.
    pub outcome: Outcome,
    /// True on the Pareto frontier of throughput and memory.
    pub frontier: bool,
    /// True for the planned settings.
    pub planned: bool,
    /// True for fp32 without TF32 on a device with TF32.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub full_f32: bool,
    /// Kernels of the steps.
    #[serde(skip_serializing_if = "gpu_tuned_core::sparse::Sparse::is_absent")]
    pub kernels: Kernels,
}

impl Row {
    /// Precision, checkpointing and kernels.
    pub const fn mode(&self) -> Mode {
        Mode { full_f32: self.full_f32, kernels: self.kernels, ..self.setup.mode() }
    }

    /// Name without the loader: `full_f32, batch 32`.
    pub fn name(&self) -> String {
        format!("{}, batch {}", self.mode(), self.setup.batch)
    }
}

impl Comparison {
    /// Collects the results of the configurations that were begun, each under the header of its precision and kernels. The
    /// first program has the plan. Returns `None` if a result is missing.
    pub fn new(sections: &Sections, begun: &[(Header, Begin)]) -> Option<Self> {
        let (header, Begin { planned, .. }) = begun.first()?;
        let row = |header: &Header, setup: &Setup| {
            let outcome = sections.section(header)?.outcomes.get(setup)?.clone();
            let Header { full_f32, kernels, .. } = *header;
            let planned = planned.matches(setup, kernels);
            Some(Row { setup: *setup, outcome, frontier: false, planned, full_f32, kernels })
        };
        let rows = begun.iter().flat_map(|(header, begin)| begin.setups.iter().map(move |setup| row(header, setup)));
        let mut rows: Vec<_> = rows.collect::<Option<_>>()?;
        mark_frontier(&mut rows);
        // Rows have their own fields for TF32 and kernels.
        let header = Header { full_f32: false, kernels: Kernels::Burn, ..header.clone() };
        Some(Self { header, planned: *planned, rows })
    }

    /// Measured configurations without a loader.
    pub fn alone(&self) -> impl Iterator<Item = (&Row, &Figures)> {
        self.rows.iter().filter(|row| row.setup.feed.is_none()).filter_map(|row| Some((row, row.outcome.figures()?)))
    }

    /// Reason why a row has no figures.
    pub fn why_not(&self, row: &Row) -> Option<String> {
        if row.outcome.figures().is_some() {
            return None;
        }
        // A configuration that fails without a loader is not run with one.
        let fails_alone = |other: &Row| other.setup == row.setup.unfed() && other.outcome == row.outcome;
        let is_copied = row.setup.feed.is_some() && self.rows.iter().any(fails_alone);
        let is_failure = is_copied && !row.outcome.is_transient();
        let before = if is_failure { "not run, as its steps fail without a loader: " } else { "" };
        Some(format!("{before}{}", row.outcome))
    }

    /// Returns true if any row has memory to draw.
    pub fn has_memory(&self) -> bool {
        self.rows.iter().any(|row| coordinates(row).is_some())
    }

    /// Reason why there is nothing to draw.
    pub fn without_memory(&self) -> String {
        match (self.header.counts_memory, self.header.kind) {
            (false, DeviceKind::Cpu) => {
                "nothing counts the memory of this CPU: feature `counting-allocator` of gpu-tuned does".to_owned()
            }
            _ => "nothing ran whose memory is known".to_owned(),
        }
    }

    /// Plots throughput over memory, a line for each mode.
    pub fn plot(&self) -> MemorySpeedPlot {
        let header = &self.header;
        let mut lines: BTreeMap<Mode, Vec<Point>> = BTreeMap::new();
        for (row, figures) in self.alone() {
            if let Some((memory, samples_per_s)) = coordinates(row) {
                let interval = Some((figures.samples_per_s.least, figures.samples_per_s.most));
                let point = Point { batch: row.setup.batch, memory, samples_per_s, interval };
                lines.entry(row.mode()).or_default().push(point);
            }
        }
        let mut frontier: Vec<_> = self.rows.iter().filter(|row| row.frontier).filter_map(coordinates).collect();
        frontier.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let is_gpu = header.kind == DeviceKind::Gpu;
        let limit = Limit { memory: header.memory_bytes, label: format!("{:.0} GiB", header.memory_bytes.gib()) };
        MemorySpeedPlot {
            title: format!("{} on {}", header.workload, header.device),
            note: if is_gpu { "dotted: the GPU's memory; grey: Pareto frontier" } else { "grey: Pareto frontier" }
                .to_owned(),
            lines: lines.into_iter().map(|(mode, points)| ModeLine { mode, points }).collect(),
            limits: if is_gpu { vec![limit] } else { Vec::new() },
            marks: self.marks(),
            frontier,
            ..MemorySpeedPlot::default()
        }
    }

    /// The plan, and what others would choose in its precision.
    fn marks(&self) -> Vec<Mark> {
        let mark = |kind, row: &Row| {
            let (memory, samples_per_s) = coordinates(row)?;
            let title = format!("{kind}: {}, {} samples/s", row.name(), three_digits(samples_per_s));
            Some(Mark { kind, batch: row.setup.batch, memory, samples_per_s, until: Vec::new(), title })
        };
        let planned = || self.rows.iter().filter(|row| row.planned);
        let mode = planned().next().map(|row| Mode { checkpointing: false, ..row.mode() });
        let same = || self.rows.iter().filter(|row| Some(row.mode()) == mode && row.setup.feed.is_none());
        let ran = || same().filter(|row| coordinates(row).is_some());
        let misfits = |row: &&Row| matches!(row.outcome, Outcome::DoesNotFit { .. } | Outcome::OutOfMemory { .. });
        // Without a larger batch that failed, the largest is only the largest of the request.
        let largest = same().find(misfits).and_then(|_| ran().max_by_key(|row| row.setup.batch));
        let fixed = ran().find(|row| row.setup.batch == MarkKind::FIXED_BATCH);
        let of_plan = planned().filter_map(|row| mark(MarkKind::Planned, row));
        let of_largest = largest.and_then(|row| mark(MarkKind::Largest, row));
        let of_fixed = fixed.and_then(|row| mark(MarkKind::Fixed, row));
        of_plan.chain(of_largest).chain(of_fixed).collect()
    }
}

/// Memory and throughput of a row without a loader.
fn coordinates(row: &Row) -> Option<(Bytes, f64)> {
    let figures = row.outcome.figures().filter(|_| row.setup.feed.is_none())?;
    Some((figures.reserved_bytes?, figures.samples_per_s.median))
}

fn mark_frontier(rows: &mut [Row]) {
    let (at, points): (Vec<usize>, Vec<_>) =
        rows.iter().enumerate().filter_map(|(at, row)| Some((at, coordinates(row)?))).unzip();
    for (at, is_best) in at.into_iter().zip(frontier(&points)) {
        rows[at].frontier = is_best;
    }
}
