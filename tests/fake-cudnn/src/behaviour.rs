//! Faults that the library plays.

use std::fmt::{Display, Formatter};
use std::sync::{Mutex, PoisonError};

/// Environment variable with a [`Behaviour`] as text, for programs started by a test:
/// `version=8907 no-algorithm fails=cudnnCreate`.
pub const VARIABLE: &str = "FAKE_CUDNN";

/// Version of the library, and faults.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fault of its own")]
pub struct Behaviour {
    /// Result of `cudnnGetVersion`.
    pub version: usize,
    /// Result of `cudnnGetCudartVersion`.
    pub cuda: usize,
    /// Finds algorithms.
    pub has_algorithms: bool,
    /// Says that equal runs of its algorithms have equal bits.
    pub is_deterministic: bool,
    /// Finds another algorithm first, and refuses to compute with it.
    pub mispredicts: bool,
    /// Reports another order of a recurrent layer's weights.
    pub has_other_weights: bool,
    /// Function that fails with `CUDNN_STATUS_INTERNAL_ERROR`.
    pub fails: Option<String>,
}

impl Default for Behaviour {
    /// Version 9.28.1 for CUDA 13.0, without faults.
    fn default() -> Self {
        Self {
            version: 92_801,
            cuda: 13_000,
            has_algorithms: true,
            is_deterministic: true,
            mispredicts: false,
            has_other_weights: false,
            fails: None,
        }
    }
}

impl Display for Behaviour {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "version={} cuda={}", self.version, self.cuda)?;
        if !self.has_algorithms {
            write!(formatter, " no-algorithm")?;
        }
        if !self.is_deterministic {
            write!(formatter, " not-deterministic")?;
        }
        if self.mispredicts {
            write!(formatter, " mispredicts")?;
        }
        if self.has_other_weights {
            write!(formatter, " other-weights")?;
        }
        self.fails.as_ref().map_or(Ok(()), |function| write!(formatter, " fails={function}"))
    }
}

impl Behaviour {
    fn parse(text: &str) -> Self {
        let mut behaviour = Self::default();
        for word in text.split_whitespace() {
            match word.split_once('=').unwrap_or((word, "")) {
                ("version", number) => behaviour.version = number.parse().expect("a version"),
                ("cuda", number) => behaviour.cuda = number.parse().expect("a version"),
                ("no-algorithm", "") => behaviour.has_algorithms = false,
                ("not-deterministic", "") => behaviour.is_deterministic = false,
                ("mispredicts", "") => behaviour.mispredicts = true,
                ("other-weights", "") => behaviour.has_other_weights = true,
                ("fails", function) => behaviour.fails = Some(function.to_owned()),
                _ => panic!("{VARIABLE}: {word}"),
            }
        }
        behaviour
    }
}

static BEHAVIOUR: Mutex<Option<Behaviour>> = Mutex::new(None);

pub(crate) fn set(text: &str) {
    *BEHAVIOUR.lock().unwrap_or_else(PoisonError::into_inner) = Some(Behaviour::parse(text));
}

/// The behaviour that was set, else that of the environment variable.
pub(crate) fn current() -> Behaviour {
    let mut behaviour = BEHAVIOUR.lock().unwrap_or_else(PoisonError::into_inner);
    behaviour.get_or_insert_with(|| Behaviour::parse(&std::env::var(VARIABLE).unwrap_or_default())).clone()
}
