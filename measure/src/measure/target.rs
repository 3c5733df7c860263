//! Target of a measurement: a session's workload on its device, or a trainer's or learner's first step.

#[cfg(feature = "train")]
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{env, process};

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, Distribution, Tensor};
#[cfg(feature = "train")]
use burn::train::{InferenceStep, Learner, LearnerModel, TrainStep};
use gpu_tuned_core::device::{DeviceFacts, GpuReading};
use gpu_tuned_core::measured::{Measured, MeasuredOn, Mode};
use gpu_tuned_core::workload::WorkloadSpec;
use gpu_tuned_core::{Goal, Kernels, Pins, Precision, Settings};
use gpu_tuned_observe::progress::{Heartbeat, INTERVAL};
use gpu_tuned_project::lock::{LockFile, LockedWorkload};
use gpu_tuned_train::device::{OpenGpu, tf32_is_off};
#[cfg(feature = "train")]
use gpu_tuned_train::micro_batch::MicroBatch;
#[cfg(feature = "train")]
use gpu_tuned_train::train::differentiated;
use gpu_tuned_train::train::{FirstStep, NotReady};

use super::bench::{Bench, Budget, MODE_ON_THE_CPU, ON_A_GPU, Tried, measure_on_cpu};
#[cfg(feature = "counting-allocator")]
use super::replay;
#[cfg(feature = "train")]
use super::subject::{Optimizer, Pass, Whole};
use super::timed::host_ms_per_sample;
use super::{MeasureError, Step, Subject, parameters, range, report, shape};
use crate::requests::{archive_folder, is_json_requested, lock_path, package, requested_budget, slug};
use crate::versions;

/// Samples of the largest micro-batch to try without a global batch.
const LARGEST_BATCH: u64 = 1 << 16;
/// Samples of a preparation on the host.
const HOST_SAMPLES: u64 = 64;

/// A session's workload on its device.
pub struct MeasurementTarget {
    /// Device without autodiff.
    pub device: Device,
    /// Facts that the session was planned for.
    pub facts: DeviceFacts,
    /// The GPU as NVML and CUDA report it; `None` for the CPU.
    pub reading: Option<GpuReading>,
    /// The GPU as opened; `None` for the CPU and without CUDA.
    pub gpu: Option<OpenGpu>,
    /// Driver version.
    pub driver: Option<String>,
    /// Profile of the device, if it matches one exactly.
    pub profile: Option<String>,
    /// Settings of the session.
    pub settings: Settings,
    /// Workload of the config.
    pub described: WorkloadSpec,
    /// Goal of the config.
    pub goal: Goal,
    /// A rank's part of the global batch, if the goal specifies one.
    pub samples_per_rank: Option<u64>,
    /// Samples of the only batch that is available, if one.
    pub max_samples: Option<usize>,
    /// GPUs that the program was built for, if it runs on a CPU.
    pub built_for: Option<BuiltFor>,
    /// Precisions that the planner compares, with the session's.
    pub precisions: Vec<Precision>,
    /// Returns true if steps called operations that other kernels can compute, too. `None` for kernels that are asked for,
    /// or no GPU.
    pub has_other_kernels: Option<fn() -> bool>,
    /// Handler of a model that is not ready for the session's 16 bits.
    pub not_ready: NotReady,
}

/// GPUs that a program was built for.
#[derive(Clone, Copy)]
pub struct BuiltFor {
    /// Names of profiles.
    pub targets: &'static [&'static str],
    /// The build script's table.
    pub table: Option<&'static str>,
}

impl MeasurementTarget {
    /// Name of the device in a lock: its profile's, else from the driver's name.
    fn key(&self) -> String {
        self.profile.clone().unwrap_or_else(|| slug(&self.facts.name))
    }

    /// Samples of the largest micro-batch to try: a rank's part of the global batch.
    pub(super) fn largest_batch(&self) -> u64 {
        let limit = self.samples_per_rank.unwrap_or(LARGEST_BATCH);
        self.max_samples.map_or(limit, |samples| limit.min(samples as u64).max(1))
    }

