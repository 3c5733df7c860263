//! Goals that override those of the files.

use core::str::FromStr;

use gpu_tuned_core::{Goal, Precision, PrecisionPolicy};

use super::numbers::{count, share};

/// Goals that override those of the files.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct GoalArgs {
    /// Samples of one optimizer step over all ranks, such as `512` or `1e3`
    #[arg(long, value_name = "SAMPLES", value_parser = count)]
    pub global_batch: Option<u64>,
    /// The loss couples all samples of a step, as contrastive losses do: a step is one micro-batch
    #[arg(long)]
    pub whole_batch_loss: bool,
    /// Ranks that train together
    #[arg(long, value_name = "RANKS", value_parser = count)]
    pub world_size: Option<u64>,
    /// Precision: `auto` (the planner chooses), `f32`, `mixed_bf16` (bf16 AMP), `mixed_f16` (fp16 AMP) or `bf16_params`
    /// (pure bf16); names of other frameworks, such as `bf16-mixed`, are taken with a note
    #[arg(long)]
    precision: Option<PrecisionName>,
    /// Memory headroom as a fraction, 0 to 0.9, or in percent: `10%`
    #[arg(long, value_name = "FRACTION", value_parser = share)]
    pub headroom: Option<f64>,
}

impl GoalArgs {
    /// Returns true if any goal is given.
    pub(crate) const fn is_given(&self) -> bool {
        let Self { global_batch, whole_batch_loss, world_size, precision, headroom } = self;
        *whole_batch_loss || global_batch.is_some() || world_size.is_some() || precision.is_some() || headroom.is_some()
    }

    pub(crate) fn precision(&self) -> Option<PrecisionPolicy> {
        self.precision.as_ref().map(|name| name.policy)
    }

    /// Note on a precision that has another name here.
    pub(crate) fn note(&self) -> Option<String> {
        self.precision.as_ref().and_then(|name| name.note.clone())
    }

    /// Overrides a goal by the given ones.
    pub(crate) fn over(&self, mut goal: Goal) -> Goal {
        if self.global_batch.is_some() {
            (goal.global_tokens, goal.mean_tokens) = (None, None);
        }
        goal.global_batch = self.global_batch.or(goal.global_batch);
        goal.whole_batch_loss |= self.whole_batch_loss;
        goal.world_size = self.world_size.unwrap_or(goal.world_size);
        goal.precision = self.precision().or(goal.precision);
        goal.memory_headroom = self.headroom.unwrap_or(goal.memory_headroom);
        goal
    }
}

/// A precision by its name here, or by its name in another framework.
#[derive(Clone, Debug)]
struct PrecisionName {
    policy: PrecisionPolicy,
    note: Option<String>,
}

impl FromStr for PrecisionName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(policy) = text.parse() {
            return Ok(Self { policy, note: None });
        }
        let precision = precision(text).map_err(|expected| format!("{expected}, or auto: the planner chooses"))?;
        let meaning = match precision {
            Precision::F32 => None,
            Precision::MixedBf16 => Some("bf16 AMP, with weights in fp32; pure bf16 is bf16_params"),
            Precision::MixedF16 => Some("fp16 AMP, with weights in fp32"),
            Precision::Bf16Params => Some("pure bf16, weights included"),
        };
        let note = meaning.map(|meaning| format!("--precision {text} is {precision} here: {meaning}"));
        Ok(Self { policy: precision.into(), note })
    }
}

/// Parses a precision by any of its usual names.
pub(crate) fn precision(text: &str) -> Result<Precision, String> {
    const AMP: [&str; 3] = ["amp", "mixed", "mixed_precision"];
    let unknown = || match text.trim() {
        name if AMP.contains(&name) => {
            "AMP is mixed precision in bf16 or fp16: take mixed_bf16 or mixed_f16".to_owned()
        }
        _ => "expected f32, mixed_bf16 (bf16 AMP), mixed_f16 (fp16 AMP) or bf16_params (pure bf16)".to_owned(),
    };
    Precision::spelled(text).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::{Precision, PrecisionPolicy};

    use super::PrecisionName;

    #[test]
    fn names_of_other_frameworks_are_taken_with_a_note() {
        let own = ["auto", "f32", "mixed_bf16", "mixed_f16", "bf16_params"];
        for name in own.into_iter().chain(["fp32", "32-true"]) {
            assert_eq!(name.parse::<PrecisionName>().expect(name).note, None, "{name}");
        }
        for (name, precision) in [
            ("bf16", Precision::MixedBf16),
            ("bf16-mixed", Precision::MixedBf16),
            ("16-mixed", Precision::MixedF16),
            ("fp16", Precision::MixedF16),
            ("bf16-true", Precision::Bf16Params),
        ] {
            let PrecisionName { policy, note } = name.parse().expect(name);
            assert_eq!(policy, PrecisionPolicy::Fixed(precision), "{name}");
            assert!(note.is_some_and(|note| note.contains(name) && note.contains(precision.name())), "{name}");
        }
        for (name, expected) in [("amp", "mixed_bf16 or mixed_f16, or auto"), ("f8", "expected f32, mixed_bf16")] {
            assert!(name.parse::<PrecisionName>().is_err_and(|error| error.contains(expected)), "{name}");
        }
    }
}
