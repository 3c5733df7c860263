//! Pairs of GPUs with a published and a predicted ratio of speeds.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use gpu_tuned_core::Precision;
use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::measured::Mode;
use gpu_tuned_core::plan::relative_speed;
use gpu_tuned_core::profile::{Profile, ProfileTable};

use super::published::Series;

/// Published ratios nearer to 1 have no order.
const SAME: f64 = 1.1;

/// Two GPUs in one series, with the logarithms of their ratios of speed.
pub(super) struct Pair<'a> {
    pub series: &'a Series,
    pub gpus: [&'a str; 2],
    /// GPUs that trained in fp32 and in TF32.
    pub is_mixed: bool,
    pub published: f64,
    pub predicted: f64,
    /// By the peaks of the number format alone.
    pub by_peak: f64,
    /// By the square root of peak and bandwidth.
    pub by_root: f64,
    /// Ratio of the rates of matrix products.
    pub compute: f64,
    /// Ratio of the bandwidths.
    pub memory: f64,
}

/// Agreement of predicted with published ratios.
pub(super) struct Agreement {
    pub pairs: usize,
    /// Share of the pairs that differ by over 10% and are ordered right, 0 to 1.
    pub ordered: f64,
    /// Factor between the ratios: the median.
    pub median: f64,
    /// Factor between the ratios: the 90th percentile.
    pub worst_tenth: f64,
}

impl<'a> Pair<'a> {
    /// All pairs within each series, and those of fp32 and TF32 in one workload and software.
    pub(super) fn all(series: &'a [Series]) -> Result<Vec<Self>> {
        let mut pairs = Vec::new();
        for one in series {
            let gpus: Vec<_> = one.speeds.iter().collect();
            for (index, first) in gpus.iter().enumerate() {
                for second in &gpus[index + 1..] {
                    pairs.push(Self::new(one, [(one, *first), (one, *second)])?);
                }
            }
            let is_same = |other: &&Series| {
                (&other.workload, &other.framework) == (&one.workload, &one.framework) && other.format == "tf32"
            };
            for other in series.iter().filter(is_same).filter(|_| one.format == "fp32") {
                for first in one.speeds.iter().filter(|(gpu, _)| !facts(gpu).is_ok_and(|facts| facts.has_tf32)) {
                    for second in &other.speeds {
                        pairs.push(Self::new(one, [(one, first), (other, second)])?);
                    }
                }
            }
        }
        Ok(pairs)
    }

    fn new(series: &'a Series, of: [(&Series, (&'a String, &f64)); 2]) -> Result<Self> {
        let [(first, (gpu, speed)), (second, (other, other_speed))] = of;
        let (device, there) = (facts(gpu)?, facts(other)?);
        let is_mixed = first.format != second.format;
        let mode = mode(if is_mixed { "tf32" } else { &first.format });
        let ratio = |here: Option<f64>, there: Option<f64>| Some((here? / there?).ln());
        let figure = |ratio: Option<f64>| ratio.with_context(|| format!("{gpu} or {other} lacks a figure"));
        let memory = figure(ratio(device.bandwidth_gb_s, there.bandwidth_gb_s))?;
        let by_peak = figure(ratio(peak(gpu, &first.format), peak(other, &second.format)))?;
        Ok(Self {
            series,
            gpus: [gpu, other],
            is_mixed,
            published: (speed / other_speed).ln(),
            predicted: figure(relative_speed(&device, &there, mode))?.ln(),
            by_peak,
            by_root: f64::midpoint(by_peak, memory),
            compute: figure(ratio(device.rates.product_rate(mode), there.rates.product_rate(mode)))?,
            memory,
        })
    }

    /// Factor between the published and the predicted ratio, at least 1.
    pub(super) fn error(&self) -> f64 {
        (self.published - self.predicted).abs().exp()
    }

    /// Returns true if the published speeds differ by over 10%.
    pub(super) fn is_different(&self) -> bool {
        self.published.abs() > SAME.ln()
    }
}

impl Agreement {
    /// Agreement of `predicted` ratios, given as logarithms; `None` without pairs that differ.
    pub(super) fn new<'a>(
        pairs: impl IntoIterator<Item = &'a Pair<'a>>,
        predicted: impl Fn(&Pair<'_>) -> f64,
    ) -> Option<Self> {
        let pairs: Vec<_> = pairs.into_iter().collect();
        let different: Vec<_> = pairs.iter().filter(|pair| pair.is_different()).collect();
        let ordered = different.iter().filter(|pair| (pair.published > 0.0) == (predicted(pair) > 0.0)).count();
        let mut errors: Vec<f64> = pairs.iter().map(|pair| (pair.published - predicted(pair)).abs().exp()).collect();
        errors.sort_by(f64::total_cmp);
        let at = |share: f64| errors.get((errors.len() as f64 * share) as usize).copied();
        (!different.is_empty()).then_some(Self {
            pairs: pairs.len(),
            ordered: ordered as f64 / different.len() as f64,
            median: at(0.5)?,
            worst_tenth: at(0.9)?,
        })
    }
}

/// Exponent of the ratio of matrix-product rates that fits the pairs best: least squares of the logarithms.
pub(super) fn fitted_share<'a>(pairs: impl IntoIterator<Item = &'a Pair<'a>>) -> f64 {
    let sums = pairs.into_iter().fold([0.0, 0.0], |[above, below], pair| {
        let apart = pair.compute - pair.memory;
        [above + (pair.published - pair.memory) * apart, below + apart * apart]
    });
    sums[0] / sums[1]
}

/// Mode of a number format of the data.
fn mode(format: &str) -> Mode {
    let precision = match format {
        "fp16" => Precision::MixedF16,
        "bf16" => Precision::MixedBf16,
        _ => Precision::F32,
    };
    Mode { full_f32: format == "fp32", ..Mode::new(precision, false) }
}

fn profile(gpu: &str) -> Result<&'static Profile> {
    ProfileTable::builtin().get(gpu).with_context(|| format!("there is no profile `{gpu}`"))
}

fn facts(gpu: &str) -> Result<DeviceFacts> {
    Ok(DeviceFacts::nominal(profile(gpu)?))
}

/// Peak in a number format, or fp32's where the profile has none; 10^12 operations per second.
fn peak(gpu: &str, format: &str) -> Option<f64> {
    let peaks = &profile(gpu).ok()?.peaks;
    let named: BTreeMap<_, _> =
        [("tf32", &peaks.tf32), ("fp16", &peaks.fp16), ("bf16", &peaks.bf16)].into_iter().collect();
    let own = named.get(format).copied().and_then(Option::as_ref);
    own.or(peaks.fp32.as_ref()).map(|peak| peak.tflops)
}
