//! Time of an optimizer step in one mode, with its formulas, and speeds of GPUs relative to each other.

use core::fmt;

use serde::{Deserialize, Serialize};

use super::Plan;
use super::calibration::{self, BALANCED_WIDTH, ESTIMATE_ERROR, LAUNCH_BOUND, REFERENCE, SPEED_ERRORS, TRANSFER_ERROR};
use super::measured::Baseline;
use super::search::Split;
use crate::device::{DeviceFacts, DeviceKind, Rates};
use crate::measured::{Interpolation, Mode};
use crate::workload::Workload;
use crate::{Goal, Precision, Provenance, grouped, three_digits};

/// Predicted time of an optimizer step.
///
/// Measured micro-batches take as long as measured. Without measurements a roofline that was calibrated on an H200 is scaled
/// to the device by the ratio of published rates. Between the two, the roofline is corrected by its error at a measured
/// micro-batch.
pub(super) struct StepTime<'a> {
    mode: Mode,
    roofline: Roofline,
    measured: Option<MeasuredTime<'a>>,
    /// Time without checkpointing, where the mode checkpoints: an estimate of recomputing is never faster.
    plain: Option<Box<Self>>,
}

/// Measured seconds, and the roofline of the measured device.
struct MeasuredTime<'a> {
    baseline: Baseline<'a>,
    /// True if this device was measured in this mode.
    is_exact: bool,
    micro_step: Interpolation,
    optimizer: f64,
    there: Roofline,
}

/// A part of the predicted time of an optimizer step.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TimeTerm {
    /// Name of the term.
    pub name: &'static str,
    /// Formula of the seconds.
    pub formula: String,
    /// Seconds of one optimizer step on one rank.
    pub seconds: f64,
    /// Provenance of the figures.
    pub provenance: Provenance,
}

impl TimeTerm {
    /// The exchange of gradients among the ranks of a goal; `None` where it takes no time.
    pub(super) fn exchange(goal: &Goal, seconds: f64) -> Option<Self> {
        let formula = format!("gradients among {} ranks", grouped(goal.world_size));
        let provenance = Provenance::Derived;
        (seconds > 0.0).then_some(Self { name: "exchange", formula, seconds, provenance })
    }
}

impl<'a> StepTime<'a> {
    pub(super) fn new(device: &'a DeviceFacts, workload: &'a Workload, mode: Mode) -> Self {
        let measured = MeasuredTime::new(device, workload, mode);
        let plain = Mode { checkpointing: false, ..mode };
        let plain = (mode.checkpointing && measured.is_some()).then(|| Box::new(Self::new(device, workload, plain)));
        Self { mode, roofline: Roofline::new(device, workload, mode), measured, plain }
    }

    /// Samples per second of one rank that splits its steps in this way.
    pub(super) fn samples_per_s(&self, split: Split) -> f64 {
        split.samples as f64 / (self.micro_steps(split) + self.optimizer())
    }

    /// Fraction of the time of the micro-batches in which the device computes at its highest measured rate, rather than
    /// waits for launches.
    pub(super) fn utilization(&self, split: Split) -> f64 {
        let here = self.roofline.sample();
        let sample = self
            .measured
            .as_ref()
            .map_or(here, |measured| measured.micro_step.least_per_sample() * here / measured.there.sample());
        (split.samples as f64 * sample / self.micro_steps(split)).min(1.0)
    }

    /// Provenance of the time of micro-batches of this size.
    pub(super) fn provenance(&self, batch: u64) -> Provenance {
        let provenance =
            |measured: &MeasuredTime<'_>| measured.baseline.provenance(measured.micro_step.has(batch), self.mode);
        self.measured.as_ref().map_or(Provenance::Derived, provenance)
    }

