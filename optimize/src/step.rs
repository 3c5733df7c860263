//! Size of an optimizer step.

use serde::Serialize;

use crate::config::{Config, MAX_BATCH};
use crate::dialect::{Dialect, Role, Spelling};
use crate::error::OptimizeError;
use crate::matched::MatchedKey;

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
        let of_rank = |role: Role, value: Option<u64>| match value {
            Some(shared) if is_over_ranks(config, role) && !shared.is_multiple_of(ranks) => {
                Err(OptimizeError::Ranks { global: shared, ranks })
            }
            Some(shared) if is_over_ranks(config, role) => Ok(Some(shared / ranks)),
            value => Ok(value),
        };
        let (batch, steps) = (of_rank(Role::Batch, config.batch)?, of_rank(Role::Accumulation, config.accumulation)?);
        let global = config.global_batch_of(ranks).map(|global| whole_batches(config, global, batch, ranks));
        // A key that leaves a factor of the step to the program.
        let open = |role: Role| config.matched(role).is_some_and(MatchedKey::is_open);
        let batch = match (batch, global.or(global_batch)) {
            (Some(batch), _) => batch,
            // The other keys divide the global batch.
            (None, Some(global)) => (global / ranks / steps.unwrap_or(1)).max(1),
            (None, None) => {
                return Err(match [Role::GlobalBatch, Role::Batch].into_iter().find(|role| open(*role)) {
                    Some(role) => left_open(config, role),
                    None if !config.is_training => OptimizeError::NotTraining { found: String::new() },
                    None => no_batch(config),
                });
            }
        };
        let implied = implied_accumulation(config, global.or(global_batch), batch, ranks);
        let steps = match (steps, implied) {
            (Some(steps), _) | (None, Some(steps)) => steps,
            (None, None) if open(Role::Accumulation) && global.or(global_batch).is_none() => {
                return Err(left_open(config, Role::Accumulation));
            }
            (None, None) => 1,
        };
        if !config.is_training {
            return Err(OptimizeError::NotTraining { found: String::new() });
        }
        let product = batch.checked_mul(steps).and_then(|samples| samples.checked_mul(ranks));
        let product = product.filter(|product| *product <= MAX_BATCH);
        let product = product.ok_or(OptimizeError::TooLarge { batch, accumulation: steps, ranks })?;
        let configured = global.filter(|configured| global_batch.is_none() && *configured != product);
        if let (Some(configured), Some(key)) = (configured, config.key(Role::GlobalBatch)) {
            let micro = config.key(Role::Batch).unwrap_or("the batch");
            let found = format!("`{micro}` {batch} x {steps} x {ranks} rank(s) are {product} samples");
            let remedy = "correct the config, or choose with --global-batch or --world-size";
            return Err(config.mistake(Role::GlobalBatch, format!("{found}, but `{key}` is {configured}: {remedy}")));
        }
        let global = global_batch.unwrap_or(product);
        if !global.is_multiple_of(ranks) {
            return Err(OptimizeError::Ranks { global, ranks });
        }
        Ok(Self { batch, accumulation: steps, ranks, global })
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

/// The error of a factor of the step that the config leaves to the program.
fn left_open(config: &Config, role: Role) -> OptimizeError {
    let key = config.key(role).unwrap_or_default();
    let remedy = "give the samples of an optimizer step over all devices: --global-batch";
    config.mistake(role, format!("`{key}` is left to the program: {remedy}"))
}

fn no_batch(config: &Config) -> OptimizeError {
    let dialect = config.dialect;
    if let Some(key) = config.key(Role::Unfixed) {
        let remedy = "give a batch of a fixed number of samples, with --at batch_size=KEY if its key is not known";
        return config.mistake(Role::Unfixed, format!("`{key}` counts the tokens or seconds of a batch: {remedy}"));
    }
    let plain = Dialect::plain().usual(Role::Batch);
    let usual = [dialect.usual(Role::Batch), dialect.usual(Role::GlobalBatch), plain];
    OptimizeError::NoBatch {
        dialect: dialect.name.clone(),
        usual: usual.into_iter().find(|names| !names.is_empty()).unwrap_or_default(),
        documentation: dialect.documentation.clone(),
    }
}

/// Returns true if the devices share the count of a role.
pub(crate) fn is_over_ranks(config: &Config, role: Role) -> bool {
    let is_split = || role == Role::Batch && config.feature("split_batches").as_deref() == Some("true");
    is_split() || config.matched(role).is_some_and(|key| key.spelling == Spelling::CountOverRanks)
}

/// Samples of a step; those of a nominal batch are rounded to whole batches, at least one.
fn whole_batches(config: &Config, global: u64, batch: Option<u64>, ranks: u64) -> u64 {
    let is_nominal = config.dialect.rows(Role::GlobalBatch).any(|key| key.spelling == Spelling::Nominal);
    let Some(batch) = batch.and_then(|batch| batch.checked_mul(ranks)).filter(|_| is_nominal) else { return global };
    // Python rounds halves to even numbers.
    batch.saturating_mul(((global as f64 / batch as f64).round_ties_even() as u64).max(1))
}

/// Micro-batches of a step where keys set the global batch and the micro-batch, and none the accumulation.
pub(crate) fn implied_accumulation(config: &Config, global: Option<u64>, batch: u64, ranks: u64) -> Option<u64> {
    let is_open = config.matched(Role::Accumulation).is_none_or(MatchedKey::is_open) && config.batch.is_some();
    let global =
        global.filter(|_| is_open && (config.global_batch.is_some() || config.key(Role::Accumulation).is_some()))?;
    let part = batch.checked_mul(ranks)?;
    (global > part && global.is_multiple_of(part)).then(|| global / part)
}
