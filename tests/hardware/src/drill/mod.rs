//! Provokes out-of-memory errors at chosen points of training, and reports the consequences.

mod disturbed;
mod hooks;
mod model;
mod neighbour;
mod report;
mod runs;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::device::started;
use crate::line::say;
use hooks::{At, Disturbance, Hooks};
use model::{Config, Encoder, Frames};
use neighbour::{Left, Neighbour};
use runs::{Bench, Undisturbed};

/// Options of `drill`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// What happens
    #[arg(value_enum)]
    drill: Drill,
    /// Times that it happens, each time to a fresh model
    #[arg(long, default_value_t = 3)]
    repeats: usize,
    /// Steps before it happens
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(3..))]
    before: u32,
    /// Steps from then on, with the one that it happens in
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(4..))]
    after: u32,
    /// Share of a planned step's memory that a neighbour leaves
    #[arg(long, default_value_t = 0.4)]
    share: f64,
    /// Nothing is tuned before it happens, and it happens in the first step
    #[arg(long)]
    cold: bool,
    /// Index of the GPU in CUDA's order
    #[arg(long, default_value_t = 0)]
    gpu: usize,
    /// Samples in a micro-batch, instead of the planned ones
    #[arg(long)]
    micro_batch: Option<usize>,
    /// Micro-batches of `undisturbed`, in addition to the planned one and its halves
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<usize>,
    /// Layers of the encoder
    #[arg(long, default_value_t = 4)]
    layers: usize,
    /// Width of the encoder, a multiple of 8
    #[arg(long, default_value_t = 512)]
    d_model: usize,
    /// Classes of a frame
    #[arg(long, default_value_t = 4096)]
    classes: usize,
    /// Frames of a sample
    #[arg(long, default_value_t = 64)]
    frames: usize,
}

/// Kinds of memory shortage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Drill {
    /// A share of the memory is left when a forward pass begins, and not more later
    Forward,
    /// Nothing is left when a backward pass begins, and a share from the next micro-batch on
    Backward,
    /// No memory is left at the first parameter update, and a share from the next micro-batch on
    Optimizer,
    /// Nothing is left when the session's loader uploads a batch, and a share from the next upload on
    Loader,
    /// A share is left from a step on, and the trainer tries to grow
    Stays,
    /// A share is left for three steps, and the trainer grows back
    Goes,
    /// No memory is left for the rest of the run
    Never,
    /// Nothing happens: steps of the micro-batches that others are compared with
    Undisturbed,
}

/// Steps after which a growing trainer tries larger micro-batches.
const PATIENCE: u32 = 3;
/// Steps before a temporary neighbour frees its memory.
const STAY: usize = 3;

impl Drill {
    /// The shortage at a point of a step.
    fn disturbance(self, share: f64) -> Option<Disturbance> {
        let (at, left, then) = match self {
            Self::Forward => (At::Forward, Left::Share(share), None),
            Self::Backward => (At::Backward, Left::Nothing, Some(Left::Share(share))),
            Self::Optimizer => (At::Optimizer, Left::Nothing, Some(Left::Share(share))),
            Self::Loader => (At::Upload, Left::Nothing, Some(Left::Share(share))),
            Self::Never => (At::Forward, Left::Nothing, None),
            Self::Stays | Self::Goes | Self::Undisturbed => return None,
        };
        Some(Disturbance { at, left, then })
    }

    /// Returns true if the trainer must grow its micro-batches in the drill.
    fn grows(self) -> bool {
        matches!(self, Self::Stays | Self::Goes)
    }
}

/// Prints a line for each repeat.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let bench = arguments.bench()?;
    match arguments.drill {
        Drill::Undisturbed => {
            for micro_batch in arguments.sizes(&bench) {
                say("undisturbed", &bench.undisturbed(micro_batch, arguments.steps())?.0)?;
            }
        }
        Drill::Never => {
            for repeat in 1..=arguments.repeats {
                say("drill", &disturbed::never(arguments, &bench, repeat)?)?;
            }
        }
        _ => {
            let mut known = arguments.undisturbed(&bench)?;
            for repeat in 1..=arguments.repeats {
                say("drill", &disturbed::drilled(arguments, &bench, &mut known, repeat)?)?;
            }
        }
    }
    Ok(())
}

impl Arguments {
    fn before(&self) -> usize {
        if self.cold { 0 } else { self.before as usize }
    }

    fn steps(&self) -> usize {
        self.before() + self.after as usize
    }

    fn config(&self) -> Config {
        let mut config = Config { layers: self.layers, d_model: self.d_model, ..Config::default() };
        (config.classes, config.frames) = (self.classes, self.frames);
        config.batch_size = self.micro_batch.unwrap_or(config.batch_size);
        config
    }

    /// The session, the model, and the data.
    fn bench(&self) -> anyhow::Result<Bench> {
        let session = started(self.config(), self.gpu)?;
        let device = session.device();
        let hooks = Hooks::new(Neighbour::new(&session.inner_device(), self.gpu)?);
        device.seed(0);
        let model = Encoder::new(session.config(), &device);
        let samples = session.schedule().global_batch as usize;
        // The loader's first epoch has as many steps as precede the disturbance, so the second epoch begins with it.
        let seeds = 0..u64::from(self.before);
        let batches: Vec<_> = seeds.map(|seed| Frames::new(session.config(), samples, seed, &hooks)).collect();
        Ok(Bench { session, hooks, model, batches: Arc::new(batches) })
    }

    /// The planned micro-batch, its halves down to an eighth, and requested ones; largest first.
    fn sizes(&self, bench: &Bench) -> Vec<usize> {
        let planned = bench.planned();
        let halves = [planned, planned / 2, planned / 4, planned / 8];
        let mut sizes: Vec<_> = halves.into_iter().chain(self.sizes.iter().copied()).filter(|size| *size > 0).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes.dedup();
        sizes
    }

    /// Undisturbed runs, which autotune everything beforehand; none for a cold drill.
    fn undisturbed(&self, bench: &Bench) -> anyhow::Result<BTreeMap<usize, Undisturbed>> {
        let mut known = BTreeMap::new();
        if self.cold {
            let memory = &bench.session.plan().memory;
            let beside = memory.activations + memory.scratch + memory.allocator;
            let between = memory.weights + memory.optimizer_state;
            let need = neighbour::Need {
                micro_batch: bench.planned(),
                between_bytes: between.0,
                step_bytes: (between + beside).0,
            };
            bench.hooks.learn(need);
            return Ok(known);
        }
        for micro_batch in self.sizes(bench) {
            let (undisturbed, need) = bench.undisturbed(micro_batch, self.steps())?;
            if micro_batch == bench.planned() {
                bench.hooks.learn(need);
            }
            known.insert(micro_batch, undisturbed);
        }
        Ok(known)
    }
}
