//! How long steps take, and what they reserve.

use std::time::Instant;

#[cfg(not(feature = "cuda"))]
use anyhow::ensure;
use burn::tensor::Device;
use clap::Args;
use serde::Serialize;

use crate::{
    catching::{Failure, catching},
    device::{Choice, Opened},
    line::print,
    memory::{Usage, release},
    mode::Mode,
    network::Fill,
    training::{Moment, Training},
};

/// Options of `real`.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    mode: Mode,
    #[command(flatten)]
    choice: Choice,
    /// Samples in a micro-batch, in the order in which they are measured
    #[arg(long, value_delimiter = ',', required = true)]
    batches: Vec<usize>,
    /// Optimizer steps that are timed together
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Times that every batch is measured, in turns
    #[arg(long, default_value_t = 3)]
    repeats: u32,
    /// Steps before those that are timed, with every model
    #[arg(long, default_value_t = 2)]
    warm_steps: u32,
    /// Refuses batches whose dry run reserves more
    #[arg(long, value_name = "MIB")]
    max_reserved_mib: Option<u64>,
}

/// The first steps of a process, which compile and tune.
#[derive(Serialize)]
struct WarmedUp {
    seconds: f64,
    #[serde(flatten)]
    usage: Usage,
}

#[derive(Serialize)]
struct Measured {
    repeat: u32,
    seconds_per_step: f64,
    samples_per_second: f64,
    before: Usage,
    #[serde(flatten)]
    usage: Usage,
    loss: f32,
}

/// Parts of a step, which waiting between them makes slower than the whole.
#[derive(Serialize)]
struct Phases {
    forward_backward_seconds: f64,
    optimizer_seconds: f64,
    in_use_after_forward_bytes: u64,
    #[serde(flatten)]
    usage: Usage,
    loss: f32,
}

/// Prints lines for every batch: what is refused, the warm-up, every repeat, the phases of a step.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let opened = arguments.choice.open(arguments.mode.precision)?;
    let device = &opened.device;
    let mut batches = admitted(arguments, &opened)?;
    arguments.round(&mut batches, "warm_up", device, |batch| arguments.warm_up(batch, device))?;
    for repeat in 1..=arguments.repeats {
        arguments.round(&mut batches, "real", device, |batch| arguments.measure(batch, repeat, device))?;
    }
    arguments.round(&mut batches, "phases", device, |batch| arguments.phases(batch, device))
}

#[cfg(feature = "cuda")]
fn admitted(arguments: &Arguments, opened: &Opened) -> anyhow::Result<Vec<usize>> {
    let limit_bytes = opened.limit_bytes(arguments.max_reserved_mib);
    crate::dry::admitted(arguments.mode, &arguments.batches, limit_bytes, &opened.device)
}

/// There is no dry run on the CPU.
#[cfg(not(feature = "cuda"))]
fn admitted(arguments: &Arguments, _: &Opened) -> anyhow::Result<Vec<usize>> {
    ensure!(
        arguments.max_reserved_mib.is_none(),
        "a limit needs a dry run, and that CUDA: build with `--features cuda`"
    );
    Ok(arguments.batches.clone())
}

impl Arguments {
    /// Every batch once; one that fails is left out from then on.
    fn round<T: Serialize>(
        &self,
        batches: &mut Vec<usize>,
        way: &str,
        device: &Device,
        measure: impl Fn(usize) -> anyhow::Result<T>,
    ) -> anyhow::Result<()> {
        for batch in std::mem::take(batches) {
            let outcome: Result<T, Failure> = catching(|| measure(batch));
            print(self.mode, batch, way, &outcome)?;
            if outcome.is_ok() {
                batches.push(batch);
            }
            if let Err(failure) = catching(|| release(device)) {
                eprintln!("memory could not be given back after batch {batch}: {}", failure.message);
            }
        }
        Ok(())
    }

    fn warm(&self, batch: usize, device: &Device) -> anyhow::Result<Training> {
        let training = Training::new(self.mode, batch, Fill::Random, device).steps(self.warm_steps as usize);
        device.sync()?;
        Ok(training)
    }

    fn warm_up(&self, batch: usize, device: &Device) -> anyhow::Result<WarmedUp> {
        let started = Instant::now();
        let training = self.warm(batch, device)?;
        let seconds = started.elapsed().as_secs_f64();
        let usage = Usage::of(device);
        if self.warm_steps > 0 {
            training.check()?;
        }
        Ok(WarmedUp { seconds, usage })
    }

    fn measure(&self, batch: usize, repeat: u32, device: &Device) -> anyhow::Result<Measured> {
        let before = Usage::of(device);
        let training = self.warm(batch, device)?;
        let started = Instant::now();
        let training = training.steps(self.steps as usize);
        device.sync()?;
        let seconds_per_step = started.elapsed().as_secs_f64() / f64::from(self.steps);
        let usage = Usage::of(device);
        let samples = batch as f64 * f64::from(self.mode.accumulate);
        let loss = training.check()?;
        Ok(Measured { repeat, seconds_per_step, samples_per_second: samples / seconds_per_step, before, usage, loss })
    }

    fn phases(&self, batch: usize, device: &Device) -> anyhow::Result<Phases> {
        let mut training = self.warm(batch, device)?;
        let (mut forward_backward, mut optimizer) = (0.0, 0.0);
        for _ in 0..self.steps {
            let started = Instant::now();
            let mut gradients = 0.0;
            let mut synced = Ok(());
            training = training.step(|moment| {
                if moment == Moment::Gradients {
                    synced = device.sync();
                    gradients = started.elapsed().as_secs_f64();
                }
            });
            synced?;
            device.sync()?;
            forward_backward += gradients;
            optimizer += started.elapsed().as_secs_f64() - gradients;
        }
        let mut forward = Usage::default();
        training = training.step(|moment| {
            if moment == Moment::Forward {
                forward = Usage::of(device);
            }
        });
        let steps = f64::from(self.steps);
        Ok(Phases {
            forward_backward_seconds: forward_backward / steps,
            optimizer_seconds: optimizer / steps,
            in_use_after_forward_bytes: forward.in_use_bytes,
            usage: Usage::of(device),
            loss: training.check()?,
        })
    }
}
