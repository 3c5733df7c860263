use proptest::prelude::*;

use super::*;
use crate::device::DeviceFacts;
use crate::profile::ProfileTable;
use crate::workload::{Declared, Transformer};
use crate::{Goal, PrecisionPolicy, plan};

#[test]
fn a_bucket_is_as_large_as_its_gradients_and_a_large_parameter_needs_none() {
    let of = |tensors| buffers(&Parameters { trained: vec![tensors], ..Parameters::default() }, 2, 4);
    assert_eq!(of(Tensors::vectors(3, 1000)), Bytes(2 * 12_000));
    assert_eq!(of(Tensors::vectors(100, 1 << 20)), Bytes(2 * 52_428_800));
    assert_eq!(of(Tensors::vectors(1000, 1 << 20)), Bytes(2 * (64 << 20)));
    assert_eq!(of(Tensors::vectors(8, 1 << 20)), Bytes(2 * (4 << 20)));
    assert_eq!(of(Tensors::vectors(1, 1 << 25)), Bytes::ZERO);
    assert_eq!(buffers(&Parameters::default(), 1, 4), Bytes::ZERO);
}

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
    let bucket = topology(10_240, "nvlink").bucket_s(f64::from(64 << 20));
    assert!(bucket < 3e-3, "{bucket}");
}

#[test]
fn links_follow_the_data_sheet_of_a_gpu() {
    let rate = |id: &str, name| Link::within_host(ProfileTable::builtin().get(id), name, 8).map(|link| link.gb_s);
    assert_eq!(rate("h100-sxm5-80gb", "nvlink"), Some(370.0));
    assert_eq!(rate("rtx4090", "nvlink"), None);
    assert_eq!(rate("rtx4090", "pcie"), Some(17.5));
    // NVIDIA/nccl-tests#175: 8 A100 reach 232.5 GB/s.
    assert!(rate("a100-sxm4-80gb", "nvlink").is_some_and(|rate| (rate / 232.5 - 1.0).abs() < 0.1));
}

#[test]
fn a_bridge_joins_two_gpus() {
    let link = |id: &str, name, ranks| Link::within_host(ProfileTable::builtin().get(id), name, ranks);
    // Bus bandwidths of nccl-tests: NVIDIA/nccl#1161, 2 x RTX 2080 Ti, and A100 in pairs over PCIe 4.0 (NVIDIA/nccl-tests#178).
    for (id, name, ranks, gb_s) in
        [("h100-pcie", "nvlink", 2, 116.0), ("rtx2080-ti", "nvlink", 2, 21.5), ("a100-pcie-40gb", "pcie", 8, 20.0)]
    {
        let link = link(id, name, ranks).expect("it has the link");
        assert!((link.gb_s / gb_s - 1.0).abs() < 0.15, "{id}: {link:?}");
    }
    for id in ["a100-pcie-80gb", "a40", "rtx-a6000", "rtx3090", "rtx2080-ti", "h100-nvl"] {
        assert!(link(id, "nvlink", 2).is_some_and(|link| link.name == "bridge"), "{id}");
        assert_eq!(link(id, "nvlink", 3), None, "{id}");
    }
    assert!(link("h200-nvl", "nvlink", 4).is_some() && link("h200-nvl", "nvlink", 8).is_none());
    assert!(link("a100-sxm4-80gb", "nvlink", 8).is_some_and(|link| link.name == "nvlink"));
}

#[test]
fn an_exchange_slows_each_step_and_can_decide() {
    let device = DeviceFacts::nominal(ProfileTable::builtin().get("h100-sxm5-80gb").expect("shipped"));
    let workload = Transformer::new(12, 768, 50257, 1024).workload();
    let goal =
        Goal { global_batch: Some(512), world_size: 32, precision: Some(PrecisionPolicy::Auto), ..Goal::default() };
    let alone = plan(&device, &workload, &goal).expect("it fits");
    let step = 512.0 / alone.samples_per_s;
    let with = plan(&device, &workload, &Goal { exchange_s: step, ..goal.clone() }).expect("it fits");
    let mut counted = alone.clone();
    counted.count_exchange(step);
    assert!((counted.samples_per_s * 2.0 / alone.samples_per_s - 1.0).abs() < 1e-9);
    assert!((with.samples_per_s / counted.samples_per_s - 1.0).abs() < 0.05, "{with}");
    counted.count_exchange(-step);
    assert!((counted.samples_per_s / alone.samples_per_s - 1.0).abs() < 1e-9);
    // Beside a long exchange 16 bits gain too little.
    assert!(alone.settings.precision.is_mixed());
    let slow = plan(&device, &workload, &Goal { exchange_s: 100.0 * step, ..goal }).expect("it fits");
    assert_eq!(slow.settings.precision, Precision::F32);
}

