//! Shapes of a model's parameters.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Bool, Int, Tensor};

use super::program::Size;

/// Shapes of all parameters of numbers, in the order in which the model names them.
pub(super) fn shapes<M: Module>(model: &M) -> Vec<Vec<u64>> {
    let mut shapes = Shapes(Vec::new());
    model.visit(&mut shapes);
    shapes.0
}

/// Gives every parameter its first values.
pub(super) fn values<M: Module>(model: &M) {
    model.visit(&mut Values);
}

/// The size on a GPU of a parameter that was just made.
pub(super) fn size(shape: &[u64]) -> Size {
    let row = shape.last().copied().unwrap_or(1).max(1);
    let rows = shape.iter().product::<u64>() / row;
    Size::rows([rows; 2], row)
}

struct Shapes(Vec<Vec<u64>>);

impl ModuleVisitor for Shapes {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.push(param.lazy_shape().iter().map(|size| *size as u64).collect());
    }
}

struct Values;

impl ModuleVisitor for Values {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        param.val();
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        param.val();
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
        param.val();
    }
}
