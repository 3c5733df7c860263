//! Measurements of a session's workload.

use std::process;

use burn::module::Module;
use gpu_tuned_measure::measure::{BuiltFor, MeasureError, MeasurementTarget, Subject, is_requested};
#[cfg(not(feature = "warm"))]
use gpu_tuned_measure::requests::archive_folder;

use super::Session;
use crate::lock::LockedWorkload;
use crate::selection::Recognised;
use crate::tuned::Tuned;

impl<C: Tuned> Session<C> {
    /// Measures the workload and ends the process under `cargo gpu-tuned measure` or `bench`; else returns at once.
    ///
    /// `GPU_TUNED_MEASURE=1` requests a measurement on the session's device, in the session's precision, with and without
    /// activation checkpointing: see [`measure`](Self::measure). The result is the workload `name` in `gpu-tuned.lock`, mode by
    /// mode, beside its other entries. `GPU_TUNED_LOCK` names the lock; the default is in the folder of the package that cargo
    /// runs, else in the current folder. Progress goes to standard error. `GPU_TUNED_MEASURE_JSON=1` prints the result as one
    /// line of JSON on standard output.
    ///
    /// Under `cargo gpu-tuned warm`, archives the kernels and tuning of the planned steps instead, and ends the process: see
    /// module `warm`. Without feature `warm` that is an error.
    ///
    /// Under `cargo gpu-tuned bench`, times steps over a range of settings, and ends the process. `GPU_TUNED_BENCH` has the
    /// request as JSON. Each result is recorded at once.
    ///
    /// Call this method before creating the model: a measurement needs the whole device.
    ///
    /// # Errors
    ///
    /// See [`MeasureError`]. On an error, an existing archive stays as it was, and a lock has the modes that were measured
    /// before the error.
    pub fn measure_if_asked<M: Module, B: Clone>(
        &self,
        name: &str,
        subject: &Subject<'_, M, B>,
    ) -> Result<(), MeasureError> {
        #[cfg(feature = "warm")]
        self.archive_if_requested(name, subject)?;
        #[cfg(not(feature = "warm"))]
        if archive_folder().is_some() {
            return Err(MeasureError::NothingToWarm);
        }
        if let Some(target) = self.requested_measurement() {
            target.run(name, subject)?;
            process::exit(0);
        }
        Ok(())
    }

    /// Measures the workload on the session's device, without and with activation checkpointing.
    ///
    /// On a GPU, memory is measured by dry runs of micro-batches up to a rank's part of the global batch. Time is
    /// measured by steps that leave much memory free. The sizes that plans need are tried first. Tries that
    /// would end after 120 s are left out, except for the first two. On the CPU, steps run for 25 s a mode.
    /// `GPU_TUNED_MEASURE_BUDGET` sets other seconds.
    ///
    /// With feature `counting-allocator`, allocations of a few CPU steps are simulated for the GPU that the program was
    /// built for, in `f32` and `bf16_params`, except in a session of mixed precision.
    ///
    /// # Errors
    ///
    /// See [`MeasureError`].
    pub fn measure<M: Module, B: Clone>(&self, subject: &Subject<'_, M, B>) -> Result<LockedWorkload, MeasureError> {
        self.measurement_target().measure(subject, &mut |_| Ok(()))
    }

    /// Target of the requested measurement, if there is a request.
    pub(super) fn requested_measurement(&self) -> Option<MeasurementTarget> {
        is_requested().then(|| self.measurement_target())
    }

    fn measurement_target(&self) -> MeasurementTarget {
        let (goal, selection) = (self.config.asked(), self.selection());
        let is_specified = goal.global_batch.is_some() || goal.global_tokens.is_some();
        let profile = match selection.device() {
            Recognised::Exact { profile } => Some(profile.clone()),
            _ => None,
        };
        let facts = self.facts();
        let mut other_precisions = self.decision.inputs.goal.precisions(&facts);
        other_precisions.retain(|precision| *precision != self.plan().settings.precision);
        let built_for = BuiltFor { targets: C::BUILT.targets, table: C::BUILT.table };
        MeasurementTarget {
            device: self.inner_device(),
            facts,
            reading: selection.gpu.as_ref().map(|gpu| gpu.reading.clone()),
            gpu: self.opened.gpu.clone(),
            driver: self.machine.driver_version.clone(),
            profile,
            settings: self.plan().settings,
            described: self.config.workload(),
            samples_per_rank: is_specified.then(|| self.schedule().samples_per_rank()),
            goal,
            max_samples: None,
            built_for: selection.gpu.is_none().then_some(built_for),
            other_precisions,
            not_ready: self.not_ready(),
        }
    }
}
