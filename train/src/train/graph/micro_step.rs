//! Forward and backward pass of one micro-batch, recorded.

use std::any::Any;
use std::cell::RefCell;
use std::fmt::Display;
use std::thread::{self, ThreadId};

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, FloatDType, Tensor};
use burn_backend::{Backend, BackendGraph};
use burn_dispatch::Dispatch;

use super::memory::{copied_output, stored_parameters};
use crate::device::catching;
use crate::loss::{Loss, StepWeight, Weight};
use crate::micro_batch::MicroBatch;
use crate::mixed::{LossScale, MixedError, is_half};
use crate::out_of_memory::{Moment, watched};
use crate::shape::{store, visit_floats, with_autodiff_of};
use crate::timing::{Phase, StepTimer};
use crate::train::accumulation::MicroBatchGradients;
use crate::train::buffers::Buffers;
use crate::train::outcome::{StepError, StepFailure};

const HOST_WEIGHT: &str =
    "the weight of the loss is a number of the host, which a replay would repeat: return a tensor of shape [1]";
const OTHER_OUTPUT: &str = "the training step returns an output of another type than those of Burn";

/// Factors of a loss: numbers, or device memory that a recording reads.
#[derive(Clone, Copy)]
pub(in crate::train) enum Factors<'f> {
    Numbers { share: f64, scale: &'f LossScale },
    Kept { share: &'f Tensor<1>, scale: &'f Tensor<1> },
}

impl Factors<'_> {
    /// The loss times the share of samples.
    pub(in crate::train) fn share(self, loss: Tensor<1>) -> Tensor<1> {
        match self {
            Self::Numbers { share, .. } => loss.mul_scalar(share),
            Self::Kept { share, .. } => loss.mul(share.clone()),
        }
    }

    /// The loss times the loss scale.
    pub(in crate::train) fn scale(self, loss: Tensor<1>) -> Tensor<1> {
        match self {
            Self::Numbers { scale, .. } => scale.scale(loss),
            Self::Kept { scale, .. } => loss.mul(scale.clone()),
        }
    }
}

impl MicroBatchGradients<()> {
    /// Computes the gradients of a mean loss times the loss scale, in the type of the parameters, and times the share of
    /// samples where the loss has no weight. A loss in 16 bits is an error if the step `refuses_half`. `weighed` is called with the
    /// weight before the backward pass.
    pub(in crate::train) fn compute<M: Module>(
        loss: impl FnOnce() -> Loss,
        model: &M,
        factors: Factors<'_>,
        refuses_half: bool,
        timer: &StepTimer,
        weighed: impl FnOnce(Option<&StepWeight>),
    ) -> Result<Self, StepFailure> {
        let (mean, weight) = timer.time(Phase::Loss, || watched(Moment::Forward, || loss().into_parts()))?;
        check_loss(&mean, refuses_half)?;
        let weight = weight.map(Weight::in_step).transpose().map_err(StepError::from)?;
        let mean = mean.cast(FloatDType::F32);
        let weighted = |weight: &StepWeight| {
            let mean = mean.clone().without_autodiff();
            match weight {
                StepWeight::Number(weight) if *weight > 0.0 => mean.mul_scalar(*weight),
                StepWeight::Number(_) => mean.zeros_like(),
                StepWeight::Device(weight) => (mean * weight.clone()).mask_fill(weight.clone().equal_elem(0.0), 0.0),
            }
        };
        let (value, minimised) = if let Some(weight) = &weight {
            (watched(Moment::Forward, || weighted(weight))?, mean)
        } else {
            let shared = watched(Moment::Forward, || factors.share(mean))?;
            (shared.clone().without_autodiff(), shared)
        };
        weighed(weight.as_ref());
        let backward = || GradientsParams::from_grads(factors.scale(minimised).backward(), model);
        let gradients = timer.time(Phase::Backward, || watched(Moment::Backward, backward))?;
        Ok(Self { gradients, loss: Some(value), weight, output: () })
    }
}

