//! Parameters in memory that a recording reads, rewritten in place.

use burn::module::{Module, ModuleMapper, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;

use crate::stored::{store, with_autodiff_of};
use crate::visit::visit_floats;

/// Copy of a model whose trained parameters keep their memory.
pub(super) struct KeptModel<M>(M);

impl<M: Module> KeptModel<M> {
    /// Copies the trained parameters of `model` into memory of their own. `None` if that is impossible.
    pub(super) fn new(model: &M) -> Option<Self> {
        Self(model.clone()).stored(model, false)
    }

    /// Copies the trained parameters of `model` into the memory of this one. `None` if a parameter is shared or has
    /// another shape.
    pub(super) fn updated(self, model: &M) -> Option<Self> {
        self.stored(model, true)
    }

    fn stored(self, model: &M, in_place: bool) -> Option<Self> {
        let values = visit_floats!(model, values = GradientsParams::new(), GradientsParams, |param| {
            if param.is_require_grad() {
                values.register(param.id, param.base().without_autodiff());
            }
        });
        let mut store = Store { values, in_place, failed: false };
        let model = self.0.map(&mut store);
        (!store.failed).then_some(Self(model))
    }

    pub(super) fn model(&self) -> &M {
        &self.0
    }
}

struct Store {
    values: GradientsParams,
    in_place: bool,
    failed: bool,
}

impl ModuleMapper for Store {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let value = if param.is_require_grad() { self.values.remove::<D>(param.id) } else { None };
        let Some(value) = value else { return param };
        param.map(|tensor| {
            let device = tensor.device();
            let kept = self.in_place.then(|| tensor.without_autodiff());
            let stored = store(value.clone(), kept);
            self.failed |= stored.is_none();
            stored.map_or(value, |stored| with_autodiff_of(stored, &device).require_grad())
        })
    }
}

#[cfg(test)]
mod tests {
    use burn::module::Module;
    use burn::nn::{Linear, LinearConfig};
    use burn::tensor::{Device, Tensor};

    use super::KeptModel;
    use crate::train::tests::parameters;

    #[test]
    fn parameters_are_copied_and_the_copy_can_be_differentiated() {
        let device = Device::flex().autodiff().gradient_checkpointing();
        let layers = || [(); 2].map(|()| LinearConfig::new(3, 2).init(&device));
        let (first, [new, frozen]) = (layers(), layers());
        let first: [Linear; 2] = [first[0].clone(), first[1].clone().no_grad()];
        let kept = KeptModel::new(&first).expect("a copy");
        assert_eq!(parameters(kept.model()), parameters(&first));

        let mut second = [new, frozen];
        for (layer, known) in second.iter_mut().zip(&first) {
            layer.weight.id = known.weight.id;
            let (bias, known) = (layer.bias.as_mut(), known.bias.as_ref());
            bias.zip(known).into_iter().for_each(|(bias, known)| bias.id = known.id);
        }
        let kept = kept.updated(&second).expect("memory of its own");
        assert_eq!(parameters(&kept.model()[0]), parameters(&second[0]));
        // A frozen layer does not change.
        assert_eq!(parameters(&kept.model()[1]), parameters(&first[1]));
        let weight = kept.model()[0].weight.val();
        assert_eq!(weight.gradient_checkpointing_strategy(), device.gradient_checkpointing_strategy());
        let loss = kept.model()[0].forward(Tensor::<2>::ones([1, 3], &device)).sum();
        assert!(weight.grad(&loss.backward()).is_some());
    }

    #[test]
    fn shared_parameters_cannot_be_kept() {
        let model = LinearConfig::new(3, 2).init(&Device::flex().autodiff());
        let kept = KeptModel::new(&model).expect("a copy");
        let reader = kept.model().weight.val();
        assert!(kept.updated(&model).is_none());
        drop(reader);
    }
}
