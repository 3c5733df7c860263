//! Gradients packed into few long vectors, one exchange each.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, FloatDType, Tensor};

/// Bytes of a vector; a larger parameter has its own. Packing allocates one vector twice.
const BUCKET_BYTES: usize = gpu_tuned_core::exchange::BUCKET_BYTES as usize;

/// Gradients of all trained parameters of a model, in its order, with zeros for missing ones. All ranks have equal
/// buckets.
pub(in crate::train) struct Buckets {
    pub vectors: Vec<Tensor<1>>,
    /// For each parameter, true if it has a gradient on this rank.
    pub present: Vec<bool>,
    /// The vector, and where it begins in it, of each parameter.
    places: Vec<(usize, usize)>,
}

impl Buckets {
    /// The gradients times `share`; each is released when its vector is made.
    pub(in crate::train) fn new<M: Module>(gradients: GradientsParams, master: &M, share: f64) -> Self {
        let buckets = Self { vectors: Vec::new(), present: Vec::new(), places: Vec::new() };
        let mut filling = Filling { gradients, share, buckets, open: Vec::new(), elements: 0 };
        master.visit(&mut filling);
        filling.close();
        filling.buckets
    }

    /// One value of each vector, in fp32 and of shape `[1]`. A read of these values shows that all gradients were
    /// computed.
    pub(in crate::train) fn corners(&self) -> impl Iterator<Item = Tensor<1>> {
        self.vectors.iter().map(|vector| vector.clone().slice(0..1).cast(FloatDType::F32))
    }

    /// The Euclidean norm of all of them together, in f32, of shape `[1]`; `None` if there are none.
    pub(in crate::train) fn norm(&self) -> Option<Tensor<1>> {
        let squares = self.vectors.iter().map(|vector| vector.clone().cast(FloatDType::F32).square().sum());
        squares.reduce(|sum, squares| sum + squares).map(Tensor::sqrt)
    }

    /// The gradients times `factor`, of the parameters that have one on any rank.
    pub(in crate::train) fn split<M: Module>(self, master: &M, present: &[bool], factor: f64) -> GradientsParams {
        let scaled =
            |vector: Tensor<1>| if (factor - 1.0).abs() > f64::EPSILON { vector.mul_scalar(factor) } else { vector };
        let vectors = self.vectors.into_iter().map(scaled).collect();
        let (places, gradients) = (self.places, GradientsParams::new());
        let mut splitting = Splitting { vectors, places: places.into_iter().zip(present), gradients };
        master.visit(&mut splitting);
        splitting.gradients
    }
}

struct Filling {
    gradients: GradientsParams,
    share: f64,
    buckets: Buckets,
    /// Gradients of the next vector.
    open: Vec<Tensor<1>>,
    elements: usize,
}

impl Filling {
    fn close(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let mut open = std::mem::take(&mut self.open);
        let vector = if open.len() == 1 { open.remove(0) } else { Tensor::cat(open, 0) };
        self.buckets.vectors.push(vector.mul_scalar(self.share));
        self.elements = 0;
    }

    fn dtype(&self) -> Option<DType> {
        self.open.first().map(Tensor::dtype)
    }
}

impl ModuleVisitor for Filling {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !param.is_require_grad() {
            return;
        }
        let value = param.base().without_autodiff();
        let (shape, dtype) = (value.shape(), value.dtype());
        let found = self.gradients.remove::<D>(param.id);
        self.buckets.present.push(found.is_some());
        let gradient = match found {
            Some(gradient) if gradient.dtype() == dtype => gradient,
            Some(gradient) => gradient.cast(dtype),
            None => Tensor::zeros(shape.clone(), (&value.device(), dtype)),
        };
        let elements = shape.num_elements();
        let is_full = (self.elements + elements) * dtype.size() > BUCKET_BYTES;
        if is_full || self.dtype().is_some_and(|open| open != dtype) {
            self.close();
        }
        self.buckets.places.push((self.buckets.vectors.len(), self.elements));
        self.open.push(gradient.without_autodiff().reshape([elements]));
        self.elements += elements;
    }
}

struct Splitting<I> {
    vectors: Vec<Tensor<1>>,
    places: I,
    gradients: GradientsParams,
}

impl<'p, I: Iterator<Item = ((usize, usize), &'p bool)>> ModuleVisitor for Splitting<I> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !param.is_require_grad() {
            return;
        }
        let Some(((vector, begin), true)) = self.places.next() else { return };
        let shape = param.base().shape();
        let gradient = self.vectors[vector].clone().slice(begin..begin + shape.num_elements());
        self.gradients.register::<D>(param.id, gradient.reshape(shape));
    }
}

#[cfg(test)]
mod tests {
    use burn::module::Module;
    use burn::nn::{Linear, LinearConfig};
    use burn::optim::GradientsParams;
    use burn::tensor::{Device, Tensor};

    use super::Buckets;

    #[derive(Module, Debug)]
    struct Two {
        used: Linear,
        unused: Linear,
    }

    fn model(width: usize) -> Two {
        let device = Device::flex().autodiff();
        let linear = |config: LinearConfig| config.init(&device);
        Two { used: linear(LinearConfig::new(width, 3)), unused: linear(LinearConfig::new(4, 2)) }
    }

    fn gradients(model: &Two, width: usize) -> GradientsParams {
        let row: Vec<f32> = (0..width).map(|column| column as f32).collect();
        let input = Tensor::<1>::from_floats(&row[..], &Device::flex().autodiff()).unsqueeze::<2>();
        let loss = model.used.forward(input).powi_scalar(2).sum();
        GradientsParams::from_grads(loss.backward(), model)
    }

    #[test]
    fn what_is_split_again_is_what_was_put_together() {
        let model = model(5);
        let (whole, put) = (gradients(&model, 5), gradients(&model, 5));
        let buckets = Buckets::new(put, &model, 0.5);
        assert_eq!((buckets.vectors.len(), &buckets.present[..]), (1, &[true, true, false, false][..]));
        let present = buckets.present.clone();
        let split = buckets.split(&model, &present, 0.5);
        for (id, shape) in [(model.used.weight.id, 2), (model.used.bias.as_ref().unwrap().id, 1)] {
            let values = |gradients: &GradientsParams| match shape {
                1 => gradients.get::<1>(id).unwrap().into_data().iter::<f32>().collect::<Vec<_>>(),
                _ => gradients.get::<2>(id).unwrap().into_data().iter::<f32>().collect::<Vec<_>>(),
            };
            assert_eq!(values(&split), values(&whole).into_iter().map(|value| value / 4.0).collect::<Vec<_>>());
        }
        assert!(split.get::<2>(model.unused.weight.id).is_none());
    }

    #[test]
    fn a_parameter_without_a_gradient_here_may_have_one_elsewhere() {
        let model = model(5);
        let buckets = Buckets::new(GradientsParams::new(), &model, 1.0);
        assert_eq!(buckets.present, [false; 4]);
        let split = buckets.split(&model, &[false, true, false, true], 1.0);
        assert_eq!(split.len(), 2);
    }
}
