//! Decisions for a process that trains on several GPUs.

use gpu_tuned::{
    Decision, Fallback, GpusError, Options, PlanError, Recognised, Setting, Shortfall, StartError, Tuned, gpu_tuned,
};

use crate::played::machine_in_fixed_host as machine;

/// Says nothing of ranks.
#[gpu_tuned(
    transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256),
    global_batch = 512,
    target = "h100-sxm5-80gb"
)]
#[derive(Clone, Debug)]
struct ForH100 {
    #[tuned]
    batch_size: usize,
}

/// 500 samples: 8 ranks cannot share them.
#[gpu_tuned(transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), global_batch = 500, target = "rtx4090")]
#[derive(Clone, Debug)]
struct Of500 {
    #[tuned]
    batch_size: usize,
    #[tuned]
    num_workers: usize,
}

/// Two machines with eight GPUs each.
#[gpu_tuned(
    transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256),
    global_batch = 512,
    world_size = 16,
    target = "h100-sxm5-80gb"
)]
#[derive(Clone, Debug)]
struct OnTwoMachines {
    #[tuned]
    batch_size: usize,
}

/// A network whose micro-batch is part of what it computes.
#[gpu_tuned(
    convnet(image = 32, classes = 10, stages = [[64, 2], [128, 2]], batch_statistics = true),
    global_batch = 64,
    target = "h100-sxm5-80gb"
)]
#[derive(Clone, Debug)]
struct WithStatistics {
    #[tuned]
    batch_size: usize,
}

fn decide<C: Tuned + Default>(scenario: &str, options: Options) -> Result<Decision, StartError> {
    options.machine(machine(scenario)).decide(&C::default())
}

fn together(scenario: &str) -> Decision {
    decide::<ForH100>(scenario, Options::default().all_gpus()).unwrap_or_else(|error| panic!("{scenario}: {error}"))
}

/// Samples of an optimizer step over all ranks, as the micro-batches add up.
fn samples(decision: &Decision) -> u64 {
    let schedule = &decision.plan.schedule;
    (0..schedule.world_size).map(|_| schedule.micro_batches().sum::<u64>()).sum()
}

#[test]
fn eight_equal_gpus_share_the_global_batch_and_none_is_the_weakest() {
    let decision = together("eight-free-h100");
    let schedule = decision.plan.schedule;
    assert_eq!((schedule.world_size, schedule.samples_per_rank(), samples(&decision)), (8, 64, 512));
    assert_eq!(decision.selection.weakest, []);
    assert_eq!(decision.selection.fallbacks, []);
    let exact = Recognised::Exact { profile: "h100-sxm5-80gb".to_owned() };
    assert!(decision.selection.gpus.iter().all(|gpu| gpu.device == exact), "{}", decision.selection);
    assert_eq!(decision.plan.device, "8 x NVIDIA H100 80GB HBM3");
}

#[test]
fn the_ranks_of_one_process_share_the_cores_of_its_host() {
    let workers = |options: Options| {
        let mut here = machine("unequal-pair");
        here.host.cores = 4;
        options.machine(here).decide(&Of500::default()).expect("it fits").plan.settings.num_workers
    };
    assert_eq!(workers(Options::default().gpu(0)), 2, "half of the cores load");
    assert_eq!(workers(Options::default().all_gpus()), 1, "half of the cores load, for two ranks");
}

