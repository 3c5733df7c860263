//! Time of optimizer steps of one global batch, in every split that a plan may choose.

use std::{collections::BTreeSet, time::Instant};

use burn::tensor::Device;
use clap::Args;
use gpu_tuned::{Bytes, Goal, Pins, workload::Workload};
use gpu_tuned_core::measured::Measured;
use serde::Serialize;

use crate::{
    catching::catching,
    described::GLOBAL_BATCH,
    device::release,
    line::print,
    mode::{Mode, Precision},
    network::Fill,
    planned::{Locked, goal, h200, settings},
    training::Training,
};

/// Options of `sweep`.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    locked: Locked,
    /// Format of parameters and activations
    #[arg(long, default_value = "f32")]
    precision: Precision,
    /// Samples in a micro-batch; those of plans are swept, too
    #[arg(long, value_delimiter = ',', required = true)]
    batches: Vec<usize>,
    /// Sweep these batches only, not planned ones
    #[arg(long)]
    alone: bool,
    /// Leaves gradient checkpointing out
    #[arg(long, conflicts_with = "checkpointed")]
    plain: bool,
    /// Leaves out steps without gradient checkpointing
    #[arg(long)]
    checkpointed: bool,
    /// Times that every batch is measured, in turns
    #[arg(long, default_value_t = 5)]
    repeats: u32,
    /// GPU memory sizes that are planned for, in GiB; that of the GPU besides
    #[arg(long, value_delimiter = ',', default_values_t = [8, 12, 16, 24, 80])]
    memory_gib: Vec<u64>,
}

#[derive(Serialize)]
struct Timed {
    repeat: u32,
    /// Time of an optimizer step with all micro-batches.
    seconds_per_step: f64,
    samples_per_second: f64,
}

/// Steps of more micro-batches would take long, and next to as long for each sample.
const MOST_MICRO_STEPS: usize = 64;

/// Minimum time of a repeat of a batch.
const WINDOW_SECONDS: f64 = 0.25;

/// Prints a line for every batch, mode and repeat.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let workload = arguments.locked.workload()?;
    let device = arguments.locked.choice.open(arguments.precision)?;
    let left_out = [arguments.checkpointed, arguments.plain];
    for checkpointing in [false, true].into_iter().filter(|checkpointing| !left_out[usize::from(*checkpointing)]) {
        let batches = arguments.batches(&workload, checkpointing)?;
        arguments.sweep(&batches, checkpointing, &device)?;
        release(&device)?;
    }
    Ok(())
}

impl Arguments {
    /// Requested batches, batches of any plan, and the largest micro-batches that fit, for one precision and
    /// checkpointing; ascending.
    fn batches(&self, workload: &Workload, checkpointing: bool) -> anyhow::Result<Vec<usize>> {
        let derived = Workload { measured: Measured::default(), ..workload.clone() };
        let sizes = self.memory_gib.iter().map(|gib| Some(Bytes::from_mib(gib << 10))).chain([None]);
        let mut batches: BTreeSet<usize> = self.batches.iter().copied().collect();
        for memory in sizes.filter(|_| !self.alone) {
            let facts = h200(memory)?;
            for workload in [workload, &derived] {
                let planned = settings(&facts, workload, &goal(self.precision));
                let in_mode = planned.filter(|settings| settings.gradient_checkpointing == checkpointing);
                batches.extend(in_mode.map(|settings| settings.batch_size as usize));
            }
            let fits = |batch: &usize| settings(&facts, workload, &self.pinned(*batch, checkpointing)).is_some();
            batches.extend((1..=GLOBAL_BATCH).rev().find(fits));
        }
        Ok(batches.into_iter().filter(|batch| *batch <= GLOBAL_BATCH).collect())
    }

    fn pinned(&self, batch: usize, checkpointing: bool) -> Goal {
        let mut pins = Pins::default();
        pins.batch_size = Some(batch as u64);
        pins.gradient_checkpointing = Some(checkpointing);
        Goal { pins, ..goal(self.precision) }
    }

    /// Times steps of all batches in turns, with one model.
    fn sweep(&self, batches: &[usize], checkpointing: bool, device: &Device) -> anyhow::Result<()> {
        let mode = |accumulate| Mode { model: self.locked.model, precision: self.precision, checkpointing, accumulate };
        let mut training = Training::new(mode(1), 1, Fill::Random, device);
        for repeat in 0..=self.repeats {
            for &batch in batches {
                let micro_steps = GLOBAL_BATCH.div_ceil(batch).min(MOST_MICRO_STEPS) as u32;
                let samples = self.locked.model.batch(batch, Fill::Random, device);
                training = training.accumulating(micro_steps).on(samples);
                let outcome = catching(|| timed(training, repeat, batch, device));
                // The first turn compiles and tunes.
                if repeat > 0 || outcome.is_err() {
                    let line = outcome.as_ref().map(|(_, timed)| timed).map_err(Clone::clone);
                    print(mode(micro_steps), batch, "sweep", &line)?;
                }
                training = match outcome {
                    Ok((training, _)) => training,
                    Err(_) => Training::new(mode(1), 1, Fill::Random, device),
                };
            }
        }
        Ok(())
    }
}

fn timed(training: Training, repeat: u32, batch: usize, device: &Device) -> anyhow::Result<(Training, Timed)> {
    let micro_steps = training.micro_batches();
    // Steps of one micro-batch warm the device up for less than a whole one.
    let mut training = training.accumulating(1).steps(1).accumulating(micro_steps);
    device.sync()?;
    let (begin, mut steps) = (Instant::now(), 0);
    while begin.elapsed().as_secs_f64() < WINDOW_SECONDS {
        training = training.steps(1);
        device.sync()?;
        steps += 1;
    }
    let seconds_per_step = begin.elapsed().as_secs_f64() / f64::from(steps);
    let samples = batch as f64 * f64::from(micro_steps);
    training.check()?;
    Ok((training, Timed { repeat, seconds_per_step, samples_per_second: samples / seconds_per_step }))
}
