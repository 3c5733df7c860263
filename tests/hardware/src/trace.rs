//! What the memory pools hold over many steps.

use std::{collections::VecDeque, thread, time::Instant};

use anyhow::Context;
use burn::{cubecl::dry_run::DryRun, tensor::Device};
use clap::Args;
use serde::Serialize;

use crate::{
    catching::catching,
    device::{Choice, release},
    line::print,
    memory::{Pool, Usage, pools},
    mode::Mode,
    network::{Batch, Fill},
    training::Training,
};

/// Options of `trace`.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    mode: Mode,
    #[command(flatten)]
    choice: Choice,
    /// Samples in a micro-batch
    #[arg(long, value_delimiter = ',', required = true)]
    batches: Vec<usize>,
    /// Optimizer steps
    #[arg(long, default_value_t = 30)]
    steps: usize,
    /// Batches that wait on the device beside the one in use
    #[arg(long, default_value_t = 0)]
    queue: usize,
    /// Looks at the pools after the last step only, as training does
    #[arg(long)]
    unwatched: bool,
    /// Executes nothing
    #[arg(long)]
    dry: bool,
}

#[derive(Serialize)]
struct Trace {
    queue: usize,
    /// After each step.
    reserved_bytes: Vec<u64>,
    /// After the last step.
    pools: Vec<Pool>,
    seconds: f64,
    loss: Option<f32>,
}

/// Prints a line for every batch. Each has a thread of its own, because memory pools belong to threads, and their pages
/// never shrink.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let device = arguments.choice.open(arguments.mode.precision)?;
    let way = if arguments.dry { "dry_trace" } else { "trace" };
    for &batch in &arguments.batches {
        let traced = || catching(|| arguments.trace(batch, &device));
        let outcome = thread::scope(|scope| scope.spawn(traced).join());
        print(arguments.mode, batch, way, &outcome.ok().context("the thread ended")?)?;
    }
    Ok(())
}

impl Arguments {
    fn trace(&self, batch: usize, device: &Device) -> anyhow::Result<Trace> {
        let dry_run = self.dry.then(DryRun::new);
        let outcome = catching(|| self.steps(batch, device));
        let released = release(device);
        drop(dry_run);
        released?;
        outcome.map_err(|failure| anyhow::anyhow!(failure.message))
    }

    fn steps(&self, batch: usize, device: &Device) -> anyhow::Result<Trace> {
        let started = Instant::now();
        let upload = || self.mode.model.batch(batch, Fill::Uploaded, device);
        let mut training = Training::new(self.mode, batch, Fill::Uploaded, device);
        let mut queue: VecDeque<Batch> = (0..self.queue).map(|_| upload()).collect();
        let mut reserved_bytes = Vec::with_capacity(self.steps);
        for _ in 0..self.steps {
            queue.push_back(upload());
            let next = queue.pop_front().context("BUG: a batch was put in")?;
            training = training.on(next).steps(1);
            if !self.unwatched {
                reserved_bytes.push(Usage::of(device).reserved_bytes);
            }
        }
        if self.unwatched {
            reserved_bytes.push(Usage::of(device).reserved_bytes);
        }
        let (pools, seconds) = (pools(device), started.elapsed().as_secs_f64());
        let loss = if self.dry { None } else { Some(training.check()?) };
        Ok(Trace { queue: self.queue, reserved_bytes, pools, seconds, loss })
    }
}
