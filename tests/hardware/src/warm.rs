//! The first optimizer steps of a process.

use std::time::Instant;

use anyhow::Context;
use clap::Args;
use gpu_tuned::{Kernels, Options, Session, Tuned, optim::AdamWConfig};
use serde::Serialize;

use crate::{
    described::{GLOBAL_BATCH, WithConfig},
    device::{Choice, kernels},
    mode::{Mode, Precision},
    network::{Fill, Model, Network},
    training::Training,
};

const LEARNING_RATE: f64 = 1e-4;

/// Steps after the first one.
const LATER: usize = 5;

/// Options of `warm`.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The model
    #[arg(long)]
    model: Model,
    /// Format of parameters and activations
    #[arg(long, default_value = "f32")]
    precision: Precision,
    /// Name of this run in the output
    #[arg(long, default_value = "")]
    case: String,
    /// Planned micro-batches in a step; 0 for all of the global batch
    #[arg(long, default_value_t = 2)]
    micro_batches: u64,
    /// Steps of a plain Burn loop with micro-batches of so many samples, without a session
    #[arg(long, value_name = "SAMPLES")]
    plain: Option<u32>,
}

/// Model, micro-batches of a step (0 for all of the global batch), and the start of the program.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    model: Model,
    micro_batches: u64,
    begin: Instant,
}

/// Times of the first steps, in seconds.
#[derive(Debug, Serialize)]
struct Warmed {
    /// Use of caches, in words.
    warm: String,
    kernels: Kernels,
    micro_batch: u64,
    samples: u64,
    /// The session, with the device opened and a bundle taken.
    start_s: f64,
    /// The model and its optimizer.
    model_s: f64,
    first_step_s: f64,
    second_step_s: f64,
    /// The fastest of the steps that follow.
    later_step_s: f64,
    /// From the program's beginning to the end of the first step.
    until_first_step_s: f64,
    /// Loss of the first step; `None` in a plain loop, which does not read it.
    loss: Option<f32>,
}

#[derive(Serialize)]
struct Line<'a> {
    case: &'a str,
    model: Model,
    precision: Precision,
    #[serde(flatten)]
    warmed: Option<Warmed>,
    error: Option<String>,
}

/// Takes the first steps and prints one line of JSON, also for a failure.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { model, precision, case, micro_batches, plain } = arguments;
    let wanted = Wanted { model: *model, micro_batches: *micro_batches, begin: Instant::now() };
    let warmed = match plain {
        Some(samples) => wanted.take_plain(*precision, *samples),
        None => model.with_config(gpu_tuned::Precision::from(*precision), wanted),
    };
    let (warmed, error) = match warmed {
        Ok(warmed) => (Some(warmed), None),
        Err(error) => (None, Some(format!("{error:#}"))),
    };
    let failed = error.is_some();
    let line = Line { case, model: *model, precision: *precision, warmed, error };
    println!("{}", serde_json::to_string(&line)?);
    if failed { Err(anyhow::anyhow!("{case}: there was no first step")) } else { Ok(()) }
}

/// Takes the steps of a session, or writes a kernel cache archive on request.
impl WithConfig for Wanted {
    type Output = anyhow::Result<Warmed>;

    fn run<C: Tuned>(self, config: C) -> Self::Output {
        let clock = Instant::now();
        let session = Options::default().start(config)?;
        let start_s = clock.elapsed().as_secs_f64();
        let model = self.model;
        session.measure_if_asked(model.name(), &model.subject())?;

        let clock = Instant::now();
        let device = session.device();
        let mut trainer = session.trainer(model.network(&device), AdamWConfig::new().init())?;
        device.sync()?;
        let model_s = clock.elapsed().as_secs_f64();

        let schedule = session.schedule();
        let whole = schedule.samples_per_rank();
        let samples = match self.micro_batches {
            0 => whole,
            some => whole.min(some * schedule.micro_batch),
        };
        // Batches come from the host, like a loader's. Empty samples represent them until the split.
        let loss = |network: &Network, micro: Vec<()>| network.loss(model.batch(micro.len(), Fill::Uploaded, &device));
        let first = First { micro_batch: schedule.micro_batch, samples, start_s, model_s };
        let step = || Ok(Some(trainer.step(LEARNING_RATE, vec![(); usize::try_from(samples)?], loss)?.loss));
        self.time(warm_start_message(&session), first, step)
    }
}

