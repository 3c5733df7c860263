//! Memory reserved by the pools over many steps.

use std::{collections::VecDeque, path::PathBuf, thread, time::Instant};

use anyhow::Context;
use burn::{cubecl::dry_run::DryRun, tensor::Device};
use clap::Args;
use gpu_tuned::{Bytes, Kernels};
use serde::Serialize;

use crate::{
    catching::catching,
    device::{Choice, kernels, release},
    line::print,
    memory::{Pool, Usage, pools},
    mode::Mode,
    network::{Batch, Fill},
    planned::{goal, h200, settings, workload},
    training::Training,
};

/// Options of `trace`.
#[derive(Args, Clone)]
pub(crate) struct Arguments {
    #[command(flatten)]
    mode: Mode,
    #[command(flatten)]
    choice: Choice,
    /// Samples in a micro-batch
    #[arg(long, value_delimiter = ',', required_unless_present = "planned")]
    batches: Vec<usize>,
    /// Takes the micro-batch and the checkpointing that are planned by this lock, instead
    #[arg(long, value_name = "LOCK", conflicts_with = "batches", requires = "memory_mib")]
    planned: Option<PathBuf>,
    /// Memory to plan for, in MiB
    #[arg(long)]
    memory_mib: Option<u64>,
    /// Optimizer steps
    #[arg(long, default_value_t = 30)]
    steps: usize,
    /// Batches that wait on the device, in addition to the current one
    #[arg(long, default_value_t = 0)]
    queue: usize,
    /// Read the pools only after the last step, like training does
    #[arg(long)]
    unwatched: bool,
    /// Executes nothing
    #[arg(long)]
    dry: bool,
}

#[derive(Serialize)]
struct Trace {
    kernels: Kernels,
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
    let arguments = &arguments.as_planned()?;
    let device = arguments.choice.open(arguments.mode.precision)?;
    // Opening leaves a page in the pools of this thread, which training in it would share.
    release(&device)?;
    let way = if arguments.dry { "dry_trace" } else { "trace" };
    for &batch in &arguments.batches {
        let traced = || catching(|| arguments.trace(batch, &device));
        let outcome = thread::scope(|scope| scope.spawn(traced).join());
        print(arguments.mode, batch, way, &outcome.ok().context("the thread ended")?)?;
    }
    Ok(())
}

impl Arguments {
    /// Replaces the arguments with planned settings, if requested.
    fn as_planned(&self) -> anyhow::Result<Self> {
        let Some(lock) = &self.planned else { return Ok(self.clone()) };
        let Mode { model, precision, .. } = self.mode;
        let facts = h200(self.memory_mib.map(Bytes::from_mib))?;
        let settings = settings(&facts, &workload(lock, model)?, &goal(precision)).context("nothing fits")?;
        let mode = Mode {
            checkpointing: settings.gradient_checkpointing,
            accumulate: u32::try_from(settings.gradient_accumulation)?,
            ..self.mode
        };
        Ok(Self { mode, batches: vec![usize::try_from(settings.batch_size)?], ..self.clone() })
    }

    fn trace(&self, batch: usize, device: &Device) -> anyhow::Result<Trace> {
        let dry_run = self.dry.then(DryRun::new);
        let outcome = catching(|| self.steps(batch, device));
        let released = release(device);
        drop(dry_run);
        released?;
        Ok(outcome?)
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
                reserved_bytes.push(Usage::read(device).reserved_bytes);
            }
        }
        if self.unwatched {
            reserved_bytes.push(Usage::read(device).reserved_bytes);
        }
        let (pools, seconds) = (pools(device), started.elapsed().as_secs_f64());
        let loss = if self.dry { None } else { Some(training.check()?) };
        Ok(Trace { kernels: kernels(), queue: self.queue, reserved_bytes, pools, seconds, loss })
    }
}
