//! Gradients in vectors for an exchange.

use std::mem::take;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{DType, FloatDType, Tensor};

use super::packed::Packed;
use crate::mixed::is_half;
use crate::visit::visit_floats;

/// Gradients of all trained parameters of a model, in its order, with zeros for missing ones. All ranks have equal
/// buckets.
pub(in crate::train) struct Buckets {
    pub(super) packed: Packed,
    /// For each parameter, true if it has a gradient on this rank.
    pub present: Vec<bool>,
}

impl Buckets {
    /// The gradients times `share`, those in 16 bits widened to fp32, as they are summed. Each is released when its vector is
    /// made.
    pub(in crate::train) fn new<M: Module>(gradients: GradientsParams, master: &M, share: f64) -> Self {
        Self::of_types(gradients, master, share, |dtype| if is_half(dtype) { DType::F32 } else { dtype })
    }

    /// New values of some parameters, in their own types.
    pub(super) fn of_values<M: Module>(values: GradientsParams, master: &M) -> Self {
        Self::of_types(values, master, 1.0, |dtype| dtype)
    }

    fn of_types<M: Module>(
        gradients: GradientsParams,
        master: &M,
        share: f64,
        summed: impl Fn(DType) -> DType,
    ) -> Self {
        type Packing<'v> = (GradientsParams, Vec<Tensor<1>>, Vec<bool>, &'v dyn Fn(DType) -> DType);
        let state = (gradients, Vec::new(), Vec::new(), &summed as &dyn Fn(DType) -> DType);
        let (_, parts, present, _) =
            visit_floats!(master, (gradients, parts, present, summed) = state, Packing<'v>, |param| {
                if param.is_require_grad() {
                    let value = param.base().without_autodiff();
                    let (shape, dtype) = (value.shape(), summed(value.dtype()));
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
        assert_eq!((buckets.packed.vectors.len(), &buckets.present[..]), (1, &[true, true, false, false][..]));
        let present = buckets.present.clone();
        let split = buckets.split(&model, &present, Some(&Tensor::from_floats([0.5], &Device::flex())));
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
        let split = buckets.split(&model, &[false, true, false, true], None);
        assert_eq!(split.len(), 2);
    }
}
