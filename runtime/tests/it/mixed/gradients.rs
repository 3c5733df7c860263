//! Gradients of a compute copy against those of the same model in f64.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::{Device, FloatDType, Tensor, TensorData};
use gpu_tuned::mixed::{Half, LossScale, Master};

use super::models::{Convnet, Learner, Numbers, Recurrent, Transformer};
use super::process;

/// Micro-batches of which gradients are added up.
const MICRO_BATCHES: u64 = 32;

/// Gives parameters values that every float type holds exactly.
struct Exact(Numbers);

impl ModuleMapper for Exact {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let numbers = &mut self.0;
        // Multiples of 1/64 below 1/2, in three dimensions and more or two; scales of norms are about 1.
        let (base, below) = if D == 1 { (1.0, 16) } else { (0.0, 64) };
        let mut value = || base + f64::from(numbers.below(below) - below / 2) / 64.0;
        param.map(|tensor| {
            let values: Vec<f64> = (0..tensor.shape().num_elements()).map(|_| value()).collect();
            let (device, grad) = (tensor.device(), tensor.is_require_grad());
            let tensor = Tensor::from_data(TensorData::new(values, tensor.shape()), (&device, tensor.dtype()));
            tensor.set_require_grad(grad)
        })
    }
}

struct Values {
    gradients: GradientsParams,
    values: Vec<f64>,
}

impl ModuleVisitor for Values {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(gradient) = self.gradients.get::<D>(param.id) else { return };
        self.values.extend(gradient.cast(FloatDType::F64).into_data().iter::<f64>());
    }
}

/// All gradients: `[precision, model]`.
pub(crate) fn task(words: &[&str]) -> String {
    let [precision, model] = words else { panic!("{words:?}") };
    let values = match *model {
        "transformer" => values::<Transformer>(precision),
        "convnet" => values::<Convnet>(precision),
        "recurrent" => values::<Recurrent>(precision),
        other => panic!("{other} is no model"),
    };
    values.iter().map(f64::to_string).collect::<Vec<_>>().join(" ")
}

fn values<L: Learner>(precision: &str) -> Vec<f64> {
    let device = Device::flex().autodiff();
    let model = L::init(&device).map(&mut Exact(Numbers::new(7)));
    let half = match precision {
        "mixed_f16" => Half::F16,
        _ => Half::Bf16,
    };
    let scale = LossScale::for_half(half).with_init_scale(1024.0);
    let backward =
        |model: &L, seed| GradientsParams::from_grads(scale.scale(model.loss(seed, &device)).backward(), model);
    if precision.starts_with("mixed") {
        let model = Master::new(model, half).unwrap().compute_copy();
        let sum = (0..MICRO_BATCHES)
            .fold(GradientsParams::new(), |sum, seed| scale.widen_onto(sum, backward(&model, seed), &model).unwrap());
        return read(&model, sum);
    }
    let mut sum = GradientsAccumulator::new();
    for seed in 0..MICRO_BATCHES {
        let loss = model.loss(seed, &device);
        sum.accumulate(&model, GradientsParams::from_grads(loss.backward(), &model));
    }
    read(&model, sum.grads())
}

fn read<M: Module>(model: &M, gradients: GradientsParams) -> Vec<f64> {
    let mut values = Values { gradients, values: Vec::new() };
    model.visit(&mut values);
    values.values
}

/// The length of the difference to the gradients in f64, over theirs.
fn error(float: &str, precision: &str, model: &str, right: &[f64]) -> f64 {
    let found = gradients(float, precision, model);
    assert_eq!(found.len(), right.len());
    let length = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    length(&mut found.iter().zip(right).map(|(found, right)| found - right)) / length(&mut right.iter().copied())
}

fn gradients(float: &str, precision: &str, model: &str) -> Vec<f64> {
    let result = process::run(float, &format!("gradients {precision} {model}"));
    result.split(' ').map(|value| value.parse().expect("a number")).collect()
}

#[test]
fn added_up_in_f32_they_are_those_of_f64_to_the_precision_of_the_type() {
    for model in ["transformer", "convnet", "recurrent"] {
        let right = gradients("f64", "f64", model);
        let error = |float, precision| error(float, precision, model, &right);
        let (f32, bf16, f16) = (error("f32", "f32"), error("bf16", "mixed_bf16"), error("f16", "mixed_f16"));
        assert!(f32 < 1e-6, "{model}: {f32}");
        assert!(f16 < 1e-3, "{model}: {f16}");
        assert!(bf16 < 5e-3, "{model}: {bf16}");
        // The same added up in bf16.
        let params = error("bf16", "bf16_params");
        assert!(params > 2.0 * bf16, "{model}: {params} after {bf16}");
    }
}
