//! Output of measurements, while they are taken and afterwards.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gpu_tuned_core::device::GpuReading;
use gpu_tuned_core::measured::{MeasuredBatch, MeasuredMode, Mode};
use gpu_tuned_core::{Pins, grouped, three_digits};
use gpu_tuned_observe::progress::counts;
use gpu_tuned_project::lock::LockedWorkload;

use super::Step;
use super::bench::Budget;
use super::bench::Tried;

pub(super) fn begin(name: &str, device: &str) {
    eprintln!("measuring {name} on {device}");
}

/// Warns of other processes that compute on the GPU, if the driver reports them.
pub(super) fn shared(gpu: Option<&GpuReading>) {
    if let Some(warning) = gpu.and_then(|gpu| beside(gpu.other_processes?)) {
        eprintln!("  {warning}");
    }
}

fn beside(others: u32) -> Option<String> {
    let whose = match others {
        0 => return None,
        1 => "another process computes".to_owned(),
        others => format!("{others} other processes compute"),
    };
    Some(format!(
        "{whose} on this GPU: times will be those of a shared GPU, and the kernels that are tuned beside it stay chosen; \
         measure on a GPU that nothing else uses"
    ))
}

/// Figure that steps are taken for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// Memory of a step.
    Memory(Step),
    /// Duration of a step.
    Time(Step),
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(step) => write!(f, "memory of {step}"),
            Self::Time(step) => write!(f, "time of {step}"),
        }
    }
}

/// Returns a report of the current work after a time without output. `budget` is the limit of the measurement, if it has one.
pub(super) fn waiting(is_gpu: bool, budget: Option<Arc<Budget>>) -> impl Fn(Duration, Option<Work>) {
    move |quiet, work| {
        let total = budget.as_deref().map(|budget| format!("{budget}; ")).unwrap_or_default();
        eprintln!("  ... {total}{}", silence(is_gpu, quiet, work, counts()));
    }
}

fn silence(is_gpu: bool, quiet: Duration, work: Option<Work>, counts: Option<String>) -> String {
    let work = work.map(|work| format!("{work}, ")).unwrap_or_default();
    let why = if is_gpu { "; the first step with a batch compiles and autotunes its kernels" } else { "" };
    let why = counts.map_or(why.to_owned(), |counts| format!("; {counts}"));
    format!("{work}no result for {:.0} s{why}", quiet.as_secs_f64())
}

/// Prints why steps are not replayed as CUDA graphs.
#[cfg(any(feature = "cuda", test))]
pub(super) fn no_graphs(mode: Mode, error: &super::MeasureError) {
    eprintln!("  {mode} is left out: {error}");
}

/// Prints that steps ran out of memory which had been free.
#[cfg(any(feature = "cuda", test))]
pub(super) fn lacking(mode: Mode, batch: u64) {
    eprintln!(
        "  {mode}, batch {batch} is not timed: memory ran out that had been free; if another program uses the GPU, measure again \
         without it"
    );
}

/// Prints a line for a try, which begins with the time so far.
pub(super) fn point(budget: &Budget, mode: Mode, tried: &Tried) {
    eprintln!("  {budget}; {mode}, {}", line(tried.batch, &tried.measured()));
}

fn line(batch: u64, point: &MeasuredBatch) -> String {
    let mut parts = Vec::new();
    parts.extend(point.reserved_bytes.map(|bytes| format!("{bytes} reserved")));
    parts.extend(point.reserved_accumulating_bytes.map(|bytes| format!("{bytes} accumulating gradients")));
    parts.extend(point.micro_step_ms.map(|ms| format!("micro-step {ms:.3} ms")));
    parts.extend(point.optimizer_ms.map(|ms| format!("optimizer {ms:.3} ms")));
    let spread = point.spread.map(|spread| format!(" (within {:.1}%)", spread * 100.0));
    format!("batch {batch}: {}{}", parts.join(", "), spread.unwrap_or_default())
}

/// Steps are recorded, to be replayed for a GPU.
#[cfg(feature = "counting-allocator")]
pub(super) fn replaying(gpu: &str) {
    eprintln!("  replaying what steps allocate as the memory pools of a GPU would: {gpu}");
}

