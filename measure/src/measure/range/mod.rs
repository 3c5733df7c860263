//! Steps timed over a range of settings, under `cargo gpu-tuned bench`.
//!
//! Each configuration is recorded as soon as it has run, so an interruption loses one at most. Batches grow, and a batch is
//! skipped if smaller ones or a dry run predict that it exceeds most of the free memory. After an out-of-memory the process
//! ends, because kernels tuned without memory are slow. The command starts the process again for the rest.

mod clock;
mod sweep;

use std::ffi::OsString;
use std::time::Duration;

use burn::module::Module;
use gpu_tuned_core::{Bytes, Precision};
use gpu_tuned_observe::Host;
use gpu_tuned_observe::bench::{Begin, Feed, Figures, Header, Planned, Request};
use gpu_tuned_observe::progress::{Heartbeat, INTERVAL};

use super::target::MeasurementTarget;
use super::{MeasureError, Memory, Step, Subject, counted, parameters, shape};
use crate::requests::{non_empty, package};
use crate::versions;
use clock::{DeviceSampler, Timing, alone, fed};
use sweep::{Journal, Sweep, print_begin};

/// Reads the request of `cargo gpu-tuned bench`.
///
/// # Errors
///
/// [`MeasureError::Request`].
pub(super) fn request() -> Result<Option<Request>, MeasureError> {
    let Some(text) = text() else { return Ok(None) };
    let failed = |error: serde_json::Error| MeasureError::Request { message: error.to_string() };
    serde_json::from_str(&text.to_string_lossy()).map(Some).map_err(failed)
}

/// Returns true under `cargo gpu-tuned bench`.
pub(super) fn is_requested() -> bool {
    text().is_some()
}

/// Precision that `cargo gpu-tuned bench` requests instead of the planned one.
pub fn requested_precision() -> Option<Precision> {
    // An unreadable request is reported by the measurement.
    request().ok().flatten()?.precision
}

fn text() -> Option<OsString> {
    non_empty(Request::VARIABLE)
}

impl MeasurementTarget {
    /// Runs the requested configurations that are not on record, and records them.
    pub(super) fn range<M: Module, B: Clone>(
        &self,
        name: &str,
        subject: &Subject<'_, M, B>,
        request: &Request,
    ) -> Result<(), MeasureError> {
        let precision = request.precision.unwrap_or(self.settings.precision);
        let subject = &subject.in_precision(precision)?;
        let header = self.header(name, subject, precision);
        let mut journal = Journal::open(&request.results)?;
        let known = journal.known(request.ignored_bytes, &header)?;
        let batches = match request.batches.as_slice() {
            [] => Request::around(self.settings.batch_size, self.largest_batch()),
            batches => batches.to_vec(),
        };
        let setups = request.setups(precision, &batches);
        journal.begin(header, Begin { planned: self.planned(), setups: setups.clone() })?;
        print_begin(name, &self.facts.name, &setups, &known);
        super::report::shared(self.reading.as_ref());
        let heartbeat = Heartbeat::begin(INTERVAL, INTERVAL, super::report::waiting(!self.is_cpu(), None));
        let spend = Duration::try_from_secs_f64(request.seconds).unwrap_or(Duration::ZERO);
        let runner = OnDevice::new(self, subject, spend);
        let after_output = || heartbeat.output();
        let (largest, checkpointing) = (self.largest_batch(), subject.checkpointing());
        let other_kernels = || self.kernels().into_iter().find(|kernels| *kernels != self.settings.kernels);
        Sweep {
            runner: &runner,
            largest,
            checkpointing,
            known,
            journal: &mut journal,
            after_output: &after_output,
            other_kernels: &other_kernels,
        }
        .run(&setups)
    }

    fn planned(&self) -> Planned {
        Planned {
            precision: self.settings.precision,
            checkpointing: self.settings.gradient_checkpointing,
            batch: self.settings.batch_size,
            workers: self.settings.num_workers,
            prefetch: self.settings.prefetch_depth,
            accumulation: self.settings.gradient_accumulation,
            kernels: self.settings.kernels,
        }
    }

