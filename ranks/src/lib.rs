//! Processes of a distributed training run: which belong together, and are all of them alive?
//!
//! [`Launch`] reads the variables of the launcher. [`Group::join`] connects the process to rank 0, checks that all
//! ranks agree on their [`Terms`], and watches the ranks until the run ends.
//!
//! ```
//! use gpu_tuned_ranks::{Group, Launch, Limits, Terms};
//!
//! # fn environment(name: &str) -> Option<String> {
//! #     [("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500")]
//! #         .into_iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
//! # }
//! // `Launch::from_env()` in a program.
//! let Some(launch) = Launch::from_lookup(environment)? else { return Ok(()) };
//! let terms = Terms::default().same("gpu-tuned", env!("CARGO_PKG_VERSION"));
//! let group = Group::join(&launch, terms, Limits::default())?;
//! assert_eq!(group.sum(vec![1.0, 2.0])?, [1.0, 2.0]);
//! group.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Faults
//!
//! | fault | noticed after | error |
//! |---|---|---|
//! | a process is killed or exits | the connection breaks: milliseconds | [`Ended::Lost`] |
//! | a process or host stops, or the network fails | [`Limits::silence`], 15 s | [`Ended::Silent`] |
//! | a rank reports a failure, or panics | milliseconds | [`Ended::Failed`], [`Ended::Panicked`] |
//! | ranks make different exchanges | the second one arrives | [`Ended::OutOfStep`], [`Ended::Differs`] |
//! | a rank finishes, and others wait for it | [`Limits::uneven`], 5 s | [`Ended::Uneven`] |
//! | all ranks wait in NCCL | [`Limits::exchange`], 300 s | [`Ended::Stuck`] |
//! | the others wait in NCCL for one rank | [`Limits::arrival`], 1,800 s | [`Ended::Late`] |
//!
//! All ranks get the same error. A process that does not end by itself exits with [`EXIT_CODE`] after [`Limits::grace`],
//! 8 s, wherever its threads are. Stopped and killed ranks therefore end all others within 30 s.
//!
//! # Network
//!
//! Rank 0 listens on the loopback address if the launcher counts all ranks on its host. Otherwise it listens on all
//! interfaces, and needs a secret in `GPU_TUNED_SECRET` or in the file of `GPU_TUNED_SECRET_FILE`. Both sides prove the
//! secret before anything else is read; it is never sent. Without a secret, both sides check on Linux that the other one
//! belongs to the same user; other systems need a secret. Messages are not encrypted: use a trusted network.
//!
//! Ranks of another run, by its launcher's job or `GPU_TUNED_RUN_ID`, are refused and do not disturb the group.
//!
//! Each rank has one connection, to rank 0. In training it carries a heartbeat a second, or one in two seconds above
//! 4,096 ranks. Rank 0 raises its limit of open files if needed.
//!
//! # Features
//!
//! Without feature `group`, which is on by default, the crate only reads the variables of launchers.
#![forbid(unsafe_code)]

#[cfg(feature = "group")]
mod group;
mod launch;

#[cfg(feature = "group")]
pub use group::{Activity, EXIT_CODE, Ended, ExitHook, Group, JoinError, Limits, StepTime, Terms};
pub use launch::{Launch, LaunchError, Launched, Launcher, Secret};
