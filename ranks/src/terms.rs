//! Conditions on which ranks join.

use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::join_error::JoinError;

/// Named values that ranks compare before they train together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    same: Vec<(String, String)>,
    distinct: Vec<(String, String)>,
}

impl Terms {
    /// Adds a value that has to be equal on all ranks, such as a version or the shape of the model.
    #[must_use]
    pub fn same(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.same.push((name.into(), value.into()));
        self
    }

    /// Adds a value that has to differ between the ranks of a host, such as the address of the GPU.
    #[must_use]
    pub fn distinct_on_host(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.distinct.push((name.into(), value.into()));
        self
    }

    pub(crate) fn distinct(&self) -> &[(String, String)] {
        &self.distinct
    }
}

/// Rank that asks to join, as it describes itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Applicant {
    pub(crate) rank: usize,
    pub(crate) world_size: usize,
    pub(crate) host: Host,
    pub(crate) terms: Terms,
    /// Random number of the process, which it keeps when it connects again.
    pub(crate) instance: [u8; 32],
}

impl Applicant {
    /// Returns the first difference between this rank and rank 0.
    pub(crate) fn difference(&self, root: &Self) -> Result<(), JoinError> {
        if self.world_size != root.world_size || self.rank >= root.world_size {
            return Err(JoinError::WorldSize {
                rank: self.rank,
                host: self.host.name.clone(),
                world_size: self.world_size,
                expected: root.world_size,
            });
        }
        let value = |terms: &Terms, name: &str| {
            let found = terms.same.iter().find(|(other, _)| other == name);
            found.map_or_else(|| "not given".to_owned(), |(_, value)| value.clone())
        };
        for (term, _) in root.terms.same.iter().chain(&self.terms.same) {
            let (own, expected) = (value(&self.terms, term), value(&root.terms, term));
            if own != expected {
                return Err(JoinError::Term {
                    rank: self.rank,
                    host: self.host.name.clone(),
                    term: term.clone(),
                    value: own,
                    expected,
                });
            }
        }
        Ok(())
    }
}
