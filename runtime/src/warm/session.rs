//! Making a bundle of what the planned steps of a session need.

use std::env;
use std::io::Write;
use std::path::Path;
use std::process;
use std::time::{Duration, Instant};

use burn::module::Module;
use burn::tensor::Device;
use serde::Serialize;
use thiserror::Error;

use super::bundle::{BundleError, Saved, save};
use super::caches::Caches;
use super::{Fingerprint, WarmStart, asked, clear_away, driver};
use crate::burn::catching;
use crate::measure::Subject;
use crate::mixed::Half;
use crate::session::Session;
use crate::train::{StepError, Trainer, TrainerError};
use crate::tuned::Tuned;

/// The environment variable that asks for one line of JSON on standard output, with the value `1`.
const JSON: &str = "GPU_TUNED_WARM_JSON";

/// The optimizer's state comes with the second step, and kernels are fused as they are from then on in the third.
const STEPS: usize = 3;

/// What micro-batches that nobody plans, and a rescue would take, may add.
const PATIENCE: Duration = Duration::from_secs(60);

/// Small enough that no model leaves the range of its numbers: results are not looked at.
const LEARNING_RATE: f64 = 1e-6;

/// Why no bundle was made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WarmError {
    /// There is no GPU.
    #[error("there is no GPU: nothing is compiled or tuned on the CPU, and there is nothing to bundle")]
    NoGpu,
    /// What is compiled and tuned does not go where it can be bundled from.
    #[error("a bundle is made from caches of its own, and here it is: {caches}")]
    Caches {
        /// The caches as they are.
        caches: Caches,
    },
    /// The session has no trainer for its precision.
    #[error(transparent)]
    Trainer(#[from] TrainerError),
    /// A planned step failed.
    #[error("a step with micro-batches of {micro_batch} failed")]
    Step {
        /// Samples in a micro-batch.
        micro_batch: usize,
        /// Why.
        #[source]
        source: Box<StepError>,
    },
    /// The model panicked.
    #[error("a step with micro-batches of {micro_batch} failed: {message}")]
    Model {
        /// Samples in a micro-batch.
        micro_batch: usize,
        /// The panic's message.
        message: String,
    },
    /// Memory ran out, so that kernels may have been chosen for want of it.
    #[error("memory ran out with micro-batches of {micro_batch}, which were planned: is another process on the GPU?")]
    Memory {
        /// Samples in a micro-batch.
        micro_batch: usize,
    },
    /// The bundle could not be written.
    #[error("no bundle was written: {0}")]
    Bundle(BundleError),
}

/// What `GPU_TUNED_WARM_JSON` prints.
#[derive(Serialize)]
struct Report<'a> {
    warmed: &'a str,
    bundle: &'a Saved,
    micro_batches: &'a [usize],
    seconds: f64,
}

impl<C> Session<C> {
    /// How the first step will find the caches of compiled kernels and tuned choices: see [`warm`](crate::warm).
    pub fn warm_start(&self) -> &WarmStart {
        &self.opened.warm
    }

    /// What kernels and tuned choices of this session belong to; `None` on the CPU.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        let gpus = self.selection().gpus.iter().map(|gpu| &gpu.reading);
        let fingerprint = Fingerprint::new(gpus, self.machine.driver_version.as_deref())?;
        Some(fingerprint.full_f32(crate::burn::tf32_is_off()))
    }
}

impl<C: Tuned> Session<C> {
    /// Makes a bundle and ends the process, if `cargo gpu-tuned warm` runs it; else returns at once.
    pub(crate) fn warm_if_asked<M: Module, B: Clone>(
        &self,
        name: &str,
        subject: &Subject<'_, M, B>,
    ) -> Result<(), WarmError> {
        let Some(folder) = asked() else { return Ok(()) };
        let begin = Instant::now();
        let made = self.bundled(subject, &folder);
        clear_away();
        let (bundle, micro_batches) = made?;
        let seconds = begin.elapsed().as_secs_f64();
        let Saved { path, bytes, entries } = &bundle;
        say(&format!("{name}: {entries} entries, {} MiB, in {}, {seconds:.0} s", bytes >> 20, path.display()));
        if env::var_os(JSON).is_some_and(|value| value == "1") {
            let report = Report { warmed: name, bundle: &bundle, micro_batches: &micro_batches, seconds };
            println!("{}", serde_json::to_string(&report).expect("BUG: a report is always JSON"));
        }
        process::exit(0);
    }

    fn bundled<M: Module, B: Clone>(
        &self,
        subject: &Subject<'_, M, B>,
        folder: &Path,
    ) -> Result<(Saved, Vec<usize>), WarmError> {
        let fingerprint = self.fingerprint().ok_or(WarmError::NoGpu)?;
        let caches = &self.warm_start().caches;
        if !matches!(caches, Caches::Throwaway { .. }) {
            return Err(WarmError::Caches { caches: caches.clone() });
        }
        let sizes = self.warm_up(subject)?;
        driver::collect(|name| env::var_os(name)).map_err(|cause| WarmError::Bundle(BundleError::Read(cause)))?;
        Ok((save(folder, &fingerprint).map_err(WarmError::Bundle)?, sizes))
    }

