//! Rank of this process, as its launcher passed it through the environment.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;
use std::{env, fmt, fs, io};

use thiserror::Error;

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
    /// Host of rank 0: a name or an IP address, without brackets.
    pub address: String,
    /// TCP port on which rank 0 waits for the others.
    pub port: u16,
    /// Secret of the run, from `GPU_TUNED_SECRET` or the file in `GPU_TUNED_SECRET_FILE`.
    pub secret: Option<Secret>,
    /// Identifier of the run, from `GPU_TUNED_RUN_ID` or from the launcher's job: ranks of other runs are refused.
    pub run: Option<String>,
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
    /// `PMI_RANK` and `PMI_SIZE` beside `PMI_LOCAL_RANK`: mpiexec of HPE Cray (PALS).
    Cray,
    /// `JOB_COMPLETION_INDEX` beside `WORLD_SIZE`: an indexed job of Kubernetes.
    Kubernetes,
}

impl Launcher {
    /// Returns the name, and a command or line that sets the host of rank 0.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Torch => ("torchrun", "MASTER_ADDR=HOST"),
            Self::Slurm => ("srun", "MASTER_ADDR=HOST"),
            Self::OpenMpi => ("mpirun", "mpirun -x MASTER_ADDR=HOST"),
            Self::Mpich => ("mpiexec", "mpiexec -genv MASTER_ADDR HOST"),
            Self::Cray => ("mpiexec", "mpiexec --env MASTER_ADDR=HOST"),
            Self::Kubernetes => ("Kubernetes", "name: MASTER_ADDR, value: JOB-0.SERVICE"),
        }
    }
}

impl fmt::Display for Launcher {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(self.words().0)
    }
}

/// Variables of a launcher.
struct Names {
    launcher: Launcher,
    /// Variables any of which identifies the launcher.
    marks: &'static [&'static str],
    rank: &'static str,
    /// The first that is set counts.
    world_size: &'static [&'static str],
    local_rank: &'static str,
    local_world_size: &'static str,
    /// Variables that are the same on all ranks of a run and differ between runs: the first that is set counts.
    run: &'static [&'static str],
}

/// Launchers. The first one whose variables are set counts: launchers start each other in this order.
const LAUNCHERS: [Names; 6] = [
    Names {
        launcher: Launcher::Torch,
        marks: &["RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"],
        rank: "RANK",
        world_size: &["WORLD_SIZE"],
        local_rank: "LOCAL_RANK",
        local_world_size: "LOCAL_WORLD_SIZE",
        run: &["TORCHELASTIC_RUN_ID"],
    },
    Names {
        launcher: Launcher::OpenMpi,
        marks: &["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"],
        rank: "OMPI_COMM_WORLD_RANK",
        world_size: &["OMPI_COMM_WORLD_SIZE"],
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_world_size: "OMPI_COMM_WORLD_LOCAL_SIZE",
        run: &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"],
    },
    // `PMI_RANK` and `PMI_SIZE` are srun's, too, so the local rank identifies MPICH.
    Names {
        launcher: Launcher::Mpich,
        marks: &["MPI_LOCALRANKID"],
        rank: "PMI_RANK",
        world_size: &["PMI_SIZE"],
        local_rank: "MPI_LOCALRANKID",
        local_world_size: "MPI_LOCALNRANKS",
        run: &[HYDRA_PROXY],
    },
    // With `srun --preserve-env`, SLURM_NTASKS is that of the job.
    Names {
        launcher: Launcher::Slurm,
        marks: &[SLURM_STEP],
        rank: "SLURM_PROCID",
        world_size: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        local_rank: "SLURM_LOCALID",
        local_world_size: "SLURM_NTASKS_PER_NODE",
        run: &["SLURM_JOB_ID", "SLURM_JOBID"],
    },
    Names {
        launcher: Launcher::Cray,
        marks: &["PMI_LOCAL_RANK"],
        rank: "PMI_RANK",
        world_size: &["PMI_SIZE"],
        local_rank: "PMI_LOCAL_RANK",
        local_world_size: "PMI_LOCAL_SIZE",
        run: &["PALS_APID"],
    },
    Names {
        launcher: Launcher::Kubernetes,
        marks: &["JOB_COMPLETION_INDEX"],
        rank: "JOB_COMPLETION_INDEX",
        world_size: &["WORLD_SIZE"],
        local_rank: "LOCAL_RANK",
        local_world_size: "LOCAL_WORLD_SIZE",
        run: &[],
    },
];