#[test]
fn an_unequal_pair_is_planned_for_the_weaker() {
    for scenario in ["unequal-pair", "two-gpus"] {
        let decision = together(scenario);
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
    let pair = together("unequal-pair").selection;
    assert!(matches!(pair.weakest[..], [Shortfall::Memory { gpu: 1, .. }]), "{pair}");
    assert!(pair.to_string().contains("planned for the weakest: GPU 1 has 11.8 GiB free, not 23.5 GiB"), "{pair}");
    // An RTX 3090 with 23.7 GiB free and an RTX 4090 with 23.5, which is no difference; 35.6 and 82.6 TFLOP/s.
    let two = together("two-gpus").selection;
    assert!(matches!(two.weakest[..], [Shortfall::Rate { gpu: 1, .. }, Shortfall::Bandwidth { gpu: 1, .. }]), "{two}");
}

#[test]
fn gpus_are_taken_by_their_numbers() {
    let decision = decide::<ForH100>("eight-free-h100", Options::default().gpus([6, 1, 1])).expect("it fits");
    let taken: Vec<_> = decision.selection.gpus.iter().map(|gpu| gpu.position).collect();
    assert_eq!(taken, [1, 6]);
    assert_eq!(decision.selection.gpus[0].reading, machine("eight-free-h100").gpus[1]);
    assert_eq!(decision.plan.schedule.world_size, 2);
}

#[test]
fn a_number_of_gpus_that_does_not_divide_names_those_that_would() {
    let error = decide::<Of500>("eight-free-h100", Options::default().all_gpus()).expect_err("500 / 8 is 62.5");
    let StartError::Plan(PlanError::WorldSize { would_do, .. }) = &error else { panic!("{error}") };
    assert_eq!(*would_do, [1, 2, 4, 5]);
    assert_eq!(error.to_string(), "a global batch of 500 cannot be shared by 8 ranks; 1 or 2 or 4 or 5 would do");
    for number in would_do {
        let options = Options::default().gpus(0..*number as usize);
        let decision = decide::<Of500>("eight-free-h100", options).unwrap_or_else(|error| panic!("{number}: {error}"));
        assert_eq!(samples(&decision), 500);
    }
}

#[test]
fn fewer_gpus_than_asked_for_keep_the_global_batch() {
    for (asked, of_500, of_512) in [(0..9, 5, 8), (5..9, 2, 2), (7..9, 1, 1)] {
        let options = Options::default().gpus(asked.clone());
        let decision = decide::<Of500>("eight-free-h100", options.clone()).expect("some are there");
        assert_eq!((decision.plan.schedule.world_size, samples(&decision)), (of_500, 500));
        let decision = decide::<ForH100>("eight-free-h100", options.clone()).expect("some are there");
        assert_eq!((decision.plan.schedule.world_size, samples(&decision)), (of_512, 512));
        let [Fallback::FewerGpus { asked: wanted, used, because }] = &decision.selection.fallbacks[..] else {
            panic!("{}", decision.selection)
        };
        assert_eq!((wanted.len(), used.len() as u64), (asked.len(), of_512));
        assert_eq!(because[..], ["GPU 8 was asked for and there are 8"]);
        let strict = decide::<ForH100>("eight-free-h100", options.strict(true));
        assert!(matches!(strict, Err(StartError::Strict { .. })));
    }
}

#[test]
fn without_a_gpu_one_rank_trains_on_the_cpu() {
    for options in [Options::default().all_gpus(), Options::default().gpus([0, 1])] {
        let decision = decide::<ForH100>("no-gpu", options).expect("the CPU will do");
        assert_eq!((decision.plan.schedule.world_size, samples(&decision)), (1, 512));
        assert!(matches!(decision.selection.fallbacks[..], [Fallback::NoGpu { .. }]), "{}", decision.selection);
    }
}

#[test]
fn a_gpu_without_a_memory_figure_is_not_trained_on() {
    let mut here = machine("eight-free-h100");
    here.gpus[3].memory_total = None;
    here.gpus[3].name = None;
    here.gpus[3].pci_id = None;
    let decision = Options::default().all_gpus().machine(here).decide(&ForH100::default()).expect("seven are left");
    let used: Vec<_> = decision.selection.gpus.iter().map(|gpu| gpu.position).collect();
    assert_eq!(used, [0, 1, 2, 4], "the largest number that divides 512");
    assert_eq!(samples(&decision), 512);
}

#[test]
fn this_machine_must_be_an_equal_part_of_the_ranks() {
    let eight = decide::<OnTwoMachines>("eight-free-h100", Options::default().all_gpus()).expect("16 / 8 is 2");
    assert_eq!((eight.plan.schedule.world_size, eight.plan.schedule.samples_per_rank()), (16, 32));
    let error = decide::<OnTwoMachines>("eight-free-h100", Options::default().gpus([0, 1, 2])).expect_err("16 / 3");
    let StartError::Gpus(GpusError::Share { would_do, .. }) = &error else { panic!("{error}") };
    assert_eq!(*would_do, [1, 2, 4, 8]);
}

#[test]
fn other_machines_are_not_left_alone_with_the_global_batch() {
    for (scenario, options) in [
        ("eight-free-h100", Options::default().gpus(1..9)),
        ("no-gpu", Options::default().all_gpus()),
        ("no-gpu", Options::default().gpus(0..8)),
    ] {
        let error = decide::<OnTwoMachines>(scenario, options).expect_err("the other machine counts on eight");
        assert!(matches!(error, StartError::Gpus(GpusError::Missing { world_size: 16, .. })), "{scenario}: {error}");
    }
}

#[test]
fn a_smaller_share_than_the_planned_micro_batch_is_reported_where_it_changes_the_results() {
    const { assert!(WithStatistics::BUILT.settings.batch_size > 8, "a rank of eight has fewer samples") };
    let decision = decide::<WithStatistics>("eight-free-h100", Options::default().all_gpus()).expect("it fits");
    assert!(decision.selection.fallbacks.iter().any(Fallback::changes_meaning), "{}", decision.selection);
    assert_eq!(samples(&decision), 64);
}

#[test]
fn where_results_hang_on_the_micro_batch_it_is_that_of_the_build_and_says_so() {
    for scenario in ["no-gpu", "a10g"] {
        let decision = decide::<WithStatistics>(scenario, Options::default()).expect("it fits");
        assert_eq!(decision.plan.settings.batch_size, WithStatistics::BUILT.settings.batch_size, "{scenario}");
        let reasons = &decision.plan.reasons;
        let reason = reasons.iter().find(|it| it.setting == Setting::BatchSize).expect("each setting has one");
        assert!(reason.why.starts_with("as built: the model's statistics"), "{scenario}: {}", reason.why);
    }
}

#[cfg(feature = "burn")]
#[test]
fn a_session_lists_the_devices_that_it_opened() {
    let session = Options::default().all_gpus().machine(machine("no-gpu")).start(ForH100::default()).expect("the CPU");
    assert_eq!(session.devices(), [session.device()]);
}

/// States its steps in tokens, of which a sample holds 180 on average.
#[gpu_tuned(
    transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256),
    global_tokens = 131_040,
    mean_tokens = 180.0,
    target = "h100-sxm5-80gb"
)]
#[derive(Clone, Debug)]
struct InTokens {
    #[tuned]
    batch_size: usize,
}

#[test]
fn a_step_in_tokens_is_the_same_step_on_however_many_gpus() {
    for count in [1, 2, 4, 7, 8] {
        let decision =
            decide::<InTokens>("eight-free-h100", Options::default().gpus(0..count)).expect("728 / n is whole");
        assert_eq!(decision.plan.schedule.global_batch, 728, "{count}");
    }
}
