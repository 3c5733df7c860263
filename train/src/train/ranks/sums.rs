//! Sums of a step's gradients over the ranks, which begin in the middle of the backward pass.

use std::collections::HashMap;
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{DType, FloatDType, Tensor};
#[cfg(feature = "cuda")]
use gpu_tuned_kernels::collectives::SumsBeside;

#[cfg(feature = "cuda")]
use super::Collectives;
use super::Rank;
use super::exchange::{Buckets, Queued, wait_for};
use super::hook::Receive;
use crate::loss::StepWeight;
use crate::mixed::{Factor, MixedError, ModulePath, is_half, multiplied, track_path};
use crate::out_of_memory::Moment;
#[cfg(feature = "cuda")]
use crate::out_of_memory::OutOfMemory;
use crate::shape::visit_floats;
use crate::train::StepError;
use crate::train::outcome::StepFailure;

/// Sums of the gradients of a step.
///
/// The vectors of gradients and their order are equal on all ranks. When they begin is each rank's own choice: on a GPU as soon as
/// a vector is whole, beside the backward pass; or after it, as on the CPU.
///
/// An attempt that runs out of memory may have begun some sums. The next attempt computes all gradients again, with random numbers
/// of its own, and begins the sums that are left.
pub(in crate::train) struct GradientSums {
    state: Arc<Mutex<State>>,
    rank: Rank,
    samples: usize,
}

struct State {
    buckets: Buckets,
    /// Sums that were begun.
    #[cfg(feature = "cuda")]
    beside: Option<SumsBeside>,
    /// Gradients of the micro-batches before the last one, flat.
    accumulated: HashMap<ParamId, Tensor<1>>,
    /// Types of the parameters that compute.
    types: HashMap<ParamId, DType>,
    /// Factor of the gradients of the last micro-batch, during its backward pass.
    factor: Option<Factor>,
    /// Parameter whose gradient has another type, and that type.
    mixed: Option<(ParamId, DType)>,
}