/// Checks shape and type of the loss of a micro-batch.
///
/// # Errors
///
/// [`StepError::LossShape`] for a loss of several values, and [`MixedError::HalfLoss`] for a loss in 16 bits if the step
/// `refuses_half`.
pub fn check_loss(mean: &Tensor<1>, refuses_half: bool) -> Result<(), StepError> {
    let values = mean.dims()[0];
    if values != 1 {
        return Err(StepError::LossShape { values });
    }
    if refuses_half && is_half(mean.dtype()) {
        return Err(MixedError::HalfLoss { loss: mean.dtype() }.into());
    }
    Ok(())
}

/// A recorded micro-step, and all memory that it reads and writes.
pub(super) struct MicroStep<M, T> {
    recording: Recording,
    /// Reads. `None` after an update that failed.
    model: Option<M>,
    /// Reads and writes. `None` for a model whose forward passes change no values, and after an update that failed.
    statistics: Option<Buffers>,
    /// Samples as a [`MicroBatch`] of any type.
    samples: Box<dyn Any + Send>,
    share: KeptNumber,
    scale: KeptNumber,
    /// Writes.
    result: MicroBatchGradients<T>,
}

impl<M: Module, T: 'static> MicroStep<M, T> {
    /// Records `work` with the samples of `micro`. Forward passes change the values `changing` of the model.
    pub(super) fn record<B: MicroBatch>(
        model: &M,
        changing: Option<&Buffers>,
        micro: &B,
        (share, scale): (f64, &LossScale),
        device: &Device,
        work: impl Fn(&M, B, Factors<'_>) -> Result<MicroBatchGradients<T>, String>,
    ) -> Result<Self, String> {
        let kept = stored_parameters(model.clone(), model, false)
            .ok_or("the parameters cannot be copied into memory of their own")?;
        let samples = micro.clone().store(None).ok_or("the batch has parts that are not tensors")?;
        let (share, scale) = (KeptNumber::new(share, device), KeptNumber::new(scale.value(), device));
        let attached =
            |factor: &KeptNumber| with_autodiff_of(factor.tensor.clone().expect("BUG: a new factor"), device);
        let statistics = RefCell::new(changing.map(|values| values.copied(model)));
        let recorded = Recording::record(device, || {
            let factors = Factors::Kept { share: &attached(&share), scale: &attached(&scale) };
            let work = || work(&kept, samples.clone().on_device(device), factors);
            let mut result = in_kept_statistics(&kept, &mut statistics.borrow_mut(), work)?;
            if let Some(StepWeight::Number(_)) = result.weight {
                return Err(HOST_WEIGHT.to_owned());
            }
            // Outputs may be samples, whose memory is rewritten.
            result.output = copied_output(&result.output).ok_or(OTHER_OUTPUT)?;
            Ok(result)
        });
        // The model and its kept copy share their statistics.
        changing.inspect(|values| values.restore(model));
        let (recording, result) = recorded?;
        let samples = Box::new(Some(samples));
        Ok(Self { recording, model: Some(kept), statistics: statistics.into_inner(), samples, share, scale, result })
    }

    /// Copies parameters and running statistics into the memory that the recording reads.
    pub(super) fn load(&mut self, model: &M) -> Result<(), String> {
        self.model = self.model.take().and_then(|kept| stored_parameters(kept, model, true));
        if self.model.is_none() {
            return Err("the memory of the recorded parameters is shared".to_owned());
        }
        load(&mut self.statistics, model)
    }

    /// Running statistics of the model that replays change; `None` without any.
    pub(super) const fn statistics(&self) -> Option<&Buffers> {
        self.statistics.as_ref()
    }

    /// Returns true if something has kept gradients of the last replay, which the next one would overwrite.
    pub(super) fn result_is_in_use(&mut self, model: &M) -> bool {
        let state = (&mut self.result.gradients, false);
        let (_, in_use) = visit_floats!(model, (gradients, in_use) = state, (&'v mut GradientsParams, bool), |param| {
            if let Some(gradient) = gradients.remove::<D>(param.id) {
                *in_use |= !gradient.can_mut();
                gradients.register(param.id, gradient);
            }
        });
        in_use
    }

    /// Replays with the samples of `micro`, and overwrites the [result](Self::handed_on).
    pub(super) fn replay<B: MicroBatch>(&mut self, micro: B, (share, scale): (f64, &LossScale)) -> Result<(), String> {
        self.share.set(share)?;
        self.scale.set(scale.value())?;
        let samples = self.samples.downcast_mut::<Option<B>>();
        let samples = samples.ok_or("the batches have changed their type")?;
        *samples = micro.store(samples.take());
        if samples.is_none() {
            return Err("the samples have changed their shape, or the loss has kept them".to_owned());
        }
        self.recording.replay()
    }

    /// The result of the last replay. Loss, weight and output are copies, and gradients of types that are `copied` are. Other gradients
    /// are the same memory, until the next replay.
    pub(super) fn handed_on(
        &self,
        model: &M,
        copied: impl Fn(DType) -> bool,
    ) -> Result<MicroBatchGradients<T>, String> {
        let output = copied_output(&self.result.output);
        let output = output.ok_or(OTHER_OUTPUT)?;
        let loss = self.result.loss.clone().map(|loss| loss.mul_scalar(1.0));
        let weight = self.result.weight.clone().map(|weight| match weight {
            StepWeight::Device(weight) => StepWeight::Device(weight.mul_scalar(1.0)),
            number @ StepWeight::Number(_) => number,
        });
        Ok(MicroBatchGradients { gradients: handed_on(&self.result.gradients, model, &copied), loss, weight, output })
    }
}

