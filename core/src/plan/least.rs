//! The way to run a step that needs the least memory.

use super::error::PlanError;
use super::estimate::MemoryEstimate;
use super::limits::largest_batch_in_one_piece;
use super::memory::MemoryModel;
use super::split::{self, Split};
use super::{candidates, precision};
use crate::device::DeviceFacts;
use crate::measured::Mode;
use crate::workload::Workload;
use crate::{Goal, Precision};

/// The way to run a step that needs the least memory, preferably one whose tensors are allocated in one piece each.
pub(super) struct Least {
    pub mode: Mode,
    pub split: Split,
    pub memory: MemoryEstimate,
}

impl Least {
    /// Searches the modes of a precision, or without one, of all precisions that the goal allows on the device. The goal is
    /// in samples.
    pub(super) fn find(
        device: &DeviceFacts,
        workload: &Workload,
        goal: &Goal,
        precision: Option<Precision>,
    ) -> Result<Self, PlanError> {
        let splits = split::splits(device, workload, goal)?;
        let precisions = precision.map_or_else(|| precision::supported(device, goal), |only| Ok(vec![only]))?;
        let modes = precisions.into_iter().flat_map(|one| candidates::modes(device, workload, goal, one));
        let all = modes.flat_map(|mode| {
            let model = MemoryModel::new(device, workload, goal, mode);
            candidates::frugal(&splits, &model).map(move |&split| {
                let memory = model.at(split.batch, split.micro_steps() > 1);
                Self { mode, split, memory }
            })
        });
        let in_one_piece = |Self { mode, .. }: &Self| largest_batch_in_one_piece(device, workload, mode.precision);
        let least =
            all.min_by_key(|least| (least.split.batch.saturating_sub(in_one_piece(least)), least.memory.total()));
        Ok(least.expect("BUG: there is always a mode, and a split"))
    }
}
