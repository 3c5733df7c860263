//! Choice of the precision.

use core::fmt;

use serde::Serialize;

use super::candidates;
use super::choice::Choice;
use super::error::PlanError;
use super::least::Least;
use super::reason::Reason;
use super::{baseline, speed_interval};
use crate::device::{DeviceFacts, DeviceKind};
use crate::workload::Workload;
use crate::{Bytes, Goal, Precision, Provenance, Setting};

/// Smallest gain in throughput for which 16 bits are worth their rounding, as a fraction.
const WORTHWHILE_GAIN: f64 = 0.05;

/// A precision and why.
pub(super) struct Decision {
    pub value: Precision,
    pub reason: Reason,
    /// Best way to run a step in this precision; `None` if nothing fits.
    pub choice: Option<Choice>,
    /// The precisions that were compared.
    pub considered: Vec<ConsideredPrecision>,
}

/// A precision that the planner compared, and why it was chosen or not.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ConsideredPrecision {
    /// The precision.
    pub precision: Precision,
    /// Samples in a micro-batch of its best plan; `None` where nothing fits, as for the other figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<u64>,
    /// Predicted memory of its best plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Predicted samples per second over all ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples_per_s: Option<f64>,
    /// Lowest and highest samples per second within the error of predictions; `None` for a measured speed or a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples_per_s_interval: Option<[f64; 2]>,
    /// Provenance of the throughput.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
    /// Why it was chosen or not.
    pub verdict: PrecisionVerdict,
}

/// Why a precision was chosen or not.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PrecisionVerdict {
    /// It is the plan.
    Taken,
    /// Nothing fits in it.
    DoesNotFit,
    /// Its throughput is lower than that of the chosen one.
    Slower {
        /// Difference, as a fraction of the chosen one.
        by: f64,
    },
    /// Its gain in throughput over fp32 is less than 5%.
    LittleGain {
        /// Gain, as a fraction of fp32.
        by: f64,
    },
    /// Another precision was measured on this device, and this one was not.
    NotMeasured,
}

impl fmt::Display for PrecisionVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken => f.write_str("taken"),
            Self::DoesNotFit => f.write_str("does not fit"),
            Self::Slower { by } => write!(f, "{:.1}% slower", by * 100.0),
            Self::LittleGain { by } if *by <= 0.0 => f.write_str("no faster than f32"),
            Self::LittleGain { by } => write!(f, "{:.1}% faster than f32, and less than 5% is no gain", by * 100.0),
            Self::NotMeasured => f.write_str("not measured here: run `cargo gpu-tuned measure`"),
        }
    }
}

/// Returns the precision that the goal asks for, or the best one for the device.
pub(super) fn decide(device: &DeviceFacts, workload: &Workload, goal: &Goal) -> Result<Decision, PlanError> {
    let precisions = supported(device, goal)?;
    let find = |precision| -> Result<Candidate, PlanError> {
        let choice = Choice::find(device, workload, goal, precision)?;
        Ok(Candidate { precision, is_measured: is_measured(device, workload, goal, precision), choice })
    };
    let mut all = precisions.into_iter().map(find).collect::<Result<Vec<_>, _>>()?;
    let (taken, provenance, why) = if let [f32, mixed] = &all[..] {
        if let Some(found) = compare(f32, mixed) {
            found
        } else {
            let least = Least::find(device, workload, goal, None)?;
            (least.mode.precision, Provenance::Derived, "nothing fits".to_owned())
        }
    } else {
        let (provenance, why) = only_one(device, goal);
        (all[0].precision, provenance, why)
    };
    let considered = all.iter().map(|candidate| candidate.judged(device, taken, &all)).collect();
    let at = all.iter().position(|candidate| candidate.precision == taken).unwrap_or_default();
    let Candidate { choice, .. } = all.swap_remove(at);
    let reason = Reason { setting: Setting::Precision, provenance, why };
    Ok(Decision { value: taken, reason, choice, considered })
}

/// Returns the precision of [`decide`], without a search if the goal fixes one.
pub(super) fn value(device: &DeviceFacts, workload: &Workload, goal: &Goal) -> Result<Precision, PlanError> {
    match supported(device, goal)?[..] {
        [only] => Ok(only),
        _ => decide(device, workload, goal).map(|decision| decision.value),
    }
}

/// Returns the precisions to compare. A single requested one must be supported by the device.
pub(super) fn supported(device: &DeviceFacts, goal: &Goal) -> Result<Vec<Precision>, PlanError> {
    let all = goal.precisions(device);
    match all.iter().find(|precision| !device.has_units_for(**precision)) {
        Some(&precision) => Err(PlanError::PrecisionUnsupported { precision, device: device.name.clone() }),
        None => Ok(all),
    }
}

/// A precision with its best plan.
struct Candidate {
    precision: Precision,
    choice: Option<Choice>,
    /// True if steps in this precision were timed on this device.
    is_measured: bool,
}

