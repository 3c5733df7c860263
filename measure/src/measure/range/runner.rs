//! Devices that run steps.

use std::time::Duration;

use burn::module::Module;
use gpu_tuned_core::Bytes;
use gpu_tuned_observe::Host;
use gpu_tuned_observe::bench::{Feed, Figures};

use super::super::target::MeasurementTarget;
use super::super::{MeasureError, Memory, Step, Subject, counted};
use super::clock::{Timing, alone, fed};
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
    fn room(&self) -> Result<Bytes, MeasureError> {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.case.gpu {
            let free = gpu_tuned_train::device::memory_free(&gpu.gpu).map_err(MeasureError::Driver)?;
            return Ok((free + super::super::reserved(&self.case.device).unwrap_or_default()).scaled(SHARE));
        }
        Ok(Host::read().memory_available.scaled(SHARE))
    }

    fn foresee(&self, step: Step) -> Result<Option<Memory>, MeasureError> {
        #[cfg(feature = "cuda")]
        if !self.case.is_cpu() {
            return super::super::dry(&self.case.device, self.subject, step).map(Some);
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
