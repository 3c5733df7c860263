//! NCCL of the ranks: one communicator for all trainers of a process, which ends with the ranks.

#[cfg(feature = "cuda")]
use std::error::Error;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

#[cfg(feature = "cuda")]
use burn::tensor::{DType, Device, Tensor};
#[cfg(feature = "cuda")]
use gpu_tuned_kernels::collectives::{self, SharedStream, SumsBeside};
use gpu_tuned_kernels::find::NotFound;
use gpu_tuned_kernels::nccl::{Communicator, NcclError};
use gpu_tuned_observe::log::warn_user;
use thiserror::Error;

use super::{Peers, PeersEnded};
#[cfg(feature = "cuda")]
use crate::train::{StepError, outcome::StepFailure};

/// Pause between looks at a join in progress.
const JOINING: Duration = Duration::from_millis(5);
/// Pause between looks for errors of NCCL's connections.
const WATCHING: Duration = Duration::from_millis(500);
/// Time in which the ranks learn that a process was lost, which is why a connection broke.
const CAUSE: Duration = Duration::from_secs(1);

/// Membership of this process in the sums of its ranks by NCCL.
///
/// Rank 0's NCCL opens a port by its own rules for interfaces, and its identifier reaches the others through their
/// [`Peers`]. When the ranks end, whatever this process waits for in NCCL is aborted, and sums have any values.
#[derive(Clone, Debug)]
pub struct Collectives {
    communicator: Arc<Communicator>,
    /// Of the sums beside kernels.
    #[cfg(feature = "cuda")]
    stream: SharedStream,
    /// The thread that watches the connections has a weak reference, so that it keeps no group of ranks from finishing.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "it is kept, and read with sums of GPUs"))]
    peers: Arc<dyn Peers>,
}

