//! Report of a drill.

use gpu_tuned::{Kernels, train::Step};
use serde::Serialize;

use super::{
    Arguments, Drill,
    disturbed::Run,
    hooks::Disturbance,
    neighbour::Taken,
    runs::{Bench, Timed, Undisturbed, median},
};
use crate::device::kernels;

/// A disturbed run, compared with undisturbed ones of the same weights and data.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    drill: Drill,
    repeat: usize,
    cold: bool,
    device: &'a str,
    kernels: Kernels,
    global_batch: usize,
    /// Samples in a micro-batch, as planned.
    planned: usize,
    disturbance: Option<Disturbance>,
    share: f64,
    /// Steps before it.
    before: usize,
    /// Memory state each time that memory was taken.
    pub(super) taken: Vec<Taken>,
    /// Reason why memory could not be taken.
    pub(super) trouble: Option<String>,
    /// True if every step had all samples.
    samples_exact: bool,
    /// Number of OOM recoveries.
    rescues: usize,
    /// The first step in which it did, counted from 0.
    rescued_in_step: Option<usize>,
    /// Steps between which the trainer grew.
    grown_in_steps: Vec<usize>,
    /// Samples in a micro-batch of the last step.
    pub(super) micro_batch_after: Option<usize>,
    /// Batches of the loader that it had not brought to the device.
    batches_on_host: usize,
    /// The largest difference of a loss from that of the undisturbed run in planned micro-batches.
    loss_apart: Option<f32>,
    /// Difference between two undisturbed runs: in planned micro-batches and in those of the last step.
    loss_spread: Option<f32>,
    /// Losses of the first and of the last step.
    losses: Option<[f32; 2]>,
    /// Rate of the median step after the last recovery.
    samples_per_s: Option<f64>,
    /// Rate of an undisturbed run in micro-batches of the last step.
    undisturbed_samples_per_s: Option<f64>,
    /// Ratio of the two rates.
    ratio: Option<f64>,
    /// Extra time of the first recovered step over the median step before, without the time of taking memory.
    rescue_seconds: Option<f64>,
    /// True if the micro-batches of the last step were autotuned before memory ran out.
    pub(super) warmed: bool,
    /// Error that ended the run early.
    pub(super) error: Option<String>,
    steps: Vec<Timed>,
}

impl<'a> Report<'a> {
    pub(super) fn new(arguments: &'a Arguments, bench: &'a Bench, repeat: usize, run: Run) -> Self {
        let Run { steps, on_host } = run;
        let rescued_in_step = steps.iter().position(|timed| !timed.step.rescues.is_empty());
        let grows = |pair: &[Timed]| pair[1].step.micro_batch > pair[0].step.micro_batch;
        let grown_in_steps = steps.windows(2).zip(1..).filter(|(pair, _)| grows(pair)).map(|(_, step)| step).collect();
        let mut report = Self {
            drill: arguments.drill,
            repeat,
            cold: arguments.cold,
            device: &bench.session.plan().device,
            kernels: kernels(),
            global_batch: bench.samples(),
            planned: bench.planned(),
            disturbance: arguments.drill.disturbance(arguments.share),
            share: arguments.share,
            before: arguments.before(),
            taken: Vec::new(),
            trouble: None,
            samples_exact: steps.iter().all(|timed| timed.step.samples == bench.samples()),
            rescues: steps.iter().map(|timed| timed.step.rescues.len()).sum(),
            rescued_in_step,
            grown_in_steps,
            micro_batch_after: steps.last().map(|timed| timed.step.micro_batch),
            batches_on_host: on_host,
            loss_apart: None,
            loss_spread: None,
            losses: steps.first().zip(steps.last()).map(|(first, last)| [first.step.loss, last.step.loss]),
            samples_per_s: None,
            undisturbed_samples_per_s: None,
            ratio: None,
            rescue_seconds: None,
            warmed: false,
            error: None,
            steps,
        };
        report.samples_per_s = report.seconds_after().map(|seconds| bench.samples() as f64 / seconds);
        report.rescue_seconds = report.rescue_seconds();
        report
    }

    /// Time of the median step in micro-batches of the last one, since the last recovery. The first such step
    /// allocates memory and is left out.
    fn seconds_after(&self) -> Option<f64> {
        let rescued = self.steps.iter().rposition(|timed| !timed.step.rescues.is_empty())?;
        let size = self.micro_batch_after?;
        let after = self.steps[rescued + 1..].iter().filter(|timed| timed.step.micro_batch == size);
        median(after.skip(1).map(|timed| timed.seconds))
    }

    fn rescue_seconds(&self) -> Option<f64> {
        let rescued = self.rescued_in_step?;
        let before = median(self.steps[..rescued].iter().skip(1).map(|timed| timed.seconds));
        Some(self.steps[rescued].seconds - before.unwrap_or_default())
    }

    /// Adds comparisons with two undisturbed runs: in planned micro-batches, and in those of the last step.
    pub(super) fn compare(&mut self, planned: &Undisturbed, after: &Undisturbed) {
        self.loss_apart = furthest(self.steps.iter().map(|timed| timed.step.loss), &planned.losses);
        self.loss_spread = furthest(after.losses.iter().copied(), &planned.losses);
        self.undisturbed_samples_per_s = Some(after.samples_per_s);
        self.ratio = self.samples_per_s.map(|samples_per_s| samples_per_s / after.samples_per_s);
    }
}

/// The largest difference of two runs' losses, as far as both go; `None` where one is not finite.
fn furthest(losses: impl Iterator<Item = f32>, others: &[f32]) -> Option<f32> {
    let apart: Vec<f32> = losses.zip(others).map(|(loss, other)| (loss - other).abs()).collect();
    apart.iter().all(|apart| apart.is_finite()).then(|| apart.into_iter().fold(0.0, f32::max))
}

/// A step that never fits.
#[derive(Debug, Default, Serialize)]
pub(super) struct Never {
    pub(super) drill: &'static str,
    pub(super) repeat: usize,
    pub(super) taken: Vec<Taken>,
    pub(super) trouble: Option<String>,
    /// True if the error is that nothing fits.
    pub(super) does_not_fit: bool,
    /// True if the error lists a plan's items.
    pub(super) itemised: bool,
    /// The user's error message.
    pub(super) error: Option<String>,
    /// The panic message, if the step panicked instead.
    pub(super) panic: Option<String>,
    /// The step, should it have fitted.
    pub(super) step: Option<Step>,
    /// From the first attempt to the error.
    pub(super) seconds: f64,
    /// Loss of the model before the step, on a few samples.
    pub(super) loss_before: f32,
    /// Loss after the error, on the same samples.
    pub(super) loss_after: Option<f32>,
    /// A step once the memory was given back.
    pub(super) next: Option<Timed>,
}