    /// Largest leave-one-out underestimate of the measured times, where the time at this size is interpolated.
    pub(super) fn doubt(&self, batch: u64) -> f64 {
        let is_estimate = self.provenance(batch) == Provenance::Estimated;
        let measured = self.measured.as_ref().filter(|_| is_estimate);
        measured.and_then(|measured| measured.micro_step.largest_underestimate()).unwrap_or(0.0)
    }

    /// Describes where the times come from and their error elsewhere, when another device was measured.
    pub(super) fn transfer(&self, device: &DeviceFacts, workload: &Workload) -> Option<String> {
        let measured = self.measured.as_ref().filter(|measured| !measured.baseline.is_here)?;
        let name = measured.baseline.name;
        Some(match measured.worst_elsewhere(device, workload) {
            Some((other, error)) => {
                format!("times scaled from {name}, which miss {other} by {:.0}%", error * 100.0)
            }
            None => format!("times scaled from {name}, the only device measured"),
        })
    }

    /// Returns the terms that add up to a step on one rank.
    pub(super) fn terms(&self, split: Split) -> Vec<TimeTerm> {
        let Some(measured) = &self.measured else { return self.roofline.terms(split) };
        let rest = split.samples % split.batch;
        let full = self.micro_steps_term(measured, "micro-batches", split.samples / split.batch, split.batch);
        let rest = (rest > 0).then(|| self.micro_steps_term(measured, "the rest", 1, rest));
        let optimizer = TimeTerm {
            name: "optimizer",
            formula: format!(
                "{:.3} ms on {}{}",
                measured.optimizer * 1e3,
                measured.baseline.name,
                measured.scaling(true, measured.optimizer, self.optimizer())
            ),
            seconds: self.optimizer(),
            provenance: self.provenance(split.batch),
        };
        [full].into_iter().chain(rest).chain([optimizer]).collect()
    }

    /// Seconds of all micro-batches of a step.
    fn micro_steps(&self, Split { batch, samples }: Split) -> f64 {
        let rest = samples % batch;
        let rest = if rest == 0 { 0.0 } else { self.micro_step(rest) };
        (samples / batch) as f64 * self.micro_step(batch) + rest
    }

    /// Seconds of one micro-batch.
    fn micro_step(&self, batch: u64) -> f64 {
        let here = self.roofline.micro_step(batch);
        let seconds = self.measured.as_ref().map_or(here, |measured| {
            let (known, seconds) = measured.nearest(batch);
            let is_known = measured.is_exact && known == batch;
            if is_known { seconds } else { seconds * here / measured.there.micro_step(known) }
        });
        let is_measured = |measured: &MeasuredTime<'_>| measured.is_exact && measured.micro_step.has(batch);
        let plain = self.plain.as_ref().filter(|_| !self.measured.as_ref().is_some_and(is_measured));
        plain.map_or(seconds, |plain| seconds.max(plain.micro_step(batch)))
    }

    /// Returns the term of `count` micro-batches, with the formula of [`micro_step`](Self::micro_step).
    fn micro_steps_term(&self, measured: &MeasuredTime<'_>, name: &'static str, count: u64, batch: u64) -> TimeTerm {
        let ((known, there), here) = (measured.nearest(batch), self.micro_step(batch));
        let Baseline { name: device, mode, .. } = measured.baseline;
        let mode = if mode == self.mode { String::new() } else { format!(" in {mode}") };
        let scaling = measured.scaling(known == batch, there, here);
        TimeTerm {
            name,
            formula: format!("{count} x {:.3} ms at {known} on {device}{mode}{scaling}", there * 1e3),
            seconds: count as f64 * here,
            provenance: self.provenance(batch),
        }
    }

    /// Seconds of the optimizer.
    fn optimizer(&self) -> f64 {
        let here = self.roofline.optimizer;
        self.measured.as_ref().map_or(here, |measured| {
            if measured.is_exact { measured.optimizer } else { measured.optimizer * here / measured.there.optimizer }
        })
    }
}

