//! Measuring on the CPU: steps run, and their parts are timed one by one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use burn::module::Module;
use gpu_tuned_core::measured::{MeasuredMode, MeasurementMethod, micro_batches};

use super::bench::{Bench, Tried};
use super::report::Work;
use super::timed::timed;
use super::{MeasureError, Step, counted};

/// Time for the repeats of one micro-batch.
const SPEND: Duration = Duration::from_millis(700);
/// Largest micro-batch that is measured: beyond it a CPU's throughput hardly changes.
const LARGEST: u64 = 512;

/// Measures steps with or without checkpointing, and calls `keep` after every micro-batch.
pub(super) fn mode<M: Module, B: Clone>(
    bench: &Bench<'_, '_, M, B>,
    checkpointing: bool,
    keep: &mut dyn FnMut(MeasuredMode) -> Result<(), MeasureError>,
) -> Result<(), MeasureError> {
    let begin = Instant::now();
    bench.budget.begin(begin);
    let modes = bench.subject.checkpointing().len() as u32;
    let budget = bench.budget.whole / modes;
    let mut batch = BTreeMap::new();
    let sizes = micro_batches(bench.largest_batch.min(LARGEST), bench.global);
    for (index, &size) in sizes.iter().enumerate() {
        let started = Instant::now();
        let tried = measured(bench, size, checkpointing)?;
        bench.say(checkpointing, &tried);
        batch.insert(size, tried.measured());
        // A larger micro-batch takes at most as much longer as it is larger.
        let expected = |next: &u64| begin.elapsed() + started.elapsed() * next.div_ceil(size) as u32;
        let is_partial = sizes.get(index + 1).is_some_and(|next| expected(next) <= budget);
        keep(MeasuredMode { method: MeasurementMethod::Executed, is_partial, batch: batch.clone() })?;
        if !is_partial {
            break;
        }
    }
    Ok(())
}

fn measured<M: Module, B: Clone>(
    bench: &Bench<'_, '_, M, B>,
    batch: u64,
    checkpointing: bool,
) -> Result<Tried, MeasureError> {
    let &Bench { device, subject, .. } = bench;
    let single = Step::single(batch, checkpointing);
    (bench.begins)(Work::Time(single));
    // Times come first: threads keep scratch memory that they allocate once.
    let times = timed(device, subject, single, SPEND)?;
    (bench.begins)(Work::Memory(single));
    Ok(Tried {
        batch,
        memory: counted(device, subject, single)?,
        accumulating: counted(device, subject, Step::accumulating(batch, checkpointing))?,
        times: Some(times),
        ..Tried::default()
    })
}
