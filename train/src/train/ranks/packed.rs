//! Tensors packed into few long vectors, one exchange each.

use burn::tensor::Tensor;

use super::exchange::padding;
use crate::mixed::TOGETHER;

/// Bytes of a vector; a larger tensor has its own. Packing allocates one vector twice.
const VECTOR_BYTES: usize = gpu_tuned_core::exchange::BUCKET_BYTES as usize;

/// Tensors packed into vectors. All ranks that pack equal shapes have equal vectors.
pub(super) struct Packed {
    /// Vectors with their padding, which share no memory with the tensors.
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
        let Some(first) = open.first() else { return };
        let (device, dtype) = (first.device(), first.dtype());
        let padding = padding(open.iter().map(|part| part.dims()[0]).sum(), dtype);
        if padding > 0 {
            open.push(Tensor::zeros([padding], (&device, dtype)));
        }
        let vector = if open.len() == 1 { open.remove(0) } else { Tensor::cat(std::mem::take(open), 0) };
        self.vectors.push(vector.mul_scalar(factor));
    }

    /// The tensors in the order of packing.
    pub(super) fn parts(&self) -> impl Iterator<Item = Tensor<1>> {
        self.places.iter().map(|place| self.part(place))
    }

    /// The tensors that are wanted, and `None` for the others.
    pub(super) fn some_parts(&self, wanted: &[bool]) -> impl Iterator<Item = Option<Tensor<1>>> {
        self.places.iter().zip(wanted).map(|(place, wanted)| wanted.then(|| self.part(place)))
    }

    fn part(&self, (vector, begin, end): &(usize, usize, usize)) -> Tensor<1> {
        self.vectors[*vector].clone().slice(*begin..*end)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, FloatDType, Tensor};
    use proptest::collection::vec;
    use proptest::prelude::{Just, prop_assert_eq, prop_oneof, proptest};

    use super::Packed;

    proptest! {
        #[test]
        fn vectors_fill_allocations_and_tensors_keep_their_values(
            lengths in vec(1..400_usize, 1..12),
            dtype in prop_oneof![Just(FloatDType::F32), Just(FloatDType::BF16)],
        ) {
            let tensor = |(value, length): (usize, &usize)| Tensor::<1>::full([*length], value as f64, &Device::flex());
            let tensors: Vec<_> = lengths.iter().enumerate().map(tensor).collect();
            let packed = Packed::new(tensors.iter().map(|tensor| tensor.clone().cast(dtype)), 2.0);
            for vector in &packed.vectors {
                prop_assert_eq!(vector.dims()[0] * vector.dtype().size() % 512, 0);
            }
            let values = |tensor: Tensor<1>| tensor.cast(FloatDType::F32).into_data().iter::<f32>().collect::<Vec<_>>();
            let parts: Vec<_> = packed.parts().map(values).collect();
            prop_assert_eq!(parts, tensors.into_iter().map(|tensor| values(tensor * 2.0)).collect::<Vec<_>>());
        }
    }
}