impl<'a> MeasuredTime<'a> {
    fn new(device: &'a DeviceFacts, workload: &'a Workload, mode: Mode) -> Option<Self> {
        let baseline = Baseline::for_time(device, workload, mode)?;
        let there = Roofline::new(&baseline.facts(device), workload, baseline.mode);
        let micro_step = baseline.micro_step()?;
        let optimizer = baseline.optimizer().unwrap_or(there.optimizer);
        Some(Self { is_exact: baseline.is_exact(mode), micro_step, optimizer, there, baseline })
    }

    /// The micro-batch whose time is scaled for this one, with its seconds. Below the measured sizes launches dominate, which
    /// lines do not predict.
    fn nearest(&self, batch: u64) -> (u64, f64) {
        let known = self.micro_step.first().max(batch);
        (known, self.micro_step.at(known))
    }

    /// Describes the factor between seconds `there` and `here`: none for a measured figure.
    fn scaling(&self, is_known: bool, there: f64, here: f64) -> String {
        let rates = match (self.is_exact, is_known) {
            (true, true) => return String::new(),
            (true, false) => "the roofline",
            (false, _) => "published rates",
        };
        format!(" x {:.4} by {rates}", here / there)
    }

    /// The measured device at which these times err most, with the relative error.
    fn worst_elsewhere<'w>(&self, device: &DeviceFacts, workload: &'w Workload) -> Option<(&'w str, f64)> {
        let errors = self.baseline.others(workload).filter_map(|other| {
            let roofline = Roofline::new(&other.facts(device), workload, other.mode);
            let error = |(batch, seconds): (u64, f64)| {
                let there = self.there.micro_step(batch);
                (self.micro_step.at(batch) * roofline.micro_step(batch) / there / seconds - 1.0).abs()
            };
            Some((other.name, other.micro_steps().map(error).reduce(f64::max)?))
        });
        errors.max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// Seconds by rates, and the figures that they follow from.
struct Roofline {
    /// Seconds of each micro-batch, whatever its size.
    launch: f64,
    /// Seconds of each sample: of its products, and of the activations that it moves.
    sample: [f64; 2],
    /// Seconds of the optimizer.
    optimizer: f64,
    /// Kernels of a micro-batch, and seconds of each.
    kernels: (u64, f64),
    /// Factor of recomputing activations.
    recomputing: Option<f64>,
    /// Operations of a sample, and those per second.
    flops: (f64, f64),
    /// Width of the products; `None` on a CPU, whose rate does not depend on the width.
    width: Option<f64>,
    /// Bytes that a sample moves, and those per second.
    moved: (f64, f64),
    /// Seconds of a sample over those on the H200.
    slowdown: f64,
    /// Values that the optimizer updates, its state, and the bytes of each value.
    updated: (u64, u64, u64),
    /// Bytes per second of the optimizer.
    optimizer_bytes_per_s: f64,
}

impl Roofline {
    fn new(device: &DeviceFacts, workload: &Workload, mode: Mode) -> Self {
        let Mode { precision, checkpointing, .. } = mode;
        let kernels = (calibration::kernels(workload, mode), calibration::launch_s(device.kind));
        let recomputing = checkpointing.then_some(calibration::CHECKPOINTING_SLOWDOWN);
        let factor = recomputing.unwrap_or(1.0);
        let flops = (workload.sample.flops, calibration::flops_per_s(device, workload, mode));
        let rated = calibration::rated_precision(device, workload, precision);
        let kept = workload.sample.activations.0 as f64 * rated.activation_scale();
        let moved = (kept * calibration::ACTIVATION_TRIPS, calibration::sample_bandwidth(device));
        let slowdown = calibration::slowdown(device, workload, mode);
        // Reads weights, gradients and state; writes weights and state.
        let (trained, state) = (workload.parameters.trained(), workload.parameters.state(workload.optimizer));
        let touched = (3.0 * trained as f64 + 2.0 * state as f64) * precision.parameter_bytes() as f64;
        let optimizer_bytes_per_s = calibration::bytes_per_s(device.bandwidth_gb_s);
        Self {
            launch: kernels.0 as f64 * kernels.1 * factor,
            sample: [flops, moved].map(|(count, per_s)| count / per_s * slowdown * factor),
            optimizer: touched / optimizer_bytes_per_s,
            kernels,
            recomputing,
            flops,
            width: (device.kind == DeviceKind::Gpu).then(|| calibration::width(workload)),
            moved,
            slowdown,
            updated: (trained, state, precision.parameter_bytes()),
            optimizer_bytes_per_s,
        }
    }

    fn micro_step(&self, batch: u64) -> f64 {
        self.launch + batch as f64 * self.sample()
    }

    fn sample(&self) -> f64 {
        self.sample.iter().sum()
    }

    /// Returns the terms of a step, with the formulas of [`new`](Self::new).
    fn terms(&self, split: Split) -> Vec<TimeTerm> {
        let recomputing = self.recomputing.map_or_else(String::new, |factor| format!(" x {factor}"));
        let (micro_steps, (kernels, kernel_s)) = (split.micro_steps(), self.kernels);
        let (kernels, kernel_us) = (grouped(kernels), kernel_s * 1e6);
        let launches = format!("{micro_steps} x {kernels} kernels x {kernel_us:.0} us{recomputing}");
        let (count, (flops, flops_per_s), (moved, bytes_per_s)) = (grouped(split.samples), self.flops, self.moved);
        let of_width = self.width.map_or_else(String::new, |width| format!(" (width {width:.0})"));
        let is_reference = (self.slowdown - 1.0).abs() < 1e-4;
        let scaling = format!(" on h200 x {:.4} by published rates", self.slowdown);
        let scaling = if is_reference { "" } else { &scaling };
        let rate = flops_per_s / 1e9;
        let products = format!("{count} x {flops:.3e} FLOP{recomputing} / {rate:.1} GFLOP/s{scaling}{of_width}");
        let activations = format!("{count} x {moved:.3e} B moved{recomputing} / {}{scaling}", gb_per_s(bytes_per_s));
        let [of_products, of_activations] = self.sample.map(|seconds| split.samples as f64 * seconds);
        let (trained, state, each) = (grouped(self.updated.0), grouped(self.updated.1), self.updated.2);
        let optimizer = format!("(3 x {trained} + 2 x {state}) x {each} B / {}", gb_per_s(self.optimizer_bytes_per_s));
        let term = |name, formula, seconds| TimeTerm { name, formula, seconds, provenance: Provenance::Derived };
        vec![
            term("launches", launches, micro_steps as f64 * self.launch),
            term("products", products, of_products),
            term("activations", activations, of_activations),
            term("optimizer", optimizer, self.optimizer),
        ]
    }
}

fn gb_per_s(bytes_per_s: f64) -> String {
    format!("{:.0} GB/s", bytes_per_s / 1e9)
}

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

/// Rates that decide the speed of a filled GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Speeds {
    /// Rates of matrix products, 10^12 operations per second.
    pub rates: Rates,
    /// Peak fp32 rate of the ordinary units, 10^12 operations per second.
    pub fp32_tflops: Option<f64>,
    /// Peak memory bandwidth, 10^9 bytes per second.
    pub bandwidth_gb_s: Option<f64>,
}

