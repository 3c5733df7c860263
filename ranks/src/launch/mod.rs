//! Rank of this process, as its launcher passed it through the environment.

mod error;
mod hosts;
mod port;
#[cfg(test)]
mod tests;
mod variables;

use std::env;
use std::fmt;
use std::net::IpAddr;

pub use error::LaunchError;

use crate::secret::Secret;
use variables::Variables;

/// Rank and addresses of a process that a launcher started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Number of this process, from 0.
    pub rank: usize,
    /// Number of processes.
    pub world_size: usize,
    /// Number of this process among those of its host, from 0.
    pub local_rank: usize,
    /// Number of processes on this host; `None` if the launcher does not pass it.
    pub local_world_size: Option<usize>,
    /// Host of rank 0: a name or an IP address.
    pub address: String,
    /// TCP port on which rank 0 waits for the others.
    pub port: u16,
    /// Secret of the run, from `GPU_TUNED_SECRET`.
    pub secret: Option<Secret>,
    /// Launcher whose variables were read.
    pub launcher: Launcher,
}

/// Family of launchers that set the same variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// `RANK` and `WORLD_SIZE`: torchrun, Kubeflow's `PyTorchJob`, `cargo gpu-tuned launch`.
    Torch,
    /// `SLURM_PROCID` and `SLURM_NTASKS`: Slurm's srun.
    Slurm,
    /// `OMPI_COMM_WORLD_RANK` and `OMPI_COMM_WORLD_SIZE`: Open MPI's mpirun.
    OpenMpi,
    /// `PMI_RANK` and `PMI_SIZE` beside `MPI_LOCALRANKID`: mpiexec of MPICH and of Intel MPI.
    Mpich,
}

impl fmt::Display for Launcher {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(match self {
            Self::Torch => "torchrun",
            Self::Slurm => "srun",
            Self::OpenMpi => "mpirun",
            Self::Mpich => "mpiexec",
        })
    }
}

/// Variables of a launcher.
struct Names {
    launcher: Launcher,
    rank: &'static str,
    world_size: &'static str,
    local_rank: &'static str,
    local_world_size: &'static str,
}

const TORCH: Names = Names {
    launcher: Launcher::Torch,
    rank: "RANK",
    world_size: "WORLD_SIZE",
    local_rank: "LOCAL_RANK",
    local_world_size: "LOCAL_WORLD_SIZE",
};
const OPEN_MPI: Names = Names {
    launcher: Launcher::OpenMpi,
    rank: "OMPI_COMM_WORLD_RANK",
    world_size: "OMPI_COMM_WORLD_SIZE",
    local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
    local_world_size: "OMPI_COMM_WORLD_LOCAL_SIZE",
};
/// `PMI_RANK` and `PMI_SIZE` are srun's, too, so the local rank identifies this launcher.
const MPICH: Names = Names {
    launcher: Launcher::Mpich,
    rank: "PMI_RANK",
    world_size: "PMI_SIZE",
    local_rank: "MPI_LOCALRANKID",
    local_world_size: "MPI_LOCALNRANKS",
};
const SLURM: Names = Names {
    launcher: Launcher::Slurm,
    rank: "SLURM_PROCID",
    world_size: "SLURM_NTASKS",
    local_rank: "SLURM_LOCALID",
    local_world_size: "SLURM_NTASKS_PER_NODE",
};

const MASTER_ADDR: &str = "MASTER_ADDR";
const MASTER_PORT: &str = "MASTER_PORT";
const SECRET: &str = "GPU_TUNED_SECRET";
const LOOPBACK: &str = "127.0.0.1";
/// Steps of Slurm with special meaning, such as a batch script or an interactive shell, count down from 2^32.
const FIRST_SPECIAL_STEP: u32 = 0xffff_fff0;

/// Returns true for a process of srun. A batch script and an interactive shell are none.
fn is_slurm_step(variables: &Variables) -> Result<bool, LaunchError> {
    Ok(variables.number::<u32>("SLURM_STEP_ID")?.is_some_and(|step| step < FIRST_SPECIAL_STEP))
}

/// Number of processes that a launcher started with this one.
///
/// For programs that train in one process: they need no address and no port, so a missing one is no error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launched {
    /// Number of processes, with this one.
    pub world_size: usize,
    /// Variable with that number.
    pub variable: &'static str,
}

impl Launched {
    /// Reads the environment of this process; `None` if no launcher numbered the process.
    pub fn from_env() -> Option<Self> {
        Self::from_lookup(from_env)
    }

    /// Reads the variables that `lookup` returns; `None` if no launcher numbered the process.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let variables = Variables { lookup: &lookup };
        [&TORCH, &OPEN_MPI, &MPICH, &SLURM].into_iter().find_map(|names| {
            let is_slurm = names.launcher == Launcher::Slurm;
            // With `srun --preserve-env`, SLURM_NTASKS is that of the job.
            let sizes = if is_slurm { &["SLURM_STEP_NUM_TASKS", names.world_size][..] } else { &[names.world_size] };
            let world_size = variables.first_number::<usize>(sizes).ok().flatten()?;
            let rank = variables.number::<usize>(names.rank).ok().flatten()?;
            let is_its_own = match names.launcher {
                Launcher::Slurm => is_slurm_step(&variables).unwrap_or(false),
                Launcher::Mpich => variables.has_any(&[MPICH.local_rank]),
                Launcher::Torch | Launcher::OpenMpi => true,
            };
            (rank < world_size && is_its_own).then(|| Self { world_size, variable: variables.first(sizes) })
        })
    }
}

