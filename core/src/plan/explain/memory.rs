//! Memory, item by item.

use serde::Serialize;

use super::Asked;
use crate::measured::Mode;
use crate::plan::calibration::{self, PERSISTENT_RESERVE};
use crate::plan::memory::gradient_bytes;
use crate::plan::pools::{Origin, PoolUsage, Pools};
use crate::plan::recorded::RecordedStep;
use crate::plan::{MemoryEstimate, baseline, prefetch};
use crate::{Bytes, Precision, Provenance, exchange, grouped};

/// One item of the memory that training is predicted to take.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Item {
    /// Name of the item.
    pub name: &'static str,
    /// Formula of the bytes, such as `29,660 x 4 B`.
    pub formula: String,
    /// The bytes.
    pub bytes: Bytes,
    /// Provenance of the figures.
    pub provenance: Provenance,
}

/// Returns the items that are not zero.
pub(super) fn items(asked: &Asked<'_>, estimate: &MemoryEstimate, mode: Mode, accumulates: bool) -> Vec<Item> {
    let Mode { checkpointing, .. } = mode;
    let pooled = Pools::new(asked.device, asked.workload, asked.goal, mode.with_graphs(false))
        .map(|pools| Pooled::new(&pools, estimate, asked, accumulates));
    let taken = estimate.items().into_iter().filter(|(_, bytes)| *bytes > Bytes::ZERO);
    let item = |(name, bytes)| {
        let (formula, provenance) = match &pooled {
            Some(pooled) if Pooled::ITEMS.contains(&name) => (pooled.formula(name, estimate), estimate.provenance),
            _ if name == "CUDA graph" => recorded(asked, estimate, mode, accumulates),
            _ => derived(name, asked, estimate, checkpointing),
        };
        Item { name, formula, bytes, provenance }
    };
    taken.map(item).collect()
}

/// Measured figures that replace derived ones.
struct Pooled {
    /// The measured or simulated device, and how the figure is interpolated.
    source: String,
    /// Bytes that the pools reserve.
    usage: PoolUsage,
    /// Bytes that other ranks keep.
    elsewhere: Bytes,
    /// Bytes in use after the forward pass.
    in_use: Option<Bytes>,
    /// Input batches that are prepared ahead.
    queued: Bytes,
}

impl Pooled {
    const ITEMS: [&str; 3] = ["activations", "allocator reserve", "margin"];

    fn new(pools: &Pools<'_>, estimate: &MemoryEstimate, asked: &Asked<'_>, accumulates: bool) -> Self {
        let usage = pools.usage(estimate.batch, accumulates);
        let input = asked.workload.sample.input.unwrap_or_default().times(estimate.batch);
        let line = match usage.origin {
            Origin::Measured => "",
            Origin::WithGradients => " plus sums of gradients",
            Origin::Extrapolated => ", extrapolated beyond the largest measured micro-batch",
            Origin::Interpolated => ", interpolated between measured micro-batches",
        };
        Self {
            source: format!("{}{line}", pools.baseline.source()),
            usage,
            elsewhere: pools.elsewhere,
            in_use: pools.in_use.as_ref().map(|in_use| Bytes(in_use.at(estimate.batch).ceil() as u64)),
            queued: estimate.inputs - input,
        }
    }

    /// Formula of the margin.
    fn margin(&self) -> String {
        let PoolUsage { bytes, margin_share, .. } = self.usage;
        let pages = mib(calibration::SMALL_PAGES);
        format!("{margin_share:.6} x {} reserved {} + {pages} of small pages", mib(bytes), self.source)
    }

    fn formula(&self, name: &str, estimate: &MemoryEstimate) -> String {
        let lasting = estimate.persistent();
        let known = lasting + estimate.gradients + estimate.accumulated_gradients + estimate.inputs;
        let pools = self.usage.bytes - self.elsewhere + self.queued;
        let input = estimate.inputs - self.queued;
        let kept = self.in_use.map(|in_use| in_use - self.elsewhere - lasting - input);
        match (name, self.in_use) {
            ("margin", _) => self.margin(),
            ("allocator reserve", _) => {
                format!("{} reserved {} - {} above", mib(pools), self.source, mib(known + estimate.activations))
            }
            (_, Some(in_use)) if kept == Some(estimate.activations) => {
                let (in_use, lasting) = (mib(in_use - self.elsewhere), mib(lasting));
                format!("{in_use} in use after the forward pass - {lasting} of the run - {} of input", mib(input))
            }
            _ => format!("{} reserved {} - {} known", mib(pools), self.source, mib(known)),
        }
    }
}

fn mib(bytes: Bytes) -> String {
    format!("{:.1} MiB", bytes.mib())
}

/// Formula of the memory that a recorded step adds.
fn recorded(asked: &Asked<'_>, estimate: &MemoryEstimate, mode: Mode, accumulates: bool) -> (String, Provenance) {
    let step = RecordedStep::new(asked.device, asked.workload, mode.with_graphs(true));
    if let Some(reserved) = step.reserved(estimate.batch, accumulates) {
        let without = reserved - estimate.cuda_graph;
        let formula = format!("{} reserved with CUDA graphs - {} without", mib(reserved), mib(without));
        return (formula, Provenance::Measured);
    }
    let (step, parameters) = (mib(estimate.transient()), mib(estimate.weights + estimate.gradients));
    (format!("{step} of a step again + 2 x {parameters} of parameters and gradients"), Provenance::Estimated)
}

