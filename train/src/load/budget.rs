//! Limits of the bytes of waiting batches.

/// Limit of bytes, beside the number of batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Budget {
    Unlimited,
    Bytes(u64),
    /// As many bytes as this many samples of the first batch.
    Samples(u64),
}

/// The budget of one epoch, in bytes as soon as a batch has been seen.
#[derive(Debug)]
pub(super) struct Limit {
    budget: Budget,
    bytes: Option<u64>,
}

impl Limit {
    pub(super) fn new(budget: Budget) -> Self {
        let bytes = match budget {
            Budget::Unlimited => Some(u64::MAX),
            Budget::Bytes(bytes) => Some(bytes),
            Budget::Samples(_) => None,
        };
        Self { budget, bytes }
    }

    /// The bytes that may wait, given the next batch: of `bytes` for `samples`.
    pub(super) fn given(&mut self, bytes: u64, samples: u64) -> u64 {
        match (self.bytes, self.budget) {
            (None, Budget::Samples(allowed)) if samples > 0 => {
                *self.bytes.insert(bytes.div_ceil(samples).saturating_mul(allowed))
            }
            (known, _) => known.unwrap_or(u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Budget, Limit};

    #[test]
    fn a_budget_of_samples_is_that_of_the_first_batch_with_any() {
        let mut limit = Limit::new(Budget::Samples(6));
        assert_eq!(limit.given(0, 0), u64::MAX);
        assert_eq!(limit.given(40, 4), 60);
        assert_eq!(limit.given(1000, 4), 60);
    }
}