impl From<&DeviceFacts> for Speeds {
    fn from(device: &DeviceFacts) -> Self {
        let DeviceFacts { rates, fp32_tflops, bandwidth_gb_s, .. } = *device;
        Self { rates, fp32_tflops, bandwidth_gb_s }
    }
}

impl Speeds {
    /// Samples per second of this GPU over those of `other`, where samples fill both.
    ///
    /// The ratio of the rates of matrix products has an exponent that grows with the `width` of products, and that of the
    /// bandwidths the rest: both are a half at [`BALANCED_WIDTH`]. fp32 peaks replace unavailable rates. `None` if neither ratio
    /// is available.
    pub(super) fn relative_to(&self, other: &Self, mode: Mode, width: f64) -> Option<f64> {
        let share = width / (width + BALANCED_WIDTH);
        let ratio = |here: Option<f64>, there: Option<f64>| Some(here? / there?).filter(|ratio| *ratio > 0.0);
        let compute = ratio(self.rates.product_rate(mode), other.rates.product_rate(mode));
        let compute = compute.or_else(|| ratio(self.fp32_tflops, other.fp32_tflops));
        match (compute, ratio(self.bandwidth_gb_s, other.bandwidth_gb_s)) {
            (Some(compute), Some(memory)) => Some(compute.powf(share) * memory.powf(1.0 - share)),
            (compute, memory) => compute.or(memory),
        }
    }
}

