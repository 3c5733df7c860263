//! Measuring the workload of a session, for `gpu-tuned.lock`.

use std::env;
use std::path::PathBuf;
use std::process;

use burn::module::Module;

use super::{Case, MeasureError, Subject, range};
use crate::lock::{Lock, LockedWorkload};
use crate::session::Session;
use crate::tuned::Tuned;

/// The environment variable that asks for measurements, with the value `1`.
const ASKED: &str = "GPU_TUNED_MEASURE";
/// The environment variable that asks for one line of JSON on standard output, with the value `1`.
const JSON: &str = "GPU_TUNED_MEASURE_JSON";

/// The environment variable that has the path of the lock.
const LOCK: &str = "GPU_TUNED_LOCK";

impl<C: Tuned> Session<C> {
    /// Measures the workload and ends the process, if `cargo gpu-tuned measure` or `bench` runs it; else returns at once.
    ///
    /// Asked for it is with `GPU_TUNED_MEASURE=1`. The session's device is measured, in the session's precision, with and
    /// without gradient checkpointing: see [`measure`](Self::measure). What comes out is written as the workload `name`
    /// into `gpu-tuned.lock`, beside what is there already and mode by mode: `GPU_TUNED_LOCK` has its path; without it, it
    /// is in the folder of the package that cargo runs, else in the current one. Progress goes to standard error, and with
    /// `GPU_TUNED_MEASURE_JSON=1` the outcome to standard output, as one line of JSON.
    ///
    /// Where `cargo gpu-tuned warm` runs the program, it makes a bundle of what the planned steps compile and tune instead,
    /// and ends the process: see module `warm`. Without feature `warm` that is an error.
    ///
    /// Where `cargo gpu-tuned bench` runs it, steps of the subject are timed over a range of settings instead, each is written
    /// down as soon as it has run, and the process ends: `GPU_TUNED_BENCH` has what is asked for, as JSON.
    ///
    /// Call it before the model is made: nothing else may use the device in the meantime.
    ///
    /// # Errors
    ///
    /// See [`MeasureError`]. A bundle that is there is then as it was, and so is a lock, unless one of the modes, with and
    /// without checkpointing, was measured before: then it has that one, and what no longer holds is gone.
    pub fn measure_if_asked<M: Module, B: Clone>(
        &self,
        name: &str,
        subject: &Subject<'_, M, B>,
    ) -> Result<(), MeasureError> {
        self.warm_where_asked(name, subject)?;
        if let Some(case) = self.measured_case() {
            case.answer(name, subject)?;
            process::exit(0);
        }
        Ok(())
    }

    #[cfg(feature = "warm")]
    fn warm_where_asked<M: Module, B: Clone>(
        &self,
        name: &str,
        subject: &Subject<'_, M, B>,
    ) -> Result<(), MeasureError> {
        Ok(self.warm_if_asked(name, subject)?)
    }

    #[cfg(not(feature = "warm"))]
    #[expect(clippy::unused_self, reason = "the signature is that of the version that makes bundles")]
    fn warm_where_asked<M: Module, B: Clone>(&self, _: &str, _: &Subject<'_, M, B>) -> Result<(), MeasureError> {
        if is_bundle_asked() {
            return Err(MeasureError::NothingToWarm);
        }
        Ok(())
    }

    /// Measures the workload on the session's device, without and with gradient checkpointing.
    ///
    /// On a GPU memory is found out by dry runs, of micro-batches up to a rank's part of the global batch; steps are run and
    /// timed only where they leave much memory free, from the largest power of two down to where launches bound them. On the
    /// CPU steps are run, and with feature `counting-allocator` a few of them are replayed to find out what they would
    /// reserve on the GPU that the program was built for, in `f32` and in `bf16_params`; where the session's precision is a
    /// mixed one, nothing is replayed, and that is said. It takes up to a minute for each of the two, and on a GPU some
    /// minutes more for batches that have not been tuned yet.
    ///
    /// # Errors
    ///
    /// See [`MeasureError`].
    pub fn measure<M: Module, B: Clone>(&self, subject: &Subject<'_, M, B>) -> Result<LockedWorkload, MeasureError> {
        Case::of(self).measure(subject, &mut |_| Ok(()))
    }

    /// What there is to measure, where a measurement is asked for.
    pub(crate) fn measured_case(&self) -> Option<Case> {
        (is_on(ASKED) || range::is_asked() || is_bundle_asked()).then(|| Case::of(self))
    }
}

/// Whether `cargo gpu-tuned warm` runs the program.
pub(super) fn is_bundle_asked() -> bool {
    env::var_os("GPU_TUNED_WARM").is_some_and(|folder| !folder.is_empty())
}

fn is_on(variable: &str) -> bool {
    env::var_os(variable).is_some_and(|value| value == "1")
}

/// Whether the outcome is to be printed for programs.
pub(super) fn is_json() -> bool {
    is_on(JSON)
}

pub(super) fn lock_path() -> PathBuf {
    let given = env::var_os(LOCK).filter(|path| !path.is_empty()).map(PathBuf::from);
    given.unwrap_or_else(|| package().unwrap_or_default().join(Lock::NAME))
}

/// The folder of the package that cargo runs.
pub(crate) fn package() -> Option<PathBuf> {
    env::var_os("CARGO_MANIFEST_DIR").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// A name made of what a driver calls a device: letters and digits in lower case, everything else a hyphen.
pub(crate) fn slug(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::slug;

    #[test]
    fn a_device_gets_a_short_name() {
        assert_eq!(slug("NVIDIA H200 NVL (96 GB)"), "nvidia-h200-nvl-96-gb");
        assert_eq!(slug("CPU (2 cores)"), "cpu-2-cores");
    }
}
