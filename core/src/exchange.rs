//! Exchange of gradients among ranks: its time and buffers, the shards of the optimizer, and shares of a step.

use core::cmp::Reverse;
use core::ops::Range;
use std::collections::BinaryHeap;

use serde::{Deserialize, Serialize};

use crate::plan::Plan;
use crate::profile::Profile;
use crate::workload::{Optimizer, Parameters, Tensors, Workload};
use crate::{Bytes, Precision};

/// Bytes of a bucket, the packed gradients that are exchanged at once, where all gradients have so many bytes: an eighth of them,
/// from 4 to 64 MiB, so that most are exchanged beside the backward pass. The gradient of a larger parameter is exchanged
/// unpacked.
pub fn bucket_bytes(gradients: u64) -> u64 {
    (gradients / 8).clamp(4 << 20, 64 << 20)
}

/// Bytes of the packed gradients while they are exchanged: one bucket, and a second one that it is computed from. `each` is
/// the size of a gradient's value in bytes. Zero for one rank.
pub fn buffers(parameters: &Parameters, world_size: u64, each: u64) -> Bytes {
    if world_size == 1 {
        return Bytes::ZERO;
    }
    let bytes = |values: u64| Bytes(values).times(each);
    let bucket = Bytes(bucket_bytes(bytes(parameters.trained()).0));
    let packed = parameters.trained.iter().filter(|group| bytes(group.values_each()) <= bucket);
    packed.map(|group| bytes(group.values())).sum::<Bytes>().min(bucket).times(2)
}

/// Rates of a link with NCCL.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Link {
    /// Name on command lines.
    pub name: &'static str,
    /// Bus bandwidth of large all-reduces, GB/s: of a GPU within a host, of a network adapter between hosts.
    pub gb_s: f64,
    /// Microseconds of a step of a ring, and of a level of a tree.
    pub latency_us: [f64; 2],
    /// Origin of the bandwidth.
    pub source: &'static str,
}

/// Microseconds of each ring. This figure and the latencies of links are those of NCCL's own cost model (`baseLat` and `hwLat`
/// of `src/graph/tuning.cc` at commit 01afd20a, protocol "Simple").
const BASE_US: f64 = 8.4;
/// Part of the bandwidth that trees reach, from the same file.
const TREE: f64 = 0.9;

const fn link(name: &'static str, gb_s: f64, latency_us: [f64; 2], source: &'static str) -> Link {
    Link { name, gb_s, latency_us, source }
}

impl Link {
    /// All links: within a host NVLink 4 of an H100 SXM, an NVLink bridge of two H100 PCIe, and PCI Express 5.0 x16; between hosts
    /// one adapter each.
    #[rustfmt::skip]
    pub const ALL: [Self; 6] = [
        link("nvlink", 370.0, [3.4, 28.0], "NVIDIA/nccl-tests#212: 8 H100, ring"),
        link("bridge", 116.0, [3.4, 28.0], "NVIDIA/nccl#1161: 2 H100 PCIe"),
        link("pcie", 35.0, [5.7, 28.0], "NVIDIA/nccl#1639: 4 GPUs on PCIe 5.0 x16"),
        link("sockets", 5.0, [30.0, 60.0], "NVIDIA/nccl#450: TCP, 4 to 6 GB/s; latency: NVIDIA/nccl-tests#82"),
        link("100g", 12.2, [9.6, 50.0], "NVIDIA/nccl-tests#29: one 100 Gbit/s adapter, RDMA"),
        link("400g", 48.0, [9.6, 50.0], "NVIDIA/nccl-tests#290: 46 to 48 GB/s an adapter, RDMA"),
    ];

    /// The link of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|link| link.name == name)
    }

    /// Returns true for a link within a host.
    pub fn is_local(&self) -> bool {
        ["nvlink", "bridge", "pcie", "sockets"].contains(&self.name)
    }

    /// Returns true for a link between hosts.
    pub fn is_network(&self) -> bool {
        self.name == "sockets" || !self.is_local()
    }

    /// Link among `ranks` GPUs of a host, in proportion to the bandwidth of the GPU's data sheet. NVLink only if the GPU has it; a
    /// bridge is the NVLink of the few GPUs that it joins.
    pub fn within_host(profile: Option<&Profile>, name: &str, ranks: u64) -> Option<Self> {
        let board = profile.map(|profile| &profile.board);
        let is_nvlink = ["nvlink", "bridge"].contains(&name);
        let bridged = board.and_then(|board| board.nvlink_gpus).filter(|_| is_nvlink);
        if bridged.is_some_and(|gpus| ranks > u64::from(gpus)) {
            return None;
        }
        let name = if bridged.is_some() { "bridge" } else { name };
        let link = Self::named(name)?;
        let nvlink = |of_link| board.map_or(Some(of_link), |it| it.nvlink_gb_s.filter(|rate| *rate > 0.0));
        let ratio = match name {
            "nvlink" => nvlink(900.0)? / 900.0,
            "bridge" => nvlink(600.0)? / 600.0,
            "pcie" => {
                let known = board.and_then(|board| Some((board.pcie_gen?, board.pcie_lanes?)));
                known.map_or(1.0, |(generation, lanes)| (f64::from(generation) - 5.0).exp2() * f64::from(lanes) / 16.0)
            }
            _ => 1.0,
        };
        Some(Self { gb_s: link.gb_s * ratio, ..link })
    }
}

