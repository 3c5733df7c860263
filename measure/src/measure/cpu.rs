//! Measuring on the CPU: steps are run, and watched as they are.

use std::time::{Duration, Instant};

use burn::module::Module;
use gpu_tuned_core::measured::select::left_out;
use gpu_tuned_core::measured::{Measured, MeasuredMode, Way};

use super::bench::{Bench, Tried};
use super::timed::timed;
use super::{MeasureError, Memory, Step};

/// Time limit of a mode.
const BUDGET: Duration = Duration::from_secs(25);
/// Time limit of a batch's repeats.
const SPEND: Duration = Duration::from_millis(1500);
/// A batch is at most so many times as large as the one before.
const MOST_APART: f64 = 8.0;

/// Measures steps with or without checkpointing.
pub(super) fn mode<M: Module, B: Clone>(
    bench: &Bench<'_, '_, M, B>,
    checkpointing: bool,
) -> Result<MeasuredMode, MeasureError> {
    let begin = Instant::now();
    let mut all = Vec::new();
    let batches = batches(bench.largest_batch);
    for (index, &batch) in batches.iter().enumerate() {
        let started = Instant::now();
        let tried = measured(bench, batch, checkpointing)?;
        bench.say(checkpointing, &tried);
        all.push(tried);
        // A larger batch takes at most as much longer as it is larger.
        let Some(next) = batches.get(index + 1) else { break };
        if begin.elapsed() + started.elapsed() * next.div_ceil(batch) as u32 > BUDGET {
            break;
        }
    }
    let samples: Vec<_> = all.iter().filter_map(Tried::sample).collect();
    let batch = all.iter().map(|tried| (tried.batch, tried.point())).collect();
    Ok(MeasuredMode {
        way: Way::Executed,
        residual: left_out(&samples).map(|residual| residual.min(1.0)),
        time_residual: None,
        pages: [].into(),
        batch,
    })
}

/// Micro-batches in equal proportion, as many as are kept: from a single sample to the largest that training could take, if it
/// is not too far away.
fn batches(largest: u64) -> Vec<u64> {
    let last = Measured::MOST_POINTS - 1;
    let apart = (largest as f64).powf(1.0 / last as f64).min(MOST_APART);
    let mut all: Vec<_> = (0..=last).map(|step| apart.powf(step as f64).round() as u64).collect();
    all.dedup();
    all
}

fn measured<M: Module, B: Clone>(
    bench: &Bench<'_, '_, M, B>,
    batch: u64,
    checkpointing: bool,
) -> Result<Tried, MeasureError> {
    let &Bench { device, subject, .. } = bench;
    let single = Step::single(batch, checkpointing);
    (bench.begins)(single);
    // Runs first, because threads allocate scratch memory once and keep it.
    let times = timed(device, subject, single, SPEND)?;
    Ok(Tried {
        batch,
        memory: memory(bench, single)?,
        accumulating: memory(bench, Step::accumulating(batch, checkpointing))?,
        times: Some(times),
        ..Tried::default()
    })
}

#[cfg(feature = "counting-allocator")]
fn memory<M: Module, B: Clone>(bench: &Bench<'_, '_, M, B>, step: Step) -> Result<Option<Memory>, MeasureError> {
    super::held(bench.device, bench.subject, step).map(Some)
}

/// Nothing counts it.
#[cfg(not(feature = "counting-allocator"))]
#[expect(clippy::unnecessary_wraps, reason = "the signature is that of the version that counts")]
fn memory<M: Module, B: Clone>(_: &Bench<'_, '_, M, B>, _: Step) -> Result<Option<Memory>, MeasureError> {
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::batches;

    #[test]
    fn the_largest_that_training_could_take_is_among_them_up_to_512() {
        for (largest, expected) in [
            (1, &[1][..]),
            (2, &[1, 2]),
            (16, &[1, 3, 6, 16]),
            (64, &[1, 4, 16, 64]),
            (256, &[1, 6, 40, 256]),
            (512, &[1, 8, 64, 512]),
            (65_536, &[1, 8, 64, 512]),
        ] {
            assert_eq!(batches(largest), expected, "{largest}");
        }
    }
}
