use burn::module::{Module, ModuleVisitor, Param};
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

/// Returns the largest difference between values at the same place.
///
/// # Panics
/// If the numbers of values differ.
pub fn furthest(left: &[f32], right: &[f32]) -> f32 {
    assert_eq!(left.len(), right.len());
    left.iter().zip(right).map(|(left, right)| (left - right).abs()).fold(0.0, f32::max)
}
