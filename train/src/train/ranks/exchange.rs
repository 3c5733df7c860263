//! Sums over ranks: of gradients, packed into few long vectors, and of the few numbers that belong to them.

use std::mem::take;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};

use super::{PeersEnded, Rank};
use crate::mixed::{TOGETHER, is_half};
use crate::shape::visit_floats;
use crate::train::StepError;
use crate::train::outcome::StepFailure;
use crate::train::update::{read, watched_read};

/// Vectors whose computation is on the stream of the device, so that a sum behind it has values to read.
///
/// A sum of vectors that could not be computed is not begun, which would block the other ranks.
pub(super) struct Queued(Vec<Tensor<1>>);

impl Queued {
    /// Waits until the host has put all that computes the vectors on the stream.
    pub(super) fn new(vectors: Vec<Tensor<1>>) -> Result<Self, StepFailure> {
        if !are_queued(&vectors) {
            wait_for(&vectors)?;
        }
        Ok(Self(vectors))
    }

    /// Waits until the device has computed the vectors.
    pub(super) fn wait(&self) -> Result<(), StepFailure> {
        wait_for(&self.0)
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
fn wait_for(vectors: &[Tensor<1>]) -> Result<(), StepFailure> {
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

/// Bytes of a vector; a larger tensor has its own. Packing allocates one vector twice.
const VECTOR_BYTES: usize = gpu_tuned_core::exchange::BUCKET_BYTES as usize;

/// Tensors packed into vectors. All ranks that pack equal shapes have equal vectors.
pub(super) struct Packed {
    /// Vectors, which share no memory with the tensors.
    pub vectors: Vec<Tensor<1>>,
    /// The vector of each tensor, and where the tensor begins and ends in it.
    places: Vec<(usize, usize, usize)>,
}

impl Packed {
    /// The tensors times `factor`; each is released when its vector is made.
    pub(super) fn new(parts: impl IntoIterator<Item = Tensor<1>>, factor: f64) -> Self {
        let mut packed = Self { vectors: Vec::new(), places: Vec::new() };
        let (mut open, mut elements) = (Vec::<Tensor<1>>::new(), 0);
        for part in parts {
            let (length, dtype) = (part.dims()[0], part.dtype());
            let is_full = (elements + length) * dtype.size() > VECTOR_BYTES || open.len() == TOGETHER;
            if open.first().is_some_and(|first| is_full || first.dtype() != dtype) {
                packed.close(&mut open, factor);
                elements = 0;
            }
            packed.places.push((packed.vectors.len(), elements, elements + length));
            elements += length;
            open.push(part);
        }
        packed.close(&mut open, factor);
        packed
    }

    fn close(&mut self, open: &mut Vec<Tensor<1>>, factor: f64) {
        if open.is_empty() {
            return;
        }
        let vector = if open.len() == 1 { open.remove(0) } else { Tensor::cat(take(open), 0) };
        self.vectors.push(vector.mul_scalar(factor));
    }

    /// The tensors in the order of packing.
    pub(super) fn parts(&self) -> impl Iterator<Item = Tensor<1>> {
        self.places.iter().map(|place| self.part(place))
    }

    /// The tensors that are wanted, and `None` for the others.
    fn some_parts(&self, wanted: &[bool]) -> impl Iterator<Item = Option<Tensor<1>>> {
        self.places.iter().zip(wanted).map(|(place, wanted)| wanted.then(|| self.part(place)))
    }

    fn part(&self, (vector, begin, end): &(usize, usize, usize)) -> Tensor<1> {
        self.vectors[*vector].clone().slice(*begin..*end)
    }
}

/// Gradients of all trained parameters of a model, in its order, with zeros for missing ones. All ranks have equal
/// buckets.
pub(in crate::train) struct Buckets {
    pub(super) packed: Packed,
    /// For each parameter, true if it has a gradient on this rank.
    pub present: Vec<bool>,
}

impl Buckets {
    /// The gradients times `share`, as they are summed: those in 16 bits are widened to fp32 if `widens`. Each is released
    /// when its vector is made. New values of some parameters are packed without widening.
    pub(in crate::train) fn new<M: Module>(gradients: GradientsParams, master: &M, share: f64, widens: bool) -> Self {
        type Packing = (GradientsParams, Vec<Tensor<1>>, Vec<bool>, bool);
        let state = (gradients, Vec::new(), Vec::new(), widens);
        let (_, parts, present, _) =
            visit_floats!(master, (gradients, parts, present, widens) = state, Packing, |param| {
                if param.is_require_grad() {
                    let value = param.base().without_autodiff();
                    let (shape, own) = (value.shape(), value.dtype());
                    let dtype = if *widens && is_half(own) { DType::F32 } else { own };
                    let found = gradients.remove::<D>(param.id);
                    present.push(found.is_some());
                    let gradient = match found {
                        Some(gradient) if gradient.dtype() == dtype => gradient,
                        Some(gradient) => gradient.cast(dtype),
                        None => Tensor::zeros(shape.clone(), (&value.device(), dtype)),
                    };
                    parts.push(gradient.without_autodiff().reshape([shape.num_elements()]));
                }
            });
        Self { packed: Packed::new(parts, share), present }
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
        let parts: Vec<_> = self.packed.some_parts(present).collect();
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