/// Formula of an item by dimensions, data sheets and calibration, or by measured kernels and context.
fn derived(name: &str, asked: &Asked<'_>, estimate: &MemoryEstimate, checkpointing: bool) -> (String, Provenance) {
    let Asked { workload, goal, precision, .. } = asked;
    let (parameters, sample) = (&workload.parameters, &workload.sample);
    let each = precision.parameter_bytes();
    let held = |values: u64, each: u64| format!("{} x {each} B", grouped(values));
    let kept = |bytes: Bytes| {
        let scale = precision.activation_scale();
        let scaled = if scale < 1.0 { format!(" x {scale}") } else { String::new() };
        format!("{} x {} B{scaled}", grouped(estimate.batch), grouped(bytes.0))
    };
    let formula = match name {
        "weights" => held(parameters.trained(), each),
        "gradients" => {
            let accumulates = estimate.accumulated_gradients > Bytes::ZERO;
            held(parameters.trained(), gradient_bytes(*precision, goal, accumulates))
        }
        "accumulated gradients" => held(parameters.trained(), Precision::SUM_BYTES),
        "frozen weights" => sum([
            (parameters.frozen > 0).then(|| held(parameters.frozen, each)),
            (parameters.packed > Bytes::ZERO).then(|| format!("{} B packed", grouped(parameters.packed.0))),
        ]),
        "copies of weights" => {
            let copies = if checkpointing { parameters.copies_checkpointed } else { parameters.copies };
            let (computing, each) = (parameters.trained().saturating_add(parameters.frozen), precision.compute_bytes());
            sum([
                (copies > 0 || !precision.is_mixed()).then(|| held(copies, each)),
                precision.is_mixed().then(|| format!("{} to compute with", held(computing, each))),
            ])
        }
        "optimizer state" => {
            let each = if workload.optimizer.keeps_f32() { 4 } else { each };
            let ranks = if goal.shard_optimizer { goal.world_size } else { 1 };
            let shared = if ranks > 1 { " on the rank with the most" } else { "" };
            format!("{}{shared}", held(exchange::largest_shard(parameters, workload.optimizer, ranks), each))
        }
        "gradient exchange" => format!("2 x {} B of packed gradients", grouped(estimate.exchange.0 / 2)),
        "activations" => kept(sample.checkpointed_activations.filter(|_| checkpointing).unwrap_or(sample.activations)),
        "layer scratch" => kept(sample.scratch),
        "input batches" => {
            let queued = prefetch::depth(workload, goal, estimate.batch).saturating_add(1);
            let input = sample.input.unwrap_or_default();
            format!("{queued} batches x {} x {} B", grouped(estimate.batch), grouped(input.0))
        }
        "allocator reserve" => return (reserve(asked, estimate), Provenance::Derived),
        "kernels" => return kernels(asked),
        _ => return context(asked),
    };
    (formula, workload.provenance)
}

fn kernels(asked: &Asked<'_>) -> (String, Provenance) {
    let Asked { device, workload, .. } = asked;
    let measured = || workload.measured.on.iter().filter(|(_, on)| on.kernels_bytes.is_some());
    let each = calibration::for_family(workload.family).kernels_per_sm;
    let least = each.times(u64::from(device.sm_count));
    if baseline::kernels(device, workload).is_none_or(|measured| measured <= least) {
        return (format!("{} SMs x {each}", device.sm_count), Provenance::Derived);
    }
    match (measured().find(|(name, on)| device.matches(name, on)), measured().next()) {
        (Some((name, _)), _) => (format!("loaded on {name}"), Provenance::Measured),
        (None, Some((name, on))) => {
            let bytes = on.kernels_bytes.unwrap_or_default().mib();
            let share = format!("{bytes:.1} MiB on {name} x {} / {} SMs", device.sm_count, on.sm_count);
            (share, Provenance::Transferred)
        }
        (None, None) => (format!("{} SMs x {each}", device.sm_count), Provenance::Derived),
    }
}

fn context(asked: &Asked<'_>) -> (String, Provenance) {
    let is_measured = baseline::context(asked.device, asked.workload).is_some();
    let provenance = if is_measured { Provenance::Measured } else { Provenance::Derived };
    ("before the first tensor".to_owned(), provenance)
}

/// Formula of the reserve: of memory that lives for a step, and of memory that lives as long as the run.
fn reserve(asked: &Asked<'_>, estimate: &MemoryEstimate) -> String {
    let kind = asked.device.kind;
    let step = estimate.gradients + estimate.accumulated_gradients + estimate.activations + estimate.inputs;
    let pools = calibration::pools(kind);
    let share = |factor: f64, of: Bytes, what: &str| format!("{:.2} x {:.1} MiB {what}", factor - 1.0, of.mib());
    sum([
        Some(share(calibration::for_family(asked.workload.family).reserve(kind), step, "of a step")),
        Some(share(PERSISTENT_RESERVE, estimate.persistent(), "of the run")),
        (pools > Bytes::ZERO).then(|| format!("{pools} of pools")),
    ])
}

fn sum<const N: usize>(terms: [Option<String>; N]) -> String {
    terms.into_iter().flatten().collect::<Vec<_>>().join(" + ")
}
