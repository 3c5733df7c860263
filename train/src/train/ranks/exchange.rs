//! Sums over ranks: of gradients, packed into few long vectors, and of the few numbers that belong to them.

use std::collections::HashMap;
use std::mem::take;

use burn::module::{Module, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};
use gpu_tuned_core::exchange::bucket_bytes;

use super::{PeersEnded, Rank};
use crate::mixed::{TOGETHER, is_half};
use crate::shape::visit_floats;
use crate::train::StepError;
use crate::train::outcome::StepFailure;
use crate::train::update::{read, watched_read};

/// Vectors whose computation is on the stream of the device, so that a sum behind it has values to read.
///
/// A sum of vectors that could not be computed is not begun, which would block the other ranks.
pub(super) struct Queued(pub Vec<Tensor<1>>);

impl Queued {
    /// Waits until the host has put all that computes the vectors on the stream.
    pub(super) fn new(vectors: Vec<Tensor<1>>) -> Result<Self, StepFailure> {
        if !are_queued(&vectors) {
            wait_for(&vectors)?;
        }
        Ok(Self(vectors))
    }
}

/// Returns true if a GPU will compute the vectors. On the CPU, nothing is known before they are read.
fn are_queued(vectors: &[Tensor<1>]) -> bool {
    #[cfg(feature = "cuda")]
    if vectors.first().is_some_and(|vector| vector.device() != Device::flex()) {
        return gpu_tuned_kernels::collectives::are_queued(vectors);
    }
    vectors.is_empty()
}

/// Waits until the device has computed the vectors.
pub(super) fn wait_for(vectors: &[Tensor<1>]) -> Result<(), StepFailure> {
    let corner = |vector: &Tensor<1>| vector.clone().slice(0..1).cast(FloatDType::F32);
    let corners: Vec<_> = vectors.iter().filter(|vector| vector.dims()[0] > 0).map(corner).collect();
    if corners.is_empty() { Ok(()) } else { read(corners).map(drop) }
}

impl Rank {
    /// Sums vectors over all ranks, which pass equal shapes.
    ///
    /// On GPUs the sum is complete once a value is read. On the CPU, the values pass through the first rank.
    ///
    /// # Panics
    ///
    /// If the vectors are on a GPU, and the rank has no [`Collectives`](super::Collectives).
    pub(super) fn sum(&self, Queued(vectors): Queued) -> Result<Vec<Tensor<1>>, StepFailure> {
        if self.share.ranks() == 1 {
            return Ok(vectors);
        }
        let Some(device) = vectors.first().map(Tensor::device) else { return Ok(vectors) };
        #[cfg(feature = "cuda")]
        if device != Device::flex() {
            let collectives = self.collectives.as_ref().expect("BUG: ranks with GPUs have collectives");
            return collectives.sum(vectors);
        }
        self.sum_on_host(vectors, &device)
    }

    /// Waits for sums, and checks that they are whole.
    pub(super) fn complete(&self, sums: &[Tensor<1>]) -> Result<(), StepFailure> {
        wait_for(sums)?;
        Ok(self.check_sums()?)
    }

    /// Checks that the ranks have not ended: the abort at their end leaves any values in sums, which may have been waited for.
    ///
    /// # Errors
    ///
    /// [`StepError::Peers`].
    pub(super) fn check_sums(&self) -> Result<(), StepError> {
        let ended = self.collectives.as_ref().and_then(|_| self.peers.ended());
        ended.map_or(Ok(()), |ended| Err(StepError::Peers(ended)))
    }

    /// Returns the first rank's vectors on all ranks.
    pub(super) fn first(&self, own: Vec<Tensor<1>>) -> Result<Vec<Tensor<1>>, StepFailure> {
        let is_first = self.share.rank() == 0;
        let own = if is_first { own } else { own.into_iter().map(|vector| vector.zeros_like()).collect() };
        self.sum(Queued::new(own)?)
    }

    fn sum_on_host(&self, parts: Vec<Tensor<1>>, device: &Device) -> Result<Vec<Tensor<1>>, StepFailure> {
        let shapes: Vec<_> = parts.iter().map(|part| (part.dims()[0], part.dtype())).collect();
        let all = Tensor::cat(parts.into_iter().map(|part| part.cast(FloatDType::F32)).collect(), 0);
        let values = watched_read(|| all.try_into_vec_as::<f32>())?;
        let sums = self.peers.sum(values).map_err(StepError::Peers)?;
        let mut rest = &sums[..];
        let part = |(length, dtype)| {
            let (values, after) = rest.split_at(length);
            rest = after;
            Tensor::from_data(TensorData::new(values.to_vec(), [length]), (device, dtype))
        };
        Ok(shapes.into_iter().map(part).collect())
    }

    /// Runs `work`, which waits for other ranks.
    pub(super) fn waiting<T>(&self, work: impl FnOnce() -> T) -> T {
        let _waiting = Waiting::begin(self);
        work()
    }

    /// Compares a value with the first rank's.
    pub(super) fn agree(&self, name: &'static str, value: String) -> Result<(), PeersEnded> {
        self.waiting(|| self.peers.agree(name, value))
    }
}

