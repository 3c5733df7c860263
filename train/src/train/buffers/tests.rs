use burn::module::Module;
use burn::nn::{BatchNorm, BatchNormConfig, LinearConfig};
use burn::tensor::{Device, Tensor};

use super::{Buffers, changed_by};

fn statistics(norm: &BatchNorm) -> Vec<f32> {
    let sides = [norm.running_mean.value_sync(), norm.running_var.value_sync()];
    sides.into_iter().flat_map(|side| side.into_data().iter::<f32>().collect::<Vec<_>>()).collect()
}

#[test]
fn forward_passes_that_failed_leave_no_trace_in_running_statistics() {
    let device = Device::flex().autodiff();
    let batch = |scale: f32| Tensor::<2>::from_floats([[1.0, 2.0], [3.0, 5.0]], &device).mul_scalar(scale);
    let (norm, undisturbed) = (BatchNormConfig::new(2).init(&device), BatchNormConfig::new(2).init(&device));
    for norm in [&norm, &undisturbed] {
        norm.forward(batch(1.0));
    }
    let before = Buffers::copy_of(&norm).unwrap();
    norm.forward(batch(1e30));
    norm.forward(batch(f32::NAN));
    before.restore(&norm.clone());
    for norm in [&norm, &undisturbed] {
        norm.forward(batch(2.0));
    }
    assert_eq!(statistics(&norm), statistics(&undisturbed));
    assert!(norm.gamma.is_require_grad() && norm.gamma.val().is_autodiff());
}

#[test]
fn forward_passes_change_running_statistics_and_nothing_else() {
    let device = Device::flex().autodiff();
    let input = || Tensor::<2>::from_floats([[1.0, 2.0], [3.0, 5.0]], &device);
    let norm = BatchNormConfig::new(2).init(&device);
    let before = statistics(&norm);
    let frozen = LinearConfig::new(2, 2).init(&device).no_grad();
    let model = (norm.clone(), frozen);
    let passed = || {
        drop(model.1.forward(norm.forward(input())));
        Ok::<_, ()>(())
    };
    let changed = changed_by(&model, passed).unwrap().unwrap();
    assert_eq!(changed.0.len(), 2, "mean and variance");
    let failed = || {
        drop(norm.forward(input()));
        Err("out of memory")
    };
    assert_eq!(changed_by(&model, failed).err(), Some("out of memory"));
    assert_eq!(statistics(&norm), before);
    assert!(changed_by(&model, || Ok::<_, ()>(())).unwrap().is_none());
}

#[test]
fn restoring_keeps_gradient_checkpointing() {
    let device = Device::flex().autodiff().gradient_checkpointing();
    let norm = BatchNormConfig::new(2).init(&device);
    Buffers::copy_of(&norm).unwrap().restore(&norm);
    assert_eq!(norm.gamma.val().gradient_checkpointing_strategy(), device.gradient_checkpointing_strategy());
    norm.forward(Tensor::<2>::ones([3, 2], &device)).sum().backward();
}

#[test]
fn a_model_of_trained_parameters_has_none() {
    let linear = LinearConfig::new(2, 2).init(&Device::flex().autodiff());
    assert!(Buffers::copy_of(&linear).is_none());
    assert!(Buffers::copy_of(&linear.no_grad()).is_some());
}
