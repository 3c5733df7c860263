//! Files saved by a run in mixed precision, loaded by a program in f32.

use std::path::Path;

use burn::module::Module;
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::{DType, Device, Tensor, TensorData};
use gpu_tuned::mixed::{Half, Master, widen};

use super::models::{Convnet, Learner, Numbers};
use super::process;

/// Logits for the same images everywhere.
fn logits(model: &Convnet) -> String {
    let mut numbers = Numbers::new(99);
    let images: Vec<f32> = (0..4 * 64).map(|_| numbers.real()).collect();
    let images = Tensor::<4>::from_data(TensorData::new(images, [4, 1, 8, 8]), (&Device::flex(), DType::F32));
    let logits = model.forward(images);
    assert_eq!(logits.dtype(), DType::F32);
    logits.into_data().iter::<f32>().map(|value| format!("{:08x}", value.to_bits())).collect::<Vec<_>>().join(" ")
}

/// Trains for a while, saves the f32 weights, and computes with them.
pub(crate) fn save(path: &Path) -> String {
    let device = Device::flex().autodiff();
    let mut master = Master::new(Convnet::init(&device), Half::Bf16).unwrap();
    let mut optimizer = AdamWConfig::new().init();
    for seed in 0..20 {
        let model = master.compute_copy();
        let gradients = GradientsParams::from_grads(model.loss(seed, &device).backward(), &model);
        let gradients = widen(gradients, &model).unwrap();
        master = master.update(|model| optimizer.step(3e-3, model, gradients));
    }
    let model = master.model().valid();
    model.clone().save_file(path).unwrap();
    logits(&model)
}

/// Computes with what was saved.
pub(crate) fn load(path: &Path) -> String {
    logits(&Convnet::init(&Device::flex()).load_file(path))
}

#[test]
fn a_saved_model_computes_in_f32_what_the_master_computes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model");
    let path = path.to_str().expect("a path of plain characters");
    let right = process::run("bf16", &format!("save {path}"));
    assert_eq!(process::run("f32", &format!("load {path}")), right);
}
