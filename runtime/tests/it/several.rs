//! Decisions of processes that train together.

use gpu_tuned::ranks::{Launch, Launcher, RanksError};
use gpu_tuned::{Decision, Fallback, Machine, Options, PlanError, Setting, Shortfall, StartError, Tuned};

use crate::launched::launched;
use crate::played::{exact_profile, machine_in_fixed_host as machine};

// Says nothing of ranks.
config! {
    ForH100, transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256),
    global_batch = 512, target = "h100-sxm5-80gb"
}

// 500 samples: 8 ranks cannot share them.
config! {
    Of500 { #[tuned] batch_size: usize, #[tuned] num_workers: usize },
    transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), global_batch = 500, target = "rtx4090"
}

// A network whose micro-batch is part of what it computes.
config! {
    WithStatistics, convnet(image = 32, classes = 10, stages = [[64, 2], [128, 2]], batch_statistics = true),
    global_batch = 64, target = "h100-sxm5-80gb"
}

/// Decisions of ranks on one machine, rank by rank.
fn decide_on<C: Tuned + Default + Sync>(here: &Machine, ranks: usize) -> Vec<Result<Decision, StartError>> {
    launched(ranks, |_, as_rank| as_rank(Options::default().machine(here.clone())).decide(&C::default()))
}

fn decide<C: Tuned + Default + Sync>(scenario: &str, ranks: usize) -> Vec<Decision> {
    let all = decide_on::<C>(&machine(scenario), ranks);
    all.into_iter().map(|decided| decided.unwrap_or_else(|error| panic!("{scenario}: {error}"))).collect()
}

/// Decision of the first rank, after a check that the others have the same plan.
fn together(scenario: &str, ranks: usize) -> Decision {
    let mut all = decide::<ForH100>(scenario, ranks);
    for (rank, decision) in all.iter().enumerate() {
        assert_eq!(decision.plan.settings, all[0].plan.settings, "{scenario}: rank {rank}");
        assert_eq!(decision.plan.schedule, all[0].plan.schedule, "{scenario}: rank {rank}");
        let position = decision.selection.gpu.as_ref().map(|gpu| gpu.position);
        assert_eq!(position, (!machine(scenario).gpus.is_empty()).then_some(rank), "{scenario}");
    }
    all.swap_remove(0)
}

/// Samples of an optimizer step over all ranks, as the micro-batches add up.
fn samples(decision: &Decision) -> u64 {
    let schedule = &decision.plan.schedule;
    (0..schedule.world_size).map(|_| schedule.micro_batches().sum::<u64>()).sum()
}

#[test]
fn eight_equal_gpus_share_the_global_batch_and_none_is_the_weakest() {
    let decision = together("eight-free-h100", 8);
    let schedule = decision.plan.schedule;
    assert_eq!((schedule.world_size, schedule.samples_per_rank(), samples(&decision)), (8, 64, 512));
    assert_eq!(decision.selection.weakest, []);
    assert_eq!(decision.selection.fallbacks, []);
    assert_eq!(exact_profile(&decision), Some("h100-sxm5-80gb"));
    assert_eq!(decision.plan.device, "8 x NVIDIA H100 80GB HBM3");
}

#[test]
fn the_ranks_of_a_host_share_its_cores() {
    let mut here = machine("unequal-pair");
    here.host.cores = 4;
    let workers = |decision: Result<Decision, StartError>| decision.expect("it fits").plan.settings.num_workers;
    assert_eq!(workers(Options::default().gpu(0).machine(here.clone()).decide(&Of500::default())), 2, "half load");
    for decided in decide_on::<Of500>(&here, 2) {
        assert_eq!(workers(decided), 1, "half of the cores load, for two ranks");
    }
}

#[test]
fn an_unequal_pair_is_planned_for_the_weaker() {
    for scenario in ["unequal-pair", "two-gpus"] {
        let decision = together(scenario, 2);
        assert_eq!(samples(&decision), 512, "{scenario}");
        for gpu in 0..2 {
            // Memory of one rank, on this GPU alone.
            let mut alone = machine(scenario);
            alone.gpus = vec![alone.gpus[gpu].clone()];
            let config = ForH100 { batch_size: decision.plan.settings.batch_size as usize };
            let fits = Options::default().machine(alone).decide(&config);
            let fits = fits.unwrap_or_else(|error| panic!("{scenario}, GPU {gpu}: {error}"));
            assert!(fits.plan.memory.fits() && decision.plan.memory.total() <= fits.plan.memory.budget());
        }
    }
}

#[test]
fn the_report_names_the_weakest_and_what_it_lacks() {
    for decision in decide::<ForH100>("unequal-pair", 2) {
        let pair = decision.selection;
        let [Shortfall::Memory { rank: 1, host, .. }] = &pair.weakest[..] else { panic!("{pair}") };
        let expected = format!("planned for the weakest: rank 1 on {host} has 11.8 GiB free, not 23.5 GiB");
        assert!(pair.to_string().contains(&expected), "{pair}");
    }
    // An RTX 3090 with 23.7 GiB free and an RTX 4090 with 23.5, which is no difference; 35.6 and 82.6 TFLOP/s.
    let two = together("two-gpus", 2).selection;
    assert!(
        matches!(two.weakest[..], [Shortfall::Rate { rank: 1, .. }, Shortfall::Bandwidth { rank: 1, .. }]),
        "{two}"
    );
}

#[test]
fn a_rank_that_sees_one_gpu_takes_it() {
    let all = launched(2, |rank, as_rank| {
        let mut own = machine("eight-free-h100");
        own.gpus = vec![own.gpus[rank + 3].clone()];
        as_rank(Options::default().machine(own)).decide(&ForH100::default())
    });
    for (rank, decided) in all.into_iter().enumerate() {
        let taken = decided.expect("it fits").selection.gpu.expect("a GPU");
        assert_eq!((taken.position, taken.reading), (0, machine("eight-free-h100").gpus[rank + 3].clone()));
    }
}

