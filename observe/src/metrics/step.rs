//! Figures of optimizer steps.

use crate::recording::StepRecord;

/// A figure: its key, which ends in its unit, and its value.
pub(crate) type NamedFigure = (&'static str, Option<f64>);

fn count(count: Option<u64>) -> Option<f64> {
    count.map(|count| count as f64)
}

/// Returns the seconds of each phase of a step.
pub(crate) fn phases(step: &StepRecord) -> [NamedFigure; 8] {
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

/// Returns all figures of a step.
pub(crate) fn step_figures(step: &StepRecord) -> impl Iterator<Item = NamedFigure> + use<> {
    let figures = [
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
        ("queued", count(step.queued)),
        ("prepared", count(step.prepared)),
        ("prepared_s", step.prepared_s),
        ("prepared_cpu_s", step.prepared_cpu_s),
        ("in_use_bytes", count(step.in_use_bytes)),
        ("reserved_bytes", count(step.reserved_bytes)),
    ];
    figures.into_iter().chain(phases(step))
}