/// Samples per second with an exchange of `exchange_s` seconds after each step of `samples`; without it where negative.
pub(crate) fn with_exchange(samples_per_s: f64, samples: f64, exchange_s: f64) -> f64 {
    if exchange_s == 0.0 { samples_per_s } else { samples / (samples / samples_per_s + exchange_s) }
}

/// Ranks and the links between them. Hosts have equal numbers of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Topology {
    /// All ranks.
    pub ranks: u64,
    /// Ranks of each host.
    pub ranks_per_host: u64,
    /// Link within a host.
    pub within: Link,
    /// Link between hosts.
    pub between: Link,
    /// Network adapters of each host.
    pub adapters: u64,
}

impl Topology {
    /// Seconds of an all-reduce of gradients, bucket by bucket.
    pub fn all_reduce_s(&self, bytes: Bytes) -> f64 {
        let buckets = bytes.0.div_ceil(bucket_bytes(bytes.0)).max(1) as f64;
        buckets * self.bucket_s(bytes.0 as f64 / buckets)
    }

    /// Seconds of an all-reduce of one bucket of so many bytes: a reduce-scatter within each host, an all-reduce between hosts by
    /// a ring or a tree, and an all-gather within each host.
    pub fn bucket_s(&self, bytes: f64) -> f64 {
        let (local, hosts) = (self.ranks.min(self.ranks_per_host), self.ranks.div_ceil(self.ranks_per_host));
        let ring = |ranks: u64, link: &Link, gb_s: f64| {
            let steps = 2.0 * (ranks - 1) as f64;
            steps * link.latency_us[0] * 1e-6 + steps / ranks as f64 * bytes / (gb_s * 1e9)
        };
        let tree = |ranks: u64, link: &Link, gb_s: f64| {
            let levels = 2.0 * f64::from(ranks.next_power_of_two().ilog2());
            levels * link.latency_us[1] * 1e-6 + 2.0 * bytes / (TREE * gb_s * 1e9)
        };
        let between_gb_s = self.between.gb_s * self.adapters as f64;
        let between = ring(hosts, &self.between, between_gb_s).min(tree(hosts, &self.between, between_gb_s));
        let within = ring(local, &self.within, self.within.gb_s);
        let between = if hosts > 1 { between } else { 0.0 };
        if self.ranks == 1 { 0.0 } else { BASE_US * 1e-6 + within + between }
    }
}

/// The exchange of gradients in a step of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Exchange {
    /// Ranks and links.
    pub topology: Topology,
    /// Bytes that are summed in a step: see [`summed_bytes`].
    pub bytes: Bytes,
    /// True if the new values of the parameters are among them.
    pub shards_optimizer: bool,
    /// Predicted milliseconds of a step.
    pub step_ms: f64,
    /// Part of the step, 0 to 1: the exchange follows the micro-batches.
    pub step_share: f64,
    /// Global batch from which the exchange takes at most a tenth of a step.
    pub tenth_from_batch: u64,
    /// Most ranks among which the exchange takes at most a tenth of a step of the plan's global batch, a power of two; `None` if it takes more
    /// among two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenth_to_ranks: Option<u64>,
}

impl Exchange {
    /// Predicts the exchange of a plan whose ranks are `topology.ranks`, and whose speed is without it.
    pub fn new(plan: &Plan, workload: &Workload, shards_optimizer: bool, topology: Topology) -> Self {
        let bytes = summed_bytes(workload, shards_optimizer);
        let seconds = |ranks: u64| Topology { ranks, ..topology }.all_reduce_s(bytes);
        let (global_batch, own) = (plan.schedule.global_batch as f64, seconds(topology.ranks));
        let compute = global_batch / plan.samples_per_s;
        // Samples per second of all ranks grow with their number.
        let per_rank = plan.samples_per_s / plan.schedule.world_size as f64;
        let is_tenth = |ranks: &u64| (9.0 * seconds(*ranks) * per_rank).max(1.0) * *ranks as f64 <= global_batch;
        let ranks = (1..u64::from(u32::BITS)).map(|doublings| 1 << doublings);
        Self {
            topology,
            bytes,
            shards_optimizer,
            step_ms: own * 1e3,
            step_share: own / (own + compute),
            tenth_from_batch: ((9.0 * own * plan.samples_per_s).ceil() as u64).max(topology.ranks),
            tenth_to_ranks: ranks.take_while(is_tenth).last(),
        }
    }
}

