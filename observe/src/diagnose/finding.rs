//! What is found.

use core::fmt;
use std::collections::BTreeMap;

use gpu_tuned_core::{Setting, SettingValue};
use serde::{Serialize, Serializer};

use super::words::{bytes, rate, seconds, whole};

/// What a finding is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// The device waits for the loader, whose workers compute all the time.
    LoaderBound,
    /// The device waits for the loader, whose workers wait for the storage.
    SlowStorage,
    /// Loading and training take turns, though the loader would be fast enough.
    PrefetchMissing,
    /// The loss function holds the host up in every step: it waits for the device, or computes on the host.
    HostSync,
    /// The device idles while the program's own loop does something else between steps.
    SlowLoop,
    /// The host launches kernels more slowly than the device works them off.
    HostBound,
    /// The micro-batch is far below the one that keeps the device busy.
    BatchTooSmall,
    /// What there is to compute does not fill the GPU.
    ModelTooSmall,
    /// f32 on a GPU with bf16 tensor cores.
    NoAmp,
    /// f32 without TF32 on a GPU that has it.
    NoTf32,
    /// Optimizer steps over fewer samples than were asked for.
    NoAccumulation,
    /// Activations are recomputed that would fit.
    NeedlessCheckpointing,
    /// Memory of the device grows from step to step.
    MemoryLeak,
    /// Memory of the host grows.
    HostMemoryLeak,
    /// The pools hold much more than they need.
    Fragmentation,
    /// Power holds the clocks down.
    PowerCap,
    /// Temperature holds the clocks down.
    ThermalThrottle,
    /// The link to the GPU is narrower or slower than it could be.
    PcieReduced,
    /// Another process holds memory of the GPU.
    OtherProcess,
    /// The program was built for another device.
    WrongTarget,
    /// Steps that change nothing, as their gradients are not finite.
    NotFinite,
    /// The GPU idles, and nothing is recorded that says why.
    GpuIdle,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Severity {
    /// Half as fast again without it, or the run will fail.
    Critical,
    /// A tenth faster without it, or the run is not the one that was asked for.
    Warning,
    /// Good to know.
    Hint,
}

/// One thing that is found.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// What it is of.
    pub kind: Kind,
    /// How bad it is.
    pub severity: Severity,
    /// The finding in a line.
    pub headline: String,
    /// What it rests on, in words, with units.
    pub evidence: Vec<String>,
    /// The same as figures; the names have the units.
    pub figures: Figures,
    /// What to do.
    pub change: Change,
    /// What that brings; `None` where nothing in the recording says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prediction: Option<Prediction>,
    /// What has to be mended before this brings what it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<Kind>,
}

/// Figures by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures(BTreeMap<&'static str, f64>);

/// What to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Change {
    /// In words.
    pub what: String,
    /// The settings that it comes to; empty where the change is in the code or the machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<SettingChange>,
    /// A command to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// A setting's other value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SettingChange {
    /// Which.
    pub setting: Setting,
    /// What it was.
    pub from: SettingValue,
    /// What it should be.
    pub to: SettingValue,
}

/// What a change brings; or what comes without it, of a run that will fail.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Prediction {
    /// Of what.
    pub quantity: Quantity,
    /// As it was recorded.
    pub now: f64,
    /// As it will be.
    pub then: f64,
    /// How that was computed.
    pub how: String,
}