#[cfg(feature = "counting-allocator")]
pub(super) fn replayed(mode: Mode, found: &MeasuredMode) {
    eprintln!("  {mode}, replayed: {}", ends(found));
}

/// Why there is no replay, in a line.
#[cfg(feature = "counting-allocator")]
pub(super) fn not_replayed(why: &dyn std::fmt::Display) {
    let why = why.to_string();
    let why = why.lines().next().unwrap_or_default();
    eprintln!("  not replayed for GPUs: {why}; until one is measured, they are planned by the description");
}

/// Names the feature that measures memory, once in a process.
#[cfg(not(feature = "counting-allocator"))]
pub(super) fn not_counted() {
    static SAID: std::sync::Once = std::sync::Once::new();
    SAID.call_once(|| {
        eprintln!(
            "  memory is not measured: that takes feature `counting-allocator` of gpu-tuned, and `cargo gpu-tuned measure` \
             asks for it"
        );
    });
}

/// Prints the stored measurements, and the file.
pub(super) fn end(name: &str, path: &Path, workload: &LockedWorkload, dropped: &[String]) {
    eprintln!("{}: workload {name} of {} parameters", path.display(), workload.measured.parameters);
    for (device, on) in &workload.measured.on {
        for (mode, found) in &on.mode {
            eprintln!("  {device}, {mode}: {}", summary(found));
        }
    }
    if let Some(ms) = workload.measured.host_ms_per_sample {
        let (time, unit) = if ms < 0.01 { (ms * 1e3, "us") } else { (ms, "ms") };
        eprintln!("  preparing a sample takes the host {time:.3} {unit}");
    }
    self::dropped(dropped);
}

pub(super) fn dropped(dropped: &[String]) {
    for gone in dropped {
        eprintln!("  dropped {gone}");
    }
}

/// Warns of a model that is not the described one.
pub(super) fn other_model(described: u64, counted: u64) -> Option<String> {
    is_other_model(described, counted).then(|| {
        format!(
            "the description has {} parameters, and the model {}: what is not measured is planned by the description, which may \
             be that of another model, or leave layers out",
            grouped(described),
            grouped(counted)
        )
    })
}

/// Returns true if the parameters of a model differ from the description by more than a tenth.
pub(super) fn is_other_model(described: u64, counted: u64) -> bool {
    described.abs_diff(counted) > described / 10
}

/// Bytes reserved at the smallest and the largest micro-batch.
#[cfg(feature = "counting-allocator")]
fn ends(found: &MeasuredMode) -> String {
    let reserved = |(batch, point): (&u64, &MeasuredBatch)| Some(format!("{} at batch {batch}", point.reserved_bytes?));
    let ends = [found.batch.first_key_value(), found.batch.last_key_value()];
    let mut parts: Vec<String> = ends.into_iter().flatten().filter_map(reserved).collect();
    parts.dedup();
    parts.join(" to ")
}

fn summary(found: &MeasuredMode) -> String {
    let batches: Vec<String> = found.batch.keys().map(u64::to_string).collect();
    let rate = |(batch, point): (&u64, &MeasuredBatch)| Some((*batch as f64 * 1e3 / point.micro_step_ms?, *batch));
    let fastest = found.batch.iter().filter_map(rate).max_by(|a, b| a.0.total_cmp(&b.0));
    let mut parts = vec![format!("batches {}", batches.join(", "))];
    parts.extend(fastest.map(|(rate, batch)| format!("{} samples/s at {batch}", three_digits(rate))));
    if found.is_partial {
        parts.push("partial, as time ended: measure again for more sizes".to_owned());
    }
    parts.join("; ")
}

/// The outcome for programs. `others` are settings to measure in further processes, as `GPU_TUNED_SET` has them.
pub(super) fn json(name: &str, path: &Path, workload: &LockedWorkload, others: &[Pins]) -> String {
    let (lock, measured) = (path.display().to_string(), &workload.measured);
    let others: Vec<_> = others.iter().map(Pins::to_string).collect();
    serde_json::json!({ "workload": name, "lock": lock, "measured": measured, "other_settings": others }).to_string()
}

#[cfg(test)]
mod tests;