impl GradientSums {
    /// No sums yet of the gradients of a step in which the rank has so many samples.
    ///
    /// # Errors
    ///
    /// For gradients of a type that is not summed.
    pub(super) fn new<M: Module>(rank: &Rank, master: &M, samples: usize) -> Result<Self, StepError> {
        let buckets = Buckets::empty_for(master, 1.0, true);
        #[cfg(feature = "cuda")]
        let beside = match rank.collectives.as_ref().filter(|_| rank.share.ranks() > 1) {
            Some(collectives) => Some(collectives.sums_beside(buckets.types())?),
            None => None,
        };
        let state = State {
            buckets,
            #[cfg(feature = "cuda")]
            beside,
            accumulated: HashMap::new(),
            types: HashMap::new(),
            factor: None,
            mixed: None,
        };
        Ok(Self { state: Arc::new(Mutex::new(state)), rank: rank.clone(), samples })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what was not begun by an attempt that failed.
    pub(super) fn begin_attempt(&self) {
        let mut state = self.state();
        #[cfg(feature = "cuda")]
        let begun = state.beside.as_mut().map_or(0, |beside| {
            beside.flush();
            beside.count()
        });
        #[cfg(not(feature = "cuda"))]
        let begun = 0;
        state.buckets.begin_again(begun);
        state.accumulated.clear();
        (state.factor, state.mixed) = (None, None);
    }

    /// The model with hooks for the backward pass of the last micro-batch, whose gradients are added to `accumulated`.
    pub(in crate::train) fn hooked<M: Module>(&self, model: &M, accumulated: GradientsParams) -> M {
        type Flat = (GradientsParams, HashMap<ParamId, Tensor<1>>, HashMap<ParamId, DType>);
        let empty = (accumulated, HashMap::new(), HashMap::new());
        let (_, flat, types) = visit_floats!(model, (gradients, flat, types) = empty, Flat, |param| {
            if param.is_require_grad() {
                types.insert(param.id, param.dtype());
                if let Some(gradient) = gradients.remove::<D>(param.id) {
                    let elements = gradient.shape().num_elements();
                    flat.insert(param.id, gradient.reshape([elements]));
                }
            }
        });
        {
            let mut state = self.state();
            (state.accumulated, state.types) = (flat, types);
        }
        let state = Arc::clone(&self.state);
        let receive: Receive = Arc::new(move |id, gradient| {
            state.lock().unwrap_or_else(PoisonError::into_inner).receive(id, gradient);
        });
        self.rank.anchors.hooked(model, &receive)
    }

    /// Sets the weight of the last micro-batch's mean loss, and the number by which its gradients are multiplied. Before its
    /// backward pass.
    pub(in crate::train) fn expect(&self, weight: Option<&StepWeight>, number: f64) {
        let mut state = self.state();
        state.factor = Some(StepWeight::factor(weight, number));
        state.buckets.packed.factor = self.share(weight.is_some());
    }

    /// Factor of this rank's gradients in the sums.
    fn share(&self, is_weighted: bool) -> f64 {
        (if is_weighted { 1.0 } else { self.samples as f64 }) / self.rank.share.all() as f64
    }

    /// Ends the backward pass of the last micro-batch, and checks the gradients of the parameters of `model`.
    ///
    /// # Errors
    ///
    /// [`MixedError::MixedTypes`].
    pub(in crate::train) fn check<M: Module>(&self, model: &M) -> Result<(), MixedError> {
        let mut state = self.state();
        state.factor = None;
        let Some((id, gradient)) = state.mixed else { return Ok(()) };
        drop(state);
        let mut found = Find { id, path: ModulePath::default(), found: None };
        model.visit(&mut found);
        let (path, parameter) = found.found.expect("BUG: the gradient is of a parameter of the model");
        Err(MixedError::MixedTypes { path, parameter, gradient })
    }

    /// Adds all gradients that no hook has received.
    pub(super) fn complete<M: Module>(&self, gradients: GradientsParams, is_weighted: bool, master: &M) {
        let mut state = self.state();
        state.buckets.packed.factor = self.share(is_weighted);
        let accumulated = take(&mut state.accumulated);
        state.buckets.complete(gradients, accumulated, master);
    }

    /// For each trained parameter, true if it has a gradient on this rank.
    pub(super) fn present(&self) -> Vec<bool> {
        self.state().buckets.present.clone()
    }

    /// Waits until the device has computed the gradients whose sums have not begun.
    pub(super) fn wait(&self) -> Result<(), StepFailure> {
        wait_for(&self.state().buckets.packed.vectors)
    }

    /// Begins the sums that are left, and that of `header`, or waits until they can be begun.
    ///
    /// # Errors
    ///
    /// The failure of a gradient whose sum could not be begun, and [`StepError::Peers`] if the ranks have ended.
    pub(super) fn begin_all(&self, header: Tensor<1>) -> Result<(), StepFailure> {
        let mut state = self.state();
        #[cfg(feature = "cuda")]
        if state.beside.is_some() {
            state.begin();
            let all = state.buckets.count() + 1;
            let beside = state.beside.as_mut().expect("it is some");
            // An earlier attempt may have begun it.
            if beside.count() < all {
                beside.begin(header);
            }
            let Some(failed) = beside.flush() else { return Ok(()) };
            drop(state);
            // NCCL begins nothing after an abort.
            if let Some(ended) = self.rank.collectives.as_ref().and_then(Collectives::aborted_by) {
                return Err(StepError::Peers(ended).into());
            }
            wait_for(&[failed]).map_err(|error| error.at(Moment::Backward))?;
            let message = "a sum of gradients could not be begun".to_owned();
            return Err(OutOfMemory { moment: Moment::Backward, message }.into());
        }
        state.buckets.packed.vectors.push(header);
        let vectors = Queued::new(state.buckets.take_vectors()).map_err(|error| error.at(Moment::Backward))?;
        state.buckets.packed.vectors = vectors.0;
        Ok(())
    }

    /// The sums, and that of the header.
    pub(super) fn end(&self) -> Result<(Buckets, Tensor<1>), StepFailure> {
        let mut state = self.state();
        let mut buckets = take(&mut state.buckets);
        #[cfg(feature = "cuda")]
        let beside = state.beside.take().map(SumsBeside::end);
        #[cfg(not(feature = "cuda"))]
        let beside = None;
        drop(state);
        let mut sums = match beside {
            Some(sums) => sums,
            None => self.rank.sum(Queued(buckets.take_vectors()))?,
        };
        let header = sums.pop().expect("BUG: the header is summed with the gradients");
        buckets.packed.vectors = sums;
        Ok((buckets, header))
    }
}

impl State {
    /// Adds the gradient of a parameter in the last micro-batch, and begins the sums of vectors that are whole.
    ///
    /// # Panics
    ///
    /// In a backward pass of the loss itself.
    fn receive(&mut self, id: ParamId, gradient: Tensor<1>) {
        let (expected, found) = (self.types.get(&id).copied(), gradient.dtype());
        if expected.is_some_and(|expected| expected != found) {
            self.mixed.get_or_insert((id, found));
            return;
        }
        let gradient = if is_half(found) { gradient.cast(FloatDType::F32) } else { gradient };
        let factor = self.factor.as_ref().expect("`overlap_sums` allows no loss that calls `backward`: leave it out");
        let gradient = multiplied(gradient, factor);
        let gradient = match self.accumulated.remove(&id) {
            Some(accumulated) => accumulated + gradient,
            None => gradient,
        };
        self.buckets.add(id, gradient);
        self.begin();
    }

    /// Begins the sums of the vectors that are whole.
    fn begin(&mut self) {
        #[cfg(feature = "cuda")]
        if let Some(beside) = &mut self.beside {
            for vector in self.buckets.take_vectors() {
                beside.begin(vector);
            }
        }
    }
}

/// Path and type of a parameter.
struct Find {
    id: ParamId,
    path: ModulePath,
    found: Option<(String, DType)>,
}

impl ModuleVisitor for Find {
    track_path!();

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if param.id == self.id {
            self.found = Some((self.path.path(), param.dtype()));
        }
    }
}