impl Candidate {
    /// Throughput that comparisons use.
    fn counted_per_s(&self) -> Option<f64> {
        self.choice.as_ref().map(|choice| choice.best.counted_per_s)
    }

    /// Fewest samples of a micro-batch, for batch statistics.
    fn least_samples(&self) -> Option<u64> {
        self.choice.as_ref().and_then(|choice| choice.least_samples)
    }

    fn judged(&self, device: &DeviceFacts, taken: Precision, all: &[Self]) -> ConsideredPrecision {
        let best = self.choice.as_ref().map(|choice| &choice.best);
        let other = all.iter().find(|other| other.precision == taken).and_then(Self::counted_per_s);
        let verdict = match (self.counted_per_s(), other) {
            _ if self.precision == taken => PrecisionVerdict::Taken,
            (None, _) => PrecisionVerdict::DoesNotFit,
            _ if !self.is_measured && all.iter().any(|other| other.is_measured) => PrecisionVerdict::NotMeasured,
            (Some(own), Some(other)) if taken == Precision::F32 => {
                PrecisionVerdict::LittleGain { by: own / other - 1.0 }
            }
            (Some(own), other) => PrecisionVerdict::Slower { by: other.map_or(0.0, |other| 1.0 - own / other) },
        };
        ConsideredPrecision {
            precision: self.precision,
            batch_size: best.map(|best| best.batch),
            memory: best.map(|best| best.memory.total()),
            samples_per_s: best.map(|best| best.samples_per_s),
            samples_per_s_interval: best.and_then(|best| speed_interval(device, best.samples_per_s, best.provenance)),
            provenance: best.map(|best| best.provenance),
            verdict,
        }
    }
}

/// Compares fp32 with mixed precision; `None` if neither fits.
fn compare(f32: &Candidate, mixed: &Candidate) -> Option<(Precision, Provenance, String)> {
    let (plain, half) = (f32.precision, mixed.precision);
    let derived = |precision, why: String| Some((precision, Provenance::Derived, why));
    let (slow, fast) = match (&f32.choice, &mixed.choice) {
        (None, None) => return None,
        (Some(_), None) => return derived(plain, format!("{half} does not fit")),
        (None, Some(_)) => return derived(half, format!("{plain} does not fit")),
        (Some(slow), Some(fast)) => (&slow.best, &fast.best),
    };
    let unmeasured = |measured: Precision, other: Precision| {
        let why = format!("{other} was not measured here: run `cargo gpu-tuned measure`");
        Some((measured, Provenance::Measured, why))
    };
    match (f32.is_measured, mixed.is_measured) {
        (true, false) => return unmeasured(plain, half),
        (false, true) => return unmeasured(half, plain),
        _ => {}
    }
    let gain_of_samples = mixed.least_samples() > f32.least_samples();
    if gain_of_samples {
        return derived(half, format!("{plain} fits too few samples for batch statistics"));
    }
    let gain = fast.counted_per_s / slow.counted_per_s - 1.0;
    let provenance = slow.provenance.max(fast.provenance);
    let percent = gain * 100.0;
    Some(if gain >= WORTHWHILE_GAIN {
        (half, provenance, format!("{percent:.0}% more samples/s than {plain}"))
    } else if percent < 0.05 {
        (plain, provenance, format!("{half} is no faster"))
    } else {
        (plain, provenance, format!("{half} gains only {percent:.1}%, less than 5%"))
    })
}

/// Reason for a precision without an alternative.
fn only_one(device: &DeviceFacts, goal: &Goal) -> (Provenance, String) {
    let asked = goal.pins.precision.or_else(|| goal.precision?.fixed());
    let (provenance, why) = match (asked, goal.precision, device.kind) {
        (Some(_), ..) => (Provenance::Declared, "asked for"),
        (None, None, _) => (Provenance::Derived, "the default on every device; `auto` allows faster formats"),
        (None, Some(_), DeviceKind::Gpu) => (Provenance::Derived, "no 16-bit tensor cores"),
        (None, Some(_), DeviceKind::Cpu) => (Provenance::Derived, "a CPU has no tensor cores"),
    };
    (provenance, why.to_owned())
}

/// Returns true if steps in this precision were timed on this device.
fn is_measured(device: &DeviceFacts, workload: &Workload, goal: &Goal, precision: Precision) -> bool {
    let modes = candidates::modes(device, workload, goal, precision);
    modes.into_iter().any(|mode| baseline::is_timed_here(device, workload, mode))
}

pub(super) fn tf32_reason(device: &DeviceFacts) -> Reason {
    let why = match (device.kind, device.has_tf32) {
        (_, true) => "has TF32 tensor cores; Burn uses them for f32 products when its autotuning finds them faster",
        (DeviceKind::Gpu, false) => "compute capability below 8.0 has no TF32",
        (DeviceKind::Cpu, false) => "a CPU has no TF32",
    };
    Reason { setting: Setting::AllowTf32, provenance: Provenance::Derived, why: why.to_owned() }
}
