//! Memory, item by item.

use std::fmt::Write as _;

use serde::Serialize;

use super::Asked;
use crate::measured::{InPages, Mode};
use crate::plan::calibration::{self, PERSISTENT_RESERVE};
use crate::plan::pools::{Held, Margin, Pools};
use crate::plan::{MemoryEstimate, host, reference};
use crate::{Bytes, Provenance, grouped};

/// One item of the memory that training is predicted to take.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Item {
    /// What takes it.
    pub name: &'static str,
    /// How its bytes come about: `29,660 x 4 B`.
    pub formula: String,
    /// The bytes.
    pub bytes: Bytes,
    /// What stands behind the figures.
    pub provenance: Provenance,
}

/// The items that take anything.
pub(super) fn items(asked: &Asked<'_>, estimate: &MemoryEstimate, checkpointing: bool, accumulates: bool) -> Vec<Item> {
    let mode = Mode::new(asked.precision, checkpointing).allowing(asked.goal.pins.allow_tf32(), asked.device);
    let pooled = Pools::of(asked.device, asked.workload, asked.goal, mode)
        .map(|pools| Pooled::new(&pools, estimate, asked, accumulates));
    let taken = estimate.items().into_iter().filter(|(_, bytes)| *bytes > Bytes::ZERO);
    let item = |(name, bytes)| {
        let (formula, provenance) = match &pooled {
            Some(pooled) if Pooled::ITEMS.contains(&name) => (pooled.formula(name, estimate), estimate.provenance),
            _ => derived(name, asked, estimate, checkpointing),
        };
        Item { name, formula, bytes, provenance }
    };
    taken.map(item).collect()
}

/// What takes the place of derived figures where the memory pools were measured.
struct Pooled {
    /// The device that was measured, or replayed for, and, where it is not a point, that it lies on a line.
    at: String,
    /// What the pools held after a step, and what is added to it.
    held: Held,
    /// What of it other ranks keep.
    elsewhere: Bytes,
    /// What was in use after the forward pass.
    in_use: Option<Bytes>,
    /// Input batches that are prepared ahead.
    queued: Bytes,
}

impl Pooled {
    const ITEMS: [&str; 3] = ["activations", "allocator reserve", "margin"];

    fn new(pools: &Pools<'_>, estimate: &MemoryEstimate, asked: &Asked<'_>, accumulates: bool) -> Self {
        let held = pools.held(estimate.batch, accumulates);
        let input = asked.workload.sample.input.unwrap_or_default().times(estimate.batch);
        let line = match (held.is_point, held.is_beyond) {
            (true, _) => "",
            (false, true) => ", on a line beyond the largest point",
            (false, false) => ", on a line between points",
        };
        let pages = held.pages.map_or_else(String::new, in_words);
        Self {
            at: format!("{}{line}{pages}", pools.reference.whence()),
            held,
            elsewhere: pools.elsewhere,
            in_use: pools.in_use.as_ref().map(|in_use| Bytes(in_use.at(estimate.batch).ceil() as u64)),
            queued: estimate.inputs - input,
        }
    }

    /// How the margin comes about.
    fn margin(&self) -> String {
        let Margin { residual: (share, of), pages, next, added_up } = self.held.margin;
        let of = if of > self.held.bytes { format!("{}, for the {}", mib(of), mib(self.held.bytes)) } else { mib(of) };
        let mut text = format!("{share:.4} x {of} reserved {}", self.at);
        for (bytes, whose) in [
            (pages, "in as many pages as there may be"),
            (next, "by what is known of those beside"),
            (added_up, "where gradients were added up at the points beside"),
        ] {
            if bytes > Bytes::ZERO {
                let _ = write!(text, " + {} more {whose}", mib(bytes));
            }
        }
        format!("{text} + {} of small pages", mib(calibration::SMALL_PAGES))
    }

