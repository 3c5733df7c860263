//! Locks drawn at random, with figures as they are written: times of four digits, shares of four decimals.

use gpu_tuned_core::device::DeviceKind;
use gpu_tuned_core::measured::{Measured, MeasuredBatch, MeasuredMode, MeasuredOn, MeasurementMethod, Mode};
use gpu_tuned_core::source::Source;
use gpu_tuned_core::workload::WorkloadSpec;
use gpu_tuned_core::{Bytes, Goal, Kernels, Precision};
use gpu_tuned_project::config::ConfigFile;
use gpu_tuned_project::lock::{Lock, LockedWorkload};
use proptest::collection::btree_map;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;

use super::written;

fn milliseconds() -> impl Strategy<Value = f64> {
    (1000..10_000u32, -7..5i32).prop_map(|(digits, power)| format!("{digits}e{power}").parse().expect("a number"))
}

fn shares() -> impl Strategy<Value = f64> {
    (0..=10_000u32).prop_map(|steps| f64::from(steps) / 1e4)
}

/// Evenly over the orders of magnitude.
fn bytes() -> impl Strategy<Value = Bytes> {
    (1u64 << 49..=Measured::LARGEST, 0u32..50).prop_map(|(bytes, shift)| Bytes(bytes >> shift))
}

/// Evenly over the orders of magnitude.
fn sizes() -> impl Strategy<Value = u64> {
    (1u64..=1 << 30, 0u32..30).prop_map(|(size, shift)| (size >> shift).max(1))
}

prop_compose! {
    fn batches()(
        reserved_bytes in of(bytes()),
        reserved_accumulating_bytes in of(bytes()),
        in_use_bytes in of(bytes()),
        micro_step_ms in of(milliseconds()),
        optimizer_ms in of(milliseconds()),
        spread in of(shares()),
    ) -> MeasuredBatch {
        MeasuredBatch {
            reserved_bytes,
            reserved_accumulating_bytes,
            in_use_bytes,
            micro_step_ms,
            optimizer_ms,
            spread,
        }
    }
}

prop_compose! {
    fn modes()(
        method in select(vec![MeasurementMethod::Executed, MeasurementMethod::DryRun, MeasurementMethod::Simulated]),
        is_partial in any::<bool>(),
        batch in btree_map(sizes(), batches(), 1..13),
    ) -> MeasuredMode {
        MeasuredMode { method, is_partial, batch }
    }
}

/// The mode with figures that agree with each other.
fn possible(mut mode: MeasuredMode, kind: DeviceKind) -> MeasuredMode {
    for batch in mode.batch.values_mut() {
        if mode.method != MeasurementMethod::Executed || kind == DeviceKind::Gpu {
            batch.reserved_bytes.get_or_insert(Bytes::ZERO);
        }
        for reserved in [&mut batch.reserved_bytes, &mut batch.reserved_accumulating_bytes].into_iter().flatten() {
            *reserved = (*reserved).max(batch.in_use_bytes.unwrap_or_default());
        }
    }
    mode
}

fn mode_names() -> impl Strategy<Value = Mode> {
    let any = (select(Precision::ALL.to_vec()), any::<bool>(), any::<bool>(), any::<bool>());
    any.prop_map(|(precision, checkpointing, full, library)| Mode {
        full_f32: full && precision == Precision::F32,
        kernels: Kernels::switched(library),
        ..Mode::new(precision, checkpointing)
    })
}

fn mostly<T: Clone + core::fmt::Debug>(usual: T, other: T) -> impl Strategy<Value = T> {
    prop_oneof![9 => Just(usual), 1 => Just(other)]
}

prop_compose! {
    /// Devices of which most are the same one, measured with the same releases.
    fn devices()(
        device in mostly("NVIDIA H200", "NVIDIA \"L4\" \\ \u{7f}\t\u{0}ß").prop_map(str::to_owned),
        kind in mostly(DeviceKind::Gpu, DeviceKind::Cpu),
        memory_bytes in bytes(),
        sm_count in mostly(132, 0),
        fp32_tflops in of(0.01..1000.0),
        bandwidth_gb_s in of(1.0..10_000.0),
        driver in of(".{0,12}"),
        burn in mostly("0.22.1", "0.23.0").prop_map(str::to_owned),
        cubecl in mostly(Some("0.11.3".to_owned()), None),
        context_bytes in of(bytes()),
        kernels_bytes in of(bytes()),
        mode in btree_map(mode_names(), modes(), 0..3),
    ) -> MeasuredOn {
        let mode = mode.into_iter().map(|(name, mode)| (name, possible(mode, kind))).collect();
        MeasuredOn {
            device,
            kind,
            memory_bytes,
            sm_count,
            fp32_tflops,
            bandwidth_gb_s,
            driver,
            burn,
            cubecl,
            context_bytes,
            kernels_bytes,
            mode,
        }
    }
}

/// Workload and goal of a file without mistakes.
fn described() -> impl Strategy<Value = (Option<WorkloadSpec>, Option<Goal>)> {
    written::files().prop_map(|text| match ConfigFile::parse(Source { file: ConfigFile::NAME, text: &text }) {
        Ok(mut file) => (file.workloads.remove("made"), Some(file.goal)),
        Err(_) => (None, None),
    })
}

prop_compose! {
    pub(crate) fn entries()(
        (described, goal) in described(),
        parameters in select(vec![818_256u64, Measured::LARGEST]),
        shape in select(vec!["5e1f", "5e1f", "9c"]).prop_map(str::to_owned),
        host_ms_per_sample in of(milliseconds()),
        on in btree_map(select(vec!["h200", "l4", "tesla t4", "cpu"]).prop_map(str::to_owned), devices(), 0..3),
    ) -> LockedWorkload {
        LockedWorkload { described, goal, measured: Measured { parameters, shape, host_ms_per_sample, on } }
    }
}

/// Names, so few that two often are the same.
pub(crate) fn names() -> impl Strategy<Value = String> {
    select(vec!["char-lm", "digits", "a.b", "", "ß\n"]).prop_map(str::to_owned)
}

pub(crate) fn locks() -> impl Strategy<Value = Lock> {
    btree_map(names(), entries(), 0..4).prop_map(|workload| Lock { workload, older_format: None })
}