/// Bytes that ranks sum in a step: the gradients in fp32, and with a sharded optimizer as many of the new values, each of which
/// is zero on all ranks but one.
pub fn summed_bytes(workload: &Workload, shards_optimizer: bool) -> Bytes {
    let vectors = if shards_optimizer { 2 } else { 1 };
    Bytes(workload.parameters.trained()).times(vectors * Precision::SUM_BYTES)
}

/// Most parameter tensors that are assigned one by one in a plan. A model of 405 billion parameters has 1,137.
const MOST_ASSIGNED: u64 = 4096;

/// Assigns each parameter to the rank that keeps its optimizer state and updates it.
///
/// The parameters are assigned by falling size, each to the rank with the fewest values so far: the earlier parameter and
/// the lower rank first where sizes are equal. `sizes` are in values; the result has a rank below `ranks` for each.
pub fn owners(sizes: &[u64], ranks: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|parameter| Reverse(sizes[*parameter]));
    // Ranks beyond the number of parameters stay empty.
    let mut loads: BinaryHeap<_> = (0..ranks.min(sizes.len()).max(1)).map(|rank| Reverse((0, rank))).collect();
    let mut owners = vec![0; sizes.len()];
    for parameter in order {
        let Some(mut least) = loads.peek_mut() else { break };
        let Reverse((values, rank)) = &mut *least;
        *values += u128::from(sizes[parameter]);
        owners[parameter] = *rank;
    }
    owners
}

/// Values of optimizer state on the rank that keeps the most, where `ranks` share the state by [`owners`].
///
/// For over 4,096 tensors, and for parameters of unknown shape, an upper bound: an equal share and the largest
/// tensor's state.
pub fn largest_shard(parameters: &Parameters, optimizer: Optimizer, ranks: u64) -> u64 {
    if ranks == 1 {
        return parameters.state(optimizer);
    }
    let state_each = |group: &Tensors| optimizer.state_values(&Tensors { count: 1, ..*group });
    let tensors = parameters.trained.iter().fold(0, |sum: u64, group| sum.saturating_add(group.count));
    if tensors > MOST_ASSIGNED {
        let largest = parameters.trained.iter().map(state_each).max().unwrap_or(0);
        return parameters.state(optimizer).div_ceil(ranks).saturating_add(largest).min(parameters.state(optimizer));
    }
    let all = || parameters.trained.iter().flat_map(|group| (0..group.count).map(move |_| group));
    let sizes: Vec<u64> = all().map(Tensors::values_each).collect();
    let mut shards = vec![0_u64; sizes.len()];
    for (owner, group) in owners(&sizes, usize::try_from(ranks).unwrap_or(usize::MAX)).into_iter().zip(all()) {
        shards[owner] = shards[owner].saturating_add(state_each(group));
    }
    shards.into_iter().max().unwrap_or(0)
}

/// Samples of one rank in an optimizer step, where ranks have unequal shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Share {
    /// Samples of the ranks before this one.
    pub first: u64,
    /// Samples of this rank.
    pub samples: u64,
}

impl Share {
    /// The rank's part of a step with `samples`, where a full step has `global_batch`. The parts of all ranks are consecutive
    /// and make up the step.
    pub fn part(self, samples: u64, global_batch: u64) -> Range<u64> {
        let position = |sample| (u128::from(sample) * u128::from(samples) / u128::from(global_batch.max(1))) as u64;
        position(self.first)..position(self.first + self.samples)
    }
}

/// Shares the `samples` of a step so that the slowest rank ends as early as possible.
///
/// `speeds` are samples per second of each rank, positive and finite. Each rank gets at least one sample, and a faster rank
/// no fewer than a slower one; equally fast ranks differ by at most one, the lower rank with more. `None` if there are fewer
/// samples than ranks.
pub fn shares(samples: u64, speeds: &[f64]) -> Option<Vec<Share>> {
    let spare = samples.checked_sub(speeds.len() as u64)?;
    let seconds = spare as f64 / speeds.iter().sum::<f64>();
    // No more than `samples` in all, so the last samples can be given one by one.
    let mut counts: Vec<u64> = speeds.iter().map(|speed| ((seconds * speed) as u64).max(1)).collect();
    let left = samples.saturating_sub(counts.iter().sum());
    // Positive numbers are ordered like their bits.
    let end = |rank: usize, count: u64| Reverse((((count + 1) as f64 / speeds[rank]).to_bits(), rank));
    let mut next: BinaryHeap<_> = counts.iter().enumerate().map(|(rank, count)| end(rank, *count)).collect();
    for _ in 0..left {
        let mut earliest = next.peek_mut()?;
        let rank = earliest.0.1;
        counts[rank] += 1;
        *earliest = end(rank, counts[rank]);
    }
    let mut first = 0;
    let share = |samples| {
        let share = Share { first, samples };
        first += samples;
        share
    };
    Some(counts.into_iter().map(share).collect())
}

#[cfg(test)]
mod tests;