#[test]
fn the_share_falls_with_the_global_batch_to_a_tenth() {
    let device = DeviceFacts::nominal(ProfileTable::builtin().get("h100-sxm5-80gb").expect("shipped"));
    let workload = Transformer::new(12, 768, 50257, 1024).workload();
    let exchange = |global_batch, ranks| {
        let goal = Goal { global_batch: Some(global_batch), world_size: ranks, ..Goal::default() };
        let plan = plan(&device, &workload, &goal).expect("it fits");
        let between = Link::named("100g").expect("a link");
        Exchange::new(&plan, &workload, false, Topology { between, adapters: 1, ..topology(ranks, "nvlink") })
    };
    let small = exchange(64, 16);
    assert!(small.step_share > exchange(1024, 16).step_share && small.step_share > 0.1);
    let tenth = exchange(small.tenth_from_batch.next_multiple_of(16), 16);
    assert!((tenth.step_share - 0.1).abs() < 0.03, "{tenth:?}");
    let ranks = exchange(4096, 16).tenth_to_ranks.expect("some");
    assert!(exchange(4096, ranks).step_share < 0.13 && exchange(4096, ranks * 2).step_share > 0.08);
}

fn loads(sizes: &[u64], ranks: usize) -> Vec<u64> {
    let mut loads = vec![0; ranks];
    for (size, owner) in sizes.iter().zip(owners(sizes, ranks)) {
        loads[owner] += size;
    }
    loads
}

#[test]
fn the_largest_parameters_come_first_and_each_goes_to_the_least_loaded_rank() {
    assert_eq!(owners(&[1, 5, 3, 3, 2], 2), [1, 0, 1, 1, 0]);
    assert_eq!(owners(&[4, 4, 4], 3), [0, 1, 2]);
    assert_eq!(owners(&[7, 8], 10_240), [1, 0]);
    assert_eq!(owners(&[], 4), [0_usize; 0]);
}

#[test]
fn gpt2_is_shared_down_to_its_embedding() {
    let gpt2 = Transformer::new(12, 768, 50257, 1024).workload().parameters;
    let all = gpt2.state(Optimizer::AdamW);
    assert_eq!(all, 2 * 124_439_808);
    // Two ranks hold half each to 0.1%; from four ranks on, one holds the embedding alone.
    assert!(largest_shard(&gpt2, Optimizer::AdamW, 2) - all / 2 < all / 1000);
    for ranks in [4, 8, 10_240] {
        assert_eq!(largest_shard(&gpt2, Optimizer::AdamW, ranks), 2 * 50257 * 768, "{ranks}");
    }
    assert_eq!(largest_shard(&gpt2, Optimizer::Sgd, 2), 0);
}

#[test]
fn parameters_of_unknown_shape_are_shared_evenly() {
    let costs = Declared { parameters: 1_000_000, ..Declared::default() }.workload().parameters;
    assert_eq!(largest_shard(&costs, Optimizer::AdamW, 8), 250_000 + 2);
    assert_eq!(largest_shard(&costs, Optimizer::AdamW, 1), 2_000_000);
}

/// The least load of the most loaded rank, of all ways to assign the sizes.
fn least_load(sizes: &[u64], loads: &mut [u64]) -> u64 {
    let Some((size, others)) = sizes.split_first() else { return loads.iter().copied().max().unwrap_or(0) };
    let with = |rank: usize, loads: &mut [u64]| {
        loads[rank] += size;
        let best = least_load(others, loads);
        loads[rank] -= size;
        best
    };
    (0..loads.len()).map(|rank| with(rank, loads)).min().unwrap_or(0)
}

proptest! {
    #[test]
    fn shares_add_up_and_are_within_a_third_of_the_best(
        sizes in prop::collection::vec(0_u64..1000, 0..8),
        ranks in 1_usize..4,
    ) {
        let found = loads(&sizes, ranks);
        prop_assert_eq!(found.iter().sum::<u64>(), sizes.iter().sum::<u64>());
        // Graham 1969: at most 4/3 - 1/(3 ranks) of the best.
        let best = least_load(&sizes, &mut vec![0; ranks]);
        let most = found.into_iter().max().unwrap_or(0);
        prop_assert!(most * 3 * ranks as u64 <= best * (4 * ranks as u64 - 1), "{} for {}", most, best);
    }

    #[test]
    fn the_loads_do_not_depend_on_the_order(
        sizes in prop::collection::vec(0_u64..50, 0..40).prop_flat_map(|sizes| (Just(sizes.clone()), Just(sizes).prop_shuffle())),
        ranks in 1_usize..9,
    ) {
        let sorted = |sizes: &[u64]| { let mut loads = loads(sizes, ranks); loads.sort_unstable(); loads };
        prop_assert_eq!(sorted(&sizes.0), sorted(&sizes.1));
    }
}

