//! Gradients of one optimizer step, compared with a reference for different micro-batches.

use std::time::Instant;

use anyhow::ensure;
use burn::{
    optim::{GradientsParams, SgdConfig},
    tensor::{DType, Device},
};
use clap::Args;
use gpu_tuned::{
    Kernels,
    burn::{Gemm, probe},
    train::Trainer,
};
use models_tests::convnet;
use networks::{norm, relative_l2};
use serde::Serialize;

use crate::{
    catching::{Failure, catching},
    device::{Choice, kernels, release},
    lesson::Lesson,
    line::print_under,
    mode::Precision,
    network::{Batch, Dimensions, Model, Network},
    weights::{seeded, trained},
};

/// Maximum relative distance of gradients: the norm of the difference over the norm of the reference.
const MOST_APART: f64 = 2e-3;
/// Learning rate of plain descent. With such a large rate the new weights are the gradients times a factor, and the
/// rounding error is below that of fp32. A power of two, which adds no rounding error.
const RATE: f64 = 1024.0;
const SEED: u64 = 0;

/// Options of `exact`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    choice: Choice,
    /// Samples of the step
    #[arg(long, default_value_t = 512)]
    global_batch: usize,
    /// Samples of the micro-batches, separated by commas; the last micro-batch has the rest
    #[arg(long, value_delimiter = ',', default_values_t = [512, 128, 100])]
    micro_batches: Vec<usize>,
    /// Samples of a step of the large transformer, split and compared with the whole; 0 skips it
    #[arg(long, default_value_t = 512)]
    large_batch: usize,
    /// Switches TF32 off: f32 products run without tensor cores
    #[arg(long)]
    full_f32: bool,
}

#[derive(Serialize)]
struct Head<'a> {
    run: &'static str,
    kernels: Kernels,
    /// True if TF32 was switched off.
    full_f32: bool,
    model: &'a str,
    /// Reference of the gradients.
    reference: &'static str,
    global_batch: usize,
    micro_batch: usize,
}

/// Gradients as one vector, and the loss.
struct Computed {
    gradients: Vec<f64>,
    loss: f64,
    micro_batches: usize,
}

#[derive(Debug, Serialize)]
struct Apart {
    micro_batches: usize,
    /// Norm of the difference over the norm of the reference.
    relative_l2: f64,
    /// The largest that it may be.
    limit: f64,
    within: bool,
    /// Norm of the reference.
    gradient_norm: f64,
    loss: f64,
    loss_of_reference: f64,
    seconds: f64,
}

/// Prints a line for every model and cut.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let choice = if arguments.full_f32 { arguments.choice.without_tf32()? } else { arguments.choice };
    let device = choice.open(Precision::F32)?;
    arguments.probe(&device)?;
    let mut within = true;
    for (name, dimensions) in [("transformer", Model::Transformer.small()), ("convnet", grouped())] {
        within &= arguments.against_f64(name, &dimensions, &device)?;
    }
    if arguments.large_batch > 0 {
        within &= arguments.against_the_whole(&device)?;
    }
    ensure!(within, "there are gradients more than {MOST_APART} apart, or none");
    Ok(())
}

/// The small convnet with group norms, because batch norms depend on the split of a batch.
fn grouped() -> Dimensions {
    match Model::Convnet.small() {
        Dimensions::Convnet(convnet) => Dimensions::Convnet(convnet::Dimensions { group_norm: true, ..convnet }),
        other => other,
    }
}

impl Arguments {
    /// Prints the precision of fp32 products on the device, for a feed-forward layer of either transformer. Errors of
    /// gradients mostly come from these products.
    fn probe(&self, device: &Device) -> anyhow::Result<()> {
        #[derive(Serialize)]
        struct Head {
            run: &'static str,
            full_f32: bool,
        }
        let mut shapes = vec![Gemm { m: 4096, k: 64, n: 256 }];
        if self.large_batch > 0 {
            shapes.push(Gemm { m: 32768, k: 512, n: 2048 });
        }
        for shape in shapes {
            print_under(&Head { run: "probe", full_f32: self.full_f32 }, &catching(|| Ok(probe(device, shape)?)))?;
        }
        Ok(())
    }

