//! Gradients of one optimizer step in every kind of loss, size of micro-batches and precision, compared with fp64.

use anyhow::ensure;
use burn::{
    optim::SgdConfig,
    tensor::{Device, FloatDType},
};
use clap::{Args, ValueEnum};
use gpu_tuned::{
    Kernels, Precision,
    loss::{ChunkedCrossEntropy, Loss},
    mixed::{Half, LossScale},
    train::{GraphStatus, Trainer},
};
use networks::steps::{Head as LossHead, MICRO_BATCHES, MeanLoss, RATE, Sequences, StepLoss, Tagger, Whole, limit};
use serde::Serialize;

use crate::{
    device::{Choice, alone, kernels},
    line::print_under,
    mode,
};

/// Largest relative difference where products round their factors to the 10 bits of TF32.
const TF32_LIMIT: f64 = 2e-3;
/// First loss scale in f16. The default one overflows in the gradients of a mean over one target.
const LOSS_SCALE: f64 = 4096.0;
/// Steps after which micro-steps are replayed, or never.
const MAX_WARM_UP: usize = 30;
/// Part of the reason for which a weight on the host is not replayed.
const ON_HOST: &str = "number of the host";

/// Options of `steps`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    choice: Choice,
    /// Precisions, separated by commas
    #[arg(long, value_delimiter = ',', default_values_t = Precision::ALL)]
    precisions: Vec<Precision>,
    /// Losses, separated by commas: all by default
    #[arg(long, value_delimiter = ',', value_parser = loss_named)]
    losses: Vec<StepLoss>,
    /// Ways to take the step, separated by commas
    #[arg(long, value_delimiter = ',', default_values = ["eager", "graphs"])]
    ways: Vec<Way>,
    /// Switches TF32 off: f32 products run without tensor cores
    #[arg(long)]
    full_f32: bool,
}

/// Launches of micro-steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Way {
    /// One kernel at a time
    Eager,
    /// As CUDA graphs
    Graphs,
}

fn loss_named(name: &str) -> Result<StepLoss, String> {
    let names = StepLoss::ALL.map(StepLoss::name).join(", ");
    StepLoss::ALL.into_iter().find(|loss| loss.name() == name).ok_or_else(|| format!("the losses are {names}"))
}

#[derive(Serialize)]
struct Head {
    run: &'static str,
    kernels: Kernels,
    loss: &'static str,
    precision: Precision,
    way: Way,
    full_f32: bool,
}

#[derive(Debug, Serialize)]
struct Row {
    micro_batches: [usize; MICRO_BATCHES.len()],
    /// Larger difference of gradients (L2) and loss from fp64, relative to fp64, for each size of micro-batches.
    differences: Vec<f64>,
    largest: f64,
    limit: f64,
    /// Use of CUDA graphs for each size of micro-batches.
    graphs: Vec<String>,
    /// True if all differences are within the limit, and micro-steps were replayed where possible.
    within: bool,
}

/// Prints a line for every loss, precision and way.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let choice = if arguments.full_f32 { arguments.choice.without_tf32()? } else { arguments.choice };
    let device = choice.open(mode::Precision::F32)?;
    let mut beyond = Vec::new();
    let losses = if arguments.losses.is_empty() { &StepLoss::ALL[..] } else { &arguments.losses };
    for &loss in losses {
        let whole = loss.whole();
        for &precision in &arguments.precisions {
            for &way in &arguments.ways {
                let (run, kernels, full_f32) = ("steps", kernels(), arguments.full_f32);
                let head = Head { run, kernels, loss: loss.name(), precision, way, full_f32 };
                let row = alone(&device, || arguments.row(loss, precision, way, &whole, &device));
                print_under(&head, &row)?;
                if !row.is_ok_and(|row| row.within) {
                    beyond.push(format!("{} {precision} {way:?}", loss.name()));
                }
            }
        }
    }
    ensure!(
        beyond.is_empty(),
        "steps differ from fp64 by more than their limit, or were not replayed: {}",
        beyond.join(", ")
    );
    Ok(())
}

