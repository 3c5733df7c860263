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

mod compare;
mod curve;
mod finding;
mod kind;
mod kinds;
mod model;
mod order;
mod run_stats;
mod unjudged;
mod words;

use serde::Serialize;

pub use compare::{Outcome, Tested, compare, measured, test};
pub use finding::{Change, Figures, Finding, Prediction, Quantity, SettingChange};
pub use kind::{Kind, Severity};

use crate::recording::Record;
use kinds::DiagnosisInput;
use run_stats::RunStats;

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
    Diagnosis {
        judged: judged(&input.stats),
        unjudged: unjudged::unjudged(&input.stats),
        findings: order::order(findings),
    }
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
