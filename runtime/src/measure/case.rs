//! What there is to measure: a session without its config.

use std::collections::BTreeMap;

use burn::module::Module;
use burn::tensor::Device;
use gpu_tuned_core::device::{DeviceFacts, GpuReading};
use gpu_tuned_core::measured::{Measured, MeasuredOn, Mode};
use gpu_tuned_core::workload::WorkloadSpec;
use gpu_tuned_core::{Goal, Precision};
use gpu_tuned_observe::bench::Planned;

use super::bench::{Bench, Tried};
use super::patience::Patience;
#[cfg(feature = "counting-allocator")]
use super::replay;
use super::session::{is_bundle_asked, is_json, lock_path, package, slug};
use super::{MeasureError, Step, Subject, cpu, host, parameters, range, report, shape, versions};
use crate::burn::tf32_is_off;
use crate::lock::{LockFile, LockedWorkload};
use crate::selection::Recognised;
use crate::session::Session;
use crate::tuned::Tuned;

/// Micro-batches to try where the goal says nothing of their size.
const LARGEST_BATCH: u64 = 1 << 16;
/// Samples that the host prepares at a time while it is timed.
const HOST_SAMPLES: u64 = 64;

/// A workload on a device.
pub(crate) struct Case {
    /// Without autodiff.
    pub(super) device: Device,
    pub(super) facts: DeviceFacts,
    /// The GPU as the drivers show it; `None` for the CPU.
    pub(super) reading: Option<GpuReading>,
    /// What the lock calls the device.
    key: String,
    pub(super) precision: Precision,
    pub(super) planned: Planned,
    pub(super) described: WorkloadSpec,
    goal: Goal,
    /// A rank's part of the global batch, if there is one.
    #[cfg(feature = "cuda")]
    global: Option<u64>,
    /// No micro-batch is larger.
    pub(super) largest_batch: u64,
    #[cfg(feature = "counting-allocator")]
    replayed_for: Option<crate::tuned::Built>,
    #[cfg(feature = "cuda")]
    gpu: Option<Gpu>,
}

/// The releases that something is measured with.
pub(super) struct Releases {
    /// `None` for a CPU, as `cubecl`.
    pub(super) driver: Option<String>,
    pub(super) burn: String,
    pub(super) cubecl: Option<String>,
}

/// The GPU as it was opened.
#[cfg(feature = "cuda")]
struct Gpu {
    opened: crate::burn::OpenGpu,
    /// What was free before that.
    free_before: Option<gpu_tuned_core::Bytes>,
    driver: Option<String>,
}

impl Case {
    pub(super) fn of<C: Tuned>(session: &Session<C>) -> Self {
        let (facts, goal, selection) = (session.facts(), session.config.asked(), session.selection());
        let is_free = goal.global_batch.is_none() && goal.global_tokens.is_none();
        let global = (!is_free).then(|| session.schedule().samples_per_rank());
        let settings = &session.plan().settings;
        let key = match &selection.device {
            Recognised::Exact { profile } => profile.clone(),
            _ => slug(&facts.name),
        };
        Self {
            device: session.inner_device(),
            key,
            reading: selection.gpu.clone(),
            precision: settings.precision,
            planned: Planned {
                precision: settings.precision,
                checkpointing: settings.gradient_checkpointing,
                batch: settings.batch_size,
                workers: settings.num_workers,
                prefetch: settings.prefetch_depth,
                accumulation: settings.gradient_accumulation,
            },
            described: session.config.workload(),
            goal,
            #[cfg(feature = "cuda")]
            global,
            largest_batch: global.unwrap_or(LARGEST_BATCH),
            #[cfg(feature = "counting-allocator")]
            replayed_for: selection.gpus.is_empty().then_some(C::BUILT),
            #[cfg(feature = "cuda")]
            gpu: session.opened.gpus.first().cloned().map(|opened| Gpu {
                opened,
                free_before: selection.gpu.as_ref().and_then(|gpu| gpu.memory_free),
                driver: session.machine.driver_version.clone(),
            }),
            facts,
        }
    }

    /// Steps without checkpointing on the device as it was opened.
    pub(super) fn mode(&self, precision: Precision) -> Mode {
        Mode::new(precision, false).allowing(!tf32_is_off(), &self.facts)
    }

    /// The same with no micro-batch larger than so many samples.
    pub(super) fn up_to(self, samples: usize) -> Self {
        Self { largest_batch: self.largest_batch.min(samples as u64).max(1), ..self }
    }

    /// Does what is asked for in the environment: measures a range, where a request is there, else for the lock.
    pub(super) fn answer<M: Module, B: Clone>(
        &self,
        name: &str,
        subject: &Subject<'_, M, B>,
    ) -> Result<(), MeasureError> {
        if is_bundle_asked() {
            return Err(MeasureError::Undescribed);
        }
        match range::asked()? {
            Some(request) => self.range(name, subject, &request),
            None => self.write(name, subject),
        }
    }

