//! Diagnosis of a recorded run: findings with evidence, a change to make, and its predicted effect.
//!
//! [`diagnose`] reads the records of a run ([`recording`](crate::recording)): samples of GPUs and host by the monitor, and
//! steps by the program. Either alone is judged as far as possible; [`Diagnosis::unjudged`] lists the rest.
//!
//! A prediction is computed from the recorded step. The loader works beside the trainer and the device beside the host, so
//! a step takes as long as the slowest of them, plus the time that overlaps with nothing. Micro-batches of other sizes are
//! as fast as the planner's curve predicts. A prediction covers one change alone; [`test()`] compares it with a later run.
//!
//! ```
//! use gpu_tuned_observe::diagnose::{Kind, diagnose};
//! use gpu_tuned_observe::recording::{Record, Run, StepRecord};
//!
//! let mut records = vec![Record::Run(Box::new(Run::new(0.0, 1)))];
//! for number in 1..=100 {
//!     let mut step = StepRecord::new(0.1 * number as f64, number);
//!     (step.seconds, step.samples, step.micro_batches, step.micro_batch) = (0.1, 32, 1, 32);
//!     (step.waited_s, step.loss_s, step.drain_s) = (Some(0.08), Some(0.005), Some(0.015));
//!     records.push(Record::Step(Box::new(step)));
//! }
//!
//! let diagnosis = diagnose(&records);
//! let first = &diagnosis.findings[0];
//! assert_eq!(first.kind, Kind::LoaderBound);
//! let prediction = first.prediction.as_ref().expect("the effect of more workers");
//! assert!((prediction.now - 320.0).abs() < 1e-6 && prediction.then > 1500.0);
//! ```

mod finding;
mod kinds;
mod model;
mod run_stats;
#[cfg(test)]
mod tests;

use serde::Serialize;

use crate::recording::Record;
pub use finding::{Change, Figures, Finding, Kind, Prediction, Quantity, SettingChange, Severity};
use kinds::DiagnosisInput;
use run_stats::{Doubt, MIN_SAMPLES, MIN_STEPS, RunStats};

/// The findings of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Diagnosis {
    /// Findings in the order of their changes.
    pub findings: Vec<Finding>,
    /// The judged part of the recording.
    pub judged: Judged,
    /// Questions that the recording leaves open.
    pub unjudged: Vec<Unjudged>,
}

/// The judged part of a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Judged {
    /// Steps, without warm-up and pauses.
    pub steps: u64,
    /// Steps at the start, in which kernels are compiled and autotuned.
    pub warm_up_steps: u64,
    /// Seconds of the judged steps; without steps, of the recording.
    pub seconds: f64,
    /// Samples per second over all ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples_per_s: Option<f64>,
    /// Part of the time in which kernels ran on the run's GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_busy_share: Option<f64>,
    /// Samples of the run's GPUs.
    pub gpu_samples: u64,
}

/// A question that a recording leaves open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Unjudged {
    /// The question.
    pub what: String,
    /// A way to record the answer.
    pub how: String,
}

impl Unjudged {
    fn new(what: impl Into<String>, how: &str) -> Self {
        Self { what: what.into(), how: how.to_owned() }
    }
}

impl Diagnosis {
    /// Returns the severity of the worst finding.
    pub fn severity(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).min()
    }
}

/// Diagnoses the run of a recording that began last, by the steps of its process.
pub fn diagnose(records: &[Record]) -> Diagnosis {
    let input = DiagnosisInput::new(RunStats::from_records(records));
    let findings: Vec<_> = kinds::ALL.iter().filter_map(|find| find(&input)).collect();
    Diagnosis { judged: judged(&input.stats), unjudged: unjudged(&input.stats), findings: sort(findings) }
}

fn judged(stats: &RunStats<'_>) -> Judged {
    let steps = stats.steps.as_ref().ok();
    Judged {
        steps: steps.map_or(0, |steps| steps.count as u64),
        warm_up_steps: steps.map_or(0, |steps| steps.left_out as u64),
        seconds: Some(stats.span.1 - stats.span.0).filter(|span| span.is_finite()).unwrap_or(0.0),
        samples_per_s: steps.map(run_stats::Steps::samples_per_s),
        gpu_busy_share: stats.busy(),
        gpu_samples: stats.gpus.iter().map(|gpu| gpu.samples.len() as u64).sum(),
    }
}

