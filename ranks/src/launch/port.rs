//! Port of the rendezvous.

use super::variables::Variables;
use super::{LaunchError, Launcher, MASTER_PORT};

/// Variable that overrides the port.
const OVERRIDE: &str = "GPU_TUNED_PORT";
/// First port that Linux gives to clients.
const CLIENTS: u16 = 32_768;
/// Derived ports: above those of services, below those of clients.
const FIRST: u64 = 15_000;
const COUNT: u64 = 17_000;
/// Port if nothing identifies the job; PyTorch's default.
const DEFAULT: u16 = 29_500;

/// Returns the port on which rank 0 waits, the same on all ranks.
pub(super) fn port(variables: &Variables, launcher: Launcher) -> Result<u16, LaunchError> {
    if let Some(port) = variables.number(OVERRIDE)? {
        return checked(OVERRIDE, port);
    }
    if let Some(port) = variables.number(MASTER_PORT)? {
        // The agent of torchrun keeps its own store on that port. Clients of the store may have got the next one.
        let agent_store = variables.text("TORCHELASTIC_USE_AGENT_STORE");
        let is_taken = agent_store.is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let own = checked(MASTER_PORT, port)?;
        return Ok(match own {
            own if is_taken && own >= CLIENTS => derived(own.into()),
            own => own + u16::from(is_taken),
        });
    }
    match launcher {
        Launcher::Torch => Err(LaunchError::Missing { variable: MASTER_PORT, present: "RANK" }),
        Launcher::Slurm => {
            let job = variables.first_number::<u64>(&["SLURM_JOB_ID", "SLURM_JOBID"])?;
            let job = job.ok_or(LaunchError::Missing { variable: "SLURM_JOB_ID", present: "SLURM_PROCID" })?;
            let step = variables.number::<u64>("SLURM_STEP_ID")?.unwrap_or_default();
            Ok(derived(job.wrapping_mul(31).wrapping_add(step)))
        }
        Launcher::Mpich => Ok(DEFAULT),
        Launcher::OpenMpi => {
            let job = variables.text("PMIX_NAMESPACE");
            Ok(job
                .map_or(DEFAULT, |job| derived(job.bytes().fold(0, |sum, byte| (sum * 31 + u64::from(byte)) % COUNT))))
        }
    }
}

fn checked(variable: &'static str, value: u64) -> Result<u16, LaunchError> {
    u16::try_from(value).ok().filter(|port| *port > 0).ok_or(LaunchError::Port { variable, value })
}

fn derived(job: u64) -> u16 {
    u16::try_from(FIRST + job % COUNT).unwrap_or(DEFAULT)
}
