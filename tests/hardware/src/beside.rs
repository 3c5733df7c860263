//! Gradients of one step by the library's kernels, compared with Burn's: in every split, precision and way.

use std::time::Instant;

use anyhow::{Context, ensure};
use burn::{
    optim::SgdConfig,
    tensor::{DType, Device},
};
use clap::{Args, ValueEnum};
use gpu_tuned::{
    Kernels, Precision,
    kernels::select_burn,
    mixed::{Half, LossScale},
    train::{GraphStatus, Trainer},
};
use networks::{norm, relative_l2};
use serde::Serialize;

use crate::{
    device::{Choice, alone, kernels},
    lesson::Lesson,
    line::print_under,
    mode,
    network::{Batch, Dimensions, Model, Network},
    weights::{seeded, trained},
};

/// Learning rate of plain descent: weights move by the gradients times a power of two.
const RATE: f64 = 1024.0;
const SEED: u64 = 0;
/// Largest distance of two gradients in f32, relative to their norm: `exact` lets each be 2e-3 from f64, because TF32 rounds
/// factors to 10 bits.
const MOST_APART: f64 = 4e-3;
/// Largest distance in 16 bits from the gradients in f32, relative to that of Burn's kernels. Both round each product once, in
/// the same places. A micro-batch with a wrong share is more than ten times as far.
const MOST_RATIO: f64 = 2.0;
/// A first loss scale that overflows f16: a logit's gradient is a probability over the number of targets.
const LARGE_SCALE: f64 = 1_073_741_824.0;
/// Steps until the loss scale fits and micro-steps are replayed.
const MAX_WARM_UP: usize = 60;

/// Options of `beside`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    choice: Choice,
    /// A model of tokens
    #[arg(long, default_value = "transformer")]
    model: Model,
    /// A small network of that kind
    #[arg(long)]
    small: bool,
    /// Samples of the step
    #[arg(long, default_value_t = 24)]
    global_batch: usize,
    /// Samples of the micro-batches, separated by commas; the last micro-batch has the rest
    #[arg(long, value_delimiter = ',', default_values_t = [1, 3, 7, 8, 24])]
    micro_batches: Vec<usize>,
    /// Precisions, separated by commas
    #[arg(long, value_delimiter = ',', default_values_t = [Precision::F32, Precision::MixedBf16, Precision::MixedF16])]
    precisions: Vec<Precision>,
    /// Ways to take the step, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Way::Plain, Way::Checkpointed, Way::Graphs])]
    ways: Vec<Way>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum Way {
    Plain,
    /// With balanced gradient checkpointing
    Checkpointed,
    /// Replayed as CUDA graphs
    Graphs,
}

#[derive(Serialize)]
struct Head {
    run: &'static str,
    model: Model,
    small: bool,
    kernels: Kernels,
    precision: Precision,
    way: Way,
    global_batch: usize,
    micro_batch: usize,
}

/// Gradients of a step as one vector.
struct Computed {
    gradients: Vec<f64>,
    loss: f32,
    micro_batches: usize,
    graphs: GraphStatus,
    loss_scale: f64,
    /// Steps whose gradients were not finite.
    skipped: usize,
}

#[derive(Debug, Serialize)]
struct Apart {
    micro_batches: usize,
    graphs: GraphStatus,
    loss_scale: f64,
    /// Steps left out before, because a large loss scale overflowed.
    skipped: usize,
    loss: f32,
    /// Loss of Burn's kernels in f32.
    loss_of_reference: f32,
    /// Distance from Burn's gradients in f32, relative to their norm.
    relative_l2: f64,
    limit: f64,
    /// Distance of a checkpointed step from the one without, in the same micro-batches.
    from_plain: Option<f64>,
    limit_from_plain: f64,
    within: bool,
    seconds: f64,
}

/// Prints a line for each precision, way and split. The reference is one micro-batch in f32 by Burn's kernels.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    ensure!(matches!(arguments.model, Model::Transformer | Model::Gpt), "the model must be one of tokens");
    let device = arguments.choice.open(mode::Precision::F32)?;
    let whole = arguments.global_batch;
    select_burn();
    let right = arguments.alone(Precision::F32, Way::Plain, whole, &device)?;
    let mut beyond = Vec::new();
    for &precision in &arguments.precisions {
        select_burn();
        let limit = if precision == Precision::F32 {
            MOST_APART
        } else {
            let burn = arguments.alone(precision, Way::Plain, whole, &device)?;
            (MOST_RATIO * relative_l2(&burn.gradients, &right.gradients)).max(MOST_APART)
        };
        if cfg!(feature = "cuda") {
            arguments.choice.select_library(&device)?;
        }
        for &micro_batch in &arguments.micro_batches {
            let mut plain: Option<Vec<f64>> = None;
            for &way in &arguments.ways {
                let begin = Instant::now();
                let Arguments { model, small, global_batch, .. } = *arguments;
                let run = "beside";
                let head = Head { run, model, small, kernels: kernels(), precision, way, global_batch, micro_batch };
                let row = alone(&device, || {
                    let found = arguments.step(precision, way, micro_batch, &device)?;
                    let apart = Apart::new(&found, &right, limit, way, precision, plain.as_deref(), begin);
                    if way == Way::Plain {
                        plain = Some(found.gradients);
                    }
                    Ok(apart)
                });
                print_under(&head, &row)?;
                if !row.is_ok_and(|row| row.within) {
                    beyond.push(format!("{precision} {way:?} {micro_batch}"));
                }
            }
        }
    }
    ensure!(
        beyond.is_empty(),
        "steps are farther from Burn's than their limit, or were not replayed: {}",
        beyond.join(", ")
    );
    Ok(())
}