fn unjudged(stats: &RunStats<'_>) -> Vec<Unjudged> {
    let mut unjudged: Vec<_> = stats.doubt.map(doubted).into_iter().collect();
    match (&stats.steps, stats.run) {
        (Ok(_), Some(_)) => {}
        (Err(_), Some(_)) if matches!(stats.doubt, Some(Doubt::NoOwnSteps { .. })) => {}
        (Ok(_), None) => unjudged.push(Unjudged::new(
            "settings, the planner's curve and the target: the program's start is not in the recording",
            "start the program with GPU_TUNED_RECORD set, and give the whole file",
        )),
        (Err(0), None) => unjudged.push(Unjudged::new(
            "the loader, synchronization, the batch and all settings: the recording has no steps of the program",
            "train with a session of gpu-tuned, for at least one step, and start the program with \
             GPU_TUNED_RECORD=run.jsonl, as `cargo gpu-tuned diagnose` does",
        )),
        (Err(count), _) => unjudged.push(Unjudged::new(
            format!(
                "steps: the recording is too short, with {count} after those that compile and autotune; {MIN_STEPS} are needed"
            ),
            "let it run for longer",
        )),
    }
    let on_gpu = stats.run.is_none_or(|run| run.device.is_gpu);
    if on_gpu && stats.gpus.is_empty() {
        unjudged.push(unwatched(stats));
    }
    if stats.run.is_some_and(|run| run.expected.is_empty()) {
        unjudged.push(Unjudged::new(
            "the batch: there are no predictions for other batches",
            "measure the workload: `cargo gpu-tuned measure`",
        ));
    }
    unjudged
}

fn doubted(doubt: Doubt) -> Unjudged {
    let (what, how) = match doubt {
        Doubt::NoOwnSteps { before: 0, others } => (
            format!("steps: there are none of the last run, and {others} of other processes"),
            "let it run for longer, and give all files that it recorded",
        ),
        Doubt::NoOwnSteps { before, others } => (
            {
                let others = if others > 0 { format!("{others} are of other processes, ") } else { String::new() };
                format!("steps: there are none of the last run: {others}{before} ended before it began")
            },
            "let it run for longer; if it did, the clock was set back after its start: record it again",
        ),
        Doubt::Repeated { from } => (
            format!("the owner of the steps: their numbers repeat, from {from} on, and all are judged as one run"),
            "record each program in a file of its own, and give each file once",
        ),
        Doubt::SetBack { count } => (
            format!("{count} steps of the run: they ended before it began, as the clock was set back"),
            "record it again",
        ),
    };
    Unjudged::new(what, how)
}

fn unwatched(stats: &RunStats<'_>) -> Unjudged {
    let what = "power, temperature, the PCIe link, other processes and the GPU's utilization";
    let of_monitor = stats.start.filter(|start| start.gpus.is_empty() && !start.trouble.is_empty());
    let (why, how) = match (of_monitor, stats.trouble) {
        (Some(start), _) => {
            (format!("there was no GPU to sample: {}", start.trouble.join("; ")), "if there is a GPU, fix that first")
        }
        (None, Some(trouble)) => (format!("the GPU did not answer: {trouble}"), "fix that first"),
        (None, None) => (
            format!("there are fewer than {MIN_SAMPLES} samples during these steps"),
            "run the program under `cargo gpu-tuned diagnose -- COMMAND`, or use `cargo gpu-tuned monitor --record`",
        ),
    };
    Unjudged::new(format!("{what}: {why}"), how)
}

/// Kinds that are left out beside one of those that explain them.
const EXPLAINED: &[(Kind, &[Kind])] = &[
    (Kind::HostBound, &[Kind::BatchTooSmall, Kind::HostSync]),
    (
        Kind::ModelTooSmall,
        &[
            Kind::LoaderBound,
            Kind::SlowStorage,
            Kind::PrefetchMissing,
            Kind::HostSync,
            Kind::SlowLoop,
            Kind::HostBound,
            Kind::BatchTooSmall,
            Kind::LowClocks,
            Kind::LowMemoryClock,
            Kind::PowerCap,
            Kind::ThermalThrottle,
        ],
    ),
    (Kind::NoTf32, &[Kind::NoAmp]),
    (Kind::BatchTooSmall, &[Kind::NoAccumulation]),
];

/// Kinds that keep the device waiting: a faster device gains nothing beside them.
const STALLS: &[Kind] = &[Kind::LoaderBound, Kind::SlowStorage, Kind::PrefetchMissing, Kind::HostSync, Kind::SlowLoop];

/// Kinds whose change makes the device faster.
const OF_DEVICE: &[Kind] = &[
    Kind::HostBound,
    Kind::BatchTooSmall,
    Kind::NoAmp,
    Kind::NoTf32,
    Kind::NoLibrary,
    Kind::NeedlessCheckpointing,
    Kind::PowerCap,
    Kind::ThermalThrottle,
    Kind::PcieReduced,
];

/// Faults of the machine and of the build, which every other figure of a recording suffers from.
const FAULTS: &[Kind] = &[Kind::NoCuda, Kind::LowClocks, Kind::LowMemoryClock, Kind::PowerCap, Kind::ThermalThrottle];

/// Gain that counts as none.
const NO_GAIN: f64 = 1.02;