    /// Mode of steps without checkpointing, with the session's kernels.
    pub(super) fn mode(&self, precision: Precision) -> Mode {
        let mode = self.facts.mode_of(precision, false, !tf32_is_off());
        mode.with_library(self.settings.kernels.is_library() && !self.is_cpu())
    }

    /// Kernels to measure: the library first if steps can use it, else the session's alone.
    pub(super) fn kernels(&self) -> Vec<Kernels> {
        let has_others = self.has_other_kernels.is_some_and(|has_others| has_others());
        if has_others { vec![Kernels::Library, Kernels::Burn] } else { vec![self.settings.kernels] }
    }

    /// Settings that the planner compares with the session's, each for a process of its own.
    fn other_settings(&self) -> Vec<Pins> {
        other_settings(&self.settings, &self.kernels(), &self.precisions)
    }

    fn with_max_samples(self, samples: usize) -> Self {
        Self { max_samples: Some(samples), ..self }
    }

    /// Runs the requested measurement: a benchmark, or one for the lock.
    ///
    /// # Errors
    ///
    /// See [`MeasureError`].
    pub fn run<M: Module, B: Clone>(&self, name: &str, subject: &Subject<'_, M, B>) -> Result<(), MeasureError> {
        if archive_folder().is_some() {
            return Err(MeasureError::Undescribed);
        }
        match range::request()? {
            Some(request) => self.range(name, subject, &request),
            None => self.write(name, subject),
        }
    }

    /// Measures and writes the lock after each try. Keeps the lock's preparation time if the subject has none.
    fn write<M: Module, B: Clone>(&self, name: &str, subject: &Subject<'_, M, B>) -> Result<(), MeasureError> {
        let lock = LockFile::new(lock_path());
        let before = lock.read()?;
        report::begin(name, &self.facts.name);
        report::shared(self.reading.as_ref());
        let known = before.and_then(|lock| lock.workload.get(name)?.measured.host_ms_per_sample);
        let mut dropped = Vec::new();
        let outcome = self.measure(subject, &mut |so_far| {
            let host_ms = &mut so_far.measured.host_ms_per_sample;
            *host_ms = host_ms.or(known);
            dropped.extend(lock.update(name, so_far)?.dropped);
            let anew = modes(name, &so_far.measured);
            dropped.retain(|gone| !anew.iter().any(|mode| gone.starts_with(mode)));
            Ok(())
        });
        let workload = outcome.inspect_err(|_| report::dropped(&dropped))?;
        report::end(name, lock.path(), &workload, &dropped);
        if let Some(other) =
            report::other_model(self.described.workload().parameters.trained(), workload.measured.parameters)
        {
            eprintln!("  {other}");
        }
        if is_json_requested() {
            println!("{}", report::json(name, lock.path(), &workload, &self.other_settings()));
        }
        Ok(())
    }