impl Wanted {
    /// Takes the steps of a plain loop, with kernel caches as Burn configures them.
    fn take_plain(self, precision: Precision, samples: u32) -> anyhow::Result<Warmed> {
        let clock = Instant::now();
        let device = Choice::default().open(precision)?;
        let start_s = clock.elapsed().as_secs_f64();

        let clock = Instant::now();
        let (micro_batch, whole) = (u64::from(samples), GLOBAL_BATCH as u64);
        let accumulate = match self.micro_batches {
            0 => whole.div_ceil(micro_batch.max(1)),
            some => some,
        };
        let mode = Mode { model: self.model, precision, checkpointing: false, accumulate: u32::try_from(accumulate)? };
        let mut training = Some(Training::new(mode, usize::try_from(samples)?, Fill::Uploaded, &device));
        device.sync()?;
        let model_s = clock.elapsed().as_secs_f64();

        let first = First { micro_batch, samples: micro_batch * accumulate, start_s, model_s };
        self.time("a plain loop".to_owned(), first, || {
            training = Some(training.take().context("BUG: it was put back")?.steps(1));
            device.sync()?;
            Ok(None)
        })
    }

    /// Times the steps that `step` takes. It waits for the device, and returns the loss.
    fn time(
        self,
        warm: String,
        First { micro_batch, samples, start_s, model_s }: First,
        mut step: impl FnMut() -> anyhow::Result<Option<f32>>,
    ) -> anyhow::Result<Warmed> {
        let mut timed = || -> anyhow::Result<(f64, Option<f32>)> {
            let clock = Instant::now();
            let loss = step()?;
            Ok((clock.elapsed().as_secs_f64(), loss))
        };
        let (first_step_s, loss) = timed()?;
        let until_first_step_s = self.begin.elapsed().as_secs_f64();
        let (second_step_s, _) = timed()?;
        let mut later_step_s = f64::INFINITY;
        for _ in 0..LATER {
            later_step_s = later_step_s.min(timed()?.0);
        }
        Ok(Warmed {
            warm,
            kernels: kernels(),
            micro_batch,
            samples,
            start_s,
            model_s,
            first_step_s,
            second_step_s,
            later_step_s,
            until_first_step_s,
            loss,
        })
    }
}

/// Sizes of the steps, and times before the first one.
struct First {
    micro_batch: u64,
    samples: u64,
    start_s: f64,
    model_s: f64,
}

#[cfg(feature = "cuda")]
fn warm_start_message<C>(session: &Session<C>) -> String {
    session.warm_start().to_string()
}

#[cfg(not(feature = "cuda"))]
fn warm_start_message<C>(_: &Session<C>) -> String {
    "built without CUDA".to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::{Wanted, Warmed};
    use crate::{mode::Precision, network::Model};

    fn is_complete(warmed: &Warmed) -> bool {
        warmed.until_first_step_s >= warmed.start_s + warmed.model_s + warmed.first_step_s
    }

    #[test]
    fn the_first_steps_of_a_session_are_taken() {
        let wanted = Wanted { model: Model::Lstm, micro_batches: 1, begin: Instant::now() };
        let warmed = Model::Lstm.with_config(gpu_tuned::Precision::F32, wanted).expect("steps");
        assert!(warmed.loss.is_some_and(f32::is_finite) && warmed.samples == warmed.micro_batch, "{warmed:?}");
        assert!(is_complete(&warmed), "{warmed:?}");
    }

    #[test]
    fn the_first_steps_of_a_plain_loop_are_taken() {
        let wanted = Wanted { model: Model::Lstm, micro_batches: 2, begin: Instant::now() };
        let warmed = wanted.take_plain(Precision::F32, 3).expect("steps");
        assert_eq!((warmed.micro_batch, warmed.samples), (3, 6), "{warmed:?}");
        assert!(is_complete(&warmed), "{warmed:?}");
    }
}