/// Returns the value of an environment variable.
fn from_env(name: &str) -> Option<String> {
    env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

impl Launch {
    /// Reads the environment of this process; `None` if no launcher started it.
    ///
    /// torchrun's variables come before Open MPI's, MPICH's and Slurm's, in this order: launchers start each other in that order.
    ///
    /// # Errors
    /// If variables are missing, out of range or not numbers.
    pub fn from_env() -> Result<Option<Self>, LaunchError> {
        Self::from_lookup(from_env)
    }

    /// Reads the variables that `lookup` returns; `None` if no launcher set them.
    ///
    /// # Errors
    /// If variables are missing, out of range or not numbers.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, LaunchError> {
        let variables = Variables { lookup: &lookup };
        if variables.has_any(&[TORCH.rank, TORCH.world_size, TORCH.local_rank, TORCH.local_world_size]) {
            Self::read(&variables, &TORCH).map(Some)
        } else if variables.has_any(&[OPEN_MPI.rank, OPEN_MPI.world_size, OPEN_MPI.local_rank]) {
            Self::read(&variables, &OPEN_MPI).map(Some)
        } else if variables.has_any(&[MPICH.local_rank]) {
            Self::read(&variables, &MPICH).map(Some)
        } else if is_slurm_step(&variables)? {
            Self::read(&variables, &SLURM).map(Some)
        } else if variables.has_any(&[MASTER_ADDR, MASTER_PORT]) {
            Err(LaunchError::Missing { variable: TORCH.rank, present: variables.first(&[MASTER_ADDR, MASTER_PORT]) })
        } else {
            Ok(None)
        }
    }

    /// Returns true if all ranks are known to run on this host.
    pub fn is_one_host(&self) -> bool {
        let is_loopback = || self.address.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        self.is_counted_local() || self.address == "localhost" || is_loopback()
    }

    /// Returns true if the launcher counts all ranks on this host. A loopback address does not prove that: some
    /// versions of Kubeflow pass it to rank 0 only.
    pub(crate) fn is_counted_local(&self) -> bool {
        self.world_size == 1 || self.local_world_size == Some(self.world_size)
    }

    fn read(variables: &Variables, names: &Names) -> Result<Self, LaunchError> {
        let present = variables.first(&[names.rank, names.world_size, names.local_rank, names.local_world_size]);
        let missing = |variable| LaunchError::Missing { variable, present };
        let world_size = variables.number(names.world_size)?.ok_or_else(|| missing(names.world_size))?;
        let rank = variables.number(names.rank)?.ok_or_else(|| missing(names.rank))?;
        if rank >= world_size {
            return Err(LaunchError::OutOfRange {
                variable: names.rank,
                value: rank,
                bound: names.world_size,
                limit: world_size,
            });
        }
        let local_world_size = Self::local_world_size(variables, names, world_size)?;
        let (bound, limit) = match local_world_size {
            Some(size) => (names.local_world_size, size),
            None => (names.world_size, world_size),
        };
        let local_rank = match variables.number(names.local_rank)? {
            Some(rank) if rank >= limit => {
                return Err(LaunchError::OutOfRange { variable: names.local_rank, value: rank, bound, limit });
            }
            Some(rank) => rank,
            // Kubeflow starts one process a pod, and does not number the processes of a host.
            None if names.launcher == Launcher::Torch && local_world_size.is_none_or(|size| size == 1) => 0,
            None => return Err(missing(names.local_rank)),
        };
        Ok(Self {
            rank,
            world_size,
            local_rank,
            local_world_size,
            address: Self::address(variables, names, local_world_size == Some(world_size))?,
            port: port::port(variables, names.launcher)?,
            secret: variables.text(SECRET).map(Secret::new),
            launcher: names.launcher,
        })
    }

    fn local_world_size(variables: &Variables, names: &Names, world_size: usize) -> Result<Option<usize>, LaunchError> {
        if names.launcher == Launcher::Slurm {
            // The number of tasks a node is a bound, not a count.
            let nodes = variables.first_number::<usize>(&["SLURM_STEP_NUM_NODES", "SLURM_NNODES"])?;
            return Ok((nodes == Some(1)).then_some(world_size));
        }
        let Some(value) = variables.number(names.local_world_size)? else { return Ok(None) };
        if value == 0 || value > world_size {
            let (variable, bound) = (names.local_world_size, names.world_size);
            return Err(LaunchError::TooManyLocal { variable, value, bound, limit: world_size });
        }
        Ok(Some(value))
    }

    fn address(variables: &Variables, names: &Names, is_one_host: bool) -> Result<String, LaunchError> {
        if let Some(address) = variables.text(MASTER_ADDR) {
            return Ok(address);
        }
        let missing = LaunchError::NoAddress { launcher: names.launcher };
        match names.launcher {
            Launcher::Torch => Err(LaunchError::Missing { variable: MASTER_ADDR, present: names.rank }),
            _ if is_one_host => Ok(LOOPBACK.to_owned()),
            Launcher::OpenMpi | Launcher::Mpich => Err(missing),
            Launcher::Slurm => {
                let lists = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"];
                let list = lists.into_iter().find_map(|name| Some((name, variables.text(name)?)));
                let (variable, value) = list.ok_or(missing)?;
                hosts::first_host(&value).ok_or(LaunchError::HostList { variable, value })
            }
        }
    }
}
