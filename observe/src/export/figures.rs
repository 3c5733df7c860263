//! The figures of records by their names.

use crate::recording::{GpuSample, StepRecord};

/// A figure, if there is one, and what it is called.
pub(super) type Figure = (&'static str, Option<f64>);

fn whole(count: Option<u64>) -> Option<f64> {
    count.map(|count| count as f64)
}

/// Where the time of a step went, in seconds.
pub(super) fn phases(step: &StepRecord) -> [Figure; 8] {
    [
        ("waited_s", step.waited_s),
        ("outside_s", step.outside_s),
        ("upload_s", step.upload_s),
        ("loss_s", step.loss_s),
        ("backward_s", step.backward_s),
        ("update_s", step.update_s),
        ("exchange_s", step.exchange_s),
        ("drain_s", step.drain_s),
    ]
}

/// What else is known of a step.
pub(super) fn of_step(step: &StepRecord) -> [Figure; 16] {
    [
        ("seconds", Some(step.seconds)),
        ("samples", Some(step.samples as f64)),
        ("micro_batches", Some(step.micro_batches as f64)),
        ("micro_batch", Some(step.micro_batch as f64)),
        ("loss", step.loss),
        ("gradient_norm", step.gradient_norm),
        ("loss_scale", step.loss_scale),
        ("applied", Some(f64::from(u8::from(step.applied)))),
        ("rescues", Some(step.rescues as f64)),
        ("loss_cpu_s", step.loss_cpu_s),
        ("queued", whole(step.queued)),
        ("prepared", whole(step.prepared)),
        ("prepared_s", step.prepared_s),
        ("prepared_cpu_s", step.prepared_cpu_s),
        ("in_use_bytes", whole(step.in_use_bytes)),
        ("reserved_bytes", whole(step.reserved_bytes)),
    ]
}

/// What a GPU, or a slice of one, is called: `0`, or `0.2`.
pub(super) fn gpu(sample: &GpuSample) -> String {
    let slot = sample.mig_slot.map(|slot| format!(".{slot}")).unwrap_or_default();
    format!("{}{slot}", sample.gpu)
}
