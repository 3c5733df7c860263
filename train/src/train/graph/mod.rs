//! CUDA graphs: forward and backward pass of a micro-batch, recorded once and launched again with one call.
//!
//! A launch from the host takes longer than many kernels run. A recording launches all kernels of a micro-step
//! together, on the memory of the recording: parameters and samples are copied there first. The optimizer, clipping and
//! accumulation stay as they are.
//!
//! Forward passes may change running statistics, such as those of a batch norm. Recorded work ends with a copy of the new
//! statistics into the memory of the recording. They are handed back to the model before anything else reads them.
//!
//! Values that the host passed to kernels are part of the recording, so a model whose random operations change on the
//! host cannot be replayed. Such models are found by comparing replays with plain micro-steps on the same samples, in the
//! first steps after a recording and in every [`RECHECK`]th one.

mod agreement;
pub(super) mod memory;
mod micro_step;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::Device;
use gpu_tuned_observe::log::warn_user;
use serde::Serialize;

use super::accumulation::MicroBatchGradients;
use super::buffers::changed_by;
use super::outcome::StepFailure;
use super::rescue::release_memory;
use super::trainer::Trainer;
use crate::loss::{Loss, StepWeight};
use crate::micro_batch::MicroBatch;
use crate::mixed::{Factor, LossScale, is_half};
use crate::out_of_memory::{Moment, OutOfMemory, watched};
use crate::timing::StepTimer;
use micro_step::MicroStep;

pub(super) use micro_step::Factors;
pub use micro_step::check_loss;

/// Plain micro-steps before a recording: kernels are tuned, and the optimizer state is allocated.
const WARM_UP: u32 = 8;
/// Steps whose replays are compared with plain micro-steps.
const CHECKS: u32 = 3;
/// Interval of later comparisons, in steps.
const RECHECK: u64 = 500;
/// Recordings that may fail for want of memory.
const ATTEMPTS: u32 = 2;

/// Recorded micro-step of a trainer, and when it is used. Micro-steps have an output of type `T` beside gradients.
pub(super) struct Graphs<M, T> {
    device: Device,
    status: GraphStatus,
    recorded: Option<MicroStep<M, T>>,
    /// Samples in a micro-batch at most.
    limit: usize,
    /// Samples in the largest micro-batch so far, which is recorded.
    size: usize,
    /// Bytes of the recorded micro-batch. Another shape has others, such as that of shorter sequences.
    bytes: usize,
    /// Plain micro-steps of this size.
    plain: u32,
    /// Steps that were compared.
    checked: u32,
    /// Steps since the last comparison.
    unchecked: u64,
    newest: Newest,
    /// True until this step has compared or need not.
    is_due: bool,
    /// Recordings that ended for want of memory.
    lost: u32,
    /// True if something has kept gradients after a step. Replays then hand on copies.
    copies: bool,
}

/// Place of the newest parameters and running statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Newest {
    /// The model. The memory of the recording is out of date.
    Model,
    /// Both the model and the memory of the recording.
    Both,
    /// The memory of the recording. The model's running statistics are out of date.
    Recording,
}

/// Recorded micro-step that all clones of a model share.
pub(crate) struct SharedGraphs<M, T>(Arc<Mutex<Graphs<M, T>>>);

