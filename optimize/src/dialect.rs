//! Keys of training configs: the setting of each, and the spelling of its value.

use gpu_tuned_core::Precision::{Bf16Params, F32, MixedBf16, MixedF16};
use gpu_tuned_core::{Precision, Setting};

/// Setting that a key configures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Spelling {
    Count,
    /// A count for each loader worker.
    CountPerWorker,
    Flag,
    /// A flag for one precision.
    FlagFor(Precision),
    /// A name from one of these vocabularies.
    Precision(&'static [Vocabulary]),
    /// A name, of which these mean no.
    Words {
        yes: &'static str,
        no: &'static [&'static str],
    },
    /// Any value.
    Any,
}

/// Names of precisions in one dialect.
pub(crate) type Vocabulary = &'static [(Precision, &'static str)];

#[derive(Debug, PartialEq)]
pub(crate) struct Key {
    pub role: Role,
    /// Normal name; with a dot, the name of the table and of the key.
    pub name: &'static str,
    pub spelling: Spelling,
    /// Programs that read the key.
    pub family: Family,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Any program.
    Any,
    /// `TrainingArguments` of Hugging Face's transformers.
    HuggingFace,
    /// PyTorch Lightning's `Trainer`.
    Lightning,
}

const OWN: Vocabulary =
    &[(F32, "f32"), (MixedBf16, "mixed_bf16"), (MixedF16, "mixed_f16"), (Bf16Params, "bf16_params")];
const LIGHTNING: Vocabulary =
    &[(F32, "32-true"), (MixedBf16, "bf16-mixed"), (MixedF16, "16-mixed"), (Bf16Params, "bf16-true")];
const BITS: Vocabulary = &[(F32, "32"), (MixedBf16, "bf16"), (MixedF16, "16")];
const ACCELERATE: Vocabulary = &[(F32, "no"), (MixedBf16, "bf16"), (MixedF16, "fp16")];
const SHORT: Vocabulary = &[(F32, "fp32"), (MixedBf16, "bf16"), (MixedF16, "fp16")];
const NUMPY: Vocabulary = &[(F32, "float32"), (MixedBf16, "bfloat16"), (MixedF16, "float16")];
const AMP: Vocabulary = &[(F32, "fp32"), (MixedBf16, "amp_bf16"), (MixedF16, "amp_fp16")];
/// Vocabularies in the order in which names are looked up.
const ALL: &[Vocabulary] = &[OWN, LIGHTNING, ACCELERATE, BITS, SHORT, NUMPY, AMP];

macro_rules! keys {
    ($($role:ident $spelling:expr, $of:ident: $($name:literal)*;)*) => {
        pub(crate) const KEYS: &[Key] =
            &[$($(Key { role: Role::$role, name: $name, spelling: $spelling, family: Family::$of }),*),*];
    };
}

