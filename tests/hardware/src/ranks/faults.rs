//! A fault of one rank, and its effect on all.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use burn::optim::AdamWConfig;
use burn::tensor::{Device, Distribution, Tensor};
use gpu_tuned::train::{Rank, Ranks};
use serde::Serialize;

use super::model::Encoder;
use super::{Arguments, Part};

const LEARNING_RATE: f64 = 1e-4;
const STEPS: usize = 8;
/// The step in which it happens.
const FAULTY: usize = 4;

#[derive(Debug, Serialize)]
pub(super) struct FaultOutcome {
    /// Seconds from the fault to the end of the run, or to the end of the next step if the run continued.
    pub seconds_to_end: Option<f64>,
    /// With its causes.
    pub error: Option<String>,
    /// Errors of the other ranks.
    pub others: Vec<String>,
    /// OOM recoveries of each rank, if the run continued.
    pub rescues: Vec<usize>,
    /// True if all ranks have bitwise equal parameters, if the run continued.
    pub parameters_equal: Option<bool>,
}

/// Reports of a running rank.
#[derive(Default)]
struct RankReport {
    fault: Option<Instant>,
    recovered: Option<Duration>,
    others: Vec<String>,
}

type Shared = Arc<Mutex<RankReport>>;

/// Runs steps with a fault on the last rank in the fifth step.
pub(super) fn inject(arguments: &Arguments, part: Part, devices: &[Device]) -> FaultOutcome {
    let reported: Shared = Arc::default();
    let (of_ranks, options) = (Arc::clone(&reported), arguments.clone());
    let run = Ranks::new(devices.to_vec(), arguments.batch).run(move |rank| {
        let steps = steps(&options, part, rank, &of_ranks);
        rank.device().memory_cleanup();
        if let Err(error) = &steps
            && rank.index() + 1 < rank.count()
        {
            lock(&of_ranks).others.push(chain(error.as_ref()));
        }
        steps
    });
    let mut reported = lock(&reported);
    let since_fault = reported.fault.map(|fault| fault.elapsed());
    let (error, done) = match run {
        Ok(done) => (None, done),
        Err(error) => (Some(chain(&error)), Vec::new()),
    };
    FaultOutcome {
        seconds_to_end: if error.is_some() { since_fault } else { reported.recovered }.map(|time| time.as_secs_f64()),
        parameters_equal: error.is_none().then(|| done.windows(2).all(|pair| pair[0].1 == pair[1].1)),
        rescues: done.iter().map(|(rescues, _)| *rescues).collect(),
        others: std::mem::take(&mut reported.others),
        error,
    }
}

fn steps(
    options: &Arguments,
    part: Part,
    rank: &Rank,
    reported: &Shared,
) -> Result<(usize, Vec<f64>), Box<dyn Error + Send + Sync>> {
    let is_last = rank.index() + 1 == rank.count();
    let device = rank.device();
    let (tokens, targets) = options.model.batch(options.batch * options.accumulate * rank.count(), device);
    let own = rank.part(options.batch * options.accumulate * rank.count());
    let batch = (tokens.slice_dim(0, own.clone()), targets.slice_dim(0, own));
    let mut trainer = rank.trainer(options.model.model(device), AdamWConfig::new().init())?;
    let mut rescues = 0;
    for step in 0..STEPS {
        let is_faulty = is_last && step == FAULTY;
        let taken = trainer.step(LEARNING_RATE, batch.clone(), |model: &Encoder, micro| {
            let samples = micro.0.dims()[0];
            let loss = model.loss(micro);
            if !is_faulty || part == Part::Rescue && samples <= options.batch / 2 {
                return loss;
            }
            lock(reported).fault.get_or_insert_with(Instant::now);
            assert!(part != Part::Panic, "a fault was injected");
            devouring(loss, device)
        })?;
        rescues += taken.rescues.len();
        let mut reported = lock(reported);
        if is_faulty && let Some(fault) = reported.fault {
            reported.recovered = Some(fault.elapsed());
        }
    }
    Ok((rescues, trainer.model().values()))
}

/// Values of a block, and blocks: more memory than any GPU has. The CPU only pretends.
const DEVOURED: (usize, usize) = if cfg!(feature = "cuda") { (1 << 30, 80) } else { (8, 2) };

/// `loss`, and nothing added that takes all memory.
fn devouring(loss: Tensor<1>, device: &Device) -> Tensor<1> {
    let (values, pieces) = DEVOURED;
    let plain = device.clone().without_autodiff();
    let piece = || Tensor::<1>::random([values], Distribution::Default, &plain);
    let held: Vec<_> = (0..pieces).map(|_| piece()).collect();
    let corners = held.into_iter().map(|piece| piece.slice(0..1)).collect();
    let sum = loss + Tensor::cat(corners, 0).sum().mul_scalar(0.0).autodiff();
    if cfg!(feature = "cuda") {
        return sum;
    }
    panic!("out of device memory (injected)")
}

fn chain(error: &(dyn Error + 'static)) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        words = format!("{words}: {cause}");
        source = cause.source();
    }
    words
}

fn lock(reported: &Shared) -> std::sync::MutexGuard<'_, RankReport> {
    reported.lock().unwrap_or_else(PoisonError::into_inner)
}
