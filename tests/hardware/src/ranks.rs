//! Optimizer steps as one of several processes, or alone: speed, losses, memory, and faults of one rank.

mod checkpoint;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::process;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::ensure;
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{DType, Device, Distribution, Tensor};
use clap::{Args, ValueEnum};
use gpu_tuned::optim::AdamWConfig;
use gpu_tuned::train::Trainer;
use gpu_tuned::{Kernels, MicroBatch, Options, Session, Tuned, gpu_tuned};
use serde::Serialize;

use checkpoint::Checkpoint;

use crate::device::kernels;
use crate::lesson::Lesson;
use crate::network::{Batch, Dimensions, Model, Network};
use crate::weights::seeded;

const LEARNING_RATE: f64 = 1e-4;
/// Seed of weights and samples.
const SEED: u64 = 7;
/// Steps before the time counts: kernels are compiled and tuned.
const WARM_UP: usize = 3;

/// Options of `ranks`.
#[derive(Args, Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub(crate) struct Arguments {
    /// The model
    #[arg(long, default_value = "transformer")]
    model: Model,
    /// A small network of that kind
    #[arg(long)]
    small: bool,
    /// Samples of a step over all ranks
    #[arg(long, default_value_t = 256)]
    global_batch: usize,
    /// Samples in a micro-batch of a rank
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// Steps of the run
    #[arg(long, default_value_t = 20)]
    steps: usize,
    /// Folder of a checkpoint after every step, from which the run resumes if there is one
    #[arg(long)]
    checkpoint: Option<std::path::PathBuf>,
    /// Shares the optimizer's state among the ranks
    #[arg(long)]
    shard: bool,
    /// Replays micro-steps as CUDA graphs
    #[arg(long)]
    graphs: bool,
    /// Begins sums of gradients in the backward pass
    #[arg(long)]
    overlap: bool,
    /// Fault of the last rank
    #[arg(long, requires = "fault_step")]
    fault: Option<Fault>,
    /// Step of the fault, from 0
    #[arg(long)]
    fault_step: Option<usize>,
}

/// Faults of a rank in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Fault {
    /// Out of memory for every micro-batch
    Oom,
    /// Out of memory for micro-batches of more than half of the planned size
    Rescue,
    /// A panic
    Panic,
    /// The process aborts
    Abort,
    /// The process hangs
    Hang,
}

/// Steps of any number of samples.
#[gpu_tuned(transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), target = "generic")]
#[derive(Clone, Debug)]
struct Config {
    #[tuned]
    batch_size: usize,
    #[tuned]
    gradient_accumulation: usize,
}

/// The same, with the optimizer's state shared among the ranks.
#[gpu_tuned(
    transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256),
    shard_optimizer = true,
    target = "generic"
)]
#[derive(Clone, Debug)]
struct Sharded {
    #[tuned]
    batch_size: usize,
    #[tuned]
    gradient_accumulation: usize,
}

/// The line of a rank.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    model: Model,
    rank: usize,
    ranks: usize,
    kernels: Kernels,
    global_batch: usize,
    micro_batch: usize,
    /// Steps before this process.
    resumed_after: usize,
    losses: Vec<f32>,
    norms: Vec<f32>,
    /// Recoveries from out of memory, step by step.
    rescues: Vec<usize>,
    /// Until the first step was taken: compiling, tuning, and the start of NCCL.
    first_step_seconds: f64,
    /// Samples of all ranks per second, in the median of the steps after the warm-up.
    samples_per_second: Option<f64>,
    /// Memory after the last step, on a GPU.
    memory: Option<Memory>,
    /// Hash of the parameters' bits after the last step.
    parameters: String,
}

#[derive(Debug, Serialize)]
struct Memory {
    in_use_bytes: u64,
    reserved_bytes: u64,
}

/// Prints the line of this rank.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let line = arguments.train(Options::default().distributed_if_launched())?;
    println!("{}", serde_json::to_string(&line)?);
    Ok(())
}

impl Arguments {
    fn train(&self, options: Options) -> anyhow::Result<Line> {
        let options = if cfg!(feature = "cuda") { options } else { options.cpu() };
        let (batch_size, gradient_accumulation) = (self.batch, self.accumulation()?);
        if self.shard {
            self.train_in(&options.start(Sharded { batch_size, gradient_accumulation })?)
        } else {
            self.train_in(&options.start(Config { batch_size, gradient_accumulation })?)
        }
    }