use Spelling::{Any, Count, CountPerWorker, Flag, FlagFor, Words};
keys! {
    Batch Count, Any: "batch_size" "train_batch_size" "training_batch_size" "per_device_batch_size" "batch_size_per_gpu"
        "per_gpu_train_batch_size" "per_gpu_batch_size" "device_batch_size" "micro_batch_size" "microbatch_size"
        "mini_batch_size" "minibatch_size" "train_micro_batch_size_per_gpu" "device_train_microbatch_size"
        "samples_per_gpu" "batchsize" "train_batchsize" "bs" "batch";
    Batch Count, HuggingFace: "per_device_train_batch_size";
    GlobalBatch Count, Any: "global_batch" "global_batch_size" "global_train_batch_size" "effective_batch_size"
        "total_batch_size" "ims_per_batch";
    Accumulation Count, Any: "gradient_accumulation" "grad_accumulation_steps" "grad_accumulation" "accumulation_steps"
        "gradient_accumulation_step" "grad_accum" "grad_accum_steps" "accumulate_steps" "accum_steps" "accum_iter"
        "accumulate";
    Accumulation Count, Any: "gradient_accumulation_steps";
    Accumulation Count, Lightning: "accumulate_grad_batches";
    Ranks Any, Any: "world_size" "num_processes";
    RanksOfNode Any, Any: "devices" "num_gpus" "gpus" "n_gpus" "n_gpu" "ngpus" "num_devices" "nproc_per_node"
        "gpus_per_node";
    Nodes Any, Any: "num_nodes" "nnodes" "n_nodes";
    Workers Count, Any: "num_workers" "n_workers" "workers" "nworkers" "num_data_workers" "data_workers" "loader_workers"
        "dataloader_workers" "workers_per_gpu" "num_dataloader_workers" "num_loader_workers";
    Workers Count, HuggingFace: "dataloader_num_workers";
    Prefetch Count, Any: "prefetch_depth" "prefetch_batches" "num_prefetch" "prefetch_size" "prefetch";
    Prefetch CountPerWorker, Any: "prefetch_factor";
    Prefetch CountPerWorker, HuggingFace: "dataloader_prefetch_factor";
    Precision Spelling::Precision(ALL), Any: "precision" "mixed_precision" "dtype" "train_dtype" "compute_dtype"
        "amp_dtype" "amp.dtype" "autocast_dtype";
    Precision FlagFor(MixedF16), Any: "fp16" "fp16.enabled" "use_fp16" "amp" "amp.enabled" "use_amp" "enable_amp"
        "autocast";
    Precision FlagFor(MixedBf16), Any: "bf16" "bf16.enabled" "use_bf16";
    Tf32 Flag, Any: "tf32" "allow_tf32" "use_tf32" "enable_tf32";
    Tf32 Words { yes: "high", no: &["highest"] }, Any: "float32_matmul_precision" "matmul_precision";
    Checkpointing Flag, Any: "gradient_checkpointing" "grad_checkpointing" "activation_checkpointing" "grad_checkpoint"
        "use_gradient_checkpointing" "gradient_checkpoint" "checkpoint_activations" "use_checkpointing"
        "enable_gradient_checkpointing" "gradient_checkpointing.enabled" "activation_checkpointing.enabled";
    EvalBatch Count, Any: "eval_batch_size" "per_device_eval_batch_size" "val_batch_size" "valid_batch_size"
        "validation_batch_size" "test_batch_size";
    Samples Count, Any: "train_samples" "num_samples" "n_samples" "num_train_samples" "n_train_samples"
        "num_training_samples" "n_training_samples" "training_samples" "max_train_samples" "total_samples" "n_train"
        "num_train" "train_size" "train_set_size" "train_dataset_size" "training_set_size" "dataset_size" "dataset_length"
        "dataset_len" "dataset.size" "dataset.length" "num_examples" "n_examples" "num_train_examples"
        "n_train_examples" "num_training_examples" "train_examples";
    Optimizer Any, Any: "optim" "optimizer" "optimizer.name" "optimizer.type" "optimizer.class_path" "optimizer._target_"
        "optimizer_name" "optimizer_type";
    NoCounterpart Any, Any: "pin_memory" "dataloader_pin_memory" "persistent_workers" "dataloader_persistent_workers"
        "non_blocking" "channels_last" "cudnn_benchmark" "cudnn.benchmark" "cudnn_deterministic" "benchmark" "compile"
        "torch_compile" "set_to_none" "zero_grad_set_to_none" "use_compile" "find_unused_parameters";
}

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

/// Looks up the key at the end of a path of normal names.
pub(crate) fn known(path: &[String]) -> Option<&'static Key> {
    let (last, before) = path.split_last()?;
    let matches = |key: &&Key| match key.name.split_once('.') {
        Some((table, own)) => own == last && before.last().is_some_and(|name| name == table),
        None => key.name == last,
    };
    KEYS.iter().find(matches)
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
    use super::{KEYS, known, normal};

    #[test]
    fn every_name_is_normal_and_unique() {
        for (index, key) in KEYS.iter().enumerate() {
            assert_eq!(normal(key.name), key.name);
            assert!(KEYS[..index].iter().all(|other| other.name != key.name), "{} is there twice", key.name);
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
        assert_eq!(known(&path(&["deepspeed", "fp16", "enabled"])).map(|key| key.name), Some("fp16.enabled"));
        assert_eq!(known(&path(&["logger", "enabled"])), None);
        assert_eq!(known(&path(&["train", "batch_size"])).map(|key| key.name), Some("batch_size"));
    }
}
