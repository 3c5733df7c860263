//! Measuring the workload of a session, for `gpu-tuned.lock`.

use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;
use std::process;

use burn::module::Module;
use gpu_tuned_core::measured::{Measured, MeasuredOn};

use super::bench::Bench;
#[cfg(feature = "counting-allocator")]
use super::replay;
use super::{MeasureError, Step, Subject, cpu, host, parameters, report, shape, versions};
use crate::lock::{Lock, LockFile, LockedWorkload};
use crate::selection::Recognised;
use crate::session::Session;
use crate::tuned::Tuned;

/// The environment variable that asks for measurements, with the value `1`.
const ASKED: &str = "GPU_TUNED_MEASURE";
/// The environment variable that asks for one line of JSON on standard output, with the value `1`.
const JSON: &str = "GPU_TUNED_MEASURE_JSON";

/// The environment variable that has the path of the lock.
const LOCK: &str = "GPU_TUNED_LOCK";

/// Micro-batches to try where the goal says nothing of their size.
const LARGEST_BATCH: u64 = 1 << 16;
/// Samples that the host prepares at a time while it is timed.
const HOST_SAMPLES: u64 = 64;

impl<C: Tuned> Session<C> {
    /// Measures the workload and ends the process, if `cargo gpu-tuned measure` runs it; else returns at once.
    ///
    /// Asked for it is with `GPU_TUNED_MEASURE=1`. The session's device is measured, in the session's precision, with and
    /// without gradient checkpointing: see [`measure`](Self::measure). What comes out is written as the workload `name`
    /// into `gpu-tuned.lock`, beside what is there already: `GPU_TUNED_LOCK` has its path; without it, it is in the folder
    /// of the package that cargo runs, else in the current one. Progress goes to standard error, and with
    /// `GPU_TUNED_MEASURE_JSON=1` the outcome to standard output, as one line of JSON.
    ///
    /// Where `cargo gpu-tuned warm` runs the program, it makes a bundle of what the planned steps compile and tune instead,
    /// and ends the process: see module `warm`. Without feature `warm` that is an error.
    ///
    /// Call it before the model is made: nothing else may use the device in the meantime.
    ///
    /// # Errors
    ///
    /// See [`MeasureError`]. A lock or a bundle that is there is then as it was.
    pub fn measure_if_asked<M: Module, B: Clone>(
        &self,
        name: &str,
        subject: &Subject<'_, M, B>,
    ) -> Result<(), MeasureError> {
        self.warm_where_asked(name, subject)?;
        if !is_on(ASKED) {
            return Ok(());
        }
        let lock = LockFile::new(lock_path());
        lock.read()?;
        report::begin(name, &self.facts().name);
        let workload = self.measure(subject)?;
        let update = lock.update(name, &workload)?;
        report::end(name, lock.path(), &workload, &update.dropped);
        if is_on(JSON) {
            println!("{}", report::json(name, lock.path(), &workload));
        }
        process::exit(0);
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
        if env::var_os("GPU_TUNED_WARM").is_some_and(|folder| !folder.is_empty()) {
            return Err(MeasureError::NothingToWarm);
        }
        Ok(())
    }

    /// Measures the workload on the session's device, without and with gradient checkpointing.
    ///
    /// On a GPU memory is found out by dry runs, of micro-batches up to a rank's part
    /// of the global batch; steps are run and timed only where they leave much memory free, from the largest power of two down to
    /// where launches bound them. On the CPU steps are run, and
    /// with feature `counting-allocator` a few of them are replayed to find out what they would reserve on the GPU that the
    /// program was built for. It takes up to a minute for each of the two, and on a GPU where nothing has been tuned yet
    /// some minutes more.
    ///
    /// # Errors
    ///
    /// See [`MeasureError`].
    pub fn measure<M: Module, B: Clone>(&self, subject: &Subject<'_, M, B>) -> Result<LockedWorkload, MeasureError> {
        let goal = C::goal();
        let bench = Bench {
            device: &self.inner_device(),
            subject,
            precision: self.plan().settings.precision,
            largest_batch: if is_free::<C>() { LARGEST_BATCH } else { self.schedule().samples_per_rank() },
            progress: &report::point,
        };
        let model = subject.model(&Step::single(1, false).device(bench.device));
        let (parameters, shape) = (parameters(&model), shape(&model));
        drop(model);
        let mut on = BTreeMap::new();
        if self.selection().gpus.is_empty() {
            on = self.replayed(&bench);
        }
        let here = self.measure_device(&bench)?;
        on.insert(self.device_key(&here.device), here);
        let samples = bench.largest_batch.min(HOST_SAMPLES) as usize;
        let host_ms_per_sample = subject.preparation().map(|prepare| host::ms_per_sample(prepare, samples));
        Ok(LockedWorkload {
            described: Some(self.config.workload()),
            goal: Some(goal),
            measured: Measured { parameters, shape, host_ms_per_sample, on },
        })
    }

