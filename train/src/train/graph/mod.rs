//! CUDA graphs: forward and backward pass of a micro-batch, recorded once and launched again with one call.
//!
//! A launch from the host takes longer than many kernels run. A recording launches all kernels of a micro-step
//! together, on the memory of the recording: parameters and samples are copied there first. The optimizer, clipping and
//! accumulation stay as they are.
//!
//! Values that the host passed to kernels are part of the recording, so a model whose random operations or running
//! statistics change on the host cannot be replayed. Such models are found by comparing replays with plain micro-steps on
//! the same samples, in the first steps after a recording and in every [`RECHECK`]th one.

mod agreement;
mod kept;
mod micro_step;
mod recording;
mod status;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::module::Module;
use burn::tensor::Device;
use gpu_tuned_observe::log::warn_user;

use self::agreement::{Agreement, Comparison};
use self::micro_step::MicroStep;
pub(super) use self::micro_step::{Differentiated, Factors};
pub use self::status::GraphStatus;
use super::buffers::forward_changes_buffers;
use super::step_failure::StepFailure;
use crate::micro_batch::MicroBatch;
use crate::mixed::LossScale;

/// Plain micro-steps before a recording: kernels are tuned, and the optimizer state is allocated.
const WARM_UP: u32 = 8;
/// Steps whose replays are compared with plain micro-steps.
const CHECKS: u32 = 3;
/// Interval of later comparisons, in steps.
const RECHECK: u64 = 500;
/// Recordings that may fail for want of memory.
const ATTEMPTS: u32 = 2;

/// Recorded micro-step of a trainer, and when it is used.
pub(super) struct Graphs<M> {
    device: Device,
    status: GraphStatus,
    recorded: Option<MicroStep<M>>,
    /// Samples in a micro-batch at most.
    limit: usize,
    /// Samples in the largest micro-batch so far, which is recorded.
    size: usize,
    /// Plain micro-steps of this size.
    plain: u32,
    /// Steps that were compared.
    checked: u32,
    /// Steps since the last comparison.
    unchecked: u64,
    /// True until the parameters of this step are in the memory of the recording.
    is_stale: bool,
    /// True until this step has compared or need not.
    is_due: bool,
    /// Recordings that ended for want of memory.
    lost: u32,
    gradients: Gradients,
}

/// Memory of the gradients that a replay hands on.
#[derive(Clone, Copy)]
enum Gradients {
    /// That of the recording, unless another replay of the step overwrites it.
    Shared,
    /// That of the recording, because all gradients are widened into other memory.
    Widened,
    /// Other memory, because something has kept gradients after a step.
    Copied,
}

/// Recorded micro-step that all clones of a model share.
#[derive(Clone)]
pub(crate) struct SharedGraphs<M>(Arc<Mutex<Graphs<M>>>);

