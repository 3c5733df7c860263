use crate::device::DeviceFacts;
use crate::dims::{Schema, schema};
use crate::exchange::Share;
use crate::{Pins, Precision, PrecisionPolicy, SettingRow, SettingValue};

schema! {
    /// The user's request to the planner.
    pub struct Goal {
        global_batch?: u64, Count(1..=LARGEST_BATCH),
            "samples of one optimizer step over all ranks (default: the planned GPU's micro-batch, times the ranks)";
        global_tokens?: u64, Count(1..=1 << 40),
            "tokens of one optimizer step over all ranks, in place of `global_batch`";
        mean_tokens?: f64, Number(1.0..=1e9),
            "tokens in a sample on average, where sequences are padded (default: packed full)";
        drop_last: bool = false, Flag, "leave out an epoch's last step if smaller than the others (default false)";
        /// A step, such as of `InfoNCE`, NT-Xent or CLIP, is then one micro-batch on one rank, or there is no plan.
        whole_batch_loss: bool = false, Flag,
            "the loss couples all samples of a step, as contrastive losses do: a step is one micro-batch (default false)";
        world_size: u64 = 1, Count(1..=LARGEST_BATCH),
            "ranks that train together; divides the global batch unless shares are `unequal` (default 1)";
        unequal: bool = false, Flag, "share the global batch by the ranks' predicted speeds (default false: equally)";
        shard_optimizer: bool = false, Flag,
            "store only a rank's share of the optimizer's state on each rank (default false)";
        precision?: PrecisionPolicy, Choice(&PrecisionPolicy::CHOICES),
            "precision; `auto` lets the planner choose (default fp32, with TF32 where the GPU supports it; `auto` with a \
             tuned precision field)";
        allow_cuda_graphs?: bool, Flag,
            "use CUDA graphs where they are measured to be 5% faster (default false; true with a tuned field)";
        /// From 0 to 0.9 of the available memory.
        memory_headroom: f64 = 0.10, Number(0.0..=0.9),
            "memory headroom: fraction of the memory left free (default 0.1)";
        throughput_tolerance: f64 = 0.02, Number(0.0..=0.5),
            "fraction of the best throughput to give up for a smaller micro-batch (default 0.02)";
        target_utilization?: f64, Number(0.05..=0.99),
            "fraction of the time that the device computes, in place of `throughput_tolerance`";
        /// In MiB.
        prefetch_mib: u64 = 1024, Count(0..=1 << 30), "memory that prepared batches may take (default 1024)";
    } with {
        /// Settings fixed by the user; checked, never changed.
        #[serde(skip_deserializing, skip_serializing_if = "Pins::is_empty")]
        pins: Pins;
        /// This rank's samples of a step, where unequal shares are decided.
        #[serde(skip)]
        share: Option<Share>;
    }
}

const LARGEST_BATCH: u64 = SettingRow::LARGEST;

impl Goal {
    /// Fraction of the headroom that stays free on a probed GPU. The rest is reserved for other processes, and a
    /// probe measures their memory.
    pub const HEADROOM_KEPT: f64 = 0.5;

    /// Precisions that the planner compares on a device: the requested one, or under [`Auto`](PrecisionPolicy::Auto) fp32
    /// and the 16-bit mixed precision of the tensor cores.
    pub fn precisions(&self, device: &DeviceFacts) -> Vec<Precision> {
        let policy = self.precision.unwrap_or(Precision::F32.into());
        match self.pins.precision.or(policy.fixed()) {
            Some(fixed) => vec![fixed],
            None => core::iter::once(Precision::F32).chain(device.mixed_precision()).collect(),
        }
    }

    /// Returns true if the planner may choose CUDA graphs.
    pub fn allows_graphs(&self) -> bool {
        self.allow_cuda_graphs == Some(true)
    }

    /// Returns true if a GPU may replay steps as CUDA graphs: those of one rank, unless the setting is pinned to false.
    pub fn may_use_graphs(&self) -> bool {
        self.world_size == 1 && self.pins.cuda_graphs != Some(false)
    }

    /// Number of ranks with `samples` of a step each that make up the global batch.
    pub(crate) fn ranks_for(&self, samples: u64) -> f64 {
        self.global_batch.map_or(self.world_size as f64, |global_batch| global_batch as f64 / samples as f64)
    }

    /// Returns true if the planner chooses the precision.
    pub fn plans_precision(&self) -> bool {
        self.precision == Some(PrecisionPolicy::Auto) && self.pins.precision.is_none()
    }

    /// Errors in the goal, as `(key, message)`.
    pub fn mistakes(&self) -> Vec<(&'static str, String)> {
        let mut found = self.out_of_range();
        if self.global_tokens.is_some() && self.global_batch.is_some() {
            let message = "global_tokens and global_batch both set the size of an optimizer step: keep one of them";
            found.push(("global_tokens", message.to_owned()));
        }
        if self.mean_tokens.is_some() && self.global_tokens.is_none() {
            let message = "mean_tokens converts global_tokens to samples, and global_tokens is not given";
            found.push(("mean_tokens", message.to_owned()));
        }
        found.extend(self.cut_of_whole_batch());
        for (setting, value) in self.pins.iter() {
            // The planner has an error of its own for 0.
            let mistake = setting.out_of_range(value).filter(|_| value != SettingValue::Count(0));
            found.extend(mistake.map(|message| (setting.name(), format!("{setting} = {message}"))));
        }
        found
    }

    /// A request that cuts a loss over the whole batch, as `(key, message)`.
    fn cut_of_whole_batch(&self) -> Option<(&'static str, String)> {
        let (batch, micro_steps) = (self.pins.batch_size, self.pins.gradient_accumulation);
        let step = self.global_batch.unwrap_or_default();
        let is_part = |batch: &u64| (1..step).contains(batch);
        let ranks = (self.world_size > 1)
            .then(|| ("world_size", format!("{} ranks share each step", self.world_size), "train on one rank"));
        let micro_steps = micro_steps.filter(|count| *count > 1).map(|count| {
            let what = format!("a step has {count} micro-batches");
            ("gradient_accumulation", what, "leave gradient_accumulation to the planner")
        });
        let batch = batch.filter(is_part).map(|batch| {
            let what = format!("batch_size = {batch} is less than the {step} samples of a step");
            ("batch_size", what, "leave batch_size to the planner")
        });
        let (key, what, remedy) = ranks.or(micro_steps).or(batch).filter(|_| self.whole_batch_loss)?;
        let why = "whole_batch_loss needs a step as one micro-batch on one rank: gradients of parts of a batch are those of \
                   another loss";
        Some((key, format!("{what}, but {why}; {remedy}, or {CACHED_EMBEDDINGS}")))
    }
}

/// Remedy for a loss over a batch that is too large for one micro-batch.
pub(crate) const CACHED_EMBEDDINGS: &str = "cache the batch's embeddings (GradCache) and leave out whole_batch_loss";