    /// What steps would reserve on the GPU that the program was built for.
    #[cfg(feature = "counting-allocator")]
    fn replayed<M: Module, B: Clone>(&self, bench: &Bench<'_, '_, M, B>) -> BTreeMap<String, MeasuredOn> {
        replay::devices(bench, &C::BUILT, self.config.workload().workload().family, package().as_deref())
    }

    /// Nothing counts what steps allocate.
    #[cfg(not(feature = "counting-allocator"))]
    #[expect(clippy::unused_self, reason = "the signature is that of the version that counts")]
    fn replayed<M: Module, B: Clone>(&self, _: &Bench<'_, '_, M, B>) -> BTreeMap<String, MeasuredOn> {
        report::not_counted();
        BTreeMap::new()
    }

    fn measure_device<M: Module, B: Clone>(&self, bench: &Bench<'_, '_, M, B>) -> Result<MeasuredOn, MeasureError> {
        let facts = self.facts();
        let four_digits = |rate: f64| format!("{rate:.3e}").parse().unwrap_or(rate);
        let on = MeasuredOn {
            device: facts.name,
            kind: facts.kind,
            memory_bytes: facts.memory_total,
            sm_count: facts.sm_count,
            fp32_tflops: facts.fp32_tflops.map(four_digits),
            bandwidth_gb_s: facts.bandwidth_gb_s.map(four_digits),
            driver: None,
            burn: versions::burn(package().as_deref()),
            cubecl: None,
            context_bytes: None,
            kernels_bytes: None,
            mode: BTreeMap::new(),
        };
        #[cfg(feature = "cuda")]
        if let Some(opened) = &self.opened.gpu {
            return self.measure_gpu(bench, opened, on);
        }
        Ok(MeasuredOn { mode: cpu::modes(bench)?, ..on })
    }

    #[cfg(feature = "cuda")]
    fn measure_gpu<M: Module, B: Clone>(
        &self,
        bench: &Bench<'_, '_, M, B>,
        opened: &crate::burn::OpenGpu,
        on: MeasuredOn,
    ) -> Result<MeasuredOn, MeasureError> {
        use super::cuda::OnGpu;
        use super::gpu::{Found, Plan, modes};

        let plan = Plan {
            precision: bench.precision,
            largest_batch: bench.largest_batch,
            global: (!is_free::<C>()).then_some(bench.largest_batch),
            at_open: opened.memory_free,
            progress: bench.progress,
        };
        let Found { modes, kernels } = modes(&OnGpu { bench, gpu: &opened.gpu }, plan)?;
        let before = self.selection().gpu.as_ref().and_then(|gpu| gpu.memory_free);
        Ok(MeasuredOn {
            driver: self.machine.driver_version.clone(),
            cubecl: Some(versions::cubecl(package().as_deref())),
            context_bytes: before.map(|before| before - opened.memory_free),
            kernels_bytes: Some(kernels),
            mode: modes,
            ..on
        })
    }

    /// What the lock calls the device: by its profile, if it is nothing else.
    fn device_key(&self, name: &str) -> String {
        match &self.selection().device {
            Recognised::Exact { profile } => profile.clone(),
            _ => slug(name),
        }
    }
}

/// Whether the goal leaves it open how many samples a step has.
fn is_free<C: Tuned>() -> bool {
    let goal = C::goal();
    goal.global_batch.is_none() && goal.global_tokens.is_none()
}

fn is_on(variable: &str) -> bool {
    env::var_os(variable).is_some_and(|value| value == "1")
}

fn lock_path() -> PathBuf {
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