    fn train_in<C: Tuned>(&self, session: &Session<C>) -> anyhow::Result<Line> {
        let planned = session.schedule().micro_batch;
        // Values that are those of the build ask for nothing.
        ensure!(
            planned == self.batch as u64,
            "micro-batches are of {planned} samples: ask for others than {}",
            self.batch
        );
        let device = session.device();
        let checkpoint = self.checkpoint.as_deref().map(Checkpoint::new);
        let saved = checkpoint.as_ref().filter(|checkpoint| checkpoint.exists());
        let model = seeded(&self.dimensions(), SEED, Some(DType::F32), &device);
        let model = match saved {
            Some(saved) => saved.load_model(model)?,
            None => model,
        };
        let trainer = session.trainer(model, AdamWConfig::new().init())?;
        let trainer = if self.overlap { trainer.overlap_sums() } else { trainer };
        let mut trainer = if self.graphs { trainer.cuda_graphs() } else { trainer };
        let resumed_after = saved.map_or(Ok(0), |saved| saved.load_optimizer(&mut trainer))?;
        let lesson = Lesson::new(&self.dimensions(), SEED);
        let mut line = Line {
            model: self.model,
            rank: session.rank(),
            ranks: session.world_size(),
            kernels: kernels(),
            global_batch: self.global_batch,
            micro_batch: self.batch,
            resumed_after,
            losses: Vec::new(),
            norms: Vec::new(),
            rescues: Vec::new(),
            first_step_seconds: 0.0,
            samples_per_second: None,
            memory: None,
            parameters: String::new(),
        };
        let mut seconds = Vec::new();
        for number in resumed_after..self.steps {
            // Drawn on the host, which is none of the step's time.
            let all = lesson.batch(number as u64, self.global_batch);
            let batch = all.narrow(session.part(self.global_batch)).on_device(&session.inner_device());
            let begin = Instant::now();
            self.step(session, &mut trainer, batch, number, &mut line)?;
            seconds.push(begin.elapsed().as_secs_f64());
            if let Some(checkpoint) = &checkpoint {
                checkpoint.save(session, &trainer, number + 1)?;
            }
        }
        line.first_step_seconds = seconds.first().copied().unwrap_or_default();
        let mut timed = seconds.split_off(WARM_UP.min(seconds.len()));
        timed.sort_by(f64::total_cmp);
        line.samples_per_second = timed.get(timed.len() / 2).map(|median| self.global_batch as f64 / median);
        let usage = session.inner_device().memory_pool_usage();
        line.memory =
            usage.map(|usage| Memory { in_use_bytes: usage.bytes_in_use, reserved_bytes: usage.bytes_reserved });
        line.parameters = hash(trainer.model());
        Ok(line)
    }

    /// Micro-batches of a rank, so that a step has the samples of the options, whatever the number of ranks.
    fn accumulation(&self) -> anyhow::Result<usize> {
        let ranks = gpu_tuned::ranks::Launch::from_env()?.map_or(1, |launch| launch.world_size);
        let shared = self.batch * ranks;
        let steps = self.global_batch / shared;
        ensure!(
            steps > 0 && steps * shared == self.global_batch,
            "{} samples are no multiple of {shared}",
            self.global_batch
        );
        Ok(steps)
    }

    fn dimensions(&self) -> Dimensions {
        if self.small { self.model.small() } else { self.model.dimensions() }
    }

    fn step<C: Tuned>(
        &self,
        session: &Session<C>,
        trainer: &mut Trainer<Network>,
        batch: Batch,
        number: usize,
        line: &mut Line,
    ) -> anyhow::Result<()> {
        let is_last = session.rank() + 1 == session.world_size();
        let fault = self.fault.filter(|_| is_last && self.fault_step == Some(number));
        let device = session.inner_device();
        let step = trainer.step(LEARNING_RATE, batch, |model: &Network, micro| {
            let samples = micro.len();
            let loss = model.loss(micro);
            match fault {
                None => loss,
                Some(Fault::Rescue) if samples <= self.batch / 2 => loss,
                Some(Fault::Rescue | Fault::Oom) => devouring(loss, &device),
                Some(Fault::Panic) => panic!("a fault was injected"),
                Some(Fault::Abort) => process::abort(),
                Some(Fault::Hang) => loop {
                    sleep(Duration::from_hours(1));
                },
            }
        })?;
        line.losses.push(step.loss);
        line.norms.push(step.gradient_norm);
        line.rescues.push(step.rescues.len());
        Ok(())
    }
}

/// Values of a block, and blocks: more memory than any GPU has. The CPU only pretends.
const DEVOURED: (usize, usize) = if cfg!(feature = "cuda") { (1 << 30, 80) } else { (8, 2) };

/// `loss`, and nothing added that takes all memory.
fn devouring(loss: Tensor<1>, device: &Device) -> Tensor<1> {
    let (values, pieces) = DEVOURED;
    let piece = || Tensor::<1>::random([values], Distribution::Default, device);
    let held: Vec<_> = (0..pieces).map(|_| piece()).collect();
    let corners = held.into_iter().map(|piece| piece.slice(0..1)).collect();
    let sum = loss + Tensor::cat(corners, 0).sum().mul_scalar(0.0).autodiff();
    if cfg!(feature = "cuda") {
        return sum;
    }
    panic!("out of device memory (injected)")
}

/// Hash of all parameters' bits, in the order of the model.
fn hash(network: &Network) -> String {
    let mut hash = Hash(DefaultHasher::new());
    network.visit(&mut hash);
    format!("{:016x}", hash.0.finish())
}

struct Hash(DefaultHasher);

impl ModuleVisitor for Hash {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        param.base().without_autodiff().into_data().as_bytes().hash(&mut self.0);
    }
}
