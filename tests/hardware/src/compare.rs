//! Steps as planned from measurements, beside steps in other micro-batches and precisions, with and without CUDA graphs.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::Context;
use burn::tensor::{DType, Device, FloatDType};
use clap::Args;
use gpu_tuned::mixed::Half;
use gpu_tuned::optim::AdamWConfig;
use gpu_tuned::train::{GraphStatus, Trainer};
use gpu_tuned::{Goal, Kernels, Precision, PrecisionPolicy};
use serde::Serialize;

use crate::described::GLOBAL_BATCH;
use crate::device::{alone, kernels};
use crate::line::print_under;
use crate::network::{Batch, Fill, Model, Network};
use crate::planned::{Locked, h200, settings};
use crate::weights::seeded;

const LEARNING_RATE: f64 = 1e-4;
/// Steps after which micro-steps are replayed, or never.
const MAX_WARM_UP: usize = 40;
const WARM_STEPS: usize = 3;
/// Minimum time of the timed steps.
const WINDOW_SECONDS: f64 = 1.0;
const LEAST_STEPS: usize = 3;

/// Options of `compare`.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    locked: Locked,
    /// Samples in a micro-batch
    #[arg(long, value_delimiter = ',', required = true)]
    batches: Vec<usize>,
    /// Precision of the other settings, and of the plan if it is the planned one
    #[arg(long, default_value_t = Precision::F32)]
    precision: Precision,
}

/// Settings of a step of the global batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Setting {
    precision: Precision,
    batch: usize,
    cuda_graphs: bool,
    checkpointing: bool,
}

#[derive(Serialize)]
struct Head {
    run: &'static str,
    model: Model,
    kernels: Kernels,
    is_planned: bool,
    #[serde(flatten)]
    setting: Setting,
}

#[derive(Serialize)]
struct Timed {
    steps: usize,
    /// In the median step.
    samples_per_second: f64,
    graphs: String,
}

/// Prints a line for the plan of an H200, and one for each other setting.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let precision = arguments.precision;
    // The type of batches, and of a recurrent layer's first states.
    let float = if precision == Precision::F32 { FloatDType::F32 } else { FloatDType::BF16 };
    let device = arguments.locked.choice.open_in(float)?;
    let workload = arguments.locked.workload()?;
    let goal = Goal {
        global_batch: Some(GLOBAL_BATCH as u64),
        precision: Some(PrecisionPolicy::Auto),
        allow_cuda_graphs: Some(true),
        kernels: Some(kernels()),
        ..Goal::default()
    };
    let plan = settings(&h200(None)?, &workload, &goal).context("nothing fits")?;
    let planned = Setting {
        precision: plan.precision,
        batch: usize::try_from(plan.batch_size)?,
        cuda_graphs: plan.cuda_graphs,
        checkpointing: plan.gradient_checkpointing,
    };
    let of_batch =
        |&batch| [false, true].map(|cuda_graphs| Setting { precision, batch, cuda_graphs, checkpointing: false });
    let others: BTreeSet<_> = arguments.batches.iter().flat_map(of_batch).chain([planned]).collect();
    if planned.precision != precision {
        eprintln!("{} is planned in {}", arguments.locked.model.name(), planned.precision);
    }
    for setting in others.into_iter().filter(|setting| setting.precision == precision) {
        let outcome = alone(&device, || arguments.timed(setting, &device));
        let is_planned = setting == planned;
        let head = Head { run: "compare", model: arguments.locked.model, kernels: kernels(), is_planned, setting };
        print_under(&head, &outcome)?;
    }
    Ok(())
}

impl Arguments {
    fn timed(&self, setting: Setting, device: &Device) -> anyhow::Result<Timed> {
        let training = device.clone().autodiff();
        let training = if setting.checkpointing { training.gradient_checkpointing() } else { training };
        let network = seeded(&self.locked.model.dimensions(), 0, Some(DType::F32), &training);
        let mut trainer = Trainer::new(network, AdamWConfig::new().init(), training, setting.batch);
        if let Some(half) = Half::of(setting.precision) {
            trainer = trainer.mixed(half)?;
        }
        if setting.cuda_graphs {
            trainer = trainer.cuda_graphs();
        }
        let batch = self.locked.model.batch(GLOBAL_BATCH, Fill::Random, device);
        let step = |trainer: &mut Trainer<Network>| {
            let begin = Instant::now();
            trainer.step(LEARNING_RATE, batch.clone(), |model: &Network, micro: Batch| model.loss(micro))?;
            anyhow::Ok(begin.elapsed().as_secs_f64())
        };
        // Gradients that outlive a step are found by its first replays, and recorded anew.
        let mut replayed = 0;
        for _ in 0..MAX_WARM_UP {
            step(&mut trainer)?;
            let is_warm = !matches!(trainer.graph_status(), GraphStatus::WarmingUp | GraphStatus::Checking);
            replayed = if is_warm { replayed + 1 } else { 0 };
            if replayed == WARM_STEPS {
                break;
            }
        }
        let (begin, mut seconds) = (Instant::now(), Vec::new());
        while seconds.len() < LEAST_STEPS || begin.elapsed().as_secs_f64() < WINDOW_SECONDS {
            seconds.push(step(&mut trainer)?);
        }
        seconds.sort_by(f64::total_cmp);
        let samples_per_second = GLOBAL_BATCH as f64 / seconds[seconds.len() / 2];
        Ok(Timed { steps: seconds.len(), samples_per_second, graphs: trainer.graph_status().to_string() })
    }
}