    /// Measures the workload; see `Session::measure`. Passes the results so far to `keep`, after the
    /// simulation and after each try.
    ///
    /// # Errors
    ///
    /// See [`MeasureError`].
    pub fn measure<M: Module, B: Clone>(
        &self,
        subject: &Subject<'_, M, B>,
        keep: &mut dyn FnMut(&mut LockedWorkload) -> Result<(), MeasureError>,
    ) -> Result<LockedWorkload, MeasureError> {
        let subject = &subject.in_precision(self.settings.precision)?.when_not_ready(self.not_ready);
        let budget = Arc::new(Budget::new(self.budget(subject.checkpointing().len())?));
        let heartbeat = Heartbeat::begin(INTERVAL, INTERVAL, report::waiting(!self.is_cpu(), Some(budget.clone())));
        let progress = |mode, tried: &Tried| {
            report::point(&budget, mode, tried);
            heartbeat.output();
        };
        let model = subject.model(&Step::single(1, false).device(&self.device));
        let (parameters, shape) = (parameters(&model), shape(&model));
        drop(model);
        let is_other = report::is_other_model(self.described.workload().parameters.trained(), parameters);
        let bench = Bench {
            device: &self.device,
            subject,
            plain: self.mode(self.settings.precision),
            largest_batch: self.largest_batch(),
            global: self.samples_per_rank.filter(|share| *share == self.largest_batch()),
            planned: if is_other { 1 } else { self.settings.batch_size },
            budget: &budget,
            begins: &|work| heartbeat.at(work),
            progress: &progress,
        };
        let samples = bench.largest_batch.min(HOST_SAMPLES) as usize;
        let host_ms_per_sample = subject.preparation().map(|prepare| host_ms_per_sample(prepare, samples));
        let mut workload = LockedWorkload {
            described: Some(self.described.clone()),
            goal: Some(self.goal.clone()),
            measured: Measured { parameters, shape, host_ms_per_sample, on: self.replayed(&bench) },
        };
        if !workload.measured.on.is_empty() {
            keep(&mut workload)?;
        }
        self.measure_device(&bench, &mut |on| {
            workload.measured.on.insert(self.key(), on.clone());
            keep(&mut workload)
        })?;
        Ok(workload)
    }

    /// Time of a measurement in so many modes: as requested, or the default of the device.
    fn budget(&self, modes: usize) -> Result<Duration, MeasureError> {
        let default = if self.is_cpu() { MODE_ON_THE_CPU * modes as u32 } else { ON_A_GPU };
        let Some(text) = requested_budget() else { return Ok(default) };
        let seconds = text.parse().ok().filter(|seconds| *seconds > 0);
        seconds.map(Duration::from_secs).ok_or(MeasureError::Budget { text })
    }

    /// Replays allocations for the GPU that the program was built for, on a CPU.
    #[cfg(feature = "counting-allocator")]
    fn replayed<M: Module, B: Clone>(&self, bench: &Bench<'_, '_, M, B>) -> BTreeMap<String, MeasuredOn> {
        let Some(built) = self.built_for else { return BTreeMap::new() };
        if self.settings.precision.is_mixed() {
            // What is recorded is replayed with values of one size.
            report::not_replayed(&format_args!("{} has values of two sizes", self.settings.precision));
            return BTreeMap::new();
        }
        replay::devices(bench, built, package().as_deref())
    }

    /// Without a counting allocator, allocations are unknown.
    #[cfg(not(feature = "counting-allocator"))]
    fn replayed<M: Module, B: Clone>(&self, _: &Bench<'_, '_, M, B>) -> BTreeMap<String, MeasuredOn> {
        if self.is_cpu() {
            report::not_counted();
        }
        BTreeMap::new()
    }

    pub(super) fn is_cpu(&self) -> bool {
        self.reading.is_none()
    }