#[test]
fn two_ranks_do_not_share_a_gpu() {
    let all = launched(2, |_, as_rank| {
        let mut own = machine("eight-free-h100");
        own.gpus.truncate(1);
        as_rank(Options::default().machine(own)).decide(&ForH100::default())
    });
    for decided in all {
        let error = decided.expect_err("NCCL joins different GPUs only").to_string();
        assert!(error.contains("GPU"), "{error}");
    }
}

#[test]
fn a_rank_without_a_gpu_of_its_own_names_the_variable() {
    let launch = Launch {
        rank: 8,
        world_size: 9,
        local_rank: 8,
        local_world_size: Some(9),
        address: "127.0.0.1".to_owned(),
        port: 1,
        secret: None,
        run: None,
        launcher: Launcher::Torch,
    };
    let options = Options::default().machine(machine("eight-free-h100")).launched_as(launch);
    let error = options.decide(&ForH100::default()).expect_err("there are eight");
    assert!(matches!(error, StartError::Ranks(RanksError::NoGpu { rank: 8, local_rank: 8, gpus: 8 })), "{error}");
    assert!(error.to_string().starts_with("LOCAL_RANK of rank 8 is 8, and the process sees 8 GPUs"), "{error}");
}

#[test]
fn a_number_of_ranks_that_does_not_divide_names_those_that_would() {
    for decided in decide_on::<Of500>(&machine("eight-free-h100"), 8) {
        match decided.expect_err("500 / 8 is 62.5") {
            StartError::Plan(PlanError::WorldSize { would_do, world_size: 8, .. }) => assert_eq!(would_do, [5, 10]),
            // Another rank was first.
            StartError::Ranks(RanksError::Ended(ended)) => assert!(ended.to_string().contains("500"), "{ended}"),
            other => panic!("{other}"),
        }
    }
    for ranks in [1, 2, 4, 5] {
        let decisions = decide::<Of500>("eight-free-h100", ranks);
        assert_eq!(samples(&decisions[0]), 500);
    }
}

#[test]
fn without_gpus_all_ranks_train_on_the_cpu() {
    for decision in decide::<ForH100>("no-gpu", 2) {
        assert_eq!((decision.plan.schedule.world_size, samples(&decision)), (2, 512));
        assert!(matches!(decision.selection.fallbacks[..], [Fallback::NoGpu { .. }]), "{}", decision.selection);
    }
}

#[test]
fn ranks_are_all_on_gpus_or_all_on_the_cpu() {
    let mut here = machine("eight-free-h100");
    here.gpus[1].memory_total = None;
    here.gpus[1].name = None;
    here.gpus[1].pci_id = None;
    for decided in decide_on::<ForH100>(&here, 2) {
        let error = decided.expect_err("the second GPU cannot be planned for").to_string();
        assert!(error.contains("ranks are all on GPUs or all on the CPU"), "{error}");
    }
}

#[test]
fn a_smaller_share_than_the_planned_micro_batch_is_reported_where_it_changes_the_results() {
    const { assert!(WithStatistics::BUILT.settings.batch_size > 8, "a rank of eight has fewer samples") };
    for decision in decide::<WithStatistics>("eight-free-h100", 8) {
        assert!(decision.selection.fallbacks.iter().any(Fallback::changes_meaning), "{}", decision.selection);
        assert_eq!(samples(&decision), 64);
    }
}

#[test]
fn where_results_hang_on_the_micro_batch_it_is_that_of_the_build_and_says_so() {
    for scenario in ["no-gpu", "a10g"] {
        let decision = Options::default().machine(machine(scenario)).decide(&WithStatistics::default());
        let decision = decision.expect("it fits");
        assert_eq!(decision.plan.settings.batch_size, WithStatistics::BUILT.settings.batch_size, "{scenario}");
        let reasons = &decision.plan.reasons;
        let reason = reasons.iter().find(|it| it.setting == Setting::BatchSize).expect("each setting has one");
        assert!(reason.why.starts_with("as built: the model's statistics"), "{scenario}: {}", reason.why);
    }
}

// States its steps in tokens, of which a sample holds 180 on average.
config! {
    InTokens, transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256),
    global_tokens = 131_040, mean_tokens = 180.0, target = "h100-sxm5-80gb"
}

#[test]
fn a_step_in_tokens_is_the_same_step_on_however_many_gpus() {
    for ranks in [1, 2, 4, 7, 8] {
        for decision in decide::<InTokens>("eight-free-h100", ranks) {
            assert_eq!(decision.plan.schedule.global_batch, 728, "{ranks}");
        }
    }
}

// Shares by speed.
config! {
    BySpeed, transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256),
    global_batch = 500, unequal = true, target = "rtx4090"
}

#[test]
fn unequal_shares_follow_the_speeds_and_add_up() {
    // An RTX 4090 and an RTX 3090, of which the first is faster.
    let decisions = decide::<BySpeed>("two-gpus", 2);
    let shares: Vec<_> = decisions.iter().map(|decision| decision.plan.schedule.samples_per_rank()).collect();
    assert_eq!(shares.iter().sum::<u64>(), 500);
    let speeds = decisions.iter().map(|decision| decision.plan.schedule.micro_batches().sum::<u64>());
    assert_eq!(speeds.collect::<Vec<_>>(), shares);
    assert!(shares[0] > shares[1], "{shares:?}");
    let equal = decide::<BySpeed>("eight-free-h100", 4);
    assert!(equal.iter().all(|decision| decision.plan.schedule.samples_per_rank() == 125));
}
