//! Rounding errors in parameters, which show how far kernels with other rounding may lead.
//!
//! A replay may run other kernels than a plain micro-step: fusion combines other operations, and autotune chooses by the
//! layout of parameters. Each kernel is right to rounding, and deep models amplify that: a unit whose input is almost zero
//! passes no gradient in one of two micro-steps.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{DType, FloatDType, Tensor};

use crate::stored::with_autodiff_of;

/// Factor that turns parameters into angles, of which neighbours have unrelated sines.
const SCATTER: f32 = 4096.0;

/// A copy of a model whose trained parameters have relative errors of up to one unit in their last place. The errors are
/// the same at each call. Running statistics stay those of `model`.
pub(super) fn with_rounding_errors<M: Module>(model: &M) -> M {
    model.clone().map(&mut Rounding)
}

struct Rounding;

impl ModuleMapper for Rounding {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if !param.is_require_grad() {
            return param;
        }
        param.map(|tensor| {
            let (device, dtype) = (tensor.device(), tensor.dtype());
            let value = tensor.without_autodiff().cast(FloatDType::F32);
            let errors = value.clone().mul_scalar(SCATTER).sin().mul_scalar(last_place(dtype));
            let value = (value.clone() + value * errors).cast(dtype);
            with_autodiff_of(value, &device).require_grad()
        })
    }
}

/// Relative size of the last place of factors in matrix products. Those of f32 are rounded to TF32.
fn last_place(dtype: DType) -> f32 {
    match dtype {
        DType::BF16 => 2.0_f32.powi(-7),
        _ => 2.0_f32.powi(-10),
    }
}

#[cfg(test)]
mod tests {
    use burn::module::Module;
    use burn::nn::{BatchNormConfig, LinearConfig};
    use burn::tensor::{DType, Device, Tensor};

    use super::with_rounding_errors;
    use crate::mixed::{Half, Master};
    use crate::train::tests::parameters;

    #[test]
    fn trained_parameters_get_small_errors_and_nothing_else_changes() {
        let device = Device::flex().autodiff().gradient_checkpointing();
        let layer = || LinearConfig::new(8, 8).init(&device);
        let model = (layer(), layer().no_grad(), BatchNormConfig::new(8).init(&device));
        let before = parameters(&model);
        let rounded = with_rounding_errors(&model);
        assert_eq!(parameters(&model), before);
        assert_eq!(parameters(&rounded.1), parameters(&model.1));
        assert_eq!(rounded.0.weight.id, model.0.weight.id);
        let weight = rounded.0.weight.val();
        assert_eq!(weight.gradient_checkpointing_strategy(), device.gradient_checkpointing_strategy());
        // Statistics are shared.
        rounded.2.forward(Tensor::<2>::full([4, 8], 3.0, &device));
        assert_ne!(parameters(&model.2.valid()), parameters(&BatchNormConfig::new(8).init(&device).valid()));

        let pairs: Vec<_> = parameters(&rounded.0).into_iter().zip(parameters(&model.0)).collect();
        let errors = pairs.iter().map(|(rounded, value)| (rounded - value) / value);
        let (ups, downs): (Vec<f32>, Vec<f32>) =
            errors.filter(|error| error.abs() > 1e-5).partition(|error| *error > 0.0);
        assert!(ups.len() > pairs.len() / 4 && downs.len() > pairs.len() / 4, "{pairs:?}");
        assert!(ups.iter().chain(&downs).all(|error| error.abs() < 1.01 / 1024.0), "{pairs:?}");
    }

    #[test]
    fn sixteen_bit_parameters_keep_their_type_and_change() {
        let device = Device::flex().autodiff();
        let master = Master::new(LinearConfig::new(8, 8).init(&device), Half::Bf16).expect("no statistics");
        let copy = master.compute_copy();
        let rounded = with_rounding_errors(&copy);
        assert_eq!(rounded.weight.dtype(), DType::BF16);
        assert_ne!(parameters(&rounded), parameters(&copy));
    }
}
