use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;

/// Returns the float parameters of a module in f32. Parameters that Burn draws at their first use are drawn by this.
pub fn values<M: Module>(module: &M) -> Vec<f32> {
    let mut values = Values(Vec::new());
    module.visit(&mut values);
    values.0
}

struct Values(Vec<f32>);

impl ModuleVisitor for Values {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.extend(param.val().into_data().iter::<f32>());
    }
}

/// Returns the gradients of the trained parameters in their order; zeros for a parameter without one.
pub fn gradients<M: Module>(gradients: GradientsParams, module: &M) -> Vec<f64> {
    let mut flat = Gradients { gradients, values: Vec::new() };
    module.visit(&mut flat);
    flat.values
}

struct Gradients {
    gradients: GradientsParams,
    values: Vec<f64>,
}

impl ModuleVisitor for Gradients {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !param.is_require_grad() {
            return;
        }
        match self.gradients.remove::<D>(param.id) {
            Some(gradient) => self.values.extend(gradient.into_data().iter::<f64>()),
            None => self.values.extend((0..param.val().shape().num_elements()).map(|_| 0.0)),
        }
    }
}

/// Returns the largest difference between values at the same place.
///
/// # Panics
/// If the numbers of values differ.
pub fn furthest(left: &[f32], right: &[f32]) -> f32 {
    assert_eq!(left.len(), right.len());
    left.iter().zip(right).map(|(left, right)| (left - right).abs()).fold(0.0, f32::max)
}

/// Returns the Euclidean norm.
pub fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum::<f64>().sqrt()
}

/// Returns the norm of the difference over the norm of the right values.
///
/// # Panics
/// If the numbers of values differ.
pub fn relative_l2(found: &[f64], right: &[f64]) -> f64 {
    assert_eq!(found.len(), right.len());
    norm(found.iter().zip(right).map(|(found, right)| found - right)) / norm(right.iter().copied())
}