    /// Measures the modes of the device. Passes the results so far to `keep`, after each try.
    fn measure_device<M: Module, B: Clone>(
        &self,
        bench: &Bench<'_, '_, M, B>,
        keep: &mut dyn FnMut(&MeasuredOn) -> Result<(), MeasureError>,
    ) -> Result<(), MeasureError> {
        let four_digits = |rate: f64| format!("{rate:.3e}").parse().unwrap_or(rate);
        let mut on = self.facts.measured_on(versions::burn(package().as_deref()));
        on.fp32_tflops = on.fp32_tflops.map(four_digits);
        on.bandwidth_gb_s = on.bandwidth_gb_s.map(four_digits);
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu {
            return self.measure_gpu(bench, gpu, on, keep);
        }
        for &checkpointing in bench.subject.checkpointing() {
            measure_on_cpu(bench, checkpointing, &mut |found| {
                on.mode.insert(bench.mode(checkpointing), found);
                keep(&on)
            })?;
        }
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn measure_gpu<M: Module, B: Clone>(
        &self,
        bench: &Bench<'_, '_, M, B>,
        gpu: &OpenGpu,
        on: MeasuredOn,
        keep: &mut dyn FnMut(&MeasuredOn) -> Result<(), MeasureError>,
    ) -> Result<(), MeasureError> {
        use super::cuda::OnGpu;
        use super::gpu::{Plan, measure};

        let plan = Plan {
            largest_batch: bench.largest_batch,
            global: bench.global,
            planned: bench.planned,
            tolerance: self.goal.throughput_tolerance,
            budget: bench.budget,
            graphs: bench.subject.pass().has_graphs() && self.goal.may_use_graphs(),
            at_open: gpu.memory_free,
            progress: bench.progress,
        };
        let trial = OnGpu { bench, gpu: &gpu.gpu };
        let free_before = self.reading.as_ref().and_then(|gpu| gpu.memory_free);
        let mut on = MeasuredOn {
            driver: self.driver.clone(),
            cubecl: Some(versions::cubecl(package().as_deref())),
            context_bytes: free_before.map(|before| before - gpu.memory_free),
            ..on
        };
        let modes: Vec<_> =
            bench.subject.checkpointing().iter().map(|checkpointing| bench.mode(*checkpointing)).collect();
        measure(&trial, plan, &modes, &mut |mode, found, kernels| {
            on.kernels_bytes = on.kernels_bytes.max(Some(kernels));
            on.mode.insert(mode, found);
            keep(&on)?;
            on.mode.retain(|_, found| !found.batch.is_empty());
            Ok(())
        })
    }
}

/// Combinations of kernels and precisions other than those of `settings`. Each pins everything that is compared, because the
/// planner would choose the rest by what is measured so far.
fn other_settings(settings: &Settings, kernels: &[Kernels], precisions: &[Precision]) -> Vec<Pins> {
    let pins = |(one, precision)| {
        let mut pins = Pins::default();
        pins.kernels = (kernels.len() > 1).then_some(one);
        pins.precision = (precisions.len() > 1).then_some(precision);
        pins
    };
    let all = kernels.iter().flat_map(|kernels| precisions.iter().map(move |precision| (*kernels, *precision)));
    all.filter(|one| *one != (settings.kernels, settings.precision)).map(pins).collect()
}

/// Names of the measured tables in a lock, as in [`Update::dropped`](gpu_tuned_project::lock::Update::dropped).
fn modes(name: &str, measured: &Measured) -> Vec<String> {
    let of = |(device, on): (&String, &MeasuredOn)| {
        let measured = on.mode.iter().filter(|(_, found)| !found.batch.is_empty());
        measured.map(|(mode, _)| format!("workload.{name}.on.{device}.mode.{mode}: ")).collect::<Vec<_>>()
    };
    measured.on.iter().flat_map(of).collect()
}

/// Standard deviation that keeps the values of most networks finite. Results are not used.
const SCALE: f64 = 0.02;

impl MeasurementTarget {
    /// Measures a trainer's first step, and ends the process. The workload is named after the program.
    ///
    /// # Errors
    ///
    /// See [`MeasureError`].
    pub fn take_first_step<M: Module>(self, step: &FirstStep<'_, M>) -> Result<(), MeasureError> {
        let FirstStep { model, optimizer, samples, batch, loss, accepts_half_loss } = *step;
        let (models, optimizers) = (Mutex::new(model.clone()), Mutex::new(optimizer.clone()));
        let model = |device: &Device| copy(&models).map(&mut FreshParameters { device });
        let subject = Subject::new(model, || copy(&optimizers), batch, loss).accept_half_loss(accepts_half_loss);
        self.with_max_samples(samples).run(&program(), &subject)?;
        process::exit(0);
    }