impl<M, T> Clone for SharedGraphs<M, T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M: Module, T: 'static> SharedGraphs<M, T> {
    pub(super) fn new(device: &Device) -> Self {
        Self(Arc::new(Mutex::new(Graphs::new(device.clone()))))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Graphs<M, T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Plain micro-step with the samples and factors that it gets.
pub(super) type Work<'w, M, B, T> = &'w dyn Fn(&M, B, Factors<'_>) -> Result<MicroBatchGradients<T>, StepFailure>;

impl<M: Module, T: 'static> Graphs<M, T> {
    pub(super) fn new(device: Device) -> Self {
        Self {
            device,
            status: GraphStatus::Off,
            recorded: None,
            limit: 0,
            size: 0,
            bytes: 0,
            plain: 0,
            checked: 0,
            unchecked: 0,
            newest: Newest::Model,
            is_due: true,
            lost: 0,
            copies: false,
        }
    }

    /// Records as soon as kernels are tuned.
    pub(super) fn switch_on(&mut self) {
        self.status = GraphStatus::WarmingUp;
    }

    /// Begins a step of new parameters, in micro-batches of at most `limit` samples.
    pub(super) fn begin_step(&mut self, limit: usize) {
        if self.limit != limit {
            self.limit = limit;
            self.begin_anew();
        }
        self.unchecked += 1;
        self.newest = Newest::Model;
        self.is_due = self.checked < CHECKS || self.unchecked >= RECHECK;
    }

    /// Returns true if micro-steps are recorded, or will be.
    pub(super) const fn are_on(&self) -> bool {
        !matches!(self.status, GraphStatus::Off | GraphStatus::Refused { .. })
    }

    /// Drops the recording and its memory after an out-of-memory error. Returns true if there was one.
    pub(super) fn release(&mut self) -> bool {
        if self.recorded.is_none() {
            return false;
        }
        self.lost += 1;
        self.begin_anew();
        if self.lost >= ATTEMPTS {
            self.refuse(format!("memory ran out {ATTEMPTS} times beside a recording"));
        }
        true
    }

    fn begin_anew(&mut self) {
        self.recorded = None;
        (self.size, self.plain, self.checked) = (0, 0, 0);
        self.is_due = true;
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
        work: Work<'_, M, B, T>,
    ) -> Result<MicroBatchGradients<T>, StepFailure> {
        let plain = |micro: B| work(model, micro, Factors::Numbers { share: factors.0, scale: factors.1 });
        if !self.is_recorded(&micro) || self.is_due {
            self.hand_back(model)?;
        }
        if !self.is_ready(model, &micro, factors, work) {
            self.newest = Newest::Model;
            return plain(micro);
        }
        // The next replay overwrites the gradients of the last one.
        if !self.copies && self.recorded.as_mut().is_some_and(|recorded| recorded.result_is_in_use(model)) {
            self.hand_back(model)?;
            self.copies = true;
            self.begin_anew();
            return plain(micro);
        }
        if self.is_due {
            return self.compare(model, &micro, factors, &plain);
        }
        self.replay(model, micro.clone(), factors).or_else(|because| {
            self.hand_back(model)?;
            self.refuse(because);
            plain(micro)
        })
    }

    /// Returns true if micro-batches like `micro` are recorded. Records if kernels are tuned.
    fn is_ready<B: MicroBatch>(
        &mut self,
        model: &M,
        micro: &B,
        factors: (f64, &LossScale),
        work: Work<'_, M, B, T>,
    ) -> bool {
        if !self.are_on() {
            return false;
        }
        if micro.len() > self.size {
            self.begin_anew();
            self.size = micro.len();
        }
        if micro.len() == self.size && self.recorded.is_none() {
            self.plain += 1;
            if self.plain <= WARM_UP {
                return false;
            }
            if let Err(because) = self.record(model, micro, factors, work) {
                self.refuse(because);
                // Plain micro-steps need the memory of a recording that failed.
                release_memory(&self.device);
            }
        }
        self.is_recorded(micro)
    }

    fn is_recorded<B: MicroBatch>(&self, micro: &B) -> bool {
        self.recorded.is_some() && micro.len() == self.size && micro.bytes(&self.device) == self.bytes
    }

    /// Copies running statistics from the recording to the model, if those of the model are out of date.
    pub(super) fn hand_back(&mut self, model: &M) -> Result<(), OutOfMemory> {
        if self.newest != Newest::Recording {
            return Ok(());
        }
        self.newest = Newest::Both;
        let statistics = self.recorded.as_ref().and_then(MicroStep::statistics);
        statistics.map_or(Ok(()), |kept| watched(Moment::Backward, || kept.copied(model).restore(model)))
    }

    fn record<B: MicroBatch>(
        &mut self,
        model: &M,
        micro: &B,
        factors: (f64, &LossScale),
        work: Work<'_, M, B, T>,
    ) -> Result<(), String> {
        let with_message =
            |model: &M, micro, factors: Factors<'_>| work(model, micro, factors).map_err(StepFailure::into_message);
        let numbers = Factors::Numbers { share: factors.0, scale: factors.1 };
        let changing = changed_by(model, || with_message(model, micro.clone(), numbers).map(drop))?;
        let recorded = MicroStep::record(model, changing.as_ref(), micro, factors, &self.device, with_message)?;
        self.recorded = Some(recorded);
        self.bytes = micro.bytes(&self.device);
        self.status = GraphStatus::Checking;
        self.newest = Newest::Model;
        Ok(())
    }

    fn replay<B: MicroBatch>(
        &mut self,
        model: &M,
        micro: B,
        factors: (f64, &LossScale),
    ) -> Result<MicroBatchGradients<T>, String> {
        let recorded = self.recorded.as_mut().ok_or("there is no recording")?;
        if self.newest == Newest::Model {
            recorded.load(model)?;
            self.newest = Newest::Both;
        }
        recorded.replay(micro, factors)?;
        self.newest = Newest::Recording;
        // Another micro-batch of the step overwrites the result. Sums widen 16-bit gradients into other memory.
        let (copies_all, is_whole) = (self.copies || self.is_due, factors.0 >= 1.0);
        let is_copied = |dtype| copies_all || !is_whole && !is_half(dtype);
        recorded.handed_on(model, is_copied)
    }
}

/// Use of CUDA graphs by a trainer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
#[non_exhaustive]
pub enum GraphStatus {
    /// Not asked for.
    #[default]
    Off,
    /// Asked for; micro-steps still run one kernel at a time.
    WarmingUp,
    /// Recorded; replays are compared with plain micro-steps.
    Checking,
    /// Micro-steps of full size are replayed.
    Replaying,
    /// Impossible for this model, batch or device.
    Refused {
        /// The reason.
        because: String,
    },
}

impl fmt::Display for GraphStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::WarmingUp => f.write_str("warming up"),
            Self::Checking => f.write_str("recorded, not yet checked"),
            Self::Replaying => f.write_str("replaying"),
            Self::Refused { because } => write!(f, "refused: {because}"),
        }
    }
}

