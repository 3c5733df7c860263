use crate::dims::schema;
use crate::exchange::Share;
use crate::{Kernels, Pins, PrecisionPolicy, SettingRow};

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
        kernels?: Kernels, Choice(&Kernels::CHOICES),
            "kernels of the modules in `gpu_tuned::nn` (default burn, and `library` where it was measured and is faster)";
        deterministic: bool = false, Flag,
            "equal steps give equal bits on one GPU: no kernel adds in an order that changes (default false)";
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
        /// Seconds of the exchange of gradients in each step, where the links between the ranks are given.
        #[serde(skip)]
        exchange_s: f64;
    }
}

const LARGEST_BATCH: u64 = SettingRow::LARGEST;