/// Variables with the number of processes, or of the process, that only launchers set. Their other variables are unknown.
const UNKNOWN: [&str; 8] = [
    "PMI_SIZE",
    "PMIX_RANK",
    "PALS_RANKID",
    "MV2_COMM_WORLD_SIZE",
    "MVP_COMM_WORLD_SIZE",
    "FLUX_JOB_SIZE",
    "JSM_NAMESPACE_SIZE",
    "ALPS_APP_PE",
];

/// Process of MPICH and of Intel MPI that starts the ranks of a host. Their variables have nothing that differs between runs.
const HYDRA_PROXY: &str = "hydra_pmi_proxy";
const SLURM_STEP: &str = "SLURM_STEP_ID";
const MASTER_ADDR: &str = "MASTER_ADDR";
const MASTER_PORT: &str = "MASTER_PORT";
const SECRET: &str = "GPU_TUNED_SECRET";
/// Variable with the path of a file that has the secret.
const SECRET_FILE: &str = "GPU_TUNED_SECRET_FILE";
/// Bytes of a secret that are read from a file.
const LONGEST_SECRET: u64 = 4096;
/// Variable that overrides the launcher's identifier of the run.
const RUN: &str = "GPU_TUNED_RUN_ID";
/// Address of rank 0 if all ranks are on its host.
pub(crate) const LOOPBACK: &str = "127.0.0.1";
/// Steps of Slurm with special meaning, such as a batch script or an interactive shell, count down from 2^32.
const FIRST_SPECIAL_STEP: u32 = 0xffff_fff0;

/// Number of processes that a launcher started with this one.
///
/// For programs that train in one process: they need no address and no port, so a missing one is no error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launched {
    /// Number of processes, with this one: of an unknown launcher, at least so many.
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
        let known = LAUNCHERS.iter().find_map(|names| {
            let world_size = variables.first_number::<usize>(names.world_size).ok().flatten()?;
            let rank = variables.number::<usize>(names.rank).ok().flatten()?;
            let is_its_own = rank < world_size && variables.are_of(names).unwrap_or(false);
            is_its_own.then(|| Self { world_size, variable: variables.first(names.world_size) })
        });
        known.or_else(|| {
            let (variable, world_size) = variables.unknown_launcher()?;
            Some(Self { world_size, variable })
        })
    }
}

