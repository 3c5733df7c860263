use super::compile;
use crate::resolved::{Resolved, Selected};
use gpu_tuned_core::device::GpuReading;
use gpu_tuned_core::workload::Transformer;
use gpu_tuned_core::{Bytes, Goal};

#[test]
fn native_subtracts_the_drivers_reserve_and_ignores_free_memory() {
    let reading = |memory_free| {
        let mut reading = GpuReading::default();
        reading.name = Some("NVIDIA GeForce RTX 4090".to_owned());
        reading.memory_total = Some(Bytes::from_mib(24_564));
        reading.memory_reserved = Some(Bytes::from_mib(473));
        reading.memory_free = memory_free;
        reading
    };
    let workload = Transformer::new(6, 512, 8192, 256).workload();
    for free in [None, Some(Bytes::from_mib(10_000))] {
        let mut resolved = Resolved::from_builtin("generic").expect("it is shipped");
        resolved.selected = Selected::Native(Box::new(reading(free)));
        let compiled = compile(&resolved, &workload, &Goal::default()).expect("it fits");
        assert_eq!(compiled.target, "native (NVIDIA GeForce RTX 4090)");
        assert_eq!(compiled.plan.memory.available, Bytes::from_mib(24_091), "{free:?}");
    }
}