fn handed_on<M: Module>(own: &GradientsParams, model: &M, copied: &dyn Fn(DType) -> bool) -> GradientsParams {
    type Handing<'v> = (GradientsParams, &'v GradientsParams, &'v dyn Fn(DType) -> bool);
    let state = (GradientsParams::new(), own, copied);
    let (gradients, ..) = visit_floats!(model, (handed_on, own, copied) = state, Handing<'v>, |param| {
        if let Some(gradient) = own.get::<D>(param.id) {
            let gradient = if copied(gradient.dtype()) { gradient.mul_scalar(1.0) } else { gradient };
            handed_on.register(param.id, gradient);
        }
    });
    gradients
}

/// Runs work that changes running statistics of the model, and writes the new ones into the kept memory.
fn in_kept_statistics<M: Module, T>(
    model: &M,
    statistics: &mut Option<Buffers>,
    work: impl FnOnce() -> Result<T, String>,
) -> Result<T, String> {
    if let Some(kept) = statistics {
        kept.restore(model);
    }
    let output = work()?;
    load(statistics, model)?;
    Ok(output)
}

/// Copies the running statistics of a model into the kept memory.
fn load<M: Module>(statistics: &mut Option<Buffers>, model: &M) -> Result<(), String> {
    let Some(kept) = statistics.take() else { return Ok(()) };
    *statistics = kept.loaded(model);
    if statistics.is_some() { Ok(()) } else { Err("the memory of recorded running statistics is shared".to_owned()) }
}

/// A number in memory that a recording reads.
struct KeptNumber {
    value: f64,
    /// fp32, of shape `[1]`, without autodiff. `None` after a write that failed.
    tensor: Option<Tensor<1>>,
}

impl KeptNumber {
    fn new(value: f64, device: &Device) -> Self {
        let plain = device.clone().without_autodiff();
        Self { value, tensor: Some(Tensor::full([1], value, (&plain, DType::F32))) }
    }

    /// Writes the number, if it is another one.
    fn set(&mut self, value: f64) -> Result<(), String> {
        if value.to_bits() == self.value.to_bits() {
            return Ok(());
        }
        self.value = value;
        let kept = self.tensor.take();
        self.tensor = kept.and_then(|kept| {
            let new = Tensor::full([1], value, (&kept.device(), DType::F32));
            store(new, Some(kept))
        });
        if self.tensor.is_some() { Ok(()) } else { Err("the memory of a factor is shared".to_owned()) }
    }
}

/// Runs before a recording. They tune kernels and allocate all memory, which a recording must not do.
const WARM_UPS: usize = 3;

/// Recorded launches of a piece of work.
pub(super) struct Recording {
    device: Device,
    /// Thread that recorded: `CubeCL` has a stream for each thread, and orders work within a stream.
    thread: ThreadId,
    graph: BackendGraph<Dispatch>,
}

