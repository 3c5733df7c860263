//! What holds a training run up: findings from its recording, each with its evidence, a change, and what that will bring.
//!
//! [`diagnose`] reads the records of a run ([`recording`](crate::recording)): what the monitor saw of GPUs and host, and what
//! the program says of its steps. Either alone is judged as far as it goes; [`Diagnosis::unjudged`] says what is missing.
//!
//! A prediction is computed from the recorded step: the loader works beside the trainer and the device beside the host, so
//! that a step takes as long as the slowest of them and what nobody overlaps; micro-batches of other sizes are taken to be
//! as fast as the planner's curve says. It is of the one change alone. [`test()`] holds it against a later recording.
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
//! let prediction = first.prediction.as_ref().expect("what more workers bring");
//! assert!((prediction.now - 320.0).abs() < 1e-6 && prediction.then > 1500.0);
//! ```

mod compare;
mod curve;
mod finding;
mod kinds;
mod model;
mod order;
mod run_stats;
#[cfg(test)]
mod tests;
mod words;

use crate::recording::Record;
use serde::Serialize;

pub use compare::{Outcome, Tested, compare, measured, test};
pub use finding::{Change, Figures, Finding, Kind, Prediction, Quantity, SettingChange, Severity};
use kinds::DiagnosisInput;
use run_stats::{Doubt, LEAST_SAMPLES, LEAST_STEPS, RunStats};

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Diagnosis {
    /// In the order in which they are mended.
    pub findings: Vec<Finding>,
    /// What was judged.
    pub judged: Judged,
    /// What could not be judged.
    pub unjudged: Vec<Unjudged>,
}

/// What a diagnosis rests on.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Judged {
    /// Steps, without those left out.
    pub steps: u64,
    /// Steps at the start, in which kernels are compiled and tuned.
    pub warm_up_steps: u64,
    /// The time that they took; without steps, the time of the recording.
    pub seconds: f64,
    /// Samples per second over all ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples_per_s: Option<f64>,
    /// The part of the time in which kernels ran on the run's GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_busy_share: Option<f64>,
    /// Looks at its GPUs.
    pub gpu_samples: u64,
}

/// What could not be judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Unjudged {
    /// What.
    pub what: String,
    /// How to have it judged.
    pub how: String,
}

impl Diagnosis {
    /// The worst of its findings.
    pub fn severity(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).min()
    }
}

/// Looks for what holds a run up: of those in a recording the one that began last, with the steps of its process.
pub fn diagnose(records: &[Record]) -> Diagnosis {
    let input = DiagnosisInput::new(RunStats::from_records(records));
    let findings: Vec<_> = kinds::ALL.iter().filter_map(|find| find(&input)).collect();
    Diagnosis { judged: judged(&input), unjudged: unjudged(&input), findings: order::order(findings) }
}

fn judged(input: &DiagnosisInput<'_>) -> Judged {
    let stats = &input.stats;
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

/// What is missing, and how to get it.
fn unjudged(input: &DiagnosisInput<'_>) -> Vec<Unjudged> {
    let stats = &input.stats;
    let missing = |what: String, how: &str| Unjudged { what, how: how.to_owned() };
    let mut unjudged = Vec::new();
    unjudged.extend(stats.doubt.map(doubted));
    match (&stats.steps, stats.run) {
        (Ok(_), Some(_)) => {}
        (Err(_), Some(_)) if matches!(stats.doubt, Some(Doubt::NoneIsIts { .. })) => {}
        (Ok(_), None) => unjudged.push(missing(
            "settings, the planner's curve and the target: the program's start is not in the recording".to_owned(),
            "start the program with GPU_TUNED_RECORD set, and give the whole file",
        )),
        (Err(0), None) => unjudged.push(missing(
            "the loader, synchronisation, the batch and all settings: no steps of the program were read".to_owned(),
            "it has to train with a session of gpu-tuned, to the end of a step at least, and to be started with \
             GPU_TUNED_RECORD=run.jsonl, as `cargo gpu-tuned diagnose` starts programs",
        )),
        (Err(count), _) => unjudged.push(missing(
            format!(
                "steps: the recording is too short, with {count} after those that compile and tune; {LEAST_STEPS} are needed"
            ),
            "let it run for longer",
        )),
    }
    let on_gpu = stats.run.is_none_or(|run| run.device.is_gpu);
    if on_gpu && stats.gpus.is_empty() {
        unjudged.push(unwatched(stats));
    }
    if stats.run.is_some_and(|run| run.expected.is_empty()) {
        unjudged.push(missing(
            "the batch: nothing is known of other batches".to_owned(),
            "measure the workload: `cargo gpu-tuned measure`",
        ));
    }
    unjudged
}

/// Why the steps of the run are not known from those of others.
fn doubted(doubt: Doubt) -> Unjudged {
    let (what, how) = match doubt {
        Doubt::NoneIsIts { before: 0, others } => (
            format!("steps: there are none of the last run, and {others} of other processes"),
            "let it run for longer, and give all that it has recorded",
        ),
        Doubt::NoneIsIts { before, others } => (
            match others {
                0 => format!("steps: there are none of the last run: {before} ended before it began"),
                _ => format!(
                    "steps: there are none of the last run: {others} are of other processes, {before} ended before it began"
                ),
            },
            "let it run for longer; where it did, the clock was set back after its start, and it has to be recorded anew",
        ),
        Doubt::Repeated { from } => (
            format!(
                "whose steps these are: their numbers repeat, from {from} on, and all are judged as those of one run"
            ),
            "record each program in a file of its own, and give each file once",
        ),
    };
    Unjudged { what, how: how.to_owned() }
}

/// Why nothing is known of the GPU.
fn unwatched(stats: &RunStats<'_>) -> Unjudged {
    let what = "power, temperature, the link, other processes and how busy the GPU is";
    let of_monitor = stats.start.filter(|start| start.gpus.is_empty() && !start.trouble.is_empty());
    let (why, how) = match of_monitor {
        Some(start) => (
            format!("there was none to look at: {}", start.trouble.join("; ")),
            "where there is a GPU, mend that first",
        ),
        None => (
            format!("it was looked at fewer than {LEAST_SAMPLES} times during these steps"),
            "run the program under `cargo gpu-tuned diagnose -- COMMAND`, or watch it with `cargo gpu-tuned monitor --record`",
        ),
    };
    Unjudged { what: format!("{what}: {why}"), how: how.to_owned() }
}