    /// Measures a learner's first step. The workload is named after the program.
    ///
    /// # Errors
    ///
    /// See [`MeasureError`].
    #[cfg(feature = "train")]
    pub fn take_learners_first_step<M>(
        self,
        learner: &Learner<M>,
        batch: &<M as TrainStep>::Input,
    ) -> Result<(), MeasureError>
    where
        M: LearnerModel,
        <M as TrainStep>::Input: MicroBatch,
    {
        // A learner accepts weights as a record only, and does not expose its optimizer.
        let weights = learner.model().into_record();
        let (learners, batches) = (Mutex::new(learner.clone()), Mutex::new(batch.clone()));
        let begin = |device: &Device| {
            let mut learner = copy(&learners);
            learner.fork(device);
            learner.load_model(weights.clone());
            learner.lr_step();
            let model = learner.model();
            let step = move |model, gradients| {
                drop(model);
                learner.optimizer_step(gradients);
                learner.model()
            };
            (model, Optimizer::Learner(Box::new(step)))
        };
        let whole = Whole {
            gradients: Box::new(|model: &M, batch| TrainStep::step(model, batch).grads),
            forward: Box::new(forward),
            checkpointing: is_checkpointing(&learner.model()),
        };
        let batch_of = |samples, device: &Device| copy(&batches).narrow(0..samples).on_device(device);
        let subject = Subject::from_parts(begin, batch_of, Pass::Whole(whole));
        self.with_max_samples(batch.len()).run(&program(), &subject)
    }
}

/// Returns true for a model whose device recomputes activations. A move to another device does not change that.
#[cfg(feature = "train")]
fn is_checkpointing<M: Module>(model: &M) -> bool {
    let checkpointing = Device::flex().autodiff().gradient_checkpointing().gradient_checkpointing_strategy();
    differentiated(model).iter().any(|device| device.gradient_checkpointing_strategy() == checkpointing)
}

/// Forward pass alone: the model's validation step, if it accepts training batches.
#[cfg(feature = "train")]
fn forward<M: LearnerModel>(model: &M, batch: <M as TrainStep>::Input) -> Option<Box<dyn Any>> {
    let batch: Box<dyn Any> = Box::new(batch);
    let batch = batch.downcast::<<M as InferenceStep>::Input>().ok()?;
    Some(Box::new(InferenceStep::step(model, *batch)))
}

fn copy<T: Clone>(shared: &Mutex<T>) -> T {
    shared.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Name of the program, without extension.
fn program() -> String {
    let name = env::current_exe().ok().and_then(|path| Some(path.file_stem()?.to_string_lossy().into_owned()));
    name.unwrap_or_else(|| "program".to_owned())
}

/// Replaces parameters by random ones on a device, with its autodiff and checkpointing.
struct FreshParameters<'d> {
    device: &'d Device,
}

impl ModuleMapper for FreshParameters<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|old| {
            let normal = Distribution::Normal(0.0, SCALE);
            let new = Tensor::random(old.shape(), normal, (self.device, old.dtype()));
            if old.is_require_grad() { new.require_grad() } else { new }
        })
    }
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::{Kernels, Precision, Settings};

    use super::other_settings;

    #[test]
    fn everything_that_is_compared_is_pinned_and_the_library_comes_first() {
        let others = |precision, kernels, all: &[Kernels], precisions: &[Precision]| {
            let settings = Settings { precision, kernels, ..Settings::DEFAULT };
            other_settings(&settings, all, precisions).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let (both, precisions) = ([Kernels::Library, Kernels::Burn], [Precision::F32, Precision::MixedBf16]);
        let all = [
            "precision=f32,kernels=library",
            "precision=mixed_bf16,kernels=library",
            "precision=f32,kernels=burn",
            "precision=mixed_bf16,kernels=burn",
        ];
        for (own, (kernels, precision)) in
            both.iter().flat_map(|kernels| precisions.map(|precision| (*kernels, precision))).enumerate()
        {
            let mut expected = all.to_vec();
            expected.remove(own);
            assert_eq!(others(precision, kernels, &both, &precisions), expected);
        }
        let (f32, burn) = (Precision::F32, Kernels::Burn);
        assert_eq!(others(f32, burn, &[burn], &precisions), ["precision=mixed_bf16"]);
        assert_eq!(others(f32, burn, &both, &[f32]), ["kernels=library"]);
        assert_eq!(others(f32, burn, &[burn], &[f32]), [""; 0]);
    }
}
