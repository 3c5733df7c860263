//! Overhead of the trainer over a plain loop: time of a step, and memory.

use std::time::Instant;

use anyhow::{Context, ensure};
use burn::{optim::AdamWConfig, tensor::Device};
use clap::Args;
use gpu_tuned::train::Trainer;
use hardware_tests::{
    device::{Choice, alone},
    line::print,
    mode::{Mode, Precision},
    network::{Batch, Fill, Model, Network},
    training::Training,
};
use serde::Serialize;

/// Untimed steps: the second one allocates the optimizer's state, and a lock records the memory of the third.
const FIRST_STEPS: usize = 3;
const LEARNING_RATE: f64 = 1e-4;

/// Options of `overhead`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    choice: Choice,
    /// The model
    #[arg(long)]
    model: Model,
    /// Samples in a micro-batch
    #[arg(long, default_value_t = 32)]
    batch: usize,
    /// Micro-batches of an optimizer step, one number after another
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8])]
    accumulate: Vec<u32>,
    /// Micro-batches timed, the same for all
    #[arg(long, default_value_t = 48)]
    micro_batches: u32,
    /// Times that each is measured, in turns
    #[arg(long, default_value_t = 5)]
    repeats: u32,
}

#[derive(Clone, Copy)]
enum Loop {
    Plain,
    Trainer,
}

impl Loop {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain_loop",
            Self::Trainer => "trainer",
        }
    }
}

#[derive(Debug, Serialize)]
struct Taken {
    run: &'static str,
    repeat: u32,
    seconds_per_step: f64,
    samples_per_second: f64,
    /// Taken from the device for memory pools, after the third step.
    reserved_bytes: Option<u64>,
    /// Reserved memory after the last step.
    reserved_bytes_at_end: Option<u64>,
}

/// Prints a line for every loop, number of micro-batches, and repeat.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let device = arguments.choice.open(Precision::F32)?;
    for repeat in 0..arguments.repeats {
        for &accumulate in &arguments.accumulate {
            ensure!(accumulate > 0, "a step has micro-batches");
            // The order alternates between repeats.
            let loops = if repeat % 2 == 0 { [Loop::Plain, Loop::Trainer] } else { [Loop::Trainer, Loop::Plain] };
            for of in loops {
                arguments.take(of, accumulate, repeat, &device)?;
            }
        }
    }
    Ok(())
}

impl Arguments {
    fn take(&self, of: Loop, accumulate: u32, repeat: u32, device: &Device) -> anyhow::Result<()> {
        let mode = Mode { model: self.model, precision: Precision::F32, checkpointing: false, accumulate };
        let taken = alone(device, || match of {
            Loop::Plain => self.time(plain(mode, self.batch, device), accumulate, repeat, device),
            Loop::Trainer => self.time(trainer(mode, self.batch, device)?, accumulate, repeat, device),
        });
        print(mode, self.batch, of.name(), &taken)
    }

    /// Times `step`, which takes one optimizer step.
    fn time(
        &self,
        mut step: impl FnMut() -> anyhow::Result<()>,
        accumulate: u32,
        repeat: u32,
        device: &Device,
    ) -> anyhow::Result<Taken> {
        let reserved = || device.memory_pool_usage().map(|usage| usage.bytes_reserved);
        (0..FIRST_STEPS).try_for_each(|_| step())?;
        device.sync()?;
        let reserved_bytes = reserved();
        let steps = (self.micro_batches / accumulate).max(1);
        let begin = Instant::now();
        (0..steps).try_for_each(|_| step())?;
        device.sync()?;
        let seconds_per_step = begin.elapsed().as_secs_f64() / f64::from(steps);
        let samples = self.batch as f64 * f64::from(accumulate);
        Ok(Taken {
            run: "overhead",
            repeat,
            seconds_per_step,
            samples_per_second: samples / seconds_per_step,
            reserved_bytes,
            reserved_bytes_at_end: reserved(),
        })
    }
}

/// The loop that locks are measured with, which reads nothing: the device is waited for at the end.
fn plain(mode: Mode, batch: usize, device: &Device) -> impl FnMut() -> anyhow::Result<()> {
    let mut training = Some(Training::new(mode, batch, Fill::Random, device));
    move || {
        let stepped = training.take().context("BUG: it was put back")?.steps(1);
        training = Some(stepped);
        Ok(())
    }
}

/// The trainer, with a batch that is on the device as that of the plain loop is.
fn trainer(mode: Mode, batch: usize, device: &Device) -> anyhow::Result<impl FnMut() -> anyhow::Result<()>> {
    device.seed(0);
    let samples = batch * usize::try_from(mode.accumulate)?;
    let all = mode.model.batch(samples, Fill::Random, device);
    let on = mode.training(device);
    let mut trainer = Trainer::new(mode.model.network(&on), AdamWConfig::new().init(), on, batch);
    Ok(move || {
        let step = trainer.step(LEARNING_RATE, all.clone(), |network: &Network, batch: Batch| network.loss(batch))?;
        ensure!(step.rescues.is_empty(), "memory ran out, and micro-batches became smaller");
        ensure!(step.applied, "the gradients were not finite");
        Ok(())
    })
}
