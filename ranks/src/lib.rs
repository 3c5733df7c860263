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
#![forbid(unsafe_code)]

mod ended;
mod exit;
mod files;
mod group;
mod handshake;
mod host;
mod hub;
mod join_error;
mod launch;
mod limits;
mod member;
mod protocol;
mod pulse;
mod runtime;
mod secret;
mod status;
mod terms;

pub use ended::Ended;
pub use exit::EXIT_CODE;
pub use group::Group;
pub use join_error::JoinError;
pub use launch::{Launch, LaunchError, Launcher};
pub use limits::{ExitHook, Limits};
pub use pulse::{Activity, StepTime};
pub use secret::Secret;
pub use terms::Terms;
