//! Start of a rank: its GPU, its terms, and the connection to the others.

use gpu_tuned_core::device::GpuReading;
use gpu_tuned_ranks::{Group, Launch, Limits};
use gpu_tuned_train::train::Inputs;

use super::{Connection, RanksError, terms};
use crate::decide::DeviceRequest;
use crate::detect::Machine;
use crate::saved::SavedRun;
use crate::tuned::Tuned;

/// The GPU of a rank: the one with its local number, or the only one that it sees. The CPU, if there is none.
///
/// # Errors
///
/// [`RanksError::NoGpu`] if the process sees several GPUs, and fewer than ranks of its host.
pub(crate) fn device(launch: &Launch, machine: &Machine) -> Result<DeviceRequest, RanksError> {
    match (machine.gpus.len(), launch.local_rank) {
        (0, _) => Ok(DeviceRequest::FirstFit),
        (1, _) => Ok(DeviceRequest::This(0)),
        (gpus, local_rank) if local_rank < gpus => Ok(DeviceRequest::This(local_rank)),
        (gpus, local_rank) => Err(RanksError::NoGpu { local_rank, gpus }),
    }
}

impl Connection {
    /// Joins the other ranks of a launch, which must have the same program, config and saved run. `gpu` is this rank's.
    pub(crate) fn join<C: Tuned>(
        launch: &Launch,
        limits: Limits,
        config: &C,
        saved: Option<&SavedRun>,
        gpu: Option<&GpuReading>,
    ) -> Result<Self, RanksError> {
        #[cfg(feature = "cuda")]
        if gpu.is_some() {
            // Rank 0 listens at the next port, too: NCCL's ranks find each other there.
            let port = launch.port.checked_add(1).unwrap_or(launch.port - 1);
            gpu_tuned_train::train::set_bootstrap(&format!("{}:{port}", launch.address));
        }
        let group = Group::join(launch, terms::terms(config, saved, gpu), limits).map_err(terms::error)?;
        let local = if launch.is_one_host() { launch.world_size } else { launch.local_world_size.unwrap_or(1) };
        Ok(Self { group, local, shares: None, inputs: Inputs::default() })
    }
}