impl Arguments {
    fn row(
        &self,
        loss: StepLoss,
        precision: Precision,
        way: Way,
        whole: &Whole,
        device: &Device,
    ) -> anyhow::Result<Row> {
        let uses_tf32 = cfg!(feature = "cuda") && !self.full_f32;
        let limit = if uses_tf32 { limit(precision).max(TF32_LIMIT) } else { limit(precision) };
        let (mut differences, mut graphs, mut is_replayed) = (Vec::new(), Vec::new(), true);
        for micro_batch in MICRO_BATCHES {
            let (difference, status) = difference(loss, precision, way, micro_batch, whole, device)?;
            differences.push(difference);
            is_replayed &= is_expected(loss, way, &status);
            graphs.push(status.to_string());
        }
        let largest = differences.iter().copied().fold(0.0, f64::max);
        let within = is_replayed && differences.iter().all(|difference| *difference <= limit);
        Ok(Row { micro_batches: MICRO_BATCHES, differences, largest, limit, graphs, within })
    }
}

/// Returns true if micro-steps are replayed where this is possible.
fn is_expected(loss: StepLoss, way: Way, status: &GraphStatus) -> bool {
    match (way, status) {
        (Way::Eager, status) => *status == GraphStatus::Off,
        (Way::Graphs, GraphStatus::Replaying) => cfg!(feature = "cuda") && loss != StepLoss::HostNumber,
        (Way::Graphs, GraphStatus::Refused { because }) => {
            !cfg!(feature = "cuda") || loss == StepLoss::HostNumber && because.contains(ON_HOST)
        }
        _ => false,
    }
}

/// Takes the step by plain descent, after steps with a learning rate of 0 until micro-steps are replayed. Returns the larger
/// difference of gradients and loss, infinite for a step that was not applied, and the use of CUDA graphs.
fn difference(
    loss: StepLoss,
    precision: Precision,
    way: Way,
    micro_batch: usize,
    whole: &Whole,
    device: &Device,
) -> anyhow::Result<(f64, GraphStatus)> {
    let training = device.clone().autodiff();
    let float = if precision == Precision::Bf16Params { FloatDType::BF16 } else { FloatDType::F32 };
    let mut trainer = Trainer::new(Tagger::new(float, &training), SgdConfig::new().init(), training, micro_batch);
    if let Some(half) = Half::of(precision) {
        let scale = LossScale::for_half(half);
        let scale = if half == Half::F16 { scale.with_init_scale(LOSS_SCALE) } else { scale };
        trainer = trainer.mixed(half)?.with_loss_scale(scale);
    }
    let mean = |network: &Tagger, batch: Sequences| weighted(loss.mean(network, batch));
    if way == Way::Graphs {
        trainer = trainer.cuda_graphs();
        for _ in 0..MAX_WARM_UP {
            if matches!(trainer.graph_status(), GraphStatus::Replaying | GraphStatus::Refused { .. }) {
                break;
            }
            trainer.step(0.0, loss.batch(), mean)?;
        }
    }
    let before = networks::values(trainer.master());
    let step = trainer.step(RATE, loss.batch(), mean)?;
    ensure!(step.rescues.is_empty(), "memory ran out, and the step was cut otherwise");
    if !step.applied {
        return Ok((f64::INFINITY, trainer.graph_status()));
    }
    let after = networks::values(trainer.master());
    let moved = before.iter().zip(&after).map(|(before, after)| f64::from(before - after) / RATE);
    let difference = whole.difference(&moved.collect::<Vec<_>>(), step.loss.into());
    Ok((difference, trainer.graph_status()))
}

/// The mean with its weight.
fn weighted(mean: MeanLoss) -> Loss {
    match mean {
        MeanLoss::Samples(mean) => mean.into(),
        MeanLoss::Targets(mean, number) => (mean, number).into(),
        MeanLoss::Classes(mean, weight) => (mean, weight).into(),
        MeanLoss::Number(mean, number) => (mean, number).into(),
        MeanLoss::Head(head) => {
            let LossHead { chunk, padding, hidden, weight, bias, targets } = *head;
            ChunkedCrossEntropy::new(chunk).with_pad_tokens(vec![padding]).forward(hidden, weight, bias, targets)
        }
    }
}
