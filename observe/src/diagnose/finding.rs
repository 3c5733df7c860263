//! A finding: kind, severity, evidence, a change, and the predicted effect.

use std::collections::BTreeMap;
use std::fmt;

use gpu_tuned_core::{Bytes, Setting, SettingValue, grouped, three_digits};
use serde::Serialize;

/// One thing that limits or endangers a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The kind.
    pub kind: Kind,
    /// The severity.
    pub severity: Severity,
    /// The finding in a line.
    pub headline: String,
    /// Evidence from the recording, in words with units.
    pub evidence: Vec<String>,
    /// The evidence as figures; their names end in units.
    pub figures: Figures,
    /// The change to make.
    pub change: Change,
    /// The predicted effect of the change; `None` where the recording gives no basis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prediction: Option<Prediction>,
    /// A finding whose change has to come first before this one has its effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<Kind>,
}

/// Figures by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Figures(BTreeMap<&'static str, f64>);

/// A change to a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Change {
    /// A description.
    pub what: String,
    /// Settings to change; empty for a change to code or machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<SettingChange>,
    /// A command to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// Another value of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SettingChange {
    /// The setting.
    pub setting: Setting,
    /// The recorded value.
    pub from: SettingValue,
    /// The proposed value.
    pub to: SettingValue,
}

/// The predicted effect of a change; of a run that will fail, the failure without the change.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Prediction {
    /// The predicted quantity.
    pub quantity: Quantity,
    /// The recorded amount.
    pub now: f64,
    /// The predicted amount.
    pub then: f64,
    /// The computation in words.
    pub how: String,
}

/// A predicted quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Quantity {
    /// Samples per second over all ranks.
    SamplesPerS,
    /// Bytes that the pools reserve.
    MemoryBytes,
    /// The optimizer step at which memory runs out, unless something changes.
    FailsAtStep,
    /// Seconds from the end of the recording until memory runs out, unless something changes.
    FailsAfterS,
}

impl Finding {
    pub(super) fn new(kind: Kind, severity: Severity, headline: impl Into<String>, change: Change) -> Self {
        Self {
            kind,
            severity,
            headline: headline.into(),
            evidence: Vec::new(),
            figures: Figures::default(),
            change,
            prediction: None,
            behind: None,
        }
    }

    /// Adds a line of evidence with its figures. Figures that are not finite are left out.
    pub(super) fn with_evidence<const N: usize>(
        mut self,
        words: impl Into<String>,
        figures: [(&'static str, f64); N],
    ) -> Self {
        self.evidence.push(words.into());
        self.figures.0.extend(figures.into_iter().filter(|(_, figure)| figure.is_finite()));
        self
    }

    /// Adds the busy cores of the host, and all, where they are known.
    pub(super) fn with_busy_cores(self, cores: Option<(f64, f64)>) -> Self {
        let Some((busy, all)) = cores else { return self };
        let words = format!("the program keeps {busy:.1} of {all:.0} CPU cores busy");
        self.with_evidence(words, [("busy_cores", busy), ("cores", all)])
    }

    pub(super) fn with_prediction(self, prediction: impl Into<Option<Prediction>>) -> Self {
        Self { prediction: prediction.into(), ..self }
    }

    /// Returns the predicted speed-up of the change as a factor; 1 where the prediction is not of speed.
    pub fn gain(&self) -> f64 {
        match &self.prediction {
            Some(Prediction { quantity: Quantity::SamplesPerS, now, then, .. }) if *now > 0.0 => then / now,
            _ => 1.0,
        }
    }
}

impl Figures {
    /// Returns the figure with this name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }
}

impl Change {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), ..Self::default() }
    }

    /// Adds settings; those that keep their value are left out.
    pub(super) fn set(mut self, changes: impl IntoIterator<Item = SettingChange>) -> Self {
        self.settings.extend(changes.into_iter().filter(|change| change.from != change.to));
        self
    }

    /// Adds a command that makes the change, or shows more.
    pub(super) fn by(self, command: impl Into<String>) -> Self {
        Self { command: Some(command.into()), ..self }
    }

    /// Returns the value of `GPU_TUNED_SET` that makes the change; `None` without settings.
    pub fn pins(&self) -> Option<String> {
        // The accumulation follows from the micro-batch: the samples of a step stay the same.
        let pinned = self.settings.iter().filter(|change| change.setting != Setting::GradientAccumulation);
        let pins: Vec<_> = pinned.map(|change| format!("{}={}", change.setting, change.to)).collect();
        (!pins.is_empty()).then(|| pins.join(","))
    }
}

impl Prediction {
    /// Relative error up to which a prediction is a hit.
    pub const TOLERANCE: f64 = 0.25;

    pub(super) fn new(quantity: Quantity, now: f64, then: f64, how: impl Into<String>) -> Self {
        Self { quantity, now, then, how: how.into() }
    }

    /// Returns the severity that follows from a predicted speed-up.
    pub(super) fn severity(&self) -> Severity {
        Severity::from_gain(self.then / self.now)
    }

    /// Returns whether the prediction is within a quarter of the measured amount.
    pub fn is_hit_by(&self, measured: f64) -> bool {
        measured > 0.0 && (self.then / measured - 1.0).abs() <= Self::TOLERANCE
    }
}

