//! The gradients of one step: of ranks, of one rank with all samples, and in fp64.

use burn::optim::SgdConfig;
use burn::tensor::{Device, FloatDType};
use gpu_tuned::burn::{cpu, default_float};
use gpu_tuned::train::{Ranks, Trainer};
use serde::Serialize;

use super::Arguments;
use super::model::{Batch, Encoder};

/// Large enough that a parameter's change is not lost in rounding.
const LEARNING_RATE: f64 = 100.0;
/// Samples of a micro-batch in f64: the host's memory is smaller than a GPU's.
const IN_F64: usize = 8;

#[derive(Debug, Serialize)]
pub(super) struct Compared {
    /// Relative L2 distance of the ranks' gradients from those of one rank.
    pub ranks_and_one: f64,
    /// Distance of the ranks' gradients from f64 ones, if the ranks are not on the CPU.
    pub ranks_and_f64: Option<f64>,
    /// Distance of one rank's gradients from f64 ones.
    pub one_and_f64: Option<f64>,
    /// The norm as one rank has it.
    pub norm: f64,
    /// True if all ranks have bitwise equal results.
    pub ranks_equal: bool,
}

/// The CPU, computing in f64; before the first tensor on it.
pub(super) fn reference_device() -> anyhow::Result<Device> {
    let device = cpu();
    default_float(&device, FloatDType::F64)?;
    Ok(device)
}

pub(super) fn compare(
    arguments: &Arguments,
    devices: &[Device],
    reference: Option<&Device>,
) -> anyhow::Result<Compared> {
    let (shape, samples) = (arguments.model, arguments.samples);
    // Several on every rank.
    let micro_batch = arguments.batch.min(samples.div_ceil(2 * devices.len() + 1));
    let first = devices[0].clone().autodiff();
    let before = shape.model(&first).values();
    let values = before.clone();
    let after = Ranks::new(devices.to_vec(), micro_batch).run(move |rank| {
        let model = shape.model(rank.device()).with(values.clone());
        let mut trainer = rank.trainer(model, SgdConfig::new().init())?;
        let (tokens, targets) = shape.batch(samples, rank.device());
        let own = rank.part(samples);
        let batch = (tokens.slice_dim(0, own.clone()), targets.slice_dim(0, own));
        trainer.step(LEARNING_RATE, batch, Encoder::loss)?;
        Ok(trainer.model().values())
    })?;
    let alone = |device: &Device, micro_batch| {
        let model = shape.model(device).with(before.clone());
        let mut trainer = Trainer::new(model, SgdConfig::new().init(), device.clone(), micro_batch);
        let batch: Batch = shape.batch(samples, device);
        trainer.step(LEARNING_RATE, batch, Encoder::loss)?;
        anyhow::Ok(change(&before, &trainer.model().values()))
    };
    let (ranks, one) = (change(&before, &after[0]), alone(&first, samples)?);
    let exact = reference.map(|device| alone(&device.clone().autodiff(), IN_F64)).transpose()?;
    Ok(Compared {
        ranks_and_one: distance(&ranks, &one),
        ranks_and_f64: exact.as_ref().map(|exact| distance(&ranks, exact)),
        one_and_f64: exact.as_ref().map(|exact| distance(&one, exact)),
        norm: norm(&one),
        ranks_equal: after.windows(2).all(|pair| pair[0] == pair[1]),
    })
}

fn change(before: &[f64], after: &[f64]) -> Vec<f64> {
    before.iter().zip(after).map(|(before, after)| (before - after) / LEARNING_RATE).collect()
}

fn distance(left: &[f64], right: &[f64]) -> f64 {
    let difference: Vec<f64> = left.iter().zip(right).map(|(left, right)| left - right).collect();
    norm(&difference) / norm(right)
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum::<f64>().sqrt()
}