impl Arguments {
    fn dimensions(&self) -> Dimensions {
        if self.small { self.model.small() } else { self.model.dimensions() }
    }

    fn alone(&self, precision: Precision, way: Way, micro_batch: usize, device: &Device) -> anyhow::Result<Computed> {
        alone(device, || self.step(precision, way, micro_batch, device)).context("a step by Burn's kernels")
    }

    /// Takes a step by plain descent, after steps with a learning rate of 0 until the loss scale fits and micro-steps are
    /// replayed.
    fn step(&self, precision: Precision, way: Way, micro_batch: usize, device: &Device) -> anyhow::Result<Computed> {
        let dimensions = self.dimensions();
        let batch = Lesson::new(&dimensions, SEED).batch(0, self.global_batch);
        let training = device.clone().autodiff();
        let training = if way == Way::Checkpointed { training.gradient_checkpointing() } else { training };
        let network = seeded(&dimensions, SEED, Some(DType::F32), &training);
        let mut trainer = Trainer::new(network, SgdConfig::new().init(), training, micro_batch);
        if let Some(half) = Half::of(precision) {
            let scale = LossScale::for_half(half);
            let scale = if half == Half::F16 { scale.with_init_scale(LARGE_SCALE) } else { scale };
            trainer = trainer.mixed(half)?.with_loss_scale(scale);
        }
        if way == Way::Graphs {
            trainer = trainer.cuda_graphs();
        }
        let loss = |network: &Network, batch: Batch| network.loss_in_f32(batch);
        let mut skipped = 0;
        for _ in 0..MAX_WARM_UP {
            let step = trainer.step(0.0, batch.clone(), loss)?;
            skipped += usize::from(!step.applied);
            let is_replayed = matches!(trainer.graph_status(), GraphStatus::Replaying | GraphStatus::Refused { .. });
            if step.applied && (way != Way::Graphs || is_replayed) {
                break;
            }
        }
        let before = trained(trainer.master());
        let step = trainer.step(RATE, batch, loss)?;
        ensure!(step.rescues.is_empty(), "memory ran out, and the step was cut otherwise");
        ensure!(step.applied, "the gradients were not finite with a loss scale of {}", trainer.loss_scale().value());
        let after = trained(trainer.master());
        Ok(Computed {
            gradients: before.into_iter().zip(after).map(|(before, after)| (before - after) / RATE).collect(),
            loss: step.loss,
            micro_batches: step.micro_batches,
            graphs: trainer.graph_status(),
            loss_scale: trainer.loss_scale().value(),
            skipped,
        })
    }
}

impl Apart {
    fn new(
        found: &Computed,
        right: &Computed,
        limit: f64,
        way: Way,
        precision: Precision,
        plain: Option<&[f64]>,
        begin: Instant,
    ) -> Self {
        let relative_l2 = relative_l2(&found.gradients, &right.gradients);
        let plain = plain.filter(|_| way == Way::Checkpointed);
        let from_plain = plain.map(|plain| networks::relative_l2(&found.gradients, plain));
        let limit_from_plain = last_bit(precision);
        let is_replayed = match found.graphs {
            GraphStatus::Replaying => way == Way::Graphs,
            GraphStatus::Refused { .. } => way == Way::Graphs && !cfg!(feature = "cuda"),
            _ => way != Way::Graphs,
        };
        let is_scaled = precision != Precision::MixedF16 || found.skipped > 0;
        let is_close = relative_l2 <= limit && from_plain.is_none_or(|from_plain| from_plain <= limit_from_plain);
        Self {
            micro_batches: found.micro_batches,
            graphs: found.graphs.clone(),
            loss_scale: found.loss_scale,
            skipped: found.skipped,
            loss: found.loss,
            loss_of_reference: right.loss,
            relative_l2,
            limit,
            from_plain,
            limit_from_plain,
            within: is_close && is_replayed && is_scaled && norm(found.gradients.iter().copied()) > 0.0,
            seconds: begin.elapsed().as_secs_f64(),
        }
    }
}

/// Half a unit in the last place of a product's factors. Recomputed values are equal, but for atomic sums in another order,
/// after which a factor may be rounded the other way.
fn last_bit(precision: Precision) -> f64 {
    match precision {
        // TF32 has the fraction of f16.
        Precision::F32 | Precision::MixedF16 => 2.0_f64.powi(-11),
        Precision::MixedBf16 | Precision::Bf16Params => 2.0_f64.powi(-8),
    }
}
