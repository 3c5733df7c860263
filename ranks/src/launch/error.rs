//! Errors in a launcher's variables.

use thiserror::Error;

use super::Launcher;

/// The launcher's variables are incomplete or contradictory.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// A variable of the launcher is unset.
    #[error(
        "{variable} is not set, but {present} is; start the program through a launcher that sets both, \
         such as `cargo gpu-tuned launch`, or unset {present}"
    )]
    Missing {
        /// Variable that is unset.
        variable: &'static str,
        /// Variable of the same launcher that is set.
        present: &'static str,
    },
    /// Ranks are on several hosts, and nothing names that of rank 0.
    #[error(
        "MASTER_ADDR is not set, but {launcher} started ranks on several hosts; set it to the host of rank 0, \
         for example with `{}`",
        if *launcher == Launcher::Mpich { "mpiexec -genv MASTER_ADDR HOST" } else { "mpirun -x MASTER_ADDR=HOST" }
    )]
    NoAddress {
        /// Launcher.
        launcher: Launcher,
    },
    /// A variable has no whole number.
    #[error("{variable} is `{value}`; set it to a whole number that is not negative and in range")]
    NotANumber {
        /// Variable.
        variable: &'static str,
        /// Its text.
        value: String,
    },
    /// A rank is not below the number of ranks.
    #[error("{variable} is {value}, but {bound} allows only numbers below {limit}; correct one of them")]
    OutOfRange {
        /// Variable with the rank.
        variable: &'static str,
        /// Its number.
        value: usize,
        /// Variable with the number of ranks.
        bound: &'static str,
        /// Number of ranks.
        limit: usize,
    },
    /// The number of ranks on a host is 0, or above the number of all ranks.
    #[error("{variable} is {value}, but has to be at least 1 and at most {bound}, {limit}; correct one of them")]
    TooManyLocal {
        /// Variable with the number of ranks on the host.
        variable: &'static str,
        /// Its number.
        value: usize,
        /// Variable with the number of all ranks.
        bound: &'static str,
        /// Number of all ranks.
        limit: usize,
    },
    /// A list of hosts has another form than Slurm's.
    #[error("{variable} is `{value}`, which is no list of hosts; set MASTER_ADDR to the host of rank 0")]
    HostList {
        /// Variable.
        variable: &'static str,
        /// Its text.
        value: String,
    },
    /// The port is out of range.
    #[error("{variable} is {value}, which is no port in 1 to 65535; set GPU_TUNED_PORT to a free port")]
    Port {
        /// Variable.
        variable: &'static str,
        /// Its number.
        value: u64,
    },
}
