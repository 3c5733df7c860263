//! What a start is for: the device, the saved run and the other ranks.

use std::path::PathBuf;

use gpu_tuned_ranks::Launched;

use super::switches::is_independent;
use super::{Options, StartError};
#[cfg(not(feature = "distributed"))]
use crate::alone::Connection;
use crate::decide::{DeviceRequest, RanksHere};
#[cfg(feature = "distributed")]
use crate::ranks::Connection;
use crate::saved::SavedRun;
use crate::tuned::Tuned;

/// Other processes that a process trains with.
#[derive(Clone, Debug, Default)]
pub(super) enum LaunchedAs {
    /// None; several processes of a launcher would train copies.
    #[default]
    None,
    /// None, and the processes of a launcher train on their own.
    Independent,
    /// Ranks of the launcher, which has to be there.
    #[cfg(feature = "distributed")]
    Launched,
    /// Ranks of the launcher, if there is one.
    #[cfg(feature = "distributed")]
    IfLaunched,
    /// Ranks of a launch that the program passes.
    #[cfg(feature = "distributed")]
    As(Box<crate::ranks::Launch>),
}

/// Request of a start.
pub(super) struct Request {
    pub wanted: DeviceRequest,
    pub saved: Option<SavedRun>,
    /// Facts of the other ranks, if there are any.
    pub ranks: Option<RanksHere>,
    /// Connection to them.
    pub connection: Option<Connection>,
}

impl Request {
    /// Number of this process, 0 for the only one.
    pub(super) fn rank(&self) -> usize {
        self.connection.as_ref().map_or(0, Connection::number)
    }

    /// Ends the other ranks with the error of this one, if there is one.
    pub(super) fn or_fail<T>(&self, result: Result<T, StartError>) -> Result<T, StartError> {
        if let (Err(error), Some(connection)) = (&result, &self.connection) {
            connection.fail(error);
        }
        result
    }
}

/// Recording of a rank: `run.rank3.jsonl` beside the first rank's `run.jsonl`.
pub(super) fn recording_of_rank(file: PathBuf, rank: usize) -> PathBuf {
    if rank == 0 {
        return file;
    }
    let extension = file.extension().map(|extension| format!(".{}", extension.to_string_lossy())).unwrap_or_default();
    file.with_extension(format!("rank{rank}{extension}"))
}

impl Options {
    /// Device, saved run and other ranks of a start. Joins the ranks, if there are any.
    pub(super) fn request<C: Tuned>(&self, wanted: DeviceRequest, config: &C) -> Result<Request, StartError> {
        self.refuse_copies()?;
        let request = Request { wanted, saved: self.saved()?, ranks: None, connection: None };
        #[cfg(feature = "distributed")]
        return self.with_ranks(request, config);
        #[cfg(not(feature = "distributed"))]
        {
            let _ = config;
            Ok(request)
        }
    }

    /// Refuses to train one of several copies that a launcher started.
    fn refuse_copies(&self) -> Result<(), StartError> {
        if !matches!(self.ranks, LaunchedAs::None) {
            return Ok(());
        }
        // A measurement trains nothing.
        #[cfg(feature = "burn")]
        if gpu_tuned_measure::measure::is_requested() {
            return Ok(());
        }
        match Launched::from_env() {
            Some(Launched { world_size, variable }) if world_size > 1 && !is_independent()? => {
                Err(StartError::Copies { world_size, variable })
            }
            _ => Ok(()),
        }
    }
}
