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
