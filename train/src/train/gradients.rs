//! Gradients as a whole.

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{DType, FloatDType, Tensor};

use crate::mixed::TOGETHER;
use crate::visit::visit_floats;

/// Parameters with gradients in groups of at most so many bytes, in the order of the model; one that is larger is alone.
pub(super) fn groups<M: Module>(gradients: &GradientsParams, model: &M, bytes: u64) -> Vec<Vec<ParamId>> {
    let sizes = visit_floats!(
        model,
        (sizes, gradients) = (Vec::new(), gradients),
        (Vec<(ParamId, u64)>, &'v GradientsParams),
        |param| {
            if let Some(gradient) = gradients.get::<D>(param.id) {
                sizes.push((param.id, (gradient.shape().num_elements() * gradient.dtype().size()) as u64));
            }
        }
    );
    let mut groups: Vec<Vec<ParamId>> = Vec::new();
    // Bytes left in the last group.
    let mut room = 0;
    for (id, size) in sizes.0 {
        match groups.last_mut() {
            Some(group) if size <= room => group.push(id),
            _ => {
                groups.push(vec![id]);
                room = bytes.max(size);
            }
        }
        room -= size;
    }
    groups
}

/// Copies of the gradients of some parameters, of the same bytes.
pub(super) fn copied<M: Module>(gradients: &GradientsParams, model: &M, ids: &[ParamId]) -> GradientsParams {
    let state = (GradientsParams::new(), gradients, ids);
    let copied = visit_floats!(
        model,
        (copies, gradients, ids) = state,
        (GradientsParams, &'v GradientsParams, &'v [ParamId]),
        |param| {
            if let Some(gradient) = gradients.get::<D>(param.id).filter(|_| ids.contains(&param.id)) {
                copies.register(param.id, gradient);
            }
        }
    );
    copied.0
}

/// A value on the device, of shape `[1]`, that depends on every trained parameter of a model that is `seen`; `None` if
/// there is none.
///
/// A read of the value fails if one of the parameters could not be computed. The value itself is arbitrary.
pub fn witness<M: Module>(model: &M, seen: impl Fn(ParamId) -> bool) -> Option<Tensor<1>> {
    let mut corners = Corners { seen, values: Vec::new() };
    model.visit(&mut corners);
    let sum = |values: &[Tensor<1>]| Tensor::cat(values.to_vec(), 0).cast(FloatDType::F32).sum();
    let sums: Vec<_> = corners.values.iter().flat_map(|(_, values)| values.chunks(TOGETHER)).map(sum).collect();
    sums.into_iter().reduce(|sum, other| sum + other)
}

/// `CubeCL` does not copy a contiguous slice whose begin and end are multiples of this number of bytes. CUDA's
/// alignment is the largest of all GPUs.
const ALIGNMENT: usize = 512;

/// Some values of each parameter, by their type: what is of one type is put together by one kernel.
struct Corners<F> {
    seen: F,
    values: Vec<(DType, Vec<Tensor<1>>)>,
}

impl<F: Fn(ParamId) -> bool> ModuleVisitor for Corners<F> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !param.is_require_grad() || !(self.seen)(param.id) {
            return;
        }
        let value = param.base().without_autodiff();
        let (dtype, row) = (value.dtype(), value.dims()[D - 1]);
        let aligned = ALIGNMENT / dtype.size().max(1);
        let kept = if row > 0 && row.is_multiple_of(aligned) { aligned } else { 1 };
        let corner = std::array::from_fn::<_, D, _>(|axis| 0..if axis == D - 1 { kept } else { 1 });
        let corner = value.slice(corner).reshape([kept]);
        match self.values.iter_mut().find(|(known, _)| *known == dtype) {
            Some((_, corners)) => corners.push(corner),
            None => self.values.push((dtype, vec![corner])),
        }
    }
}

/// Bytes of a model's trained parameters.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sizes {
    pub all: u64,
    /// Bytes of the largest one.
    pub largest: u64,
}

impl Sizes {
    pub(super) fn from_model<M: Module>(model: &M) -> Self {
        visit_floats!(model, sizes = Self::default(), Sizes, |param| {
            if param.is_require_grad() {
                let bytes = (param.shape().num_elements() * param.dtype().size()) as u64;
                *sizes = Sizes { all: sizes.all + bytes, largest: sizes.largest.max(bytes) };
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use burn::module::{Module, Param};
    use burn::tensor::{DType, Device, Tensor};

    use super::{Sizes, witness};

    #[derive(Module, Debug)]
    struct Mixed {
        /// Rows that are aligned, of two types, and one that is not.
        wide: Param<Tensor<2>>,
        half: Param<Tensor<1>>,
        narrow: Param<Tensor<3>>,
        frozen: Param<Tensor<1>>,
    }

    fn model() -> Mixed {
        let device = Device::flex().autodiff();
        Mixed {
            wide: Param::from_tensor(Tensor::full([3, 256], 2.0, &device)),
            half: Param::from_tensor(Tensor::full([512], 0.5, (&device, DType::BF16))),
            narrow: Param::from_tensor(Tensor::full([2, 2, 5], 4.0, &device)),
            frozen: Param::from_tensor(Tensor::full([7], f32::NAN, &device)).set_require_grad(false),
        }
    }

    #[test]
    fn a_witness_depends_on_each_trained_parameter_that_is_seen() {
        let model = model();
        let ids = [model.wide.id, model.half.id, model.narrow.id];
        // 512 bytes of those that are aligned, and one value of the other.
        let parts = [128.0 * 2.0, 256.0 * 0.5, 4.0];
        let value = |tensor: Option<Tensor<1>>| tensor.unwrap().into_scalar::<f32>();
        assert!((value(witness(&model, |_| true)) - parts.iter().sum::<f32>()).abs() < 1e-3);
        for (id, part) in ids.into_iter().zip(parts) {
            assert!((value(witness(&model, |seen| seen == id)) - part).abs() < 1e-3);
        }
        assert!(witness(&model, |_| false).is_none());
    }

    #[test]
    fn sizes_are_those_of_trained_parameters() {
        let sizes = Sizes::from_model(&model());
        assert_eq!((sizes.all, sizes.largest), (768 * 4 + 512 * 2 + 20 * 4, 768 * 4));
    }
}