/// Sorts findings into the order of their changes: those that end the run, critical faults of machine and build, then by
/// severity, then by gain.
fn sort(mut findings: Vec<Finding>) -> Vec<Finding> {
    let kinds: Vec<Kind> = findings.iter().map(|finding| finding.kind).collect();
    findings.retain(|finding| {
        let explains = EXPLAINED.iter().filter(|(kind, _)| *kind == finding.kind).flat_map(|(_, by)| *by);
        !explains.into_iter().any(|by| kinds.contains(by))
    });
    findings.sort_by(|a, b| {
        let is_worse = ends(b).cmp(&ends(a)).then(is_fault(b).cmp(&is_fault(a)));
        is_worse.then(a.severity.cmp(&b.severity)).then(b.gain().total_cmp(&a.gain()))
    });
    let stalls = |finding: &Finding| STALLS.contains(&finding.kind) && finding.gain() > NO_GAIN;
    let Some(first) = findings.iter().find(|finding| stalls(finding)).map(|finding| finding.kind) else {
        return findings;
    };
    let last = findings.iter().rposition(stalls).unwrap_or(0);
    for finding in findings.iter_mut().filter(|finding| OF_DEVICE.contains(&finding.kind) && !is_fault(finding)) {
        finding.behind = Some(first);
    }
    let (mut before, after): (Vec<_>, Vec<_>) =
        findings.into_iter().enumerate().partition(|(index, finding)| *index <= last && finding.behind.is_none());
    before.extend(after);
    before.into_iter().map(|(_, finding)| finding).collect()
}

/// Returns true for a fault that comes first: its change is one command, and other predictions hold after it.
fn is_fault(finding: &Finding) -> bool {
    finding.severity == Severity::Critical && FAULTS.contains(&finding.kind)
}

fn ends(finding: &Finding) -> bool {
    let fails = |quantity| matches!(quantity, Quantity::FailsAtStep | Quantity::FailsAfterS);
    finding.severity == Severity::Critical
        && finding.prediction.as_ref().is_some_and(|prediction| fails(prediction.quantity))
}

/// A prediction and its measured outcome.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Tested {
    /// The kind of the finding.
    pub kind: Kind,
    /// The prediction.
    pub prediction: Prediction,
    /// The measured amount; `None` if the later run did not record it.
    pub got: Option<f64>,
    /// The outcome.
    pub outcome: Outcome,
}

/// The outcome of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// Within a quarter.
    Hit,
    /// Not within a quarter.
    Miss,
    /// The finding is still there: the change was not made.
    StillThere,
    /// The finding is gone, and so is one before it: the effect is not of one change.
    WithAnother,
    /// The later run did not record it.
    Unknown,
}

/// Measures a quantity in a recording as predictions do: without warm-up and pauses.
pub fn measured(quantity: Quantity, records: &[Record]) -> Option<f64> {
    let steps = RunStats::from_records(records).steps.ok()?;
    match quantity {
        Quantity::SamplesPerS => Some(steps.samples_per_s()),
        Quantity::MemoryBytes => {
            steps.settled.iter().rev().find_map(|step| step.reserved_bytes).map(|bytes| bytes as f64)
        }
        Quantity::FailsAtStep => steps.first_rescue.map(|step| step as f64),
        Quantity::FailsAfterS => None,
    }
}

/// Compares a finding's prediction with a run in which its change alone was made.
pub fn test(finding: &Finding, after: &[Record]) -> Option<Tested> {
    let prediction = finding.prediction.clone()?;
    let got = measured(prediction.quantity, after);
    let outcome = match got {
        Some(got) if prediction.is_hit_by(got) => Outcome::Hit,
        Some(_) => Outcome::Miss,
        None => Outcome::Unknown,
    };
    Some(Tested { kind: finding.kind, prediction, got, outcome })
}

/// Compares the predictions of a diagnosis with a later run. Findings that are gone are tested; of several, the first, as
/// its change comes first. A predicted failure is compared with a run that went on without the change.
pub fn compare(before: &Diagnosis, after: &[Record]) -> Vec<Tested> {
    let later = diagnose(after);
    let is_there = |kind: Kind| later.findings.iter().any(|finding| finding.kind == kind);
    // Quantities that an earlier change has moved; a finding without a prediction counts as one of speed.
    let mut moved: Vec<Quantity> = Vec::new();
    let mut tested = |finding: &Finding| {
        let quantity = finding.prediction.as_ref().map_or(Quantity::SamplesPerS, |prediction| prediction.quantity);
        let is_gone = !is_there(finding.kind);
        let is_first = !moved.contains(&quantity);
        if is_gone {
            moved.push(quantity);
        }
        let tested = test(finding, after)?;
        let outcome = match quantity {
            Quantity::FailsAtStep | Quantity::FailsAfterS => tested.outcome,
            _ if !is_gone => Outcome::StillThere,
            _ if !is_first => Outcome::WithAnother,
            _ => tested.outcome,
        };
        Some(Tested { outcome, ..tested })
    };
    before.findings.iter().filter_map(&mut tested).collect()
}