impl Quantity {
    /// Formats an amount with its unit.
    pub fn describe(self, amount: f64) -> String {
        match self {
            Self::SamplesPerS => rate(amount),
            Self::MemoryBytes => bytes(amount),
            Self::FailsAtStep => format!("step {}", whole(amount)),
            Self::FailsAfterS => seconds(amount),
        }
    }
}

/// Declares the kinds with their names in files and JSON.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// A kind of finding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[non_exhaustive]
        pub enum Kind {
            $($(#[$doc])* #[serde(rename = $name)] $kind,)*
        }

        impl Kind {
            /// All kinds.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$kind),*];

            /// Returns the name in files and JSON.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }
    };
}

kinds! {
    /// The device waits for the loader, whose workers compute all the time.
    LoaderBound = "loader_bound",
    /// The device waits for the loader, whose workers wait for storage.
    SlowStorage = "slow_storage",
    /// Loading and training take turns, though the loader would be fast enough.
    PrefetchMissing = "prefetch_missing",
    /// The loss function blocks the host in every step: it waits for the device, or computes on the host.
    HostSync = "host_sync",
    /// The device idles while the program's own loop works between steps.
    SlowLoop = "slow_loop",
    /// The host launches kernels more slowly than the device runs them.
    HostBound = "host_bound",
    /// The micro-batch is far below the size that keeps the device busy.
    BatchTooSmall = "batch_too_small",
    /// The work does not fill the GPU.
    ModelTooSmall = "model_too_small",
    /// fp32 on a GPU with bf16 tensor cores.
    NoAmp = "no_amp",
    /// fp32 without TF32 on a GPU that has TF32.
    NoTf32 = "no_tf32",
    /// Burn's kernels on a GPU, for a network that is faster with the library's.
    NoLibrary = "no_library",
    /// Optimizer steps over fewer samples than the global batch.
    NoAccumulation = "no_accumulation",
    /// Activation checkpointing where the activations would fit.
    NeedlessCheckpointing = "needless_checkpointing",
    /// Device memory grows from step to step.
    MemoryLeak = "memory_leak",
    /// Host memory grows.
    HostMemoryLeak = "host_memory_leak",
    /// The pools reserve much more than the step needs.
    Fragmentation = "fragmentation",
    /// The SM clocks are low, and neither power nor heat lowers them: they were set, or the GPU stays in a low state.
    LowClocks = "low_clocks",
    /// The memory clock is low.
    LowMemoryClock = "low_memory_clock",
    /// Power lowers the clocks.
    PowerCap = "power_cap",
    /// Temperature lowers the clocks.
    ThermalThrottle = "thermal_throttle",
    /// The PCIe link is narrower or slower than possible.
    PcieReduced = "pcie_reduced",
    /// Another process uses memory of the GPU.
    OtherProcess = "other_process",
    /// One of several ranks takes longer for its part of a step than the others.
    SlowRank = "slow_rank",
    /// The program was built without feature `cuda`.
    NoCuda = "no_cuda",
    /// The program was built for another device.
    WrongTarget = "wrong_target",
    /// Steps are skipped because their gradients are not finite.
    NotFinite = "not_finite",
    /// The GPU idles, and the recording does not show why.
    GpuIdle = "gpu_idle",
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The severity of a finding, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Severity {
    /// The change makes training at least 1.5 times as fast, or the run will fail without it.
    Critical,
    /// The change makes training at least 1.1 times as fast, or the run is not the requested one.
    Warning,
    /// Worth knowing.
    Hint,
}

impl Severity {
    /// Returns the severity of a finding whose change makes training `gain` times as fast.
    pub(super) fn from_gain(gain: f64) -> Self {
        match gain {
            gain if gain >= 1.5 => Self::Critical,
            gain if gain >= 1.1 => Self::Warning,
            _ => Self::Hint,
        }
    }

    /// Returns the name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Hint => "hint",
        }
    }
}

/// Formats a duration in a readable unit.
pub(super) fn seconds(amount: f64) -> String {
    match amount {
        s if s >= 172_800.0 => format!("{:.0} days", s / 86_400.0),
        s if s >= 7200.0 => format!("{:.1} hours", s / 3600.0),
        s if s >= 120.0 => format!("{:.0} min", s / 60.0),
        s if s >= 1.0 => format!("{} s", three_digits(s)),
        s if s >= 1e-3 => format!("{} ms", three_digits(s * 1e3)),
        s => format!("{} us", three_digits(s * 1e6)),
    }
}

pub(super) fn rate(amount: f64) -> String {
    format!("{} samples/s", three_digits(amount))
}

pub(super) fn bytes(amount: f64) -> String {
    Bytes(amount.max(0.0) as u64).to_string()
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

pub(super) fn whole(amount: f64) -> String {
    grouped(amount.max(0.0).round() as u64)
}

pub(super) fn times(factor: f64) -> String {
    format!("{} times", three_digits(factor))
}

#[cfg(test)]
mod tests {
    use super::{rate, seconds};

    #[test]
    fn amounts_keep_three_digits() {
        for (amount, text) in [
            (0.000_045_6, "45.6 us"),
            (0.001_234, "1.23 ms"),
            (0.1, "100 ms"),
            (1.5, "1.50 s"),
            (119.0, "119 s"),
            (600.0, "10 min"),
            (9000.0, "2.5 hours"),
            (1e6, "12 days"),
        ] {
            assert_eq!(seconds(amount), text);
        }
        assert_eq!([rate(12_345.6), rate(9.5)], ["12,346 samples/s", "9.50 samples/s"]);
    }
}
