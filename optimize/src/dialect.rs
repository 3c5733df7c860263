//! Keys of training configs: the setting of each, and the spelling of its value.

use std::sync::LazyLock;

use gpu_tuned_core::{Precision, Setting};
use serde::Deserialize;

use crate::names::Words;

/// Setting that a key configures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Samples of a micro-batch on one device.
    Batch,
    /// Samples of an optimizer step over all devices.
    GlobalBatch,
    /// Micro-batches of an optimizer step.
    Accumulation,
    /// Devices that train together.
    Ranks,
    /// Devices of each node, where `Nodes` is another factor.
    RanksOfNode,
    /// Machines that train together.
    Nodes,
    /// Threads that prepare batches.
    Workers,
    /// Batches that are prepared ahead.
    Prefetch,
    /// Precision of training.
    Precision,
    /// TF32 in products of fp32.
    Tf32,
    /// Activation checkpointing.
    Checkpointing,
    /// Samples of a batch of evaluation.
    EvalBatch,
    /// Samples of the training set.
    Samples,
    /// The optimizer's name.
    Optimizer,
    /// A switch without a counterpart in Burn.
    NoCounterpart,
}

impl Role {
    /// Roles that a user can assign to a key, by their names on the command line.
    pub(crate) const NAMED: [(&'static str, Self); 10] = [
        (Setting::BatchSize.name(), Self::Batch),
        ("global_batch", Self::GlobalBatch),
        (Setting::GradientAccumulation.name(), Self::Accumulation),
        (Setting::NumWorkers.name(), Self::Workers),
        (Setting::PrefetchDepth.name(), Self::Prefetch),
        (Setting::Precision.name(), Self::Precision),
        (Setting::AllowTf32.name(), Self::Tf32),
        (Setting::GradientCheckpointing.name(), Self::Checkpointing),
        (Setting::EvalBatchSize.name(), Self::EvalBatch),
        ("train_samples", Self::Samples),
    ];

    /// Name of the role on the command line.
    pub(crate) fn name(self) -> Option<&'static str> {
        Self::NAMED.iter().find(|(_, role)| *role == self).map(|(name, _)| *name)
    }
}

/// Spelling of a value.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Spelling {
    Count,
    /// A count for each loader worker.
    CountPerWorker,
    Flag,
    /// A flag for one precision.
    FlagFor(Precision),
    /// A name of a vocabulary.
    Precision,
    /// `high` or `medium` for yes, `highest` for no.
    HighOrHighest,
    /// Any value.
    Any,
}

/// Keys of a setting with one spelling.
#[derive(Debug, Deserialize)]
pub(crate) struct Key {
    pub role: Role,
    pub spelling: Spelling,
    /// Programs that read the keys.
    #[serde(default)]
    pub family: Family,
    /// Normal names; with a dot, the name of the table and of the key.
    names: Words,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Family {
    /// Any program.
    #[default]
    Any,
    /// `TrainingArguments` of Hugging Face's transformers.
    HuggingFace,
    /// PyTorch Lightning's `Trainer`.
    Lightning,
}

/// Names of precisions in one dialect.
pub(crate) type Vocabulary = Vec<(Precision, String)>;

/// The tables of `dialect.toml`.
#[derive(Deserialize)]
pub(crate) struct Dialects {
    pub vocabularies: Vec<Vocabulary>,
    #[serde(rename = "key")]
    pub keys: Vec<Key>,
}

pub(crate) static DIALECTS: LazyLock<Dialects> =
    LazyLock::new(|| toml::from_str(include_str!("dialect.toml")).expect("BUG: the tables of keys are valid"));

/// Normal name of a key: in lower case, with underscores between words.
pub(crate) fn normal(key: &str) -> String {
    let mut normal = String::with_capacity(key.len() + 4);
    let mut follows_small = false;
    for letter in key.chars() {
        if letter.is_uppercase() && follows_small {
            normal.push('_');
        }
        follows_small = letter.is_lowercase() || letter.is_ascii_digit();
        match letter {
            '-' | ' ' => normal.push('_'),
            _ => normal.extend(letter.to_lowercase()),
        }
    }
    normal
}

/// Setting that a key with this normal name configures, whatever table it is in.
pub fn role(name: &str) -> Option<Role> {
    known(&[name.to_owned()]).map(|key| key.role)
}

/// Looks up the key at the end of a path of normal names.
pub(crate) fn known(path: &[String]) -> Option<&'static Key> {
    let (last, before) = path.split_last()?;
    let matches = |name: &str| match name.split_once('.') {
        Some((table, own)) => own == last && before.last().is_some_and(|name| name == table),
        None => name == last,
    };
    DIALECTS.keys.iter().find(|key| key.names.iter().any(matches))
}

impl Family {
    /// The key that every program of the family reads for a role.
    pub(crate) fn key(self, role: Role) -> Option<&'static str> {
        Some(match (self, role) {
            (Self::HuggingFace, Role::Accumulation) => "gradient_accumulation_steps",
            (Self::HuggingFace, Role::Workers) => "dataloader_num_workers",
            (Self::HuggingFace, Role::Checkpointing) => "gradient_checkpointing",
            (Self::Lightning, Role::Accumulation) => "accumulate_grad_batches",
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{DIALECTS, Role, known, normal};

    #[test]
    fn every_name_is_normal_and_unique() {
        let names: Vec<_> = DIALECTS.keys.iter().flat_map(|key| key.names.iter()).collect();
        for (index, name) in names.iter().enumerate() {
            assert_eq!(normal(name), *name);
            assert!(!names[..index].contains(name), "{name} is there twice");
        }
    }

    #[test]
    fn spellings_of_a_name_have_one_normal_form() {
        for (key, name) in [
            ("batchSize", "batch_size"),
            ("batch-size", "batch_size"),
            ("BATCH_SIZE", "batch_size"),
            ("IMS_PER_BATCH", "ims_per_batch"),
            ("numGPUs", "num_gpus"),
            ("fp16", "fp16"),
        ] {
            assert_eq!(normal(key), name);
        }
    }

    #[test]
    fn dotted_names_match_table_and_key() {
        let path = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(known(&path(&["deepspeed", "fp16", "enabled"])).map(|key| key.role), Some(Role::Precision));
        assert!(known(&path(&["logger", "enabled"])).is_none());
        assert_eq!(known(&path(&["train", "batch_size"])).map(|key| key.role), Some(Role::Batch));
    }
}
