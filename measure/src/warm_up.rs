//! Kernel cache archives of the planned steps.

use std::io::Write;
use std::path::Path;
use std::process;
use std::time::{Duration, Instant};

use burn::module::Module;
use burn::tensor::Device;
use gpu_tuned_core::plan::Plan;
use gpu_tuned_observe::progress::Progress;
use gpu_tuned_train::device::catching;
use gpu_tuned_train::mixed::Half;
use gpu_tuned_train::train::{NotReady, Trainer, TrainerError, group_bytes};
use serde_json::json;

use crate::measure::Subject;
use crate::requests::{archive_folder, is_on};
use crate::warm::{BundleError, Caches, Fingerprint, Saved, WarmError, collect_driver_cache, remove_throwaway, save};

/// Requests one line of JSON on standard output, with the value `1`.
const JSON: &str = "GPU_TUNED_WARM_JSON";

/// The optimizer allocates its state in the second step; from the third on, kernels are fused as in later steps.
const STEPS: usize = 3;

/// Time limit for the smaller micro-batches of OOM recovery, after the planned one.
const EXTRA_TIME: Duration = Duration::from_mins(1);

/// Keeps the values of all models finite. Results are not used.
const LEARNING_RATE: f64 = 1e-6;

/// Planned steps whose kernels are compiled and tuned.
pub struct WarmUp<'s> {
    /// Device with autodiff.
    pub device: Device,
    /// Plan of the steps.
    pub plan: &'s Plan,
    /// Handler of a model that is not ready for 16 bits.
    pub not_ready: NotReady,
}

impl WarmUp<'_> {
    /// Writes an archive and ends the process under `cargo gpu-tuned warm`; else returns at once.
    ///
    /// # Errors
    ///
    /// See [`WarmError`].
    pub fn archive_if_requested<M: Module, B: Clone>(
        &self,
        name: &str,
        subject: &Subject<'_, M, B>,
        fingerprint: Option<Fingerprint>,
        caches: &Caches,
    ) -> Result<(), WarmError> {
        let Some(folder) = archive_folder() else { return Ok(()) };
        let begin = Instant::now();
        let archived = self.archive(subject, &folder, fingerprint, caches);
        remove_throwaway();
        let (bundle, micro_batches) = archived?;
        let seconds = begin.elapsed().as_secs_f64();
        let Saved { path, bytes, entries, sha256 } = &bundle;
        let (mib, path) = (bytes >> 20, path.display());
        // A closed standard error must not end the run.
        drop(writeln!(
            std::io::stderr(),
            "warm: {name}: {entries} entries, {mib} MiB, in {path}, {seconds:.0} s, SHA-256 {sha256}"
        ));
        if is_on(JSON) {
            let report = json!({
                "warmed": name, "bundle": bundle, "micro_batches": micro_batches, "seconds": seconds,
            });
            println!("{report}");
        }
        process::exit(0);
    }

    fn archive<M: Module, B: Clone>(
        &self,
        subject: &Subject<'_, M, B>,
        folder: &Path,
        fingerprint: Option<Fingerprint>,
        caches: &Caches,
    ) -> Result<(Saved, Vec<usize>), WarmError> {
        let fingerprint = fingerprint.ok_or(WarmError::NoGpu)?;
        if !matches!(caches, Caches::Throwaway { .. }) {
            return Err(WarmError::Caches { caches: caches.clone() });
        }
        let sizes = self.run(subject)?;
        collect_driver_cache(|name| std::env::var_os(name))
            .map_err(|cause| WarmError::Bundle(BundleError::Read(cause)))?;
        Ok((save(folder, &fingerprint).map_err(WarmError::Bundle)?, sizes))
    }

    /// Takes steps with the planned micro-batch, then for at most a minute with those of OOM recovery. Returns the micro-batches.
    ///
    /// # Errors
    ///
    /// See [`WarmError`].
    pub fn run<M: Module, B: Clone>(&self, subject: &Subject<'_, M, B>) -> Result<Vec<usize>, WarmError> {
        let begin = Instant::now();
        let mut done = Vec::new();
        let mut planned = Duration::ZERO;
        let schedule = &self.plan.schedule;
        for (micro_batch, samples) in sizes(schedule.micro_batch as usize, schedule.samples_per_rank() as usize) {
            if !done.is_empty() && begin.elapsed() > planned + EXTRA_TIME {
                break;
            }
            let progress = Progress::begin(format!("warm-up with micro-batches of {micro_batch}"));
            self.steps(subject, micro_batch, samples)?;
            drop(progress);
            done.push(micro_batch);
            if done.len() == 1 {
                planned = begin.elapsed();
            }
        }
        Ok(done)
    }

    fn steps<M: Module, B: Clone>(
        &self,
        subject: &Subject<'_, M, B>,
        micro_batch: usize,
        samples: usize,
    ) -> Result<(), WarmError> {
        let mut trainer = self.trainer(subject, micro_batch)?;
        // A batch of units: the loss creates micro-batches of their number.
        let loss = |model: &M, micro: Vec<()>| subject.loss(model, subject.batch(micro.len(), &self.device));
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

    /// A trainer as the session's, for one rank of any number: all ranks take the same steps.
    fn trainer<M: Module, B: Clone>(
        &self,
        subject: &Subject<'_, M, B>,
        micro_batch: usize,
    ) -> Result<Trainer<M>, WarmError> {
        let (model, optimizer) = subject.begin_with_burns(&self.device);
        let trainer = Trainer::new(model, optimizer, self.device.clone(), micro_batch);
        let trainer = trainer.hold_twice(group_bytes(&self.plan.memory)).when_not_ready(self.not_ready);
        // Batches are made anew, so halves have other samples.
        let trainer = trainer.without_check_of_halves();
        let trainer = if subject.accepts_half_loss { trainer.accept_half_loss() } else { trainer };
        Ok(match Half::of(self.plan.settings.precision) {
            Some(half) => trainer.mixed(half).map_err(TrainerError::from)?,
            None => trainer,
        })
    }
}

/// Micro-batches with the samples of their steps. First the planned one, with gradient accumulation and the remainder of a
/// step; then the halves of OOM recovery.
fn sizes(planned: usize, samples: usize) -> Vec<(usize, usize)> {
    let first = (planned, samples.min(2 * planned + samples % planned.max(1)));
    let halves = std::iter::successors(Some(planned / 2), |size| Some(size / 2)).take_while(|size| *size > 0);
    std::iter::once(first).chain(halves.map(|size| (size, samples.min(2 * size)))).collect()
}

#[cfg(test)]
mod tests {
    use super::sizes;

    #[test]
    fn every_micro_batch_of_a_planned_step_and_of_its_rescues_is_taken() {
        // 512 = 5 x 96 + 32.
        assert_eq!(sizes(96, 512), [(96, 224), (48, 96), (24, 48), (12, 24), (6, 12), (3, 6), (1, 2)]);
        // One micro-batch is the step: gradients accumulate in a rescue only.
        assert_eq!(sizes(4, 4), [(4, 4), (2, 4), (1, 2)]);
        assert_eq!(sizes(4, 6), [(4, 6), (2, 4), (1, 2)]);
        assert_eq!(sizes(1, 1), [(1, 1)]);
    }
}