    /// Measures, and writes what comes out into the lock, mode by mode; says it all. What the host takes for a sample stays
    /// as it is there if the subject does not tell it.
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
        if is_json() {
            println!("{}", report::json(name, lock.path(), &workload));
        }
        Ok(())
    }

    /// See [`Session::measure`]; `keep` is told of everything so far: after the replay, and after each mode.
    pub(super) fn measure<M: Module, B: Clone>(
        &self,
        subject: &Subject<'_, M, B>,
        keep: &mut dyn FnMut(&mut LockedWorkload) -> Result<(), MeasureError>,
    ) -> Result<LockedWorkload, MeasureError> {
        let subject = &subject.in_precision(self.precision)?;
        let patience = Patience::begin(report::QUIET, report::waiting(!self.is_cpu()));
        let progress = |mode, tried: &Tried| {
            report::point(mode, tried);
            patience.said();
        };
        let bench = Bench {
            device: &self.device,
            subject,
            plain: self.mode(self.precision),
            largest_batch: self.largest_batch,
            begins: &|step| patience.at(step),
            progress: &progress,
        };
        let model = subject.model(&Step::single(1, false).device(bench.device));
        let (parameters, shape) = (parameters(&model), shape(&model));
        drop(model);
        let samples = bench.largest_batch.min(HOST_SAMPLES) as usize;
        let host_ms_per_sample = subject.preparation().map(|prepare| host::ms_per_sample(prepare, samples));
        let mut workload = LockedWorkload {
            described: Some(self.described.clone()),
            goal: Some(self.goal.clone()),
            measured: Measured { parameters, shape, host_ms_per_sample, on: self.replayed(&bench) },
        };
        if !workload.measured.on.is_empty() {
            keep(&mut workload)?;
        }
        self.measure_device(&bench, &mut |on| {
            workload.measured.on.insert(self.key.clone(), on.clone());
            keep(&mut workload)
        })?;
        Ok(workload)
    }

    /// What steps would reserve on the GPU that the program was built for, where there is none.
    #[cfg(feature = "counting-allocator")]
    fn replayed<M: Module, B: Clone>(&self, bench: &Bench<'_, '_, M, B>) -> BTreeMap<String, MeasuredOn> {
        let Some(built) = &self.replayed_for else { return BTreeMap::new() };
        if self.precision.is_mixed() {
            // What is recorded is replayed with values of one size.
            report::not_replayed(&format_args!("{} has values of two sizes", self.precision));
            return BTreeMap::new();
        }
        replay::devices(bench, built, self.described.workload().family, package().as_deref())
    }

    /// Nothing counts what steps allocate.
    #[cfg(not(feature = "counting-allocator"))]
    fn replayed<M: Module, B: Clone>(&self, _: &Bench<'_, '_, M, B>) -> BTreeMap<String, MeasuredOn> {
        if self.is_cpu() {
            report::not_counted();
        }
        BTreeMap::new()
    }

    /// Whether it is trained on the CPU.
    pub(super) fn is_cpu(&self) -> bool {
        self.reading.is_none()
    }

    /// The GPU that was opened.
    #[cfg(feature = "cuda")]
    pub(super) fn cuda(&self) -> Option<&crate::burn::CudaDevice> {
        self.gpu.as_ref().map(|gpu| &gpu.opened.gpu)
    }

    /// What is measured with.
    #[cfg_attr(not(feature = "cuda"), expect(clippy::unused_self, reason = "the CPU has no driver"))]
    pub(super) fn releases(&self) -> Releases {
        let releases = Releases { driver: None, burn: versions::burn(package().as_deref()), cubecl: None };
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu {
            let cubecl = Some(versions::cubecl(package().as_deref()));
            return Releases { driver: gpu.driver.clone(), cubecl, ..releases };
        }
        releases
    }

    /// Measures the modes of the session's device; `keep` is told of all so far, after each.
    fn measure_device<M: Module, B: Clone>(
        &self,
        bench: &Bench<'_, '_, M, B>,
        keep: &mut dyn FnMut(&MeasuredOn) -> Result<(), MeasureError>,
    ) -> Result<(), MeasureError> {
        let four_digits = |rate: f64| format!("{rate:.3e}").parse().unwrap_or(rate);
        let mut on = MeasuredOn::new(&self.facts, versions::burn(package().as_deref()));
        on.fp32_tflops = on.fp32_tflops.map(four_digits);
        on.bandwidth_gb_s = on.bandwidth_gb_s.map(four_digits);
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu {
            return self.measure_gpu(bench, gpu, on, keep);
        }
        for &checkpointing in bench.subject.checkpointing() {
            on.mode.insert(bench.mode(checkpointing), cpu::mode(bench, checkpointing)?);
            keep(&on)?;
        }
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn measure_gpu<M: Module, B: Clone>(
        &self,
        bench: &Bench<'_, '_, M, B>,
        gpu: &Gpu,
        on: MeasuredOn,
        keep: &mut dyn FnMut(&MeasuredOn) -> Result<(), MeasureError>,
    ) -> Result<(), MeasureError> {
        use super::cuda::OnGpu;
        use super::gpu::{Plan, measured};

        let Gpu { opened, free_before, driver } = gpu;
        let plan = Plan {
            largest_batch: bench.largest_batch,
            global: self.global,
            at_open: opened.memory_free,
            progress: bench.progress,
        };
        let trial = OnGpu { bench, gpu: &opened.gpu };
        let mut on = MeasuredOn {
            driver: driver.clone(),
            cubecl: Some(versions::cubecl(package().as_deref())),
            context_bytes: free_before.map(|before| before - opened.memory_free),
            ..on
        };
        for &checkpointing in bench.subject.checkpointing() {
            let mode = bench.mode(checkpointing);
            let found = measured(&trial, plan, mode)?;
            on.kernels_bytes = on.kernels_bytes.max(Some(found.kernels));
            on.mode.insert(mode, found.mode);
            keep(&on)?;
        }
        Ok(())
    }
}

/// The tables of a lock that have what was measured, as [`Update::dropped`](crate::lock::Update::dropped) begins.
fn modes(name: &str, measured: &Measured) -> Vec<String> {
    let of = |(device, on): (&String, &MeasuredOn)| {
        on.mode.keys().map(|mode| format!("workload.{name}.on.{device}.mode.{mode}: ")).collect::<Vec<_>>()
    };
    measured.on.iter().flat_map(of).collect()
}
