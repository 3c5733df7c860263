//! From tokens to samples: how large an optimizer step is.

use super::error::PlanError;
use crate::Goal;
use crate::workload::Workload;

impl Goal {
    /// Returns the first of the [`mistakes`](Self::mistakes) as an error.
    pub(super) fn check(&self) -> Result<(), PlanError> {
        let mistake = self.mistakes().into_iter().next();
        mistake.map_or(Ok(()), |(_, message)| Err(PlanError::Goal { message }))
    }

    /// The goal with its tokens, where it is stated in tokens, turned into a global batch of samples.
    ///
    /// # Errors
    ///
    /// When the model has no tokens, or they make up no whole number of samples on each rank.
    pub fn in_samples(&self, workload: &Workload) -> Result<Self, PlanError> {
        let Some(global_tokens) = self.global_tokens else { return Ok(self.clone()) };
        let samples = samples(self, global_tokens, workload)?;
        Ok(Self { global_batch: Some(samples), global_tokens: None, mean_tokens: None, ..self.clone() })
    }
}

const NO_TOKENS: &str = "global_tokens needs a model with tokens: transformer, encoder_decoder, vit, recurrent, or declared \
                         with tokens_per_sample";

fn samples(goal: &Goal, global_tokens: u64, workload: &Workload) -> Result<u64, PlanError> {
    let Some(sample) = workload.sample.tokens else {
        return Err(PlanError::NoTokens { message: NO_TOKENS.to_owned() });
    };
    // Unequal shares are of any number of samples.
    let ranks = if goal.unequal { 1 } else { goal.world_size };
    match goal.mean_tokens {
        None => packed(global_tokens, sample, ranks),
        Some(mean) if mean > sample as f64 => {
            let message = format!("mean_tokens = {mean} is more than the {sample} tokens that a sample has room for");
            Err(PlanError::NoTokens { message })
        }
        Some(mean) => Ok(padded(global_tokens, mean, ranks)),
    }
}

/// Samples that are packed full: their tokens add up exactly.
fn packed(global_tokens: u64, sample: u64, world_size: u64) -> Result<u64, PlanError> {
    let step = sample.saturating_mul(world_size);
    if global_tokens.is_multiple_of(step) {
        return Ok(global_tokens / sample);
    }
    let below = global_tokens / step * step;
    let would_do = [below, below.saturating_add(step)].into_iter().filter(|tokens| *tokens > 0).collect();
    Err(PlanError::Tokens { global_tokens, sample, world_size, step, would_do })
}

/// Samples that hold `mean` tokens on average: the nearest number that the ranks can share.
fn padded(global_tokens: u64, mean: f64, world_size: u64) -> u64 {
    let per_rank = (global_tokens as f64 / mean / world_size as f64).round() as u64;
    per_rank.clamp(1, 1 << 30).saturating_mul(world_size)
}

#[cfg(test)]
mod tests {
    use super::NO_TOKENS;
    use crate::dims::{Dim, DimValue, Presence};
    use crate::workload::{ModelKind, ModelSpec, WorkloadSpec};

    #[test]
    fn the_message_lists_every_kind_with_tokens() {
        for kind in ModelKind::ALL.iter().filter(|kind| kind.name != "declared") {
            let model = ModelSpec::from_values(kind, &kind.dims.iter().filter_map(placeholder).collect());
            let has_tokens = WorkloadSpec::from(model).workload().sample.tokens.is_some();
            assert_eq!(NO_TOKENS.contains(kind.name), has_tokens, "{}", kind.name);
        }
    }

    fn placeholder(dim: &Dim) -> Option<(&'static str, DimValue)> {
        (dim.presence == Presence::Required).then(|| (dim.name, dim.kind.placeholder()))
    }
}
