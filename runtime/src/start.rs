use std::time::Instant;

use gpu_tuned_core::plan::PlanError;
use gpu_tuned_core::resolved::ResolvedError;
use thiserror::Error;

use crate::decide::{DecideError, Decision, Wanted, decide};
use crate::detect::{Machine, first_look};
use crate::selection::Fallback;
use crate::session::{Device, Session};
use crate::tuned::Tuned;

/// Looks at the machine, confirms the constants of the build or plans anew, and opens the device.
///
/// The same as [`Options::start`] with default options.
///
/// # Errors
///
/// See [`StartError`].
pub fn start<C: Tuned>(config: C) -> Result<Session<C>, StartError> {
    Options::default().start(config)
}

/// How to start.
#[derive(Clone, Debug, Default)]
pub struct Options {
    strict: bool,
    gpu: Option<usize>,
    cpu: bool,
    machine: Option<Machine>,
}

/// Why a session could not be started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The table in the binary cannot be read.
    #[error(transparent)]
    Table(#[from] ResolvedError),
    /// There is no plan for this device: most often, not even one sample at a time fits.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A field of the config holds a dimension that no model has.
    #[error("the config describes no model: {message}")]
    Dimensions {
        /// The dimension and its range.
        message: String,
    },
    /// Strict mode: the constants of the build cannot be used as they are.
    #[error(
        "strict mode, and the constants of the build (for {built_for}) do not hold here: {}",
        fallbacks.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    )]
    Strict {
        /// What the build was for.
        built_for: String,
        /// Why its constants do not hold.
        fallbacks: Vec<Fallback>,
    },
    /// The CPU does not take the planned precision.
    #[cfg(feature = "burn")]
    #[error(transparent)]
    Open(#[from] crate::burn::OpenError),
}

impl From<DecideError> for StartError {
    fn from(error: DecideError) -> Self {
        match error {
            DecideError::Table(error) => Self::Table(error),
            DecideError::Plan(error) => Self::Plan(error),
            DecideError::Dimensions(message) => Self::Dimensions { message },
        }
    }
}

impl Options {
    /// The environment variable that switches strict mode on, with the value `1`.
    pub const STRICT_VARIABLE: &'static str = "GPU_TUNED_STRICT";

    /// Whether any fallback is an error. Off, unless [`STRICT_VARIABLE`](Self::STRICT_VARIABLE) is `1`.
    #[must_use]
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Which GPU to take, counting from 0 in CUDA's order. Without this, the first that is of the kind the build is for;
    /// if there is none, the first.
    #[must_use]
    pub fn gpu(mut self, index: usize) -> Self {
        self.gpu = Some(index);
        self
    }

    /// Takes the CPU, whatever GPUs there are.
    #[must_use]
    pub fn cpu(mut self) -> Self {
        self.cpu = true;
        self
    }

    /// Decides for this machine instead of the one of the process's first look.
    #[must_use]
    pub fn machine(mut self, machine: Machine) -> Self {
        self.machine = Some(machine);
        self
    }

    /// Decides what [`start`](Self::start) would do if Burn could open the device, and opens nothing.
    ///
    /// # Errors
    ///
    /// See [`StartError`].
    pub fn decide<C: Tuned>(&self, config: &C) -> Result<Decision, StartError> {
        let machine = self.seen();
        let begin = Instant::now();
        let decision = decide(config, machine, self.wanted(machine))?;
        tracing::debug!(elapsed = ?begin.elapsed(), "decided");
        self.refuse_fallbacks(&decision)?;
        Ok(decision)
    }

    /// Looks at the machine, confirms the constants of the build or plans anew, and opens the device.
    ///
    /// The machine is looked at once in a process: what this process holds itself is not somebody else's later on.
    ///
    /// # Errors
    ///
    /// See [`StartError`].
    pub fn start<C: Tuned>(&self, mut config: C) -> Result<Session<C>, StartError> {
        let mut decision = match without_cuda(self.seen()) {
            Some(cpu) => decide(&config, self.seen(), cpu)?,
            None => self.decide(&config)?,
        };
        self.refuse_fallbacks(&decision)?;
        let device = self.open(&config, &mut decision)?;
        let selection = &decision.selection;
        for fallback in &selection.fallbacks {
            tracing::warn!(built_for = %selection.built_for, "{fallback}");
        }
        tracing::info!("{selection}");
        config.apply(&decision.plan.settings);
        Ok(Session { config, decision, device })
    }

    fn seen(&self) -> &Machine {
        self.machine.as_ref().unwrap_or_else(|| first_look())
    }

    /// The GPU that is asked for, or the CPU and why.
    fn wanted(&self, machine: &Machine) -> Wanted {
        if self.cpu {
            return Wanted::Cpu { because: vec!["the CPU was asked for".to_owned()] };
        }
        match (machine.gpus.len(), self.gpu) {
            (0, _) => Wanted::Cpu { because: machine.trouble.clone() },
            (_, None) => Wanted::Best,
            (count, Some(index)) if index < count => Wanted::Gpu(index),
            (count, Some(index)) => {
                Wanted::Cpu { because: vec![format!("GPU {index} was asked for and there are {count}")] }
            }
        }
    }

    fn refuse_fallbacks(&self, decision: &Decision) -> Result<(), StartError> {
        let strict = self.strict || std::env::var_os(Self::STRICT_VARIABLE).is_some_and(|value| value == "1");
        let selection = &decision.selection;
        if !strict || selection.fallbacks.is_empty() {
            return Ok(());
        }
        Err(StartError::Strict { built_for: selection.built_for.clone(), fallbacks: selection.fallbacks.clone() })
    }

    /// Opens the decided device; when the GPU does not open, decides for the CPU and says why.
    #[cfg(feature = "burn")]
    fn open<C: Tuned>(&self, config: &C, decision: &mut Decision) -> Result<Device, StartError> {
        use crate::burn::{Place, cpu, default_float, open};

        if let Some(gpu) = &decision.selection.gpu {
            let machine = self.seen();
            let place = Place::of(gpu, machine.gpus.len() == 1);
            match open(&place, float(decision)) {
                Ok(opened) => return Ok(opened.device),
                Err(error) => {
                    *decision = decide(config, machine, Wanted::Cpu { because: vec![error.to_string()] })?;
                    self.refuse_fallbacks(decision)?;
                }
            }
        }
        let device = cpu();
        if let Some(float) = float(decision) {
            default_float(&device, float)?;
        }
        Ok(device)
    }

    #[cfg(not(feature = "burn"))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "the signature is that of the version with Burn")]
    fn open<C: Tuned>(&self, _: &C, _: &mut Decision) -> Result<Device, StartError> {
        Ok(Device)
    }
}

/// The CPU, for programs whose Burn has no CUDA.
fn without_cuda(machine: &Machine) -> Option<Wanted> {
    if cfg!(any(not(feature = "burn"), feature = "cuda")) {
        return None;
    }
    let missing = "this program is built without feature `cuda`".to_owned();
    Some(Wanted::Cpu { because: core::iter::once(missing).chain(machine.trouble.first().cloned()).collect() })
}

/// The default float type that the planned precision needs; `None` for Burn's own, f32.
#[cfg(feature = "burn")]
fn float(decision: &Decision) -> Option<burn::tensor::FloatDType> {
    let bf16 = decision.plan.settings.precision == gpu_tuned_core::Precision::Bf16Params;
    bf16.then_some(burn::tensor::FloatDType::BF16)
}