fn from_env(name: &str) -> Option<String> {
    if name == HYDRA_PROXY {
        return hydra_proxy();
    }
    env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// Returns number and start of the [`HYDRA_PROXY`] that is an ancestor of this process, from Linux's `/proc`.
fn hydra_proxy() -> Option<String> {
    let mut process = "self".to_owned();
    loop {
        // `4711 (name) state parent …`, and the start as field 22.
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        let (name, fields) = stat.rsplit_once(')')?;
        let mut fields = fields.split_whitespace();
        let parent = fields.nth(1)?.to_owned();
        if name.split_once('(')?.1 == HYDRA_PROXY {
            return Some(format!("{process}-{}", fields.nth(17)?));
        }
        process = parent;
    }
}

impl Launch {
    /// Reads the environment of this process; `None` if no launcher started it.
    ///
    /// torchrun's variables come before those of Open MPI, MPICH, Cray, Slurm and Kubernetes, in this order: launchers start
    /// each other in that order.
    ///
    /// # Errors
    /// If variables are missing, out of range or not numbers, or if an unknown launcher started several processes.
    pub fn from_env() -> Result<Option<Self>, LaunchError> {
        Self::from_lookup(from_env)
    }

    /// Reads the variables that `lookup` returns; `None` if no launcher set them.
    ///
    /// # Errors
    /// If variables are missing, out of range or not numbers, or if an unknown launcher started several processes.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, LaunchError> {
        let variables = Variables { lookup: &lookup };
        for names in &LAUNCHERS {
            if variables.are_of(names)? {
                return Self::read(&variables, names).map(Some);
            }
        }
        if let Some((variable, processes)) = variables.unknown_launcher() {
            return Err(LaunchError::Unknown { variable, processes });
        }
        let without_rank = ["WORLD_SIZE", MASTER_ADDR, MASTER_PORT];
        if variables.has_any(&without_rank) {
            return Err(LaunchError::Missing { variable: "RANK", present: variables.first(&without_rank) });
        }
        Ok(None)
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

    /// Returns the name or address at which this rank reaches rank 0.
    #[cfg(feature = "group")]
    pub(crate) fn root_address(&self) -> &str {
        if self.is_counted_local() { LOOPBACK } else { &self.address }
    }

    fn read(variables: &Variables, names: &Names) -> Result<Self, LaunchError> {
        let size = variables.first(names.world_size);
        let present = variables.first(&[names.rank, size, names.local_rank, names.local_world_size]);
        let missing = |variable| LaunchError::Missing { variable, present };
        let world_size = variables.number(size)?.ok_or_else(|| match names.launcher {
            Launcher::Kubernetes => LaunchError::Completions,
            _ => missing(size),
        })?;
        let rank = variables.number(names.rank)?.ok_or_else(|| missing(names.rank))?;
        if rank >= world_size {
            return Err(LaunchError::OutOfRange { variable: names.rank, value: rank, bound: size, limit: world_size });
        }
        let local_world_size = Self::local_world_size(variables, names, world_size)?;
        let (bound, limit) = match local_world_size {
            Some(size) => (names.local_world_size, size),
            None => (size, world_size),
        };
        let local_rank = match variables.number(names.local_rank)? {
            Some(rank) if rank >= limit => {
                return Err(LaunchError::OutOfRange { variable: names.local_rank, value: rank, bound, limit });
            }
            Some(rank) => rank,
            // Kubernetes starts one process a pod, and does not number the processes of a host.
            None if matches!(names.launcher, Launcher::Torch | Launcher::Kubernetes)
                && local_world_size.is_none_or(|size| size == 1) =>
            {
                0
            }
            None => return Err(missing(names.local_rank)),
        };
        let is_one_host = world_size == 1 || local_world_size == Some(world_size);
        let run = variables.run(names, is_one_host);
        Ok(Self {
            rank,
            world_size,
            local_rank,
            local_world_size,
            address: Self::address(variables, names, is_one_host)?,
            port: port(variables, names.launcher, run.as_deref())?,
            secret: variables.secret()?,
            run,
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
            let (variable, bound) = (names.local_world_size, variables.first(names.world_size));
            return Err(LaunchError::TooManyLocal { variable, value, bound, limit: world_size });
        }
        Ok(Some(value))
    }

    fn address(variables: &Variables, names: &Names, is_one_host: bool) -> Result<String, LaunchError> {
        if let Some(address) = variables.text(MASTER_ADDR) {
            // As in URLs, an IPv6 address may have brackets.
            return Ok(address.trim_matches(['[', ']']).to_owned());
        }
        let missing = LaunchError::NoAddress { launcher: names.launcher };
        match names.launcher {
            Launcher::Torch => Err(LaunchError::Missing { variable: MASTER_ADDR, present: names.rank }),
            _ if is_one_host => Ok(LOOPBACK.to_owned()),
            Launcher::OpenMpi | Launcher::Mpich | Launcher::Cray | Launcher::Kubernetes => Err(missing),
            Launcher::Slurm => {
                let lists = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"];
                let list = lists.into_iter().find_map(|name| Some((name, variables.text(name)?)));
                let (variable, value) = list.ok_or(missing)?;
                first_host(&value).ok_or(LaunchError::HostList { variable, value })
            }
        }
    }
}

/// Secret that all ranks of a run share. `Debug` hides it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(pub(crate) String);

impl Secret {
    /// Wraps the text of a secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Reads the secret of a file that is closed to other users.
    ///
    /// # Errors
    /// A clause with the cause.
    fn read(path: &Path) -> Result<Self, String> {
        let unreadable = |error: io::Error| format!("which cannot be read: {error}");
        let mut file = File::open(path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        if !metadata.is_file() {
            return Err("which is no file".to_owned());
        }
        #[cfg(unix)]
        {
            let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777;
            if mode & 0o077 != 0 {
                return Err(format!("which others may use (mode {mode:04o}): set it to 0600, and make a new secret"));
            }
        }
        let mut text = String::new();
        file.by_ref().take(LONGEST_SECRET).read_to_string(&mut text).map_err(unreadable)?;
        let text = text.trim();
        if text.is_empty() { Err("which is empty".to_owned()) } else { Ok(Self::new(text)) }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("Secret(..)")
    }
}

const PORT_VARIABLE: &str = "GPU_TUNED_PORT";
/// Derived ports: above those of services, below those of clients.
const FIRST_PORT: u64 = 15_000;
const PORTS: u64 = 17_000;
/// Port if nothing identifies the job; PyTorch's default.
const DEFAULT_PORT: u16 = 29_500;

/// Returns the port on which rank 0 waits, the same on all ranks. Runs beside each other have different ports, as far as
/// the launcher identifies them.
fn port(variables: &Variables, launcher: Launcher, run: Option<&str>) -> Result<u16, LaunchError> {
    if let Some(port) = variables.number(PORT_VARIABLE)? {
        return check_port(PORT_VARIABLE, port);
    }
    if let Some(port) = variables.number(MASTER_PORT)? {
        // The agent of torchrun keeps its own store on that port, and another run may have the next one.
        let agent_store = variables.text("TORCHELASTIC_USE_AGENT_STORE");
        let is_taken = agent_store.is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let own = check_port(MASTER_PORT, port)?;
        return Ok(if is_taken { derive_port(own.into()) } else { own });
    }
    match (launcher, run) {
        (Launcher::Torch, _) => Err(LaunchError::Missing { variable: MASTER_PORT, present: "RANK" }),
        (Launcher::Slurm, None) => Err(LaunchError::Missing { variable: "SLURM_JOB_ID", present: "SLURM_PROCID" }),
        (_, None) => Ok(DEFAULT_PORT),
        (_, Some(run)) => Ok(derive_port(run.bytes().fold(0, |sum, byte| (sum * 31 + u64::from(byte)) % PORTS))),
    }
}

fn check_port(variable: &'static str, value: u64) -> Result<u16, LaunchError> {
    u16::try_from(value).ok().filter(|port| *port > 0).ok_or(LaunchError::Port { variable, value })
}

fn derive_port(job: u64) -> u16 {
    u16::try_from(FIRST_PORT + job % PORTS).unwrap_or(DEFAULT_PORT)
}

/// Returns the first host of a list; `None` if the list is malformed.
fn first_host(list: &str) -> Option<String> {
    let mut host = String::new();
    let mut rest = list.trim();
    loop {
        let end = rest.find(['[', ',', ']']).unwrap_or(rest.len());
        host += &rest[..end];
        match rest[end..].chars().next() {
            None | Some(',') => break,
            Some('[') => {
                let (numbers, after) = rest[end + 1..].split_once(']')?;
                // Leading zeros belong to the name.
                let first = numbers.split([',', '-']).next().unwrap_or_default();
                if first.is_empty() || !first.bytes().all(|byte| byte.is_ascii_digit()) {
                    return None;
                }
                host += first;
                rest = after;
            }
            Some(_) => return None,
        }
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    (!host.is_empty() && host.bytes().all(is_name)).then_some(host)
}

/// Environment variables behind a lookup.
struct Variables<'a> {
    lookup: &'a dyn Fn(&str) -> Option<String>,
}

impl Variables<'_> {
    /// Returns the trimmed text of a variable; `None` if the variable is unset or blank.
    fn text(&self, name: &str) -> Option<String> {
        let value = (self.lookup)(name)?;
        let text = value.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// Returns the number in a variable; `None` if the variable is unset or blank.
    fn number<T: FromStr>(&self, variable: &'static str) -> Result<Option<T>, LaunchError> {
        let Some(value) = self.text(variable) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| LaunchError::NotANumber { variable, value })
    }

    /// Returns the number in the first of several variables that is set.
    fn first_number<T: FromStr>(&self, names: &[&'static str]) -> Result<Option<T>, LaunchError> {
        names.iter().copied().find(|name| self.text(name).is_some()).map_or(Ok(None), |name| self.number(name))
    }

    /// Returns true if the launcher started this process. A batch script and an interactive shell are no step of Slurm.
    fn are_of(&self, names: &Names) -> Result<bool, LaunchError> {
        Ok(match names.launcher {
            Launcher::Slurm => self.number::<u32>(SLURM_STEP)?.is_some_and(|step| step < FIRST_SPECIAL_STEP),
            _ => self.has_any(names.marks),
        })
    }

    /// Returns the secret, of a variable or of a file.
    fn secret(&self) -> Result<Option<Secret>, LaunchError> {
        if let Some(text) = self.text(SECRET) {
            return Ok(Some(Secret::new(text)));
        }
        let Some(path) = self.text(SECRET_FILE) else { return Ok(None) };
        Secret::read(Path::new(&path)).map(Some).map_err(|cause| LaunchError::SecretFile { path, cause })
    }

    fn run(&self, names: &Names, is_one_host: bool) -> Option<String> {
        let of_launcher = || {
            // The proxies of several hosts differ.
            let is_known = |name: &&&str| **name != HYDRA_PROXY || is_one_host;
            let job = names.run.iter().filter(is_known).find_map(|name| self.text(name))?;
            let step = self.text(SLURM_STEP).filter(|_| names.launcher == Launcher::Slurm);
            // torchrun's identifier if none was given.
            (job != "none").then(|| step.map_or_else(|| job.clone(), |step| format!("{job}.{step}")))
        };
        self.text(RUN).or_else(of_launcher)
    }

    /// Returns the variable of an unknown launcher with more than one process, and the least number of processes.
    fn unknown_launcher(&self) -> Option<(&'static str, usize)> {
        // Variables of an outer launcher, in a batch script or an interactive shell of Slurm.
        if self.text(SLURM_STEP).is_some() {
            return None;
        }
        UNKNOWN.into_iter().find_map(|variable| {
            let number = self.number::<usize>(variable).ok().flatten()?;
            // The number of the first process does not exclude others.
            let least = if variable.ends_with("SIZE") { number } else { number.saturating_add(1).max(2) };
            (least > 1).then_some((variable, least))
        })
    }

    fn has_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.text(name).is_some())
    }

    /// Returns the first name whose variable is set, or else the first name.
    fn first(&self, names: &[&'static str]) -> &'static str {
        names.iter().copied().find(|name| self.text(name).is_some()).unwrap_or(names[0])
    }
}

/// The launcher's variables are incomplete or contradictory.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages describe the fields")]
pub enum LaunchError {
    /// A variable of the launcher is unset.
    #[error(
        "{variable} is not set, but {present} is; start the program through a launcher that sets both, \
         such as `cargo gpu-tuned launch`, or unset {present}"
    )]
    Missing { variable: &'static str, present: &'static str },
    /// An unknown launcher started several processes.
    #[error(
        "an unknown launcher started at least {processes} processes ({variable} is set), and each would train its own copy of the \
         model; use torchrun, mpirun, mpiexec or srun, or set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT for each \
         process, or unset {variable} if this is the only one"
    )]
    Unknown { variable: &'static str, processes: usize },
    /// An indexed job of Kubernetes without its number of pods.
    #[error(
        "WORLD_SIZE is not set, but JOB_COMPLETION_INDEX is; set WORLD_SIZE to the job's `completions` in its manifest, and \
         MASTER_ADDR to the first pod's name; for separate runs set GPU_TUNED_INDEPENDENT=1"
    )]
    Completions,
    /// Ranks are on several hosts, and nothing names that of rank 0.
    #[error(
        "MASTER_ADDR is not set, but {launcher} started ranks on several hosts; set it to the host of rank 0, \
         for example with `{}`",
        launcher.words().1
    )]
    NoAddress { launcher: Launcher },
    /// A variable has no whole number.
    #[error("{variable} is `{value}`; set it to a whole number that is not negative and in range")]
    NotANumber { variable: &'static str, value: String },
    /// A rank is not below the number of ranks.
    #[error("{variable} is {value}, but {bound} allows only numbers below {limit}; correct one of them")]
    OutOfRange { variable: &'static str, value: usize, bound: &'static str, limit: usize },
    /// The number of ranks on a host is 0, or above the number of all ranks.
    #[error("{variable} is {value}, but has to be at least 1 and at most {bound}, {limit}; correct one of them")]
    TooManyLocal { variable: &'static str, value: usize, bound: &'static str, limit: usize },
    /// A list of hosts has another form than Slurm's.
    #[error("{variable} is `{value}`, which is no list of hosts; set MASTER_ADDR to the host of rank 0")]
    HostList { variable: &'static str, value: String },
    /// The file of the secret cannot be used.
    #[error("GPU_TUNED_SECRET_FILE names {path}, {cause}")]
    SecretFile { path: String, cause: String },
    /// The port is out of range.
    #[error("{variable} is {value}, which is no port in 1 to 65535; set GPU_TUNED_PORT to a free port")]
    Port { variable: &'static str, value: u64 },
}
