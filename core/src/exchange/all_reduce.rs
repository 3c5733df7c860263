//! Time of an all-reduce, by the links between ranks.

use serde::Serialize;

use super::BUCKET_BYTES;
use crate::plan::Plan;
use crate::profile::Profile;
use crate::workload::Workload;
use crate::{Bytes, Precision};

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
    /// All links: within a host NVLink 4 of an H100 SXM and PCI Express 5.0 x16, between hosts one adapter each.
    #[rustfmt::skip]
    pub const ALL: [Self; 5] = [
        link("nvlink", 370.0, [3.4, 28.0], "NVIDIA/nccl-tests#212: 8 H100, ring"),
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
        ["nvlink", "pcie", "sockets"].contains(&self.name)
    }

    /// Returns true for a link between hosts.
    pub fn is_network(&self) -> bool {
        !["nvlink", "pcie"].contains(&self.name)
    }

    /// NVLink or PCI Express of a GPU, in proportion to the bandwidth of its data sheet; NVLink only if the GPU has it.
    pub fn within_host(profile: Option<&Profile>, name: &str) -> Option<Self> {
        let link = Self::named(name)?;
        let board = profile.map(|profile| &profile.board);
        let ratio = match name {
            "nvlink" => board.map_or(Some(900.0), |board| board.nvlink_gb_s.filter(|rate| *rate > 0.0))? / 900.0,
            "pcie" => {
                let known = board.and_then(|board| Some((board.pcie_gen?, board.pcie_lanes?)));
                known.map_or(1.0, |(generation, lanes)| (f64::from(generation) - 5.0).exp2() * f64::from(lanes) / 16.0)
            }
            _ => 1.0,
        };
        Some(Self { gb_s: link.gb_s * ratio, ..link })
    }
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
    /// Seconds of an all-reduce of gradients, bucket by bucket: a reduce-scatter within each host, an all-reduce between
    /// hosts by a ring or a tree, and an all-gather within each host.
    pub fn all_reduce_s(&self, bytes: Bytes) -> f64 {
        let (local, hosts) = (self.ranks.min(self.ranks_per_host), self.ranks.div_ceil(self.ranks_per_host));
        let buckets = bytes.0.div_ceil(BUCKET_BYTES).max(1) as f64;
        let bucket = bytes.0 as f64 / buckets;
        let ring = |ranks: u64, link: &Link, gb_s: f64| {
            let steps = 2.0 * (ranks - 1) as f64;
            steps * link.latency_us[0] * 1e-6 + steps / ranks as f64 * bucket / (gb_s * 1e9)
        };
        let tree = |ranks: u64, link: &Link, gb_s: f64| {
            let levels = 2.0 * f64::from(ranks.next_power_of_two().ilog2());
            levels * link.latency_us[1] * 1e-6 + 2.0 * bucket / (TREE * gb_s * 1e9)
        };
        let between_gb_s = self.between.gb_s * self.adapters as f64;
        let between = ring(hosts, &self.between, between_gb_s).min(tree(hosts, &self.between, between_gb_s));
        let within = ring(local, &self.within, self.within.gb_s);
        let between = if hosts > 1 { between } else { 0.0 };
        if self.ranks == 1 { 0.0 } else { buckets * (BASE_US * 1e-6 + within + between) }
    }
}

