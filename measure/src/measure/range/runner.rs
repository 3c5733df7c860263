//! Devices that run steps.

use std::time::Duration;

use burn::module::Module;
use gpu_tuned_core::Bytes;
use gpu_tuned_observe::Host;
use gpu_tuned_observe::bench::{Feed, Figures};

use super::super::target::MeasurementTarget;
use super::super::{MeasureError, Memory, Step, Subject};
use super::clock::{Timed, Timing, alone, fed};
use super::sampler::DeviceSampler;

/// The part of what is free that steps may take: a device must never run out of it.
const SHARE: f64 = 0.85;

/// Device that runs steps.
pub(super) trait StepRunner {
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
pub(super) struct OnDevice<'c, 's, 'a, M, B> {
    case: &'c MeasurementTarget,
    subject: &'s Subject<'a, M, B>,
    eye: DeviceSampler,
    spend: Duration,
}

impl<'c, 's, 'a, M: Module, B: Clone> OnDevice<'c, 's, 'a, M, B> {
    pub(super) fn new(case: &'c MeasurementTarget, subject: &'s Subject<'a, M, B>, spend: Duration) -> Self {
        let eye = case.reading.as_ref().map(|gpu| DeviceSampler::on(gpu, None)).unwrap_or_default();
        Self { case, subject, eye, spend }
    }

    fn timing(&self) -> Timing<'_> {
        Timing { device: &self.case.device, eye: &self.eye, spend: self.spend }
    }
}

impl<M: Module, B: Clone> StepRunner for OnDevice<'_, '_, '_, M, B> {
    #[cfg(feature = "cuda")]
    fn room(&self) -> Result<Bytes, MeasureError> {
        let Some(gpu) = self.case.cuda() else { return Ok(available_host_memory()) };
        let free = gpu_tuned_train::device::memory_free(gpu).map_err(MeasureError::Driver)?;
        Ok((free + super::super::reserved(&self.case.device).unwrap_or_default()).scaled(SHARE))
    }

    #[cfg(not(feature = "cuda"))]
    fn room(&self) -> Result<Bytes, MeasureError> {
        Ok(available_host_memory())
    }

    #[cfg(feature = "cuda")]
    fn foresee(&self, step: Step) -> Result<Option<Memory>, MeasureError> {
        if self.case.is_cpu() {
            return Ok(None);
        }
        super::super::dry(&self.case.device, self.subject, step).map(Some)
    }

    #[cfg(not(feature = "cuda"))]
    fn foresee(&self, _: Step) -> Result<Option<Memory>, MeasureError> {
        Ok(None)
    }

    #[cfg(feature = "counting-allocator")]
    fn probe(&self, step: Step) -> Result<Option<Memory>, MeasureError> {
        if !self.case.is_cpu() {
            return Ok(None);
        }
        super::super::held(&self.case.device, self.subject, step).map(Some)
    }

    #[cfg(not(feature = "counting-allocator"))]
    fn probe(&self, _: Step) -> Result<Option<Memory>, MeasureError> {
        Ok(None)
    }

    fn run(&self, step: Step) -> Result<Figures, MeasureError> {
        let timed = alone(self.timing(), self.subject, step)?;
        // Counted separately, because threads allocate scratch memory once and keep it.
        let counted = self.probe(step)?;
        Ok(figures(timed, counted))
    }

    fn run_fed(&self, step: Step, feed: Feed) -> Result<Option<Figures>, MeasureError> {
        let Some(prepare) = self.subject.preparation() else { return Ok(None) };
        let timed = fed(self.timing(), self.subject, step, (prepare, feed))?;
        Ok(Some(figures(timed, None)))
    }
}

/// Available part of host memory.
fn available_host_memory() -> Bytes {
    Host::read().memory_available.scaled(SHARE)
}

fn figures(timed: Timed, counted: Option<Memory>) -> Figures {
    Figures {
        samples_per_s: timed.samples_per_s,
        repeats: timed.repeats as u64,
        step_ms: timed.step_ms,
        phases: timed.phases,
        waiting_percent: timed.waiting_percent,
        reserved_bytes: timed.reserved.or(counted.map(|memory| memory.reserved_bytes)),
        in_use_bytes: counted.and_then(|memory| memory.in_use_bytes),
        predicted_bytes: None,
        gpu_percent: timed.utilization.gpu_percent,
        cpu_percent: timed.utilization.cpu_percent,
        is_finite: timed.is_finite,
    }
}
