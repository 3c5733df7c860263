//! Progress line of a training run.

use burn::tensor::Device;
use gpu_tuned_core::Bytes;
use gpu_tuned_observe::progress_line::ProgressLine;
use gpu_tuned_train::train::Step;

use crate::session::Session;

/// Progress of a training run on standard error: steps, epochs, samples/s, memory, loss and time left.
///
/// ```text
/// step 61/600, epoch 2/10, 1,024 samples/s, 6.0 GiB of 24.0 GiB reserved, loss 0.2500, 4:30 left
/// ```
///
/// On a terminal the line is redrawn in place, at most ten times a second, and stays at the end. Elsewhere, such as in a file of
/// Slurm, a line is printed at most every 30 s. The first rank shows the line, and no other.
/// [`Options::progress`](crate::Options::progress) switches the line off.
///
/// Speed and time left follow from the steps of the last 30 s, without the first step, which compiles kernels. No figure is read
/// from the device: a [`Step`] has its loss, and Burn's memory pools are queried on the host, at most once a second.
#[must_use = "the line ends when the value is dropped"]
pub struct Progress {
    line: ProgressLine,
    device: Device,
}

impl<C> Session<C> {
    /// Begins the progress line of a run of so many optimizer steps; `None` if nobody can count them.
    pub fn progress(&self, steps: impl Into<Option<u64>>) -> Progress {
        let is_first = self.ranks.as_ref().is_none_or(|ranks| ranks.number() == 0);
        let memory = self.selection().gpu.as_ref().and_then(|gpu| gpu.reading.memory_total);
        let line = ProgressLine::begin(steps.into(), self.shows_progress && is_first).memory_total(memory);
        Progress { line, device: self.inner_device() }
    }
}

impl Progress {
    /// Adds the epoch to the line.
    pub fn steps_per_epoch(self, steps: u64) -> Self {
        Self { line: self.line.steps_per_epoch(steps), ..self }
    }

    /// Counts the steps that the run had taken before this start.
    pub fn resumed_after(self, steps: u64) -> Self {
        Self { line: self.line.resumed_after(steps), ..self }
    }

    /// Counts a step, and shows its loss.
    pub fn step(&mut self, step: &Step) {
        let reserved = || self.device.memory_pool_usage().map(|pools| Bytes(pools.bytes_reserved));
        self.line.step(step.samples as u64, Some(f64::from(step.loss)), reserved);
    }

    /// Does `work`, which may print, while the line is off the terminal.
    pub fn suspend<T>(&self, work: impl FnOnce() -> T) -> T {
        self.line.suspend(work)
    }
}
