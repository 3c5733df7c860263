//! How large an optimizer step is.

use serde::Serialize;

use super::config::Config;
use super::error::OptimizeError;
use super::keys::Role;

/// The largest step, as goals have it.
const LARGEST: u64 = 1 << 30;

/// How an optimizer step is made, as the config has it, and how large it is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Step {
    /// Samples of a micro-batch.
    #[serde(rename = "batch_size")]
    pub batch: u64,
    /// Micro-batches of a step.
    #[serde(rename = "gradient_accumulation")]
    pub accumulation: u64,
    /// Devices that train together.
    #[serde(rename = "world_size")]
    pub ranks: u64,
    /// Samples of a step over all devices: the product of the three, or what the command line asks for.
    #[serde(rename = "global_batch")]
    pub global: u64,
}

impl Step {
    /// Reads it off a config; the command line goes before it.
    pub(super) fn of(
        config: &Config<'_>,
        global_batch: Option<u64>,
        world_size: Option<u64>,
    ) -> Result<Self, OptimizeError> {
        let ranks = world_size.or(config.ranks).unwrap_or(1).max(1);
        let accumulation = config.accumulation.unwrap_or(1);
        let batch = match (config.batch, config.global_batch.or(global_batch)) {
            (Some(batch), _) => batch,
            // A key for the batch that leaves it open; or none, where the devices share what a key says of the step.
            (None, Some(global)) if config.key(Role::Batch).is_some() || config.key(Role::Accumulation).is_none() => {
                (global / ranks / accumulation).max(1)
            }
            (None, _) => return Err(OptimizeError::NoBatch),
        };
        let accumulation = implied(config, batch, ranks).unwrap_or(accumulation);
        let product = batch.checked_mul(accumulation).and_then(|samples| samples.checked_mul(ranks));
        let product = product.filter(|product| *product <= LARGEST).ok_or(OptimizeError::TooLarge {
            batch,
            accumulation,
            ranks,
        })?;
        let said = config.global_batch.filter(|said| global_batch.is_none() && *said != product);
        if let (Some(said), Some(found)) = (said, config.key(Role::GlobalBatch)) {
            let (product, key) = (product.to_string(), found.leaf.shown.clone());
            return Err(OptimizeError::GlobalBatch { batch, accumulation, ranks, product, key, said });
        }
        let global = global_batch.unwrap_or(product);
        if !global.is_multiple_of(ranks) {
            return Err(OptimizeError::Ranks { global, ranks });
        }
        Ok(Self { batch, accumulation, ranks, global })
    }

    /// Samples of a step on one device.
    pub(super) const fn share(&self) -> u64 {
        self.global / self.ranks
    }
}

/// How often gradients are accumulated where one key says the step and another a part of it, and none how many there are: as
/// often as it takes. Where both say the same, one of them may be there for nothing.
pub(super) fn implied(config: &Config<'_>, batch: u64, ranks: u64) -> Option<u64> {
    let global = config.global_batch.filter(|_| config.key(Role::Accumulation).is_none() && config.batch.is_some())?;
    let part = batch.checked_mul(ranks)?;
    (global > part && global.is_multiple_of(part)).then(|| global / part)
}
