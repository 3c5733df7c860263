//! Largest allocation that a device makes in one piece, and what follows for parameters and micro-batches.

use super::calibration;
use crate::device::{DeviceFacts, DeviceKind};
use crate::workload::Workload;
use crate::{Bytes, Precision};

/// Largest allocation that CubeCL makes in one piece on a device; `None` where there is no limit.
pub fn largest_piece(device: &DeviceFacts) -> Option<Bytes> {
    (device.kind == DeviceKind::Gpu).then_some(Bytes(device.memory_total.0 / calibration::LARGEST_ALLOCATION))
}

/// Bytes of the largest parameter tensor.
pub(super) fn largest_parameter(workload: &Workload, precision: Precision) -> Bytes {
    Bytes(workload.parameters.largest).times(precision.parameter_bytes())
}

/// Largest micro-batch whose tensors are all allocated in one piece each; 0 when a parameter tensor is too large.
pub(super) fn largest_batch_in_one_piece(device: &DeviceFacts, workload: &Workload, precision: Precision) -> u64 {
    let Some(piece) = largest_piece(device) else { return u64::MAX };
    if largest_parameter(workload, precision) > piece {
        return 0;
    }
    let tensor = workload.sample.largest_tensor.unwrap_or_default().scaled(precision.activation_scale());
    piece.0.checked_div(tensor.0).unwrap_or(u64::MAX)
}
