//! Fractions of a device that a plan uses.

use serde::Serialize;

use super::Plan;
use super::split::Split;
use super::time::StepTime;
use crate::Provenance;
use crate::device::DeviceFacts;
use crate::workload::Workload;

/// Fractions of a device that a plan uses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Filling {
    /// Predicted share of the time of the micro-batches in which the device computes, rather than waits for launches, 0 to 1.
    pub utilization: f64,
    /// Fraction of the device's f32 peak that the samples use; `None` if the peak is unknown.
    pub of_peak: Option<f64>,
    /// Provenance of the figures.
    pub provenance: Provenance,
}

/// Fractions of the device that a plan for this workload uses.
pub fn filling(device: &DeviceFacts, workload: &Workload, plan: &Plan) -> Filling {
    let settings = &plan.settings;
    let mode = device.mode(settings);
    let split = Split { batch: plan.schedule.micro_batch, samples: plan.schedule.samples_per_rank() };
    let flops_per_s = workload.sample.flops * plan.samples_per_s * plan.schedule.part_of_rank();
    Filling {
        utilization: StepTime::new(device, workload, mode).utilization(split),
        of_peak: device.fp32_tflops.map(|peak| flops_per_s / (peak * 1e12)),
        provenance: plan.samples_per_s_provenance,
    }
}

#[cfg(test)]
mod tests {
    use super::filling;
    use crate::device::DeviceFacts;
    use crate::profile::ProfileTable;
    use crate::workload::{Recurrent, Transformer};
    use crate::{Goal, plan};

    #[test]
    fn a_small_recurrent_network_leaves_a_device_waiting_and_a_wide_transformer_does_not() {
        let profile = ProfileTable::builtin().get("h200").expect("a shipped profile");
        let device = DeviceFacts::nominal(profile);
        let goal = Goal { global_batch: Some(128), ..Goal::default() };
        let lstm =
            Recurrent { inputs: 8, hidden: 64, layers: 2, seq: 30, outputs: 1, ..Recurrent::default() }.workload();
        let gpt = Transformer::new(12, 768, 50_257, 1024).workload();
        let of = |workload| filling(&device, workload, &plan(&device, workload, &goal).expect("it fits"));
        let (small, large) = (of(&lstm), of(&gpt));
        assert!(small.utilization < 0.1 && large.utilization > 0.9, "{small:?} {large:?}");
        // 6 x 124 M parameters and attention, at the speed that is predicted: the share of the peak that is calibrated.
        assert!(large.of_peak.is_some_and(|share| (0.4..0.5).contains(&share)), "{large:?}");
    }
}
