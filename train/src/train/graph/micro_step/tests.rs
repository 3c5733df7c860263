use burn::nn::LinearConfig;
use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, Tensor};

use super::{Recording, handed_on};

#[test]
fn gradients_are_copied_by_their_type() {
    let device = Device::flex();
    let model = LinearConfig::new(2, 2).init(&device);
    let bias = model.bias.as_ref().expect("a layer with a bias").id;
    let mut gradients = GradientsParams::new();
    gradients.register(model.weight.id, Tensor::<2>::ones([2, 2], (&device, DType::BF16)));
    gradients.register(bias, Tensor::<1>::ones([2], &device));
    let mut copies = handed_on(&gradients, &model, &|dtype| dtype == DType::F32);
    let [weight, bias] = [
        copies.remove::<2>(model.weight.id).map(|gradient| gradient.can_mut()),
        copies.remove::<1>(bias).map(|gradient| gradient.can_mut()),
    ];
    // Only the memory of a copy is not shared.
    assert_eq!([weight, bias], [Some(false), Some(true)]);
}

#[test]
fn a_backend_without_graphs_is_named_as_the_reason() {
    let because = Recording::record(&Device::flex(), || Ok(())).err().expect("a CPU has none");
    assert_eq!(because, "graph capture is not supported by this backend");
}