    fn against_f64(&self, name: &str, dimensions: &Dimensions, device: &Device) -> anyhow::Result<bool> {
        let batch = Lesson::new(dimensions, SEED).batch(0, self.global_batch);
        let right = reference(dimensions, &batch)?;
        let mut within = true;
        for &micro_batch in &self.micro_batches {
            let global_batch = self.global_batch;
            let full_f32 = self.full_f32;
            let kernels = kernels();
            let head =
                Head { run: "exact", kernels, full_f32, model: name, reference: "f64", global_batch, micro_batch };
            within &= compared(&head, &right, || step(dimensions, &batch, micro_batch, device))?.is_some();
        }
        Ok(within)
    }

    /// In f64 it would take minutes; the whole batch on the device itself is the reference, and is not compared.
    fn against_the_whole(&self, device: &Device) -> anyhow::Result<bool> {
        let dimensions = Model::Transformer.dimensions();
        let batch = Lesson::new(&dimensions, SEED).batch(0, self.large_batch);
        let head = |micro_batch| Head {
            run: "exact",
            kernels: kernels(),
            full_f32: self.full_f32,
            model: "large_transformer",
            reference: "one_batch",
            global_batch: self.large_batch,
            micro_batch,
        };
        let whole = match catching(|| step(&dimensions, &batch, self.large_batch, device)) {
            Ok(whole) => whole,
            Err(failure) => {
                print_under(&head(self.large_batch), &Err::<Apart, Failure>(failure))?;
                return Ok(false);
            }
        };
        let mut within = true;
        // In proportion to those of the small models.
        for micro_batch in self.micro_batches.iter().map(|samples| samples * self.large_batch / self.global_batch) {
            if micro_batch < self.large_batch {
                let again = || step(&dimensions, &batch, micro_batch, device);
                within &= compared(&head(micro_batch), &whole, again)?.is_some();
            }
        }
        Ok(within)
    }
}

/// Prints the distance of a result from the reference; `None` if too far, or without a result.
fn compared(
    head: &Head<'_>,
    right: &Computed,
    computed: impl FnOnce() -> anyhow::Result<Computed>,
) -> anyhow::Result<Option<()>> {
    let begin = Instant::now();
    let outcome = catching(|| Ok(apart(&computed()?, right, begin)));
    print_under(head, &outcome)?;
    Ok(outcome.ok().filter(|apart| apart.within).map(drop))
}

fn apart(found: &Computed, right: &Computed, begin: Instant) -> Apart {
    let relative_l2 = relative_l2(&found.gradients, &right.gradients);
    Apart {
        micro_batches: found.micro_batches,
        relative_l2,
        limit: MOST_APART,
        within: relative_l2 <= MOST_APART,
        gradient_norm: norm(right.gradients.iter().copied()),
        loss: found.loss,
        loss_of_reference: right.loss,
        seconds: begin.elapsed().as_secs_f64(),
    }
}

/// The gradients of the trainer's own step, in f32: of plain descent, weights move by them alone.
fn step(dimensions: &Dimensions, batch: &Batch, micro_batch: usize, device: &Device) -> anyhow::Result<Computed> {
    let on = device.clone().autodiff();
    let network = seeded(dimensions, SEED, Some(DType::F32), &on);
    let before = trained(&network);
    let mut trainer = Trainer::new(network, SgdConfig::new().init(), on, micro_batch);
    let step = trainer.step(RATE, batch.clone(), |network: &Network, batch| network.loss_in_f32(batch))?;
    ensure!(step.rescues.is_empty(), "memory ran out, and the step was cut otherwise");
    ensure!(step.applied, "the gradients were not finite");
    let gradients = before.into_iter().zip(trained(trainer.model())).map(|(before, after)| (before - after) / RATE);
    let computed =
        Computed { gradients: gradients.collect(), loss: step.loss.into(), micro_batches: step.micro_batches };
    drop(trainer);
    release(device)?;
    Ok(computed)
}

/// The gradients of the whole batch in f64, on the CPU.
fn reference(dimensions: &Dimensions, batch: &Batch) -> anyhow::Result<Computed> {
    let device = Device::flex();
    let network = seeded(dimensions, SEED, Some(DType::F64), &device.clone().autodiff());
    let loss = network.loss_in_f32(batch.clone().in_float(&device, DType::F64));
    ensure!(loss.dtype() == DType::F64, "the reference came out as {:?}", loss.dtype());
    let value = loss.clone().try_into_scalar::<f64>()?;
    let gradients = GradientsParams::from_grads(loss.backward(), &network);
    Ok(Computed { gradients: networks::gradients(gradients, &network), loss: value, micro_batches: 1 })
}

#[cfg(test)]
mod rounded;

#[cfg(test)]
mod tests;
