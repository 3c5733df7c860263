//! What steps would reserve, without running them.

use std::time::Instant;

use burn::{cubecl::dry_run::DryRun, tensor::Device};
use clap::Args;
use serde::Serialize;

use crate::{
    catching::catching,
    device::Choice,
    line::print,
    memory::{Pool, Usage, pools, release},
    mode::Mode,
    network::Fill,
    training::{Moment, Training},
};

/// Options of `dry`.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    mode: Mode,
    #[command(flatten)]
    choice: Choice,
    /// Samples in a micro-batch, in the order in which they are tried
    #[arg(long, value_delimiter = ',', required = true)]
    batches: Vec<usize>,
}

/// What a dry run found.
#[derive(Serialize)]
struct Prediction {
    /// After the third step.
    #[serde(flatten)]
    usage: Usage,
    before: Usage,
    after_first: Usage,
    after_second: Usage,
    /// In a fourth step, so that reading it disturbs no other figure.
    in_use_after_forward_bytes: u64,
    /// After the third step.
    pools: Vec<Pool>,
    /// What three steps took the host.
    seconds: f64,
}

/// Prints a line for every batch.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let device = arguments.choice.open(arguments.mode.precision)?.device;
    for &batch in &arguments.batches {
        print(arguments.mode, batch, "dry", &catching(|| predict(arguments.mode, batch, &device)))?;
    }
    Ok(())
}

/// A batch that is not to be tried.
#[derive(Serialize)]
struct Refusal {
    refused: bool,
    predicted_bytes: u64,
    limit_bytes: u64,
}

/// The batches that a dry run finds within the limit; a line is printed for every batch, and one more if it is refused.
pub(crate) fn admitted(mode: Mode, batches: &[usize], limit_bytes: u64, device: &Device) -> anyhow::Result<Vec<usize>> {
    let mut admitted = Vec::new();
    for &batch in batches {
        let outcome = catching(|| predict(mode, batch, device));
        print(mode, batch, "dry", &outcome)?;
        let Ok(Prediction { usage: Usage { reserved_bytes: predicted_bytes, .. }, .. }) = outcome else {
            continue;
        };
        if predicted_bytes <= limit_bytes {
            admitted.push(batch);
        } else {
            print(mode, batch, "real", &Ok(Refusal { refused: true, predicted_bytes, limit_bytes }))?;
        }
    }
    Ok(admitted)
}

/// Three optimizer steps, none of which runs; the device is as empty afterwards as before.
fn predict(mode: Mode, batch: usize, device: &Device) -> anyhow::Result<Prediction> {
    let dry_run = DryRun::new();
    let outcome = catching(|| measured(mode, batch, device));
    // Nothing that is still queued may run.
    let released = release(device);
    drop(dry_run);
    released?;
    outcome.map_err(|failure| anyhow::anyhow!(failure.message))
}

fn measured(mode: Mode, batch: usize, device: &Device) -> anyhow::Result<Prediction> {
    let before = Usage::of(device);
    let started = Instant::now();
    let mut training = Training::new(mode, batch, Fill::Zeros, device);
    let mut after = [Usage::default(); 3];
    for usage in &mut after {
        training = training.steps(1);
        *usage = Usage::of(device);
    }
    let seconds = started.elapsed().as_secs_f64();
    let pools = pools(device);
    let mut forward = Usage::default();
    let training = training.step(|moment| {
        if moment == Moment::Forward {
            forward = Usage::of(device);
        }
    });
    device.sync()?;
    drop(training);
    let [after_first, after_second, usage] = after;
    let in_use_after_forward_bytes = forward.in_use_bytes;
    Ok(Prediction { usage, before, after_first, after_second, in_use_after_forward_bytes, pools, seconds })
}