/// Marks a rank as waiting for others until dropped.
struct Waiting<'r>(&'r Rank);

impl<'r> Waiting<'r> {
    fn begin(rank: &'r Rank) -> Self {
        rank.peers.set_waiting(true);
        Self(rank)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.peers.set_waiting(false);
    }
}

/// Tensors packed into vectors. All ranks that pack equal shapes have equal vectors.
#[derive(Default)]
pub(super) struct Packed {
    /// Vectors that are whole and were not taken. They share no memory with the tensors.
    pub vectors: Vec<Tensor<1>>,
    /// The vector of each tensor, and where the tensor begins and ends in it.
    places: Vec<(usize, usize, usize)>,
    /// Tensors that are waiting for the rest of their vector.
    open: Vec<Tensor<1>>,
    /// Tensors that were added.
    added: usize,
    pub factor: f64,
}

impl Packed {
    /// The tensors times `factor`; each is released when its vector is made.
    pub(super) fn new(parts: Vec<Tensor<1>>, factor: f64) -> Self {
        let mut packed = Self::from_sizes(parts.iter().map(|part| (part.dims()[0], part.dtype())), factor);
        for part in parts {
            packed.add(part);
        }
        packed
    }

    /// No tensors yet of those with these lengths and types. A larger tensor than [`bucket_bytes`] has its own vector; packing
    /// allocates one vector twice.
    fn from_sizes(sizes: impl Iterator<Item = (usize, DType)> + Clone, factor: f64) -> Self {
        let all: usize = sizes.clone().map(|(length, dtype)| length * dtype.size()).sum();
        let most = bucket_bytes(all as u64) as usize;
        let mut places = Vec::new();
        let (mut vector, mut tensors, mut end, mut last) = (0, 0, 0, None);
        for (length, dtype) in sizes {
            let is_full = (end + length) * dtype.size() > most || tensors == TOGETHER;
            if last.is_some_and(|last| is_full || last != dtype) {
                (vector, tensors, end) = (vector + 1, 0, 0);
            }
            places.push((vector, end, end + length));
            (tensors, end, last) = (tensors + 1, end + length, Some(dtype));
        }
        Self { vectors: Vec::new(), places, open: Vec::new(), added: 0, factor }
    }

    /// Adds the next tensor.
    fn add(&mut self, part: Tensor<1>) {
        self.open.push(part);
        self.added += 1;
        let vector = |at: usize| self.places.get(at).map(|(vector, ..)| *vector);
        if vector(self.added) == vector(self.added - 1) {
            return;
        }
        let vector = if self.open.len() == 1 { self.open.remove(0) } else { Tensor::cat(take(&mut self.open), 0) };
        self.vectors.push(vector.mul_scalar(self.factor));
    }

    /// Begins again behind the first vectors, which were taken.
    fn begin_again(&mut self, behind: usize) {
        self.vectors.clear();
        self.open.clear();
        self.added = self.places.iter().take_while(|(vector, ..)| *vector < behind).count();
    }

    /// The tensors in the order of packing.
    pub(super) fn parts(&self) -> impl Iterator<Item = Tensor<1>> {
        self.places.iter().map(|place| self.part(place))
    }

    fn part(&self, (vector, begin, end): &(usize, usize, usize)) -> Tensor<1> {
        self.vectors[*vector].clone().slice(*begin..*end)
    }
}

/// Gradients of all trained parameters of a model, from the last parameter to the first, as a backward pass completes them. All
/// ranks have equal buckets.
#[derive(Default)]
pub(in crate::train) struct Buckets {
    pub(super) packed: Packed,
    /// The trained parameters in the order of the model.
    slots: Vec<Slot>,
    /// For each parameter, true if it has a gradient on this rank.
    pub present: Vec<bool>,
    /// Gradients that are whole, while one that is packed before them is not.
    early: Vec<Option<Tensor<1>>>,
}

/// A trained parameter.
struct Slot {
    id: ParamId,
    elements: usize,
    /// Type of its gradient in sums.
    dtype: DType,
}

impl Buckets {
    /// No gradients yet. They are multiplied by `share` as they are summed; those in 16 bits are widened to fp32 if `widens`. New
    /// values of some parameters are packed without widening.
    pub(in crate::train) fn empty_for<M: Module>(master: &M, share: f64, widens: bool) -> Self {
        let state = (Vec::new(), widens);
        let (slots, _) = visit_floats!(master, (slots, widens) = state, (Vec<Slot>, bool), |param| {
            if param.is_require_grad() {
                let own = param.dtype();
                let dtype = if *widens && is_half(own) { DType::F32 } else { own };
                slots.push(Slot { id: param.id, elements: param.shape().num_elements(), dtype });
            }
        });
        let packed = Packed::from_sizes(slots.iter().rev().map(|slot| (slot.elements, slot.dtype)), share);
        let count = slots.len();
        Self { packed, slots, present: vec![false; count], early: vec![None; count] }
    }

    /// Number of vectors.
    #[cfg(feature = "cuda")]
    pub(super) fn count(&self) -> usize {
        self.packed.places.last().map_or(0, |(vector, ..)| vector + 1)
    }

