//! Exchange of gradients among ranks: its time and buffers, the shards of the optimizer, and shares of a step.

mod all_reduce;
mod shards;
mod shares;

pub use all_reduce::{Exchange, Link, Topology};
pub use shards::{largest_shard, owners};
pub use shares::{Share, shares};

use crate::Bytes;
use crate::workload::Parameters;

/// Bytes of packed gradients that are exchanged at once. The gradient of a larger parameter is exchanged unpacked.
pub const BUCKET_BYTES: u64 = 64 << 20;

/// Bytes of the packed gradients while they are exchanged: one bucket, and a second one that it is computed from. `each` is
/// the size of a gradient's value in bytes. Zero for one rank.
pub fn buffers(parameters: &Parameters, world_size: u64, each: u64) -> Bytes {
    if world_size == 1 {
        return Bytes::ZERO;
    }
    let bytes = |values: u64| Bytes(values).times(each);
    let packed = parameters.trained.iter().filter(|group| bytes(group.values_each()).0 <= BUCKET_BYTES);
    packed.map(|group| bytes(group.values())).sum::<Bytes>().min(Bytes(BUCKET_BYTES)).times(2)
}

#[cfg(test)]
mod tests {
    use super::{BUCKET_BYTES, buffers};
    use crate::Bytes;
    use crate::workload::{Parameters, Tensors};

    #[test]
    fn a_bucket_is_as_large_as_its_gradients_and_a_large_parameter_needs_none() {
        let of = |tensors| buffers(&Parameters { trained: vec![tensors], ..Parameters::default() }, 2, 4);
        assert_eq!(of(Tensors::vectors(3, 1000)), Bytes(2 * 12_000));
        assert_eq!(of(Tensors::vectors(100, 1 << 20)), Bytes(2 * BUCKET_BYTES));
        assert_eq!(of(Tensors::vectors(1, 1 << 25)), Bytes::ZERO);
        assert_eq!(buffers(&Parameters::default(), 1, 4), Bytes::ZERO);
    }
}
