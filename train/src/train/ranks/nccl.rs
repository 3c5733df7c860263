//! NCCL through CubeCL, joined by processes.
//!
//! CubeCL sums over the devices of one process: it sorts the identifiers of the devices, and joins NCCL as the position of
//! its own. It compares the index within an identifier only. A list in which the index of this process's device is at the
//! position of its rank, and the others are made up, therefore joins NCCL as that rank. All processes get one identifier
//! from [`set_bootstrap`].

use std::cmp::Ordering;
use std::env;
use std::net::SocketAddr;

use burn::tensor::Tensor;
use burn_backend::distributed::{DistributedOps, ReduceOperation};
use burn_backend::{DeviceId, DeviceOps, TensorMetadata};
use burn_dispatch::Dispatch;

/// Variable of NCCL with the address at which ranks find each other: `IP:PORT` or `[IPV6]:PORT` of the first rank.
const BOOTSTRAP: &str = "NCCL_COMM_ID";

/// Names the address at which the ranks' NCCL find each other, unless the environment names one: a free port of the first
/// rank's host. Call it at the start of the program, before a device is opened.
#[expect(unsafe_code, reason = "NCCL takes the address from the environment")]
pub fn set_bootstrap(address: SocketAddr) {
    if env::var_os(BOOTSTRAP).is_none() {
        // SAFETY: Rust code locks the environment. C code that reads it in another thread at this moment would race with
        // the write: neither the driver nor NCCL are loaded before a device is opened, and the ranks have looked up names.
        unsafe { env::set_var(BOOTSTRAP, address.to_string()) };
    }
}

/// Sums `parts` over all ranks.
///
/// Each sum is begun before the next one is registered: all ranks must begin them in one order.
pub(super) fn sum(parts: Vec<Tensor<1>>, rank: usize, ranks: usize) -> Vec<Tensor<1>> {
    let summed = |part: Tensor<1>| {
        let part = part.into_dispatch();
        let own = part.device().id().index_id;
        let sum = Dispatch::all_reduce(part, ReduceOperation::Sum, identifiers(own, rank, ranks));
        Tensor::from_dispatch(sum.resolve())
    };
    parts.into_iter().map(summed).collect()
}

/// Identifiers of the ranks' devices, sorted: the index `own` at the position `rank`, and others elsewhere.
fn identifiers(own: u16, rank: usize, ranks: usize) -> Vec<DeviceId> {
    let others = (0..=u16::MAX).filter(|index| *index != own);
    let identifier = |(position, other): (usize, u16)| match position.cmp(&rank) {
        Ordering::Less => DeviceId { type_id: 0, index_id: other },
        Ordering::Equal => DeviceId { type_id: 1, index_id: own },
        Ordering::Greater => DeviceId { type_id: 2, index_id: other },
    };
    (0..ranks).zip(others).map(identifier).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::identifiers;

    proptest! {
        #[test]
        fn the_own_index_is_at_the_position_of_the_rank(own: u16, ranks in 1..300_usize, rank in 0..300_usize) {
            let rank = rank % ranks;
            let mut all = identifiers(own, rank, ranks);
            all.sort();
            prop_assert_eq!(all.len(), ranks);
            prop_assert_eq!(all.iter().position(|id| id.index_id == own), Some(rank));
            all.dedup();
            prop_assert_eq!(all.len(), ranks);
        }
    }
}