    /// Takes the planned steps with weights that are thrown away, so that all they need is compiled and tuned, and returns
    /// the micro-batches that were taken: the planned one, then those that a rescue would take, for a minute more at most.
    ///
    /// They are run and not only compiled: what a step does next depends on numbers that it reads. They fit, since they
    /// are planned, and are over in seconds; tuning is what takes long. They are taken in the session's precision, as those of
    /// training are, whatever [`Subject::mixed`] says.
    ///
    /// # Errors
    ///
    /// See [`WarmError`].
    pub fn warm_up<M: Module, B: Clone>(&self, subject: &Subject<'_, M, B>) -> Result<Vec<usize>, WarmError> {
        let begin = Instant::now();
        let mut taken = Vec::new();
        let mut planned = Duration::ZERO;
        for (micro_batch, samples) in self.sizes() {
            if !taken.is_empty() && begin.elapsed() > planned + PATIENCE {
                break;
            }
            self.steps(subject, micro_batch, samples)?;
            say(&format!("micro-batches of {micro_batch} after {:.1} s", begin.elapsed().as_secs_f64()));
            taken.push(micro_batch);
            if taken.len() == 1 {
                planned = begin.elapsed();
            }
        }
        Ok(taken)
    }

    /// Micro-batches, each with the samples of the steps to take: the planned one first.
    fn sizes(&self) -> Vec<(usize, usize)> {
        let schedule = self.schedule();
        sizes(schedule.micro_batch as usize, schedule.samples_per_rank() as usize)
    }

    fn steps<M: Module, B: Clone>(
        &self,
        subject: &Subject<'_, M, B>,
        micro_batch: usize,
        samples: usize,
    ) -> Result<(), WarmError> {
        let device = self.device();
        let mut trainer = self.trainer_of(subject, micro_batch, &device)?;
        // Samples of nothing: a micro-batch is made where it is wanted.
        let loss = |model: &M, micro: Vec<()>| subject.loss(model, subject.batch(micro.len(), &device));
        for _ in 0..STEPS {
            let step = catching(|| trainer.step(LEARNING_RATE, vec![(); samples], loss));
            let step = step.map_err(|message| WarmError::Model { micro_batch, message })?;
            let step = step.map_err(|source| WarmError::Step { micro_batch, source: Box::new(source) })?;
            if !step.rescues.is_empty() {
                return Err(WarmError::Memory { micro_batch });
            }
        }
        Ok(())
    }

    /// As the session's, whatever the number of ranks: each takes the same steps.
    fn trainer_of<M: Module, B: Clone>(
        &self,
        subject: &Subject<'_, M, B>,
        micro_batch: usize,
        device: &Device,
    ) -> Result<Trainer<M>, WarmError> {
        let memory = &self.plan().memory;
        let (model, optimizer) = subject.begin_with_burns(device);
        let trainer =
            Trainer::new(model, optimizer, device.clone(), micro_batch).hold_twice(memory.activations + memory.scratch);
        Ok(match Half::of(self.plan().settings.precision) {
            Some(half) => trainer.mixed(half).map_err(TrainerError::from)?,
            None => trainer,
        })
    }
}

/// The planned micro-batch, with what remains at the end of a step and with gradients added up, where a step has that; then
/// the halves that a rescue would take.
fn sizes(planned: usize, samples: usize) -> Vec<(usize, usize)> {
    let first = (planned, samples.min(2 * planned + samples % planned.max(1)));
    let halves = std::iter::successors(Some(planned / 2), |size| Some(size / 2)).take_while(|size| *size > 0);
    std::iter::once(first).chain(halves.map(|size| (size, samples.min(2 * size)))).collect()
}

fn say(text: &str) {
    // That nobody reads it is no reason to stop.
    drop(writeln!(std::io::stderr(), "warm: {text}"));
}

#[cfg(test)]
mod tests {
    use super::sizes;

    #[test]
    fn every_micro_batch_of_a_planned_step_and_of_its_rescues_is_taken() {
        // 512 = 5 x 96 + 32.
        assert_eq!(sizes(96, 512), [(96, 224), (48, 96), (24, 48), (12, 24), (6, 12), (3, 6), (1, 2)]);
        // One micro-batch is the step: nothing is added up, until a rescue.
        assert_eq!(sizes(4, 4), [(4, 4), (2, 4), (1, 2)]);
        assert_eq!(sizes(4, 6), [(4, 6), (2, 4), (1, 2)]);
        assert_eq!(sizes(1, 1), [(1, 1)]);
    }
}