    fn formula(&self, name: &str, estimate: &MemoryEstimate) -> String {
        let lasting = lasting(estimate);
        let known = lasting + estimate.gradients + estimate.accumulated_gradients + estimate.inputs;
        let pools = self.held.bytes - self.elsewhere + self.queued;
        let input = estimate.inputs - self.queued;
        let kept = self.in_use.map(|in_use| in_use - self.elsewhere - lasting - input);
        match (name, self.in_use) {
            ("margin", _) => self.margin(),
            ("allocator reserve", _) => {
                format!("{} reserved {} - {} above", mib(pools), self.at, mib(known + estimate.activations))
            }
            (_, Some(in_use)) if kept == Some(estimate.activations) => {
                let (in_use, lasting) = (mib(in_use - self.elsewhere), mib(lasting));
                format!("{in_use} in use after the forward pass - {lasting} of the run - {} of input", mib(input))
            }
            _ => format!("{} reserved {} - {} known", mib(pools), self.at, mib(known)),
        }
    }
}

/// Such as `, in 36 or 37 pages of 15.0 MiB and 1 of 8.0 MiB`.
fn in_words([fewest, most]: [InPages; 2]) -> String {
    let count = |fewest: u64, most: u64| match most - fewest {
        0 => most.to_string(),
        1 => format!("{fewest} or {most}"),
        _ => format!("{fewest} to {most}"),
    };
    let small = match most.small_pages {
        0 => String::new(),
        pages => {
            let each = Bytes(most.small_bytes().0 / pages);
            format!(" and {} of {}", count(fewest.small_pages, pages), mib(each))
        }
    };
    format!(", in {} pages of {}{small}", count(fewest.pages, most.pages), mib(most.page_bytes))
}

fn mib(bytes: Bytes) -> String {
    format!("{:.1} MiB", bytes.mib())
}

/// What lives as long as the run.
fn lasting(estimate: &MemoryEstimate) -> Bytes {
    estimate.weights + estimate.frozen_weights + estimate.weight_copies + estimate.optimizer_state
}

/// An item by dimensions, data sheets and calibration, or what was measured of kernels and context.
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
        "weights" | "gradients" | "accumulated gradients" => held(parameters.trained(), each),
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
            let shared = if ranks > 1 { format!(" / {ranks} ranks") } else { String::new() };
            format!("{}{shared}", held(parameters.state(workload.optimizer), each))
        }
        "activations" => kept(sample.checkpointed_activations.filter(|_| checkpointing).unwrap_or(sample.activations)),
        "layer scratch" => kept(sample.scratch),
        "input batches" => {
            let queued = host::prefetch_depth(workload, goal, estimate.batch).saturating_add(1);
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
    let each = calibration::of(workload.family).kernels_per_sm;
    let least = each.times(u64::from(device.sm_count));
    if reference::kernels(device, workload).is_none_or(|measured| measured <= least) {
        return (format!("{} multiprocessors x {each}", device.sm_count), Provenance::Derived);
    }
    match (measured().find(|(name, on)| on.is_of(name, device)), measured().next()) {
        (Some((name, _)), _) => (format!("loaded on {name}"), Provenance::Measured),
        (None, Some((name, on))) => {
            let bytes = on.kernels_bytes.unwrap_or_default().mib();
            let share = format!("{bytes:.1} MiB on {name} x {} / {} multiprocessors", device.sm_count, on.sm_count);
            (share, Provenance::Transferred)
        }
        (None, None) => (format!("{} multiprocessors x {each}", device.sm_count), Provenance::Derived),
    }
}

fn context(asked: &Asked<'_>) -> (String, Provenance) {
    let is_measured = reference::context(asked.device, asked.workload).is_some();
    let provenance = if is_measured { Provenance::Measured } else { Provenance::Derived };
    ("before the first tensor".to_owned(), provenance)
}

/// What lives for one step and what lives as long as the run, each with the share that is reserved beyond it.
fn reserve(asked: &Asked<'_>, estimate: &MemoryEstimate) -> String {
    let kind = asked.device.kind;
    let step = estimate.gradients + estimate.accumulated_gradients + estimate.activations + estimate.inputs;
    let pools = calibration::pools(kind);
    let share = |factor: f64, of: Bytes, what: &str| format!("{:.2} x {:.1} MiB {what}", factor - 1.0, of.mib());
    sum([
        Some(share(calibration::of(asked.workload.family).reserve(kind), step, "of a step")),
        Some(share(PERSISTENT_RESERVE, lasting(estimate), "of the run")),
        (pools > Bytes::ZERO).then(|| format!("{pools} of pools")),
    ])
}

fn sum<const N: usize>(terms: [Option<String>; N]) -> String {
    terms.into_iter().flatten().collect::<Vec<_>>().join(" + ")
}
