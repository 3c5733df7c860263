//! Tensors packed into few long vectors, one exchange each.

use burn::tensor::Tensor;

use crate::mixed::TOGETHER;

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
        let vector = match open.len() {
            0 => return,
            1 => open.remove(0),
            _ => Tensor::cat(std::mem::take(open), 0),
        };
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