/// Reason why NCCL does not connect the ranks.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CollectivesError {
    /// The library is missing.
    #[error(transparent)]
    Missing(#[from] NotFound),
    /// The library failed.
    #[error(transparent)]
    Nccl(#[from] NcclError),
    /// Rank 0 has sent something else than an identifier.
    #[error("rank 0 has sent no identifier of NCCL; start the same program on all ranks")]
    Identifier,
    /// The ranks have ended.
    #[error(transparent)]
    Peers(PeersEnded),
}

impl Collectives {
    /// Joins the other ranks with an open CUDA device. Waits for all of them.
    ///
    /// # Errors
    ///
    /// When the library is missing or fails, and if the ranks end meanwhile.
    #[cfg(feature = "cuda")]
    pub fn join(device: &Device, peers: &Arc<dyn Peers>, rank: usize, ranks: usize) -> Result<Self, CollectivesError> {
        use gpu_tuned_kernels::nccl::UniqueId;

        let library = collectives::load()?;
        tracing::debug!(version = library.version(), path = %library.path().display(), "NCCL");
        let own = if rank == 0 { library.unique_id()?.as_bytes().to_vec() } else { Vec::new() };
        let id = peers.broadcast(own).map_err(CollectivesError::Peers)?;
        let id = UniqueId::from_bytes(&id).ok_or(CollectivesError::Identifier)?;
        Self::new(collectives::join(device, library, id, rank, ranks)?, peers)
    }

    /// Sums vectors, one after the other, on their stream.
    #[cfg(feature = "cuda")]
    pub(super) fn sum(&self, vectors: Vec<Tensor<1>>) -> Result<Vec<Tensor<1>>, StepFailure> {
        check_types(vectors.iter().map(Tensor::dtype))?;
        Ok(collectives::sums(vectors, &self.communicator))
    }

    /// Begins sums of vectors of these types beside the kernels.
    #[cfg(feature = "cuda")]
    pub(super) fn sums_beside(&self, types: impl Iterator<Item = DType>) -> Result<SumsBeside, StepError> {
        check_types(types)?;
        Ok(SumsBeside::new(Arc::clone(&self.communicator), self.stream.clone()))
    }

    /// Waits until a communicator has joined the other ranks. From now on, the end of the ranks aborts the communicator, and an
    /// error of its connections ends the ranks.
    ///
    /// # Errors
    ///
    /// When the library fails, and if the ranks end meanwhile.
    pub fn new(communicator: Communicator, peers: &Arc<dyn Peers>) -> Result<Self, CollectivesError> {
        let communicator = Arc::new(communicator);
        let ending = Arc::clone(&communicator);
        peers.on_end(Box::new(move || {
            if let Err(error) = ending.abort() {
                warn_user(&error.to_string());
            }
        }));
        loop {
            match communicator.is_ready() {
                Ok(true) => break,
                Ok(false) => thread::sleep(JOINING),
                Err(error) => {
                    let ended = ended_soon(&**peers).map(CollectivesError::Peers);
                    return Err(ended.unwrap_or(error.into()));
                }
            }
        }
        let (watched, others) = (Arc::downgrade(&communicator), Arc::downgrade(peers));
        let watch = move || watch(&watched, &others);
        let watching = thread::Builder::new().name("gpu-tuned NCCL".to_owned()).spawn(watch);
        if let Err(error) = watching {
            warn_user(&format!("errors of NCCL's connections are seen late: no thread looks for them ({error})"));
        }
        Ok(Self {
            communicator,
            #[cfg(feature = "cuda")]
            stream: SharedStream::default(),
            peers: Arc::clone(peers),
        })
    }

    /// Why the ranks ended, if their end has aborted the communicator; or its failure, which ends them.
    #[cfg(feature = "cuda")]
    pub(super) fn aborted_by(&self) -> Option<PeersEnded> {
        let error = self.communicator.is_ready().err()?;
        let of_nccl = || Arc::from(Box::<dyn Error + Send + Sync>::from(error.to_string()));
        Some(ended_soon(&*self.peers).unwrap_or_else(of_nccl))
    }

    /// Ends what this rank waits for in NCCL, or waits until another thread has: a process that exits meanwhile crashes.
    pub(super) fn abort(&self) {
        if let Err(error) = self.communicator.abort() {
            tracing::debug!(%error, "NCCL was not aborted");
        }
    }

    /// Membership in NCCL.
    pub fn communicator(&self) -> &Arc<Communicator> {
        &self.communicator
    }
}

/// Checks that NCCL sums numbers of these types.
#[cfg(feature = "cuda")]
fn check_types(mut types: impl Iterator<Item = DType>) -> Result<(), StepError> {
    let Some(dtype) = types.find(|dtype| !collectives::is_summed(*dtype)) else { return Ok(()) };
    let message = format!("NCCL does not sum numbers of {dtype:?}: train in f32");
    Err(StepError::Peers(Arc::from(Box::<dyn Error + Send + Sync>::from(message))))
}

/// Ends the ranks with the first error of a communicator's connections, unless they end by themselves.
fn watch(communicator: &Weak<Communicator>, peers: &Weak<dyn Peers>) {
    loop {
        thread::sleep(WATCHING);
        let Some(communicator) = communicator.upgrade() else { return };
        match communicator.is_ready() {
            Ok(_) => {}
            Err(NcclError::Aborted) => return,
            Err(error) => {
                thread::sleep(CAUSE);
                // Ranks that have ended keep their first reason.
                if let Some(peers) = peers.upgrade() {
                    peers.fail(&error.to_string());
                }
                return;
            }
        }
    }
}

/// Why the ranks have ended, or end in a moment: a failure of NCCL is often the first sign that a process was lost.
pub(super) fn ended_soon(peers: &dyn Peers) -> Option<PeersEnded> {
    const LOOKS: u32 = 50;
    (0..LOOKS).find_map(|_| {
        let ended = peers.ended();
        if ended.is_none() {
            thread::sleep(CAUSE / LOOKS);
        }
        ended
    })
}

#[cfg(test)]
mod tests;