impl<M: Module> Trainer<M> {
    /// Replays micro-steps of full size as CUDA graphs, after some plain ones. See [`graph_status`](Self::graph_status).
    ///
    /// Takes memory for a second copy of the parameters, and keeps the memory of one micro-step's activations. Each of several ranks
    /// records its own micro-steps; gradients are exchanged between replays.
    #[must_use]
    pub fn cuda_graphs(self) -> Self {
        self.trained.graphs.lock().switch_on();
        self
    }

    /// Use of [CUDA graphs](Self::cuda_graphs), with the reason if they were refused.
    pub fn graph_status(&self) -> GraphStatus {
        self.trained.graphs.lock().status.clone()
    }
}

/// Micro-steps on one batch, recorded and replayed as by a [`Trainer`](super::Trainer) with CUDA graphs. The batch is
/// part of the recording, and not copied.
pub struct FixedBatchGraphs<M>(Graphs<M, ()>);

/// Number of samples of a batch that stays where it is.
#[derive(Clone)]
struct Samples(usize);

impl MicroBatch for Samples {
    fn len(&self) -> usize {
        self.0
    }

    fn narrow(&self, samples: Range<usize>) -> Self {
        Self(samples.len())
    }

    fn on_device(self, _: &Device) -> Self {
        self
    }

    fn has_arrived(&self) -> bool {
        true
    }

    fn bytes(&self, _: &Device) -> usize {
        0
    }

    fn store(self, _: Option<Self>) -> Option<Self> {
        Some(self)
    }
}

impl<M: Module> FixedBatchGraphs<M> {
    /// Graphs on a device with autodiff.
    pub fn new(device: &Device) -> Self {
        let mut graphs = Graphs::new(device.clone());
        graphs.switch_on();
        Self(graphs)
    }

    /// Begins a step in micro-batches of so many samples.
    pub fn begin_step(&mut self, samples: usize) {
        self.0.begin_step(samples);
    }

    /// Gradients of a micro-batch, multiplied by the loss scale, and by `share` where the loss has no weight; and their factor
    /// in a sum.
    ///
    /// # Errors
    ///
    /// The message of an out-of-memory error, or of a loss that cannot be minimised.
    pub fn gradients(
        &mut self,
        model: &M,
        samples: usize,
        (share, scale): (f64, &LossScale),
        loss: &dyn Fn(&M) -> Loss,
    ) -> Result<(GradientsParams, Factor), String> {
        let timer = StepTimer::default();
        let work = |model: &M, _: Samples, factors: Factors<'_>| {
            MicroBatchGradients::compute(|| loss(model), model, factors, false, &timer, |_| {})
        };
        let result = self.0.differentiate(model, Samples(samples), (share, scale), &work);
        let result = result.map_err(StepFailure::into_message)?;
        let factor = StepWeight::factor(result.weight.as_ref(), scale.value().recip());
        Ok((result.gradients, factor))
    }

    /// Copies the running statistics of replays to the model, as after the last micro-batch of a step.
    ///
    /// # Errors
    ///
    /// The message of an out-of-memory error.
    pub fn complete(&mut self, model: &M) -> Result<(), String> {
        self.0.hand_back(model).map_err(|failure| failure.message)
    }

    /// Use of graphs, with the reason if they were refused.
    pub const fn status(&self) -> &GraphStatus {
        &self.0.status
    }
}