/// What is predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Quantity {
    /// Samples per second over all ranks.
    SamplesPerS,
    /// Bytes that the pools hold.
    MemoryBytes,
    /// The optimizer step at which memory runs out, unless something changes.
    FailsAtStep,
    /// Seconds from the end of the recording until memory runs out, unless something changes.
    FailsAfterS,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 22] = [
        Self::LoaderBound,
        Self::SlowStorage,
        Self::PrefetchMissing,
        Self::HostSync,
        Self::SlowLoop,
        Self::HostBound,
        Self::BatchTooSmall,
        Self::ModelTooSmall,
        Self::NoAmp,
        Self::NoTf32,
        Self::NoAccumulation,
        Self::NeedlessCheckpointing,
        Self::MemoryLeak,
        Self::HostMemoryLeak,
        Self::Fragmentation,
        Self::PowerCap,
        Self::ThermalThrottle,
        Self::PcieReduced,
        Self::OtherProcess,
        Self::WrongTarget,
        Self::NotFinite,
        Self::GpuIdle,
    ];

    /// The name in files and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LoaderBound => "loader_bound",
            Self::SlowStorage => "slow_storage",
            Self::PrefetchMissing => "prefetch_missing",
            Self::HostSync => "host_sync",
            Self::SlowLoop => "slow_loop",
            Self::HostBound => "host_bound",
            Self::BatchTooSmall => "batch_too_small",
            Self::ModelTooSmall => "model_too_small",
            Self::NoAmp => "no_amp",
            Self::NoTf32 => "no_tf32",
            Self::NoAccumulation => "no_accumulation",
            Self::NeedlessCheckpointing => "needless_checkpointing",
            Self::MemoryLeak => "memory_leak",
            Self::HostMemoryLeak => "host_memory_leak",
            Self::Fragmentation => "fragmentation",
            Self::PowerCap => "power_cap",
            Self::ThermalThrottle => "thermal_throttle",
            Self::PcieReduced => "pcie_reduced",
            Self::OtherProcess => "other_process",
            Self::WrongTarget => "wrong_target",
            Self::NotFinite => "not_finite",
            Self::GpuIdle => "gpu_idle",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Severity {
    /// Of what makes training so many times as fast.
    pub(super) fn of_gain(gain: f64) -> Self {
        match gain {
            gain if gain >= 1.5 => Self::Critical,
            gain if gain >= 1.1 => Self::Warning,
            _ => Self::Hint,
        }
    }

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Hint => "hint",
        }
    }
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

    /// Adds a line of evidence with its figures.
    pub(super) fn with_evidence<const N: usize>(
        mut self,
        words: impl Into<String>,
        figures: [(&'static str, f64); N],
    ) -> Self {
        self.evidence.push(words.into());
        self.figures.0.extend(figures.into_iter().filter(|(_, figure)| figure.is_finite()));
        self
    }

    /// Adds what it brings.
    pub(super) fn with_prediction(self, prediction: Prediction) -> Self {
        Self { prediction: Some(prediction), ..self }
    }

    /// How many times as fast training is with the change, as predicted; 1 where that is not what is predicted.
    pub fn gain(&self) -> f64 {
        match &self.prediction {
            Some(Prediction { quantity: Quantity::SamplesPerS, now, then, .. }) if *now > 0.0 => then / now,
            _ => 1.0,
        }
    }
}

impl Figures {
    /// The figure with this name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }
}

impl Serialize for Figures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl Change {
    /// A change that settings do not bring about.
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), ..Self::default() }
    }

    /// Settings that bring it about.
    pub(super) fn set(mut self, changes: impl IntoIterator<Item = SettingChange>) -> Self {
        self.settings.extend(changes.into_iter().filter(|change| change.from != change.to));
        self
    }

    /// A command that brings it about.
    pub(super) fn by(self, command: impl Into<String>) -> Self {
        Self { command: Some(command.into()), ..self }
    }

    /// The value of `GPU_TUNED_SET` that brings it about; `None` of a change that is not one of settings.
    pub fn pins(&self) -> Option<String> {
        // What is accumulated follows from the micro-batch: the samples of a step stay the same.
        let pinned = self.settings.iter().filter(|change| change.setting != Setting::GradientAccumulation);
        let pins: Vec<_> = pinned.map(|change| format!("{}={}", change.setting, change.to)).collect();
        (!pins.is_empty()).then(|| pins.join(","))
    }
}

impl Prediction {
    pub(super) fn new(quantity: Quantity, now: f64, then: f64, how: impl Into<String>) -> Self {
        Self { quantity, now, then, how: how.into() }
    }

    /// Whether what came is within a quarter of it.
    pub fn is_hit_by(&self, got: f64) -> bool {
        got > 0.0 && (self.then / got - 1.0).abs() <= Self::TOLERANCE
    }

    /// How far off a prediction may be.
    pub const TOLERANCE: f64 = 0.25;
}

impl Quantity {
    /// The amount with its unit.
    pub fn in_words(self, amount: f64) -> String {
        match self {
            Self::SamplesPerS => rate(amount),
            Self::MemoryBytes => bytes(amount),
            Self::FailsAtStep => format!("step {}", whole(amount)),
            Self::FailsAfterS => seconds(amount),
        }
    }
}