/// Samples per second of a GPU over those of another in this mode, where samples with products of this width fill both; `None`
/// without figures of either. `docs/transfer.md` compares this ratio with published ones.
pub fn relative_speed(device: &DeviceFacts, other: &DeviceFacts, mode: Mode, width: f64) -> Option<f64> {
    Speeds::from(device).relative_to(&Speeds::from(other), mode, width)
}

/// What the error of a predicted speed is an error of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SpeedError {
    /// A speed that follows from the model's dimensions.
    Absolute,
    /// The same, where launches take at least a third of the predicted time: the host decides.
    LaunchBound,
    /// The ratio of two GPUs' speeds. The speed on the other one was measured.
    BetweenGpus,
}

impl SpeedError {
    /// The error of a speed from this source; `None` for measured speeds and for CPUs. `utilization` is the share of the time
    /// that does not wait for launches.
    pub(super) fn new(device: &DeviceFacts, provenance: Provenance, utilization: f64) -> Option<Self> {
        match provenance {
            _ if device.kind == DeviceKind::Cpu => None,
            Provenance::Derived if 1.0 - utilization >= LAUNCH_BOUND => Some(Self::LaunchBound),
            Provenance::Derived => Some(Self::Absolute),
            Provenance::Transferred => Some(Self::BetweenGpus),
            _ => None,
        }
    }

    /// Factor by which a speed on this GPU may be off. An absolute one has the error of the ratio of two GPUs as well, unless
    /// the GPU is the one that was measured. Estimated figures of the GPU widen all.
    fn factor(self, device: &DeviceFacts) -> f64 {
        let own = SPEED_ERRORS.iter().find(|(error, _)| *error == self).expect("BUG: every error is in the table").1;
        let to_reference =
            Speeds::from(device).relative_to(&REFERENCE, Mode::new(Precision::F32, false), BALANCED_WIDTH);
        let is_reference = to_reference.is_some_and(|ratio| (ratio - 1.0).abs() < 1e-3);
        let factor = match self {
            Self::Absolute | Self::LaunchBound if !is_reference => own.ln().hypot(TRANSFER_ERROR.ln()).exp(),
            _ => own,
        };
        if device.estimated.is_empty() { factor } else { factor * ESTIMATE_ERROR }
    }
}

impl fmt::Display for SpeedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absolute => "absolute",
            Self::LaunchBound => "absolute, launch-bound",
            Self::BetweenGpus => "between GPUs",
        })
    }
}

/// Interval of a predicted speed of a GPU, lowest and highest: nine of ten lie in it. `None` without an error.
pub fn speed_interval(device: &DeviceFacts, samples_per_s: f64, error: Option<SpeedError>) -> Option<[f64; 2]> {
    let factor = error?.factor(device);
    Some([samples_per_s / factor, samples_per_s * factor])
}

/// Formats a speed, with the factor of its interval where there is one: `1,234 ±x1.6`.
pub fn with_interval(samples_per_s: f64, interval: Option<[f64; 2]>) -> String {
    let factor = interval.map_or_else(String::new, |[_, high]| format!(" ±x{:.1}", high / samples_per_s));
    three_digits(samples_per_s) + &factor
}
