use burn::module::Param;
use burn::optim::SgdConfig;
use burn::tensor::{DType, Device, Tensor};
use gpu_tuned_train::mixed::{Half, in_f32};

use super::{Step, Training};
use crate::measure::Subject;

/// Factors of half the smallest fp16 number: the gradient vanishes unless the loss is scaled.
const SMALL: [f32; 2] = [1.0 / 8192.0, 1.0 / 4096.0];

#[test]
fn gradients_in_16_bits_are_scaled_where_a_trainer_scales_them() {
    let subject = |half| {
        Subject::new(
            |device| Param::from_tensor(Tensor::<1>::ones([3], (device, DType::F32))),
            || SgdConfig::new().init(),
            |_, _| (),
            |weight: &Param<Tensor<1>>, ()| in_f32(weight.val().mul_scalar(SMALL[0]).mul_scalar(SMALL[1])).sum(),
        )
        .mixed(half)
    };
    for half in [Half::F16, Half::Bf16] {
        let subject = subject(half);
        let step = Step { batch: 1, micro_batches: 1, checkpointing: false, cuda_graphs: false };
        let mut training = Training::new(&subject, step, &Device::flex());
        for gradients in [training.gradients(1), training.passes(|| ())] {
            let gradient = gradients.get::<1>(training.weights().model().id).expect("a gradient").into_data();
            let right = [SMALL[0] * SMALL[1]; 3];
            assert_eq!(gradient.try_to_vec::<f32>().expect("f32"), right, "{half:?}");
        }
    }
}