/// The exchange of gradients in a step of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Exchange {
    /// Ranks and links.
    pub topology: Topology,
    /// Bytes of the gradients, in fp32.
    pub gradient_bytes: Bytes,
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
    /// Predicts the exchange of a plan whose ranks are `topology.ranks`.
    pub fn new(plan: &Plan, workload: &Workload, topology: Topology) -> Self {
        let gradient_bytes = Bytes(workload.parameters.trained()).times(Precision::SUM_BYTES);
        let seconds = |ranks: u64| Topology { ranks, ..topology }.all_reduce_s(gradient_bytes);
        let (global_batch, own) = (plan.schedule.global_batch as f64, seconds(topology.ranks));
        let compute = global_batch / plan.samples_per_s;
        // Samples per second of all ranks grow with their number.
        let per_rank = plan.samples_per_s / plan.schedule.world_size as f64;
        let is_tenth = |ranks: &u64| (9.0 * seconds(*ranks) * per_rank).max(1.0) * *ranks as f64 <= global_batch;
        let ranks = (1..u64::from(u32::BITS)).map(|doublings| 1 << doublings);
        Self {
            topology,
            gradient_bytes,
            step_ms: own * 1e3,
            step_share: own / (own + compute),
            tenth_from_batch: ((9.0 * own * plan.samples_per_s).ceil() as u64).max(topology.ranks),
            tenth_to_ranks: ranks.take_while(is_tenth).last(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Exchange, Link, Topology};
    use crate::device::DeviceFacts;
    use crate::profile::ProfileTable;
    use crate::workload::Transformer;
    use crate::{Bytes, Goal, plan};

    fn topology(ranks: u64, within: &str) -> Topology {
        let [within, between] = [within, "400g"].map(|name| Link::named(name).expect("a link"));
        Topology { ranks, ranks_per_host: 8, within, between, adapters: 8 }
    }

    #[test]
    fn a_large_all_reduce_reaches_the_bus_bandwidth_of_the_link() {
        // NVIDIA/nccl-tests: time = bytes / algorithm bandwidth; bus bandwidth = algorithm bandwidth x 2 (n - 1) / n.
        for (ranks, within, gb_s) in [(2, "nvlink", 370.0), (8, "nvlink", 370.0), (2, "pcie", 35.0)] {
            let bytes = 8.0 * f64::from(1 << 30);
            let found = bytes / topology(ranks, within).all_reduce_s(Bytes(8 << 30)) / 1e9;
            let bus = found * 2.0 * (ranks - 1) as f64 / ranks as f64;
            assert!((bus / gb_s - 1.0).abs() < 0.3 && bus < gb_s, "{ranks} {within}: {bus}");
        }
    }

    #[test]
    fn more_bytes_ranks_and_hosts_take_longer_and_one_rank_nothing() {
        let seconds = |ranks, mib| topology(ranks, "nvlink").all_reduce_s(Bytes::from_mib(mib));
        assert_eq!(seconds(1, 100).to_bits(), 0_f64.to_bits());
        for ranks in [2, 8, 16, 1024] {
            assert!(seconds(ranks, 200) > seconds(ranks, 100));
            assert!(seconds(ranks * 2, 100) > seconds(ranks, 100), "{ranks}");
        }
        // Trees keep the latency of 1,280 hosts below a millisecond a bucket.
        assert!(seconds(10_240, 64) < 3e-3, "{}", seconds(10_240, 64));
    }

    #[test]
    fn links_follow_the_data_sheet_of_a_gpu() {
        let rate = |id: &str, name| Link::within_host(ProfileTable::builtin().get(id), name).map(|link| link.gb_s);
        assert_eq!(rate("h100-sxm5-80gb", "nvlink"), Some(370.0));
        assert_eq!(rate("rtx4090", "nvlink"), None);
        assert_eq!(rate("rtx4090", "pcie"), Some(17.5));
        // NVIDIA/nccl-tests#175: 8 A100 reach 232.5 GB/s.
        assert!(rate("a100-sxm4-80gb", "nvlink").is_some_and(|rate| (rate / 232.5 - 1.0).abs() < 0.1));
    }

    #[test]
    fn the_share_falls_with_the_global_batch_to_a_tenth() {
        let device = DeviceFacts::nominal(ProfileTable::builtin().get("h100-sxm5-80gb").expect("shipped"));
        let workload = Transformer::new(12, 768, 50257, 1024).workload();
        let exchange = |global_batch, ranks| {
            let goal = Goal { global_batch: Some(global_batch), world_size: ranks, ..Goal::default() };
            let plan = plan(&device, &workload, &goal).expect("it fits");
            let between = Link::named("100g").expect("a link");
            Exchange::new(&plan, &workload, Topology { between, adapters: 1, ..topology(ranks, "nvlink") })
        };
        let small = exchange(64, 16);
        assert!(small.step_share > exchange(1024, 16).step_share && small.step_share > 0.1);
        let tenth = exchange(small.tenth_from_batch.next_multiple_of(16), 16);
        assert!((tenth.step_share - 0.1).abs() < 0.03, "{tenth:?}");
        let ranks = exchange(4096, 16).tenth_to_ranks.expect("some");
        assert!(exchange(4096, ranks).step_share < 0.13 && exchange(4096, ranks * 2).step_share > 0.08);
    }
}
