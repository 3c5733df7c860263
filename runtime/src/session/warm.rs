//! Kernel caches of a session.

use burn::module::Module;
use gpu_tuned_measure::measure::Subject;
use gpu_tuned_measure::warm::{Fingerprint, WarmError, WarmStart};
use gpu_tuned_measure::warm_up::WarmUp;
use gpu_tuned_train::device::tf32_is_off;

use super::Session;

impl<C> Session<C> {
    /// State of the caches of compiled kernels and tuning at the first step: see [`warm`](crate::warm).
    pub fn warm_start(&self) -> &WarmStart {
        &self.opened.warm
    }

    /// Fingerprint of the session's kernels and tuning; `None` on the CPU.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        let gpu = self.selection().gpu.iter().map(|gpu| &gpu.reading);
        let fingerprint = Fingerprint::new(gpu, self.machine.driver_version.as_deref())?;
        Some(fingerprint.full_f32(tf32_is_off()))
    }

    /// Takes the planned steps with throwaway weights, so that their kernels are compiled and tuned. Returns the micro-batches:
    /// the planned one, then those of OOM recovery, for at most a minute more.
    ///
    /// The steps run, because their kernels depend on values that they read. Tuning takes most of the time. The steps use the
    /// session's precision, whatever [`Subject::mixed`] says.
    ///
    /// # Errors
    ///
    /// See [`WarmError`].
    pub fn warm_up<M: Module, B: Clone>(&self, subject: &Subject<'_, M, B>) -> Result<Vec<usize>, WarmError> {
        self.planned_warm_up().run(subject)
    }

    /// Writes a kernel cache archive and ends the process under `cargo gpu-tuned warm`; else returns at once.
    pub(super) fn archive_if_requested<M: Module, B: Clone>(
        &self,
        name: &str,
        subject: &Subject<'_, M, B>,
    ) -> Result<(), WarmError> {
        let caches = &self.warm_start().caches;
        self.planned_warm_up().archive_if_requested(name, subject, self.fingerprint(), caches)
    }

    fn planned_warm_up(&self) -> WarmUp<'_> {
        WarmUp { device: self.device(), plan: self.plan(), not_ready: self.not_ready() }
    }
}
