//! Expected speed and memory of micro-batches on a device, whichever is chosen.

use super::error::PlanError;
use super::expected::Expected;
use super::limits::largest_batch_in_one_piece;
use super::memory::MemoryModel;
use super::split::{self, Split};
use super::time::StepTime;
use super::{candidates, precision, prefetch};
use crate::device::DeviceFacts;
use crate::measured::Mode;
use crate::workload::Workload;
use crate::{Goal, Pins, Provenance};

/// Returns expected speed and memory of micro-batches on `device` in the goal's precision, smallest first, without
/// checkpointing before with it. A pinned micro-batch of the goal is ignored.
///
/// Sizes up to a rank's share of the global batch split the goal's steps. Larger ones are steps of a larger global batch,
/// and show where the device would be filled. Powers of two are returned, measured sizes, sizes that split the step evenly,
/// and the two sizes around the memory limit. The list ends with the first size that exceeds the device's total memory:
/// other processes may release theirs.
///
/// # Errors
///
/// As [`plan()`](super::plan()), except that a workload that does not fit is no error.
pub fn curve(device: &DeviceFacts, workload: &Workload, goal: &Goal) -> Result<Vec<Expected>, PlanError> {
    let mut goal = goal.in_samples(workload)?;
    let precision = precision::value(device, workload, &goal)?;
    let Pins { prefetch_depth, allow_tf32, .. } = goal.pins;
    goal.pins = Pins { precision: Some(precision), prefetch_depth, allow_tf32, ..Pins::default() };
    let free = Goal { global_batch: None, ..goal.clone() };
    let share = split::rank_share(&goal)?.unwrap_or(0);
    let mut all = Vec::new();
    for mode in candidates::modes(device, workload, &goal, precision) {
        let mut of_mode = Vec::new();
        if goal.global_batch.is_some() {
            let even = |split: &Split| share.is_multiple_of(split.batch);
            of_mode.extend(expected(device, workload, &goal, mode, even)?);
        }
        let larger = expected(device, workload, &free, mode, |_| false)?;
        of_mode.extend(larger.into_iter().filter(|expected| expected.batch > share));
        of_mode.sort_by_key(|expected| expected.batch);
        of_mode.dedup_by_key(|expected| expected.batch);
        let is_larger = |expected: &Expected| {
            expected.in_no_piece || !expected.fits && expected.memory_bytes > device.memory_total.0
        };
        let misfit = of_mode.iter().position(is_larger).unwrap_or(of_mode.len());
        of_mode.truncate(misfit + 1);
        all.extend(of_mode);
    }
    all.sort_by_key(|expected| (expected.batch, expected.checkpointing));
    Ok(all)
}

/// Returns the expectations for a goal; `keeps` selects further sizes.
fn expected(
    device: &DeviceFacts,
    workload: &Workload,
    goal: &Goal,
    mode: Mode,
    keeps: impl Fn(&Split) -> bool,
) -> Result<Vec<Expected>, PlanError> {
    let time = StepTime::new(device, workload, mode);
    let memory = MemoryModel::new(device, workload, goal, mode);
    let in_one_piece = largest_batch_in_one_piece(device, workload, mode.precision);
    let all = split::splits(device, workload, goal)?.into_iter().map(|split| {
        let memory = memory.at(split.batch, split.micro_steps() > 1);
        let provenance = time.provenance(split.batch);
        let is_kept = split.batch.is_power_of_two() || provenance == Provenance::Measured || keeps(&split);
        let expected = Expected {
            batch: split.batch,
            checkpointing: mode.checkpointing,
            samples_per_s: time.samples_per_s(split),
            memory_bytes: memory.total().0,
            fits: memory.fits() && split.batch <= in_one_piece,
            in_no_piece: split.batch > in_one_piece,
            prefetch_depth: Some(prefetch::depth(workload, goal, split.batch)),
            provenance: Some(provenance),
        };
        (is_kept, expected)
    });
    // Largest first.
    let all: Vec<_> = all.collect();
    let edge = all.iter().position(|(_, expected)| expected.fits).unwrap_or(all.len());
    let is_near = |index: usize| index == edge || index + 1 == edge;
    let kept = all.into_iter().enumerate().filter(|(index, (is_kept, _))| *is_kept || is_near(*index));
    Ok(kept.map(|(_, (_, expected))| expected).collect())
}

