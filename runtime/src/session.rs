//! Sessions: the config with its final values, the device, and what they are used for.

#[cfg(feature = "burn")]
mod training;

use std::fmt;
#[cfg(feature = "distributed")]
use std::ops::Range;
use std::path::{Path, PathBuf};

#[cfg(feature = "burn")]
use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan::{Plan, Schedule};
use gpu_tuned_core::workload::Workload;
#[cfg(feature = "warm")]
use gpu_tuned_measure::warm::WarmStart;
use gpu_tuned_nvml::Machine;
use gpu_tuned_observe::recording::Recorder;
#[cfg(feature = "burn")]
use gpu_tuned_train::device::{Gemm, MatmulProbe, OpenGpu, ProbeError, probe};
#[cfg(feature = "distributed")]
use gpu_tuned_train::load::Share;
#[cfg(feature = "burn")]
use gpu_tuned_train::timing::StepInstrumentation;
#[cfg(feature = "train")]
use gpu_tuned_train::train::metrics::StepHistory;
use serde::{Serialize, Serializer};

use crate::decide::Decision;
#[cfg(feature = "distributed")]
use crate::ranks::{Connection, RanksError};
use crate::saved::{SaveError, SavedRun};
use crate::selection::Selection;
use crate::tuned::Tuned;

/// Training run that may begin: the config with its final values, the device, and the reasons.
///
/// Displays a report of about thirty lines; serializes as its [`Decision`].
#[derive(Clone, Debug)]
pub struct Session<C> {
    pub(crate) config: C,
    pub(crate) decision: Decision,
    #[cfg_attr(not(feature = "burn"), expect(dead_code, reason = "there is no device without Burn"))]
    pub(crate) opened: Opened,
    /// Machine that the session was decided for.
    #[cfg_attr(not(feature = "burn"), expect(dead_code, reason = "measurements need Burn"))]
    pub(crate) machine: Machine,
    /// Connection to the other ranks, if this process was launched as one of several.
    #[cfg_attr(not(feature = "burn"), expect(dead_code, reason = "steps need Burn"))]
    pub(crate) ranks: Option<Connection>,
    /// True if a model that is not ready for 16 bits starts the program again.
    #[cfg(feature = "burn")]
    pub(crate) restarts: bool,
    /// True if progress lines are shown.
    #[cfg(feature = "burn")]
    pub(crate) shows_progress: bool,
    /// Recorder of the session.
    pub(crate) recorder: Option<Recorder>,
    /// Instrumentation of its loaders and trainers.
    #[cfg(feature = "burn")]
    pub(crate) instrumentation: StepInstrumentation,
    /// Recent steps of its strategy.
    #[cfg(feature = "train")]
    pub(crate) step_history: StepHistory,
}

/// Open device of a session; none without Burn.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    /// The device without autodiff.
    #[cfg(feature = "burn")]
    pub(crate) device: burn::tensor::Device,
    /// The GPU as opened; `None` on the CPU.
    #[cfg(feature = "burn")]
    pub(crate) gpu: Option<OpenGpu>,
    /// State of the kernel caches.
    #[cfg(feature = "warm")]
    pub(crate) warm: WarmStart,
}

impl<C> Session<C> {
    /// Config with the planned values in its tuned fields.
    pub fn config(&self) -> &C {
        &self.config
    }

    /// Selected device, with its differences from the one that the build was for.
    pub fn selection(&self) -> &Selection {
        &self.decision.selection
    }

    /// Settings with their reasons and the predicted memory.
    pub fn plan(&self) -> &Plan {
        &self.decision.plan
    }

    /// Division of an optimizer step into micro-batches.
    pub fn schedule(&self) -> &Schedule {
        &self.decision.plan.schedule
    }

    /// Cost model of a training step.
    pub fn workload(&self) -> &Workload {
        &self.decision.workload
    }

    /// Recorder of the session, if any: see [`recording`](crate::recording).
    pub fn recorder(&self) -> Option<&Recorder> {
        self.recorder.as_ref()
    }

    /// Records a value of the program, such as `valid/loss`, with the current time. Does nothing without a recorder.
    pub fn value(&self, name: &str, value: f64) {
        if let Some(recorder) = &self.recorder {
            recorder.value(name, value);
        }
    }
}