fn counts(samples: u64, speeds: &[f64]) -> Vec<u64> {
    let shares = shares(samples, speeds).expect("enough samples");
    shares.into_iter().map(|share| share.samples).collect()
}

/// Seconds of the slowest rank.
fn slowest(counts: &[u64], speeds: &[f64]) -> f64 {
    counts.iter().zip(speeds).map(|(count, speed)| *count as f64 / speed).fold(0.0, f64::max)
}

/// The least seconds of the slowest rank, of all ways to share.
fn least_seconds(samples: u64, speeds: &[f64]) -> f64 {
    let (speed, others) = speeds.split_first().expect("a rank");
    if others.is_empty() {
        return samples as f64 / speed;
    }
    let with = |own: u64| (own as f64 / speed).max(least_seconds(samples - own, others));
    (1..=samples - others.len() as u64).map(with).fold(f64::INFINITY, f64::min)
}

#[test]
fn shares_follow_the_speeds() {
    assert_eq!(counts(512, &[3.0, 1.0]), [384, 128]);
    assert_eq!(counts(10, &[1.0, 1.0, 1.0]), [4, 3, 3]);
    assert_eq!(counts(4, &[1000.0, 1.0, 1.0, 1.0]), [1, 1, 1, 1]);
    assert_eq!(counts(5, &[1000.0, 1.0, 1.0, 1.0]), [2, 1, 1, 1]);
    assert_eq!(shares(2, &[1.0; 3]), None);
    assert_eq!(shares(512, &[3.0, 1.0]).unwrap()[1], Share { first: 384, samples: 128 });
}

#[test]
fn many_ranks_share_a_large_step_at_once() {
    let speeds: Vec<f64> = (0..10_240).map(|rank| 1.0 + f64::from(rank % 7)).collect();
    assert_eq!(counts(1 << 40, &speeds).into_iter().sum::<u64>(), 1 << 40);
}

fn speeds() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(0.1_f64..50.0, 1..9)
}

proptest! {
    #[test]
    fn they_add_up_and_order_like_the_speeds(speeds in speeds(), more in 0_u64..1_000_000) {
        let samples = speeds.len() as u64 + more;
        let counts = counts(samples, &speeds);
        prop_assert_eq!(counts.iter().sum::<u64>(), samples);
        prop_assert!(counts.iter().all(|count| *count >= 1));
        for (one, speed) in speeds.iter().enumerate() {
            for (other, lower) in speeds.iter().enumerate() {
                let margin = u64::from(speed.to_bits() == lower.to_bits());
                prop_assert!(speed < lower || counts[one] + margin >= counts[other]);
            }
        }
    }

    #[test]
    fn a_faster_rank_never_gets_less(speeds in speeds(), more in 0_u64..10_000, rank: prop::sample::Index, by in 1.0_f64..4.0) {
        let rank = rank.index(speeds.len());
        let samples = speeds.len() as u64 + more;
        let mut faster = speeds.clone();
        faster[rank] *= by;
        prop_assert!(counts(samples, &faster)[rank] >= counts(samples, &speeds)[rank]);
    }

    #[test]
    fn another_order_of_the_ranks_orders_the_shares(
        (speeds, order) in speeds().prop_flat_map(|speeds| {
            let order = (0..speeds.len()).collect::<Vec<_>>();
            (Just(speeds), Just(order).prop_shuffle())
        }),
        more in 0_u64..10_000,
    ) {
        let samples = speeds.len() as u64 + more;
        let shuffled: Vec<f64> = order.iter().map(|rank| speeds[*rank]).collect();
        let (found, before) = (counts(samples, &shuffled), counts(samples, &speeds));
        prop_assert_eq!(found, order.iter().map(|rank| before[*rank]).collect::<Vec<_>>());
    }

    #[test]
    fn no_other_shares_end_earlier(speeds in prop::collection::vec(0.1_f64..50.0, 1..4), more in 0_u64..25) {
        let samples = speeds.len() as u64 + more;
        let found = slowest(&counts(samples, &speeds), &speeds);
        prop_assert!(found <= least_seconds(samples, &speeds) * (1.0 + 1e-12), "{}", found);
    }

    #[test]
    fn parts_of_a_shorter_step_make_it_up(speeds in speeds(), more in 0_u64..1000, part in 0.0_f64..1.0) {
        let global = speeds.len() as u64 + more;
        let samples = (global as f64 * part) as u64;
        let mut end = 0;
        for share in shares(global, &speeds).expect("enough samples") {
            let part = share.part(samples, global);
            prop_assert_eq!(part.start, end);
            prop_assert_eq!(share.part(global, global), share.first..share.first + share.samples);
            end = part.end;
        }
        prop_assert_eq!(end, samples);
    }
}