    fn header<M: Module, B: Clone>(&self, workload: &str, subject: &Subject<'_, M, B>, precision: Precision) -> Header {
        let model = subject.model(&Step::single(1, false).device(&self.device));
        let (parameters, shape) = (parameters(&model), shape(&model));
        let facts = self.facts.clone();
        let (is_cpu, package) = (self.is_cpu(), package());
        let (gpu, mode) = (self.gpu.as_ref(), self.mode(precision));
        Header {
            format: Header::FORMAT,
            workload: workload.to_owned(),
            device: facts.name,
            kind: facts.kind,
            memory_bytes: facts.memory_total,
            sm_count: facts.sm_count,
            cpu_threads: is_cpu.then(|| rayon::current_num_threads() as u64),
            driver: gpu.and(self.driver.clone()),
            burn: versions::burn(package.as_deref()),
            cubecl: gpu.map(|_| versions::cubecl(package.as_deref())),
            parameters,
            shape,
            described: self.described.clone(),
            debug: cfg!(debug_assertions),
            counts_memory: cfg!(feature = "counting-allocator") || !is_cpu,
            full_f32: mode.full_f32,
            kernels: mode.kernels,
        }
    }
}

/// The part of what is free that steps may take: a device must never run out of it.
const SHARE: f64 = 0.85;

/// Device that runs steps.
trait StepRunner {
    /// Memory available now.
    fn room(&self) -> Result<Bytes, MeasureError>;

    /// Predicts the memory of steps by a dry run; `None` if the device has none.
    fn foresee(&self, step: Step) -> Result<Option<Memory>, MeasureError>;

    /// Measures the memory of small steps by running them; `None` if nothing counts it, or if the device has dry runs.
    fn probe(&self, step: Step) -> Result<Option<Memory>, MeasureError>;

    /// Runs steps with their batch at hand.
    fn run(&self, step: Step) -> Result<Figures, MeasureError>;

    /// Runs steps whose batches are prepared meanwhile; `None` if the program does not describe the preparation.
    fn run_fed(&self, step: Step, feed: Feed) -> Result<Option<Figures>, MeasureError>;
}

/// The device of a session.
struct OnDevice<'c, 's, 'a, M, B> {
    case: &'c MeasurementTarget,
    subject: &'s Subject<'a, M, B>,
    eye: DeviceSampler,
    spend: Duration,
}

impl<'c, 's, 'a, M: Module, B: Clone> OnDevice<'c, 's, 'a, M, B> {
    fn new(case: &'c MeasurementTarget, subject: &'s Subject<'a, M, B>, spend: Duration) -> Self {
        let eye = case.reading.as_ref().map(|gpu| DeviceSampler::on(gpu, None)).unwrap_or_default();
        Self { case, subject, eye, spend }
    }

    fn timing(&self) -> Timing<'_> {
        Timing { device: &self.case.device, eye: &self.eye, spend: self.spend }
    }
}

impl<M: Module, B: Clone> StepRunner for OnDevice<'_, '_, '_, M, B> {
    fn room(&self) -> Result<Bytes, MeasureError> {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.case.gpu {
            let free = gpu_tuned_train::device::memory_free(&gpu.gpu).map_err(MeasureError::Driver)?;
            return Ok((free + super::reserved(&self.case.device).unwrap_or_default()).scaled(SHARE));
        }
        Ok(Host::read().memory_available.scaled(SHARE))
    }

    fn foresee(&self, step: Step) -> Result<Option<Memory>, MeasureError> {
        #[cfg(feature = "cuda")]
        if !self.case.is_cpu() {
            return super::dry(&self.case.device, self.subject, step).map(Some);
        }
        let _ = step;
        Ok(None)
    }

    fn probe(&self, step: Step) -> Result<Option<Memory>, MeasureError> {
        if self.case.is_cpu() { counted(&self.case.device, self.subject, step) } else { Ok(None) }
    }

    fn run(&self, step: Step) -> Result<Figures, MeasureError> {
        let figures = alone(self.timing(), self.subject, step)?;
        // Counted separately, because threads allocate scratch memory once and keep it.
        let Some(Memory { reserved_bytes, in_use_bytes }) = self.probe(step)? else { return Ok(figures) };
        Ok(Figures { reserved_bytes: figures.reserved_bytes.or(Some(reserved_bytes)), in_use_bytes, ..figures })
    }

    fn run_fed(&self, step: Step, feed: Feed) -> Result<Option<Figures>, MeasureError> {
        let timed = |prepare| fed(self.timing(), self.subject, step, (prepare, feed));
        self.subject.preparation().map(timed).transpose()
    }
}