#[cfg(test)]
mod tests {
    use super::{Expected, curve};
    use crate::device::DeviceFacts;
    use crate::plan::plan;
    use crate::profile::ProfileTable;
    use crate::workload::{ModelSpec, Training, Transformer, Workload, WorkloadSpec};
    use crate::{Bytes, Goal};

    fn workload() -> Workload {
        let model = Transformer { layers: 6, d_model: 512, vocab: 8192, seq: 256, ..Transformer::default() };
        WorkloadSpec { model: ModelSpec::Transformer(model), training: Training::default() }.workload()
    }

    fn device(gib: u64) -> DeviceFacts {
        let profiles = ProfileTable::builtin();
        let profile = profiles.get("rtx4090").expect("it is built in");
        DeviceFacts { memory_available: Bytes(gib << 30), ..DeviceFacts::nominal(profile) }
    }

    #[test]
    fn it_has_the_plan_in_it_and_goes_on_beyond_the_step() {
        let goal = Goal { global_batch: Some(48), ..Goal::default() };
        let (device, workload) = (device(22), workload());
        let planned = plan(&device, &workload, &goal).unwrap();
        let curve = curve(&device, &workload, &goal).unwrap();
        let settings = planned.settings;
        let same = curve.iter().find(|expected| {
            (expected.batch, expected.checkpointing) == (settings.batch_size, settings.gradient_checkpointing)
        });
        let same = same.expect("the plan is one of them");
        assert!((same.samples_per_s - planned.samples_per_s).abs() < 1e-9 && same.fits);
        assert_eq!(same.memory_bytes, planned.memory.total().0);
        assert!(curve.iter().any(|expected| expected.batch > 48 && expected.fits), "beyond the step");
        assert!(curve.iter().any(|expected| !expected.fits), "and beyond the memory");
        assert!(curve.len() < 100, "{}", curve.len());
        assert!(curve.is_sorted_by_key(|expected| (expected.batch, expected.checkpointing)));
    }

    #[test]
    fn memory_that_others_hold_does_not_shorten_it() {
        let goal = Goal { global_batch: Some(256), ..Goal::default() };
        let (free, held) = (device(23), device(6));
        let last = |device| *curve(device, &workload(), &goal).unwrap().iter().map(|it| &it.batch).max().unwrap();
        assert_eq!(last(&free), last(&held));
        let curve = curve(&held, &workload(), &goal).unwrap();
        let within = |expected: &&Expected| expected.memory_bytes < free.memory_available.0;
        assert!(curve.iter().filter(within).any(|expected| !expected.fits), "{curve:#?}");
    }

    #[test]
    fn it_ends_with_tensors_that_no_memory_makes_room_for() {
        let model = Transformer { layers: 1, d_model: 64, vocab: 128 << 10, seq: 1024, ..Transformer::default() };
        let logits = WorkloadSpec { model: ModelSpec::Transformer(model), training: Training::default() }.workload();
        let goal = Goal { global_batch: Some(256), ..Goal::default() };
        let curve = curve(&device(22), &logits, &goal).unwrap();
        let (last, before) = curve.split_last().expect("points");
        assert!(last.in_no_piece && !last.fits, "{curve:#?}");
        assert!(before.iter().any(|expected| expected.fits) && before.iter().all(|expected| !expected.in_no_piece));
    }

    #[test]
    fn what_is_fixed_does_not_shorten_it() {
        let mut goal = Goal { global_batch: Some(64), ..Goal::default() };
        let free = curve(&device(22), &workload(), &goal).unwrap();
        goal.pins.batch_size = Some(2);
        assert_eq!(curve(&device(22), &workload(), &goal).unwrap(), free);
    }

    #[test]
    fn where_nothing_fits_it_says_so() {
        let curve = curve(&device(0), &workload(), &Goal::default()).unwrap();
        assert!(!curve.is_empty() && curve.iter().all(|expected| !expected.fits));
    }
}
