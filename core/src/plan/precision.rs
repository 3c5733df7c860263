//! Comparison of precisions.

use core::fmt;

use serde::Serialize;

use super::Reason;
use super::search::{Candidates, Search};
use super::time::{SpeedError, speed_interval};
use crate::device::DeviceKind;
use crate::{Bytes, Precision, Provenance, Setting};

/// Smallest gain in throughput for which 16 bits are worth their rounding, as a fraction.
const WORTHWHILE_GAIN: f64 = 0.05;

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
    /// What the interval is the error of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples_per_s_error: Option<SpeedError>,
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
    /// The plan.
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

/// Compares fp32 with mixed precision, and returns the precision to take with the reason; `None` if neither fits.
pub(super) fn compare(f32: &Candidates, mixed: &Candidates) -> Option<(Precision, Provenance, String)> {
    let (plain, half) = (f32.precision, mixed.precision);
    let derived = |precision, why: String| Some((precision, Provenance::Derived, why));
    let (slow, fast) = match (&f32.choice, &mixed.choice) {
        (None, None) => return None,
        (Some(_), None) => return derived(plain, format!("{half} does not fit")),
        (None, Some(_)) => return derived(half, format!("{plain} does not fit")),
        (Some(slow), Some(fast)) => (slow, fast),
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
    if fast.least_samples > slow.least_samples {
        return derived(half, format!("{plain} fits too few samples for batch statistics"));
    }
    let gain = fast.best.counted_per_s / slow.best.counted_per_s - 1.0;
    let provenance = slow.best.provenance.max(fast.best.provenance);
    let percent = gain * 100.0;
    Some(if gain >= WORTHWHILE_GAIN {
        (half, provenance, format!("{percent:.0}% more samples/s than {plain}"))
    } else if provenance > Provenance::Transferred && percent < 0.05 {
        (plain, provenance, format!("no gain of {half} is known for this kind of network: measure"))
    } else if percent < 0.05 {
        (plain, provenance, format!("{half} is no faster"))
    } else {
        (plain, provenance, format!("{half} gains only {percent:.1}%, less than 5%"))
    })
}

/// Returns the precisions that were compared, each with its verdict.
pub(super) fn considered(search: &Search<'_>) -> Vec<ConsideredPrecision> {
    let (device, all, taken) = (search.problem.device, &search.precisions, search.taken());
    let judged = |found: &Candidates| {
        let best = found.best();
        let verdict = match (best, taken.best().map(|best| best.counted_per_s)) {
            _ if found.precision == taken.precision => PrecisionVerdict::Taken,
            (None, _) => PrecisionVerdict::DoesNotFit,
            _ if !found.is_measured && all.iter().any(|other| other.is_measured) => PrecisionVerdict::NotMeasured,
            (Some(own), Some(other)) if taken.precision == Precision::F32 => {
                PrecisionVerdict::LittleGain { by: own.counted_per_s / other - 1.0 }
            }
            (Some(own), other) => {
                PrecisionVerdict::Slower { by: other.map_or(0.0, |other| 1.0 - own.counted_per_s / other) }
            }
        };
        let error = best.and_then(|best| best.speed_error(device));
        ConsideredPrecision {
            precision: found.precision,
            batch_size: best.map(|best| best.split.batch),
            memory: best.map(|best| best.memory.total()),
            samples_per_s: best.map(|best| best.samples_per_s),
            samples_per_s_interval: best.and_then(|best| speed_interval(device, best.samples_per_s, error)),
            samples_per_s_error: error,
            provenance: best.map(|best| best.provenance),
            verdict,
        }
    };
    all.iter().map(judged).collect()
}

/// Returns the reason for the precision of the plan.
pub(super) fn reason(search: &Search<'_>) -> Reason {
    let (goal, kind) = (search.problem.goal, search.problem.device.kind);
    let asked = goal.pins.precision.or_else(|| goal.precision?.fixed());
    let (provenance, why) = match (&search.comparison, asked, goal.precision, kind) {
        (Some((provenance, why)), ..) => (*provenance, why.as_str()),
        (None, Some(_), ..) => (Provenance::Declared, "asked for"),
        (None, None, None, _) => (Provenance::Derived, "the default on every device; `auto` allows faster formats"),
        (None, None, Some(_), DeviceKind::Gpu) => (Provenance::Derived, "no 16-bit tensor cores"),
        (None, None, Some(_), DeviceKind::Cpu) => (Provenance::Derived, "a CPU has no tensor cores"),
    };
    Reason { setting: Setting::Precision, provenance, why: why.to_owned() }
}