impl<M: Module> SharedGraphs<M> {
    pub(super) fn new(device: &Device) -> Self {
        Self(Arc::new(Mutex::new(Graphs::new(device.clone()))))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Graphs<M>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Plain micro-step with the samples and factors that it gets.
pub(super) type Work<'w, M, B> = &'w dyn Fn(&M, B, Factors<'_>) -> Result<Differentiated, StepFailure>;

impl<M: Module> Graphs<M> {
    pub(super) fn new(device: Device) -> Self {
        Self {
            device,
            status: GraphStatus::Off,
            recorded: None,
            limit: 0,
            size: 0,
            plain: 0,
            checked: 0,
            unchecked: 0,
            is_stale: true,
            is_due: true,
            lost: 0,
            gradients: Gradients::Shared,
        }
    }

    /// Records as soon as kernels are tuned.
    pub(super) fn switch_on(&mut self) {
        self.status = GraphStatus::WarmingUp;
    }

    pub(super) const fn status(&self) -> &GraphStatus {
        &self.status
    }

    /// Begins a step of new parameters, in micro-batches of at most `limit` samples. The step `widens` gradients to fp32,
    /// or uses them as they are.
    pub(super) fn begin_step(&mut self, limit: usize, widens: bool) {
        if widens {
            self.gradients = Gradients::Widened;
        }
        if self.limit != limit {
            self.limit = limit;
            self.begin_anew();
        }
        self.unchecked += 1;
        self.is_stale = true;
        self.is_due = self.checked < CHECKS || self.unchecked >= RECHECK;
    }

    /// Drops the recording and its memory after an out-of-memory.
    pub(super) fn release(&mut self) {
        if self.recorded.is_some() {
            self.lost += 1;
            self.begin_anew();
            if self.lost >= ATTEMPTS {
                self.refuse(format!("memory ran out {ATTEMPTS} times beside a recording"));
            }
        }
    }

    fn begin_anew(&mut self) {
        self.recorded = None;
        (self.size, self.plain, self.checked) = (0, 0, 0);
        if matches!(self.status, GraphStatus::Checking | GraphStatus::Replaying) {
            self.status = GraphStatus::WarmingUp;
        }
    }

    pub(super) fn refuse(&mut self, because: String) {
        self.recorded = None;
        warn_user(&format!("CUDA graphs are off, and training goes on without: {because}"));
        self.status = GraphStatus::Refused { because };
    }

    /// Computes the gradients of a micro-batch, by a replay where possible.
    pub(super) fn differentiate<B: MicroBatch>(
        &mut self,
        model: &M,
        micro: B,
        factors: (f64, &LossScale),
        work: Work<'_, M, B>,
    ) -> Result<Differentiated, StepFailure> {
        let plain = |micro: B| work(model, micro, Factors::Numbers { share: factors.0, scale: factors.1 });
        let is_on = !matches!(self.status, GraphStatus::Off | GraphStatus::Refused { .. });
        if is_on && micro.len() > self.size {
            self.begin_anew();
            self.size = micro.len();
        }
        if !is_on || micro.len() != self.size {
            return plain(micro);
        }
        if self.recorded.is_none() {
            self.plain += 1;
            if self.plain <= WARM_UP {
                return plain(micro);
            }
            if let Err(because) = self.record(model, &micro, factors, work) {
                self.refuse(because);
                return plain(micro);
            }
        }
        // The next replay overwrites the gradients of the last one.
        if self.recorded.as_mut().is_some_and(|recorded| recorded.output_is_in_use(model)) {
            self.gradients = Gradients::Copied;
            self.begin_anew();
            return plain(micro);
        }
        let result = if self.is_due {
            self.compare(model, &micro, factors, &plain)
        } else {
            self.replay(model, micro.clone(), factors).map(Ok)
        };
        result.unwrap_or_else(|because| {
            self.refuse(because);
            plain(micro)
        })
    }

    fn record<B: MicroBatch>(
        &mut self,
        model: &M,
        micro: &B,
        factors: (f64, &LossScale),
        work: Work<'_, M, B>,
    ) -> Result<(), String> {
        if forward_changes_buffers(model, || {
            work(model, micro.clone(), Factors::Numbers { share: factors.0, scale: factors.1 }).is_ok()
        }) {
            return Err("forward passes change values of the model that are not parameters, such as the running \
                        statistics of a batch norm; a replay would not"
                .to_owned());
        }
        let in_words =
            |model: &M, micro, factors: Factors<'_>| work(model, micro, factors).map_err(StepFailure::into_message);
        self.recorded = Some(MicroStep::record(model, micro, factors, &self.device, in_words)?);
        self.status = GraphStatus::Checking;
        self.is_stale = false;
        Ok(())
    }

    fn replay<B: MicroBatch>(
        &mut self,
        model: &M,
        micro: B,
        factors: (f64, &LossScale),
    ) -> Result<Differentiated, String> {
        let recorded = self.recorded.as_mut().ok_or("there is no recording")?;
        if std::mem::take(&mut self.is_stale) {
            recorded.load(model)?;
        }
        recorded.replay(micro, factors)?;
        // Another micro-batch of the step, or a comparison, overwrites the output.
        let overwritten = match self.gradients {
            Gradients::Shared => factors.0 < 1.0,
            Gradients::Widened => false,
            Gradients::Copied => true,
        };
        Ok(if overwritten || self.is_due { recorded.output.copied(model) } else { recorded.output.shared(model) })
    }

    /// Compares two replays with two plain micro-steps, and returns a plain result.
    fn compare<B: MicroBatch>(
        &mut self,
        model: &M,
        micro: &B,
        factors: (f64, &LossScale),
        plain: &dyn Fn(B) -> Result<Differentiated, StepFailure>,
    ) -> Result<Result<Differentiated, StepFailure>, String> {
        let first = match plain(micro.clone()) {
            Ok(first) => first,
            Err(failure) => return Ok(Err(failure)),
        };
        let second = match plain(micro.clone()) {
            Ok(second) => second,
            Err(failure) => return Ok(Err(failure)),
        };
        let replays = [self.replay(model, micro.clone(), factors)?, self.replay(model, micro.clone(), factors)?];
        let comparison = match Comparison::read(model, [&first, &second], [&replays[0], &replays[1]]) {
            Ok(comparison) => comparison,
            Err(failure) => return Ok(Err(failure)),
        };
        match comparison.agreement() {
            // Gradients that are not finite, in a step that will be skipped.
            Agreement::Unknown => {}
            Agreement::Yes => {
                self.is_due = false;
                self.unchecked = 0;
                self.checked += 1;
                if self.checked == CHECKS {
                    tracing::info!(samples = self.size, "CUDA graphs: replays agree with plain steps");
                    self.status = GraphStatus::Replaying;
                    // Plain micro-steps of this size need their memory in comparisons only.
                    self.device.memory_cleanup();
                }
            }
            Agreement::No(because) => return Err(because),
        }
        Ok(Ok(first))
    }
}