    /// Types of the gradients in sums.
    #[cfg(feature = "cuda")]
    pub(super) fn types(&self) -> impl Iterator<Item = DType> {
        self.slots.iter().map(|slot| slot.dtype)
    }

    /// All gradients of a model, with zeros for missing ones. Each is released when its vector is made.
    pub(in crate::train) fn new<M: Module>(gradients: GradientsParams, master: &M, share: f64, widens: bool) -> Self {
        let mut buckets = Self::empty_for(master, share, widens);
        buckets.complete(gradients, HashMap::new(), master);
        buckets
    }

    /// Adds a gradient, flat. One that is packed already is left as it is.
    pub(super) fn add(&mut self, id: ParamId, gradient: Tensor<1>) {
        let next = self.slots.len() - self.packed.added;
        let Some(at) = self.slots[..next].iter().position(|slot| slot.id == id) else { return };
        let dtype = self.slots[at].dtype;
        self.early[at] = Some(if gradient.dtype() == dtype { gradient } else { gradient.cast(dtype) });
        self.present[at] = true;
        self.pack();
    }

    /// Packs what is next, as far as it is there.
    fn pack(&mut self) {
        while let Some(next) = (self.slots.len() - self.packed.added).checked_sub(1)
            && let Some(gradient) = self.early[next].take()
        {
            self.packed.add(gradient);
        }
    }

    /// Adds the gradients that are left, which are sums of both arguments, and zeros for missing ones.
    pub(super) fn complete<M: Module>(
        &mut self,
        gradients: GradientsParams,
        flat: HashMap<ParamId, Tensor<1>>,
        master: &M,
    ) {
        type Left<'v> = (GradientsParams, HashMap<ParamId, Tensor<1>>, &'v mut Buckets, usize, usize);
        let left = self.slots.len() - self.packed.added;
        let state = (gradients, flat, self, 0, left);
        let (.., buckets, _, _) =
            visit_floats!(master, (gradients, flat, buckets, at, left) = state, Left<'v>, |param| {
                if param.is_require_grad() {
                    if *at < *left && buckets.early[*at].is_none() {
                        let Slot { elements, dtype, .. } = buckets.slots[*at];
                        let cast = |gradient: Tensor<1>| {
                            if gradient.dtype() == dtype { gradient } else { gradient.cast(dtype) }
                        };
                        let found = gradients.remove::<D>(param.id);
                        let found = found.map(|gradient| cast(gradient.without_autodiff().reshape([elements])));
                        let parts = flat.remove(&param.id).map(cast).into_iter().chain(found);
                        let sum = parts.reduce(|sum, part| sum + part);
                        buckets.present[*at] = sum.is_some();
                        let zeros = || Tensor::zeros([elements], (&param.base().device().without_autodiff(), dtype));
                        buckets.early[*at] = Some(sum.unwrap_or_else(zeros));
                    }
                    *at += 1;
                }
            });
        buckets.pack();
    }

    /// Begins again behind the first vectors, which were taken: the gradients of the others are to be added again.
    pub(super) fn begin_again(&mut self, behind: usize) {
        self.packed.begin_again(behind);
        let left = self.slots.len() - self.packed.added;
        self.present[..left].fill(false);
        self.early.fill(None);
    }

    /// The vectors, which the sums of all ranks replace.
    pub(super) fn take_vectors(&mut self) -> Vec<Tensor<1>> {
        take(&mut self.packed.vectors)
    }

    /// The Euclidean norm of all of them together, in f32, of shape `[1]`; `None` if there are none.
    pub(in crate::train) fn norm(&self) -> Option<Tensor<1>> {
        let squares = self.packed.vectors.iter().map(|vector| vector.clone().cast(FloatDType::F32).square().sum());
        squares.reduce(|sum, squares| sum + squares).map(Tensor::sqrt)
    }

    /// The gradients times `factor`, of shape `[1]`, of the parameters that have one on any rank.
    pub(in crate::train) fn split<M: Module>(
        mut self,
        master: &M,
        present: &[bool],
        factor: Option<&Tensor<1>>,
    ) -> GradientsParams {
        if let Some(factor) = factor {
            let scaled = |vector: Tensor<1>| {
                let factor = factor.clone().cast(vector.dtype());
                vector.mul(factor)
            };
            self.packed.vectors = self.take_vectors().into_iter().map(scaled).collect();
        }
        let places = self.packed.places.iter().rev().zip(present);
        let parts: Vec<_> = places.map(|(place, present)| present.then(|| self.packed.part(place))).collect();
        drop(self);
        let state = (parts.into_iter(), GradientsParams::new());
        let split = visit_floats!(
            master,
            (parts, gradients) = state,
            (std::vec::IntoIter<Option<Tensor<1>>>, GradientsParams),
            |param| {
                if param.is_require_grad()
                    && let Some(Some(part)) = parts.next()
                {
                    gradients.register::<D>(param.id, part.reshape(param.base().shape()));
                }
            }
        );
        split.1
    }
}

#[cfg(test)]
mod tests;
