//! Throughput of one GPU, and of all GPUs together.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::Context;
use burn::optim::AdamWConfig;
use burn::tensor::Device;
use gpu_tuned::train::{Rank, Ranks, Trainer};
use serde::Serialize;

use super::Arguments;
use super::model::Encoder;

const LEARNING_RATE: f64 = 1e-4;

#[derive(Debug, Serialize)]
pub(super) struct Measured {
    /// Samples per second of one GPU with a trainer of its own, turn by turn.
    pub one: Vec<f64>,
    /// Samples per second of all GPUs together.
    pub all: Vec<f64>,
    /// The median of all by the median of one.
    pub ratio: f64,
    /// Until the first step of all was taken: compiling, tuning, and NCCL's start.
    pub first_step_seconds: f64,
}

type Turns = (Vec<f64>, Vec<f64>, f64);

/// Times one GPU and all of them in turns, in one process, with equal micro-batches.
pub(super) fn measure(arguments: &Arguments, devices: &[Device]) -> anyhow::Result<Measured> {
    let turns: Arc<Mutex<Option<Turns>>> = Arc::default();
    let (known, options) = (Arc::clone(&turns), arguments.clone());
    Ranks::new(devices.to_vec(), arguments.batch).run(move |rank| {
        let of_first = take_turns(&options, rank)?;
        if rank.is_first() {
            *known.lock().map_err(|_| "BUG: nobody panics with it")? = Some(of_first);
        }
        Ok(())
    })?;
    let turns = turns.lock().ok().and_then(|mut turns| turns.take());
    let (one, all, first_step_seconds) = turns.context("the first rank did not measure")?;
    let ratio = median(&all) / median(&one);
    Ok(Measured { one, all, ratio, first_step_seconds })
}

/// Runs both ways on the first rank; other ranks wait meanwhile.
fn take_turns(options: &Arguments, rank: &Rank) -> Result<Turns, Box<dyn std::error::Error + Send + Sync>> {
    let device = rank.device();
    let samples = options.batch * options.accumulate;
    // Samples are on the device. The loader delivers indices, so that nothing is uploaded or cut.
    let fixed = options.model.batch(options.batch, device);
    let loss = |model: &Encoder, _: Vec<usize>| model.loss(fixed.clone());
    let batch = || (0..samples).collect::<Vec<_>>();
    let optimizer = || AdamWConfig::new().init();
    let mut alone = Trainer::new(options.model.model(device), optimizer(), device.clone(), options.batch);
    let mut together = rank.trainer(options.model.model(device), optimizer())?;
    if rank.is_first() {
        (0..3).try_for_each(|_| alone.step(LEARNING_RATE, batch(), loss).map(drop))?;
    }
    let begin = Instant::now();
    together.step(LEARNING_RATE, batch(), loss)?;
    let first = begin.elapsed().as_secs_f64();
    (0..2).try_for_each(|_| together.step(LEARNING_RATE, batch(), loss).map(drop))?;
    let (mut one, mut all) = (Vec::new(), Vec::new());
    let rate = |samples: usize, begin: Instant| (samples * options.steps) as f64 / begin.elapsed().as_secs_f64();
    for _ in 0..options.repeats {
        if rank.is_first() {
            let begin = Instant::now();
            (0..options.steps).try_for_each(|_| alone.step(LEARNING_RATE, batch(), loss).map(drop))?;
            one.push(rate(samples, begin));
        }
        // The others wait in their first step.
        let begin = Instant::now();
        (0..options.steps).try_for_each(|_| together.step(LEARNING_RATE, batch(), loss).map(drop))?;
        all.push(rate(samples * rank.count(), begin));
    }
    drop((alone, together));
    device.memory_cleanup();
    Ok((one, all, first))
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