impl Recording {
    /// Records what `work` launches, and returns its output. A replay overwrites the output.
    ///
    /// Runs `work` four times. The last run launches nothing, so its output has no values before the first replay.
    ///
    /// # Errors
    ///
    /// The reason for which the backend, the driver or the work itself cannot be recorded.
    pub(super) fn record<T>(device: &Device, work: impl Fn() -> Result<T, String>) -> Result<(Self, T), String> {
        let device = device.clone().without_autodiff();
        let work = || catching(&work).flatten();
        Dispatch::graph_prepare(device.as_dispatch()).map_err(root_cause)?;
        let window = Window(&device);
        for _ in 0..WARM_UPS {
            let output = work()?;
            // Fusion leaves out work whose output is dropped before it starts.
            device.sync().map_err(root_cause)?;
            drop(output);
        }
        Dispatch::graph_start_capture(device.as_dispatch()).map_err(root_cause)?;
        let output = work()?;
        let graph = window.close()?;
        Ok((Self { graph, device, thread: thread::current().id() }, output))
    }

    /// Launches everything again, on the memory of the recording. Does not wait for the device.
    ///
    /// # Errors
    ///
    /// The driver's reason, and a call from another thread than that of the recording.
    #[expect(unsafe_code, reason = "Burn cannot see which memory a recording reads and writes")]
    pub(super) fn replay(&self) -> Result<(), String> {
        if self.thread != thread::current().id() {
            return Err("the trainer has moved to another thread".to_owned());
        }
        // SAFETY: Liveness: CubeCL keeps every page of memory that the recording touched, and the host memory that it
        // read, for as long as `self.graph`. Order: inputs are written and outputs are read on this thread, so on
        // the stream of the recording. Concurrent use: the owner of the recording keeps the memory to itself.
        unsafe { Dispatch::graph_replay(self.device.as_dispatch(), &self.graph) }.map_err(root_cause)
    }
}

/// Recording in progress. Dropped, it ends without a result, so that the stream can be used again.
struct Window<'d>(&'d Device);

impl Window<'_> {
    fn close(self) -> Result<BackendGraph<Dispatch>, String> {
        let graph = Dispatch::graph_stop_capture(self.0.as_dispatch()).map_err(root_cause);
        std::mem::forget(self);
        graph
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        drop(Dispatch::graph_stop_capture(self.0.as_dispatch()));
    }
}

/// The root cause of an error of Burn, which follows the words "Caused by".
fn root_cause(error: impl Display) -> String {
    let message = error.to_string();
    let cause = message.rsplit("Caused by:").next().unwrap_or_default();
    let lines = cause.lines().map(str::trim).take_while(|line| !line.contains("backtrace"));
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use burn::nn::LinearConfig;
    use burn::optim::GradientsParams;
    use burn::tensor::{DType, Device, Tensor};

    use super::{Recording, handed_on};

    #[test]
    fn gradients_are_copied_by_their_type() {
        let device = Device::flex();
        let model = LinearConfig::new(2, 2).init(&device);
        let bias = model.bias.as_ref().expect("a layer with a bias").id;
        let mut gradients = GradientsParams::new();
        gradients.register(model.weight.id, Tensor::<2>::ones([2, 2], (&device, DType::BF16)));
        gradients.register(bias, Tensor::<1>::ones([2], &device));
        let mut copies = handed_on(&gradients, &model, &|dtype| dtype == DType::F32);
        let [weight, bias] = [
            copies.remove::<2>(model.weight.id).map(|gradient| gradient.can_mut()),
            copies.remove::<1>(bias).map(|gradient| gradient.can_mut()),
        ];
        // Only the memory of a copy is not shared.
        assert_eq!([weight, bias], [Some(false), Some(true)]);
    }

    #[test]
    fn a_backend_without_graphs_is_named_as_the_reason() {
        let because = Recording::record(&Device::flex(), || Ok(())).err().expect("a CPU has none");
        assert_eq!(because, "graph capture is not supported by this backend");
    }
}
