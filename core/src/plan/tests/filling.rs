//! Fractions of a device that plans use.

use crate::device::DeviceFacts;
use crate::plan::filling;
use crate::profile::ProfileTable;
use crate::workload::{Recurrent, Transformer};
use crate::{Goal, plan};

#[test]
fn a_small_recurrent_network_leaves_a_device_waiting_and_a_wide_transformer_does_not() {
    let profile = ProfileTable::builtin().get("h200").expect("a shipped profile");
    let device = DeviceFacts::nominal(profile);
    let goal = Goal { global_batch: Some(128), ..Goal::default() };
    let lstm = Recurrent { inputs: 8, hidden: 64, layers: 2, seq: 30, outputs: 1, ..Recurrent::default() }.workload();
    let gpt = Transformer::new(12, 768, 50_257, 1024).workload();
    let of = |workload| filling(&device, workload, &plan(&device, workload, &goal).expect("it fits"));
    let (small, large) = (of(&lstm), of(&gpt));
    assert!(small.utilization < 0.1 && large.utilization > 0.9, "{small:?} {large:?}");
    // 6 x 124 M parameters and attention, at the speed that is predicted: the share of the peak that is calibrated.
    assert!(large.of_peak.is_some_and(|share| (0.4..0.5).contains(&share)), "{large:?}");
}