impl<C: Tuned> Session<C> {
    /// Saves the plan in `directory`, beside the checkpoints, as [`SavedRun::FILE_NAME`], and returns the file's path.
    ///
    /// A later start resumes it with [`Options::resume`](crate::Options::resume). The plan does not change during training: save
    /// it once, before the first checkpoint.
    ///
    /// # Errors
    ///
    /// [`SaveError`]. An earlier saved run then stays as it was.
    pub fn save(&self, directory: impl AsRef<Path>) -> Result<PathBuf, SaveError> {
        SavedRun::new(&self.config, &self.decision).save(directory)
    }
}

#[cfg(feature = "burn")]
impl<C> Session<C> {
    /// Facts of the device, with all cores of the host.
    fn facts(&self) -> DeviceFacts {
        self.selection().gpu.as_ref().map_or_else(|| self.machine.host.facts(), |gpu| gpu.facts.clone())
    }

    /// Open device with autodiff, and with activation checkpointing if planned. Initialise the trained model on it.
    pub fn device(&self) -> burn::tensor::Device {
        let device = self.opened.device.clone().autodiff();
        if self.decision.plan.settings.gradient_checkpointing { device.gradient_checkpointing() } else { device }
    }

    /// Device without autodiff, for batches and for evaluation.
    pub fn inner_device(&self) -> burn::tensor::Device {
        self.opened.device.clone()
    }

    /// Probes the precision of fp32 matrix products of the workload's dominant shape on the device.
    ///
    /// `None` for a workload without a dominant product. With [`Settings::allow_tf32`](crate::Settings::allow_tf32), tuning
    /// decides for each shape whether TF32 is used; without it, TF32 is switched off. See [`probe`](crate::burn::probe).
    pub fn probe_tf32(&self) -> Option<Result<MatmulProbe, ProbeError>> {
        let product = self.decision.workload.dominant_product?;
        let size = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        let shape = Gemm {
            m: size(product.rows_per_sample.saturating_mul(self.decision.plan.settings.batch_size)),
            k: size(product.inner),
            n: size(product.columns),
        };
        Some(probe(&self.opened.device, shape))
    }
}

impl<C> fmt::Display for Session<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.decision.fmt(f)?;
        #[cfg(feature = "warm")]
        if self.selection().gpu.is_some() {
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

#[cfg(feature = "distributed")]
impl<C> Session<C> {
    /// Number of this process among those that train together, from 0; 0 for the only one.
    pub fn rank(&self) -> usize {
        self.ranks.as_ref().map_or(0, Connection::number)
    }

    /// Number of processes that train together.
    pub fn world_size(&self) -> usize {
        self.share().ranks()
    }

    /// Returns true for the first rank, which logs, evaluates and saves the model. All ranks have equal parameters.
    pub fn is_first_rank(&self) -> bool {
        self.rank() == 0
    }

    /// This rank's part of so many samples, for batches that do not come from the session's loader: consecutive ones, as many
    /// as those of other ranks, or one more where they cannot be shared evenly. A step may be given an empty part.
    pub fn part(&self, samples: usize) -> Range<usize> {
        self.share().part(samples)
    }

    /// Waits for all ranks: for example while the first one prepares the data.
    ///
    /// # Errors
    ///
    /// [`RanksError::Ended`] if a rank failed.
    pub fn wait_for_ranks(&self) -> Result<(), RanksError> {
        Ok(self.ranks.as_ref().map_or(Ok(()), Connection::barrier)?)
    }

    fn share(&self) -> Share {
        match &self.ranks {
            Some(ranks) => ranks.share(self.schedule()),
            None => Share::whole(usize::try_from(self.schedule().global_batch).unwrap_or(usize::MAX)),
        }
    }
}

/// Connection to other ranks in a build without feature `distributed`, which has none.
#[cfg(not(feature = "distributed"))]
#[derive(Clone, Debug)]
pub(crate) enum Connection {}

#[cfg(not(feature = "distributed"))]
impl Connection {
    pub(crate) fn number(&self) -> usize {
        match *self {}
    }

    pub(crate) fn fail(&self, _: &dyn std::error::Error) {
        match *self {}
    }

    #[cfg(feature = "burn")]
    pub(crate) fn finish(&self) {
        match *self {}
    }

    #[cfg(feature = "burn")]
    pub(crate) fn meet(
        &self,
        _: &'static str,
        _: Vec<u8>,
        _: impl FnOnce(Vec<Vec<u8>>) -> Result<Vec<u8>, String>,
    ) -> Result<Vec<u8>, gpu_tuned_train::train::PeersEnded> {
        match *self {}
    }

    #[cfg(feature = "burn")]
    pub(crate) fn rank(&self, _: &Schedule, _: bool) -> gpu_tuned_train::train::Rank {
        match *self {}
    }
}
