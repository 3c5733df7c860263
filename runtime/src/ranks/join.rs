//! Start of a rank: its GPU, its terms, and the connection to the others.

use gpu_tuned_core::device::GpuReading;
use gpu_tuned_ranks::{Group, Launch, Limits, Terms};

use super::{Connection, RanksError};
use crate::decide::DeviceRequest;
use crate::detect::Machine;
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
    /// Joins the other ranks of a launch, which must have the same program and config. `gpu` is this rank's.
    pub(crate) fn join<C: Tuned>(
        launch: &Launch,
        limits: Limits,
        config: &C,
        gpu: Option<&GpuReading>,
    ) -> Result<Self, RanksError> {
        #[cfg(feature = "cuda")]
        if gpu.is_some() {
            // Rank 0 listens at the next port, too: NCCL's ranks find each other there.
            let port = launch.port.checked_add(1).unwrap_or(launch.port - 1);
            gpu_tuned_train::train::set_bootstrap(&format!("{}:{port}", launch.address));
        }
        let group = Group::join(launch, terms(config, gpu), limits)?;
        let local = if launch.is_one_host() { launch.world_size } else { launch.local_world_size.unwrap_or(1) };
        Ok(Self { group, local, shares: None })
    }
}

/// What the ranks must have in common, and their devices, which must differ on a host.
fn terms<C: Tuned>(config: &C, gpu: Option<&GpuReading>) -> Terms {
    let terms = Terms::default()
        .same("gpu-tuned", env!("CARGO_PKG_VERSION"))
        .same("config", C::BUILT.config)
        .same("feature cuda", cfg!(feature = "cuda").to_string())
        .same("model", json(&config.workload()))
        .same("goal", json(&config.asked()));
    match gpu.and_then(|gpu| gpu.uuid.clone().or_else(|| Some(gpu.pci_address?.to_string()))) {
        Some(gpu) => terms.distinct_on_host("GPU", gpu),
        None => terms,
    }
}

/// The value as text; empty for one without.
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
