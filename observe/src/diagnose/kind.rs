//! Kinds of findings, and how bad they are.

use core::fmt;

use serde::Serialize;

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
