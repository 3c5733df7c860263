//! Size of an optimizer step.

use serde::Serialize;

use crate::config::{Config, MAX_BATCH};
use crate::dialect::Role;
use crate::error::OptimizeError;

/// Composition of an optimizer step in the config, and the planned size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Samples of a micro-batch.
    #[serde(rename = "batch_size")]
    pub batch: u64,
    /// Micro-batches of a step.
    #[serde(rename = "gradient_accumulation")]
    pub accumulation: u64,
    /// Devices that train together.
    #[serde(rename = "world_size")]
    pub ranks: u64,
    /// Samples of a step over all devices: the product of the three, or the user's choice.
    #[serde(rename = "global_batch")]
    pub global: u64,
}

impl Step {
    /// The step of a config; a given global batch and number of ranks override the config.
    ///
    /// # Errors
    ///
    /// A config without a batch size, and numbers that contradict each other.
    pub fn new(config: &Config, global_batch: Option<u64>, world_size: Option<u64>) -> Result<Self, OptimizeError> {
        let ranks = world_size.or(config.ranks).unwrap_or(1).max(1);
        let accumulation = config.accumulation.unwrap_or(1);
        let batch = match (config.batch, config.global_batch.or(global_batch)) {
            (Some(batch), _) => batch,
            // The key of the batch is left open; or the devices share a global batch, which no key divides.
            (None, Some(global)) if config.key(Role::Batch).is_some() || config.key(Role::Accumulation).is_none() => {
                (global / ranks / accumulation).max(1)
            }
            (None, _) => return Err(OptimizeError::NoBatch),
        };
        let accumulation = implied_accumulation(config, batch, ranks).unwrap_or(accumulation);
        let product = batch.checked_mul(accumulation).and_then(|samples| samples.checked_mul(ranks));
        let product = product.filter(|product| *product <= MAX_BATCH);
        let product = product.ok_or(OptimizeError::TooLarge { batch, accumulation, ranks })?;
        let configured = config.global_batch.filter(|configured| global_batch.is_none() && *configured != product);
        if let (Some(configured), Some(key)) = (configured, config.key(Role::GlobalBatch)) {
            let (product, key) = (product.to_string(), key.to_owned());
            return Err(OptimizeError::GlobalBatch { batch, accumulation, ranks, product, key, configured });
        }
        let global = global_batch.unwrap_or(product);
        if !global.is_multiple_of(ranks) {
            return Err(OptimizeError::Ranks { global, ranks });
        }
        Ok(Self { batch, accumulation, ranks, global })
    }

    /// Samples of a step on one device.
    pub const fn samples_per_rank(&self) -> u64 {
        self.global / self.ranks
    }

    /// Samples of a step in the config as it is.
    pub const fn configured(&self) -> u64 {
        self.batch * self.accumulation * self.ranks
    }
}

/// Micro-batches of a step where keys set the global batch and the micro-batch, and none the accumulation.
pub(crate) fn implied_accumulation(config: &Config, batch: u64, ranks: u64) -> Option<u64> {
    let global = config.global_batch.filter(|_| config.key(Role::Accumulation).is_none() && config.batch.is_some())?;
    let part = batch.checked_mul(ranks)?;
    (global > part && global.is_multiple_of(part)).then(|| global / part)
}
