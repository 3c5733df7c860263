use std::fmt;
use std::path::{Path, PathBuf};

#[cfg(feature = "burn")]
use gpu_tuned_core::device::DeviceFacts;
#[cfg(feature = "burn")]
use gpu_tuned_core::matching::identify;
use gpu_tuned_core::plan::{Plan, Schedule};
use gpu_tuned_core::workload::Workload;
#[cfg(feature = "burn")]
use gpu_tuned_project::resolved::Resolved;
use serde::{Serialize, Serializer};

use crate::decide::Decision;
use crate::detect::Machine;
use crate::saved::{SaveError, SavedRun};
use crate::selection::Selection;
use crate::tuned::Tuned;
use gpu_tuned_observe::recording::Recorder;

/// A training run that may begin: the config with its final values, the device, and why they are what they are.
///
/// Prints as a report of some thirty lines; serializes as its [`Decision`].
#[derive(Clone, Debug)]
pub struct Session<C> {
    pub(crate) config: C,
    pub(crate) decision: Decision,
    #[cfg_attr(not(feature = "burn"), expect(dead_code, reason = "there is no device without Burn"))]
    pub(crate) opened: Opened,
    /// What it was decided for.
    #[cfg_attr(not(feature = "burn"), expect(dead_code, reason = "it is part of what is measured with Burn"))]
    pub(crate) machine: Machine,
    /// What records it.
    pub(crate) recorder: Option<Recorder>,
    /// What its loader and its trainer see.
    #[cfg(feature = "burn")]
    pub(crate) course: crate::course::Course,
    /// What its strategy did.
    #[cfg(feature = "train")]
    pub(crate) record: crate::train::metrics::Record,
}

/// The devices of a session; there are none without Burn.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    /// One for each GPU, or the CPU.
    #[cfg(feature = "burn")]
    pub(crate) devices: Vec<burn::tensor::Device>,
    /// The GPUs among them as they were found; none on the CPU.
    #[cfg(feature = "cuda")]
    pub(crate) gpus: Vec<crate::burn::OpenGpu>,
    /// How the caches were found.
    #[cfg(feature = "warm")]
    pub(crate) warm: crate::warm::WarmStart,
}

impl<C> Session<C> {
    /// The config, with the planned values in its tuned fields.
    pub fn config(&self) -> &C {
        &self.config
    }

    /// Which device was taken, and how it differs from the one that the build was for.
    pub fn selection(&self) -> &Selection {
        &self.decision.selection
    }

    /// The settings with their reasons, and the memory they take.
    pub fn plan(&self) -> &Plan {
        &self.decision.plan
    }

    /// How an optimizer step is made of micro-batches.
    pub fn schedule(&self) -> &Schedule {
        &self.decision.plan.schedule
    }

    /// What a training step costs.
    pub fn workload(&self) -> &Workload {
        &self.decision.workload
    }

    /// What records the session; `None` where nothing does: see [`recording`](crate::recording).
    pub fn recorder(&self) -> Option<&Recorder> {
        self.recorder.as_ref()
    }

    /// Records a figure of the program's own, such as `valid/loss`, of this moment; nothing where nothing is recorded.
    pub fn value(&self, name: &str, value: f64) {
        if let Some(recorder) = &self.recorder {
            recorder.value(name, value);
        }
    }
}

impl<C: Tuned> Session<C> {
    /// Saves the plan in `directory`, beside the checkpoints, as [`SavedRun::FILE_NAME`], and returns the file's path.
    ///
    /// A later start goes on with it through [`Options::resume`](crate::Options::resume). What is to be saved is known as
    /// soon as the session is: once, before the first checkpoint, is enough.
    ///
    /// # Errors
    ///
    /// [`SaveError`]; a run that was saved there before is then as it was.
    pub fn save(&self, directory: impl AsRef<Path>) -> Result<PathBuf, SaveError> {
        SavedRun::new(&self.config, &self.decision).save(directory)
    }
}

#[cfg(feature = "burn")]
impl<C: Tuned> Session<C> {
    /// What is known of the device.
    pub(crate) fn facts(&self) -> DeviceFacts {
        let host = &self.machine.host;
        let Some(gpu) = &self.selection().gpu else {
            return DeviceFacts::cpu(host.memory_total, host.memory_available, host.cores);
        };
        let table = C::BUILT.table.and_then(|table| Resolved::from_toml(table).ok());
        let profiles = table.map(|table| table.profile).unwrap_or_default();
        let facts = DeviceFacts::from_reading(gpu, identify(gpu, &profiles).profile(), Some(host.cores));
        facts.expect("BUG: the session was planned for its memory")
    }
}

#[cfg(feature = "burn")]
impl<C> Session<C> {
    /// The device, open, with autodiff, and with gradient checkpointing where it is planned: initialise the model that
    /// is trained on it.
    ///
    /// With several GPUs it is the first of [`devices`](Self::devices).
    pub fn device(&self) -> burn::tensor::Device {
        self.to_train(self.first())
    }

    /// The devices of this process's ranks, each as [`device`](Self::device) is: what
    /// [`Options::gpus`](crate::Options::gpus) asked for, or the one device.
    pub fn devices(&self) -> Vec<burn::tensor::Device> {
        self.opened.devices.iter().map(|device| self.to_train(device)).collect()
    }

    fn to_train(&self, device: &burn::tensor::Device) -> burn::tensor::Device {
        let device = device.clone().autodiff();
        if self.decision.plan.settings.gradient_checkpointing { device.gradient_checkpointing() } else { device }
    }

    fn first(&self) -> &burn::tensor::Device {
        self.opened.devices.first().expect("BUG: a session has a device")
    }

    /// The same hardware without autodiff, for batches and for evaluation.
    pub fn inner_device(&self) -> burn::tensor::Device {
        self.first().clone()
    }

    /// Finds out what the device does with f32 matrix products of the workload's dominant shape.
    ///
    /// `None` when the workload names no dominant product. Where [`Settings::allow_tf32`](crate::Settings::allow_tf32) is
    /// true, tuning decides for each shape whether TF32 is used; where false was asked for, TF32 is switched
    /// off. See [`probe`](crate::burn::probe).
    pub fn probe_tf32(&self) -> Option<Result<crate::burn::MatmulProbe, crate::burn::ProbeError>> {
        let product = self.decision.workload.dominant_product?;
        let size = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        let shape = crate::burn::Gemm {
            m: size(product.rows_per_sample.saturating_mul(self.decision.plan.settings.batch_size)),
            k: size(product.inner),
            n: size(product.columns),
        };
        Some(crate::burn::probe(self.first(), shape))
    }
}

impl<C> fmt::Display for Session<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.decision.fmt(f)?;
        #[cfg(feature = "warm")]
        if !self.selection().gpus.is_empty() {
            write!(f, "\nwarm start: {}", self.opened.warm)?;
        }
        Ok(())
    }
}

impl<C> Serialize for Session<C> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.decision.serialize(serializer)
    }
}
