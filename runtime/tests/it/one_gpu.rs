//! Choice of one GPU among those that a process gets, and GPUs that it should get and does not.

use gpu_tuned::{Bytes, Decision, Fallback, Machine, Options, Precision, SavedRun};
use tempfile::tempdir;

use crate::played::{exact_profile, machine, on};

// Does not fit 900 MiB.
config! {
    pub(crate) ForRtx4090, transformer(layers = 12, d_model = 768, vocab = 8192, seq = 256),
    global_batch = 512, target = "rtx4090"
}

// Built for no GPU in particular.
config! {
    pub(crate) ForAnyGpu, transformer(layers = 12, d_model = 768, vocab = 8192, seq = 256),
    global_batch = 512, target = "generic"
}

fn on_machine(machine: Machine) -> Decision {
    let decided = Options::default().machine(machine).decide(&ForRtx4090::default());
    decided.unwrap_or_else(|error| panic!("{error}"))
}

/// Numbers of the taken GPUs.
fn taken(decision: &Decision) -> Vec<usize> {
    decision.selection.gpu.iter().map(|gpu| gpu.position).collect()
}

/// Machine of the scenario with this free memory on each GPU, in MiB.
pub(crate) fn with_free(scenario: &str, free: &[u64]) -> Machine {
    let mut machine = machine(scenario);
    for (gpu, free) in machine.gpus.iter_mut().zip(free) {
        gpu.memory_free = Some(Bytes::from_mib(*free));
    }
    machine
}

#[test]
fn an_idle_gpu_of_the_same_kind_is_taken_in_place_of_a_busy_one() {
    let options = on("first-busy").strict(true);
    let decision = options.decide(&ForRtx4090::default()).expect("the constants hold on the second GPU");
    assert_eq!(taken(&decision), [1]);
    assert!(decision.selection.is_confirmed(), "{}", decision.selection);
    let report = decision.selection.to_string();
    let reason = "\n  GPU 0 has 900.0 MiB free; GPU 1 is the same kind and has 23.5 GiB free\n";
    assert!(report.contains(reason), "{report}");
    let decision = on("first-busy").decide(&ForAnyGpu::default()).expect("it fits");
    assert_eq!(taken(&decision), [1]);
}

#[test]
fn cudas_first_gpu_is_taken_unless_it_is_busy() {
    for (free, expected, passed_over) in [
        // A display is no reason to move, nor is half of the memory.
        ([23_000, 24_000], 0, 0),
        ([12_500, 24_000], 0, 0),
        ([12_000, 24_000], 1, 1),
        // Both are busy, and the plan fits the first.
        ([11_000, 12_000], 0, 0),
        // The plan fits the second only.
        ([600, 11_000], 1, 1),
    ] {
        let decision = on_machine(with_free("first-busy", &free));
        assert_eq!((taken(&decision), decision.selection.passed_over.len()), (vec![expected], passed_over), "{free:?}");
    }
}

#[test]
fn the_gpu_that_the_build_is_for_goes_before_an_idle_one_of_another_kind() {
    // CUDA lists the RTX 4090 first, the RTX 3090 second.
    assert_eq!(exact_profile(&on_machine(with_free("two-gpus", &[11_000, 24_000]))), Some("rtx4090"));
    let other = on_machine(with_free("two-gpus", &[600, 24_000]));
    assert_eq!(exact_profile(&other), Some("rtx3090"));
    assert!(matches!(other.selection.fallbacks[..], [Fallback::OtherGpu { .. }]), "{}", other.selection);
    let reason = "GPU 0 has 600.0 MiB free; GPU 1 is NVIDIA GeForce RTX 3090 and has 23.4 GiB free";
    assert_eq!(other.selection.passed_over[0].because, reason);
}

#[test]
fn a_gpu_with_unknown_memory_does_not_hide_the_next_one() {
    let mut machine = machine("first-busy");
    let nameless = &mut machine.gpus[0];
    (nameless.memory_total, nameless.memory_free) = (None, None);
    (nameless.name, nameless.pci_id) = (None, None);
    let decision = Options::default().machine(machine).decide(&ForAnyGpu::default()).expect("it fits");
    assert_eq!(taken(&decision), [1]);
    let [passed_over] = &decision.selection.passed_over[..] else { panic!("{}", decision.selection) };
    assert_eq!(
        passed_over.because,
        "GPU 0 (without a name) cannot be planned for: the driver does not report its memory"
    );
}

#[test]
fn a_gpu_that_burn_cannot_train_on_does_not_hide_the_next_one() {
    let mut machine = machine("k80");
    machine.gpus.extend(crate::played::machine("rtx4090").gpus);
    let decision = Options::default().machine(machine).decide(&ForAnyGpu::default()).expect("it fits the second");
    assert_eq!(taken(&decision), [1]);
    let [passed_over] = &decision.selection.passed_over[..] else { panic!("{}", decision.selection) };
    assert!(passed_over.because.starts_with("GPU 0 (Tesla K80) cannot train: CUDA 13 has dropped"), "{passed_over}");
}

/// Machine with the GPUs of these scenarios.
fn with_gpus(scenarios: [&str; 2]) -> Machine {
    let [mut first, second] = scenarios.map(machine);
    first.gpus.extend(second.gpus);
    first
}

#[test]
fn a_gpu_without_the_precision_does_not_hide_the_next_one() {
    let set = || "precision=mixed_bf16".parse().expect("it is a setting");
    let decide = |scenarios| Options::default().machine(with_gpus(scenarios)).set(set()).decide(&ForAnyGpu::default());
    for (scenarios, reason) in [
        (["gtx1080-ti", "rtx3060"], "NVIDIA GeForce GTX 1080 Ti has no bf16 tensor cores"),
        (["k80", "rtx4090"], "GPU 0 (Tesla K80) cannot train: CUDA 13 has dropped"),
    ] {
        let decision = decide(scenarios).unwrap_or_else(|error| panic!("{scenarios:?}: {error}"));
        assert_eq!(taken(&decision), [1], "{scenarios:?}");
        let [passed_over] = &decision.selection.passed_over[..] else { panic!("{}", decision.selection) };
        assert!(passed_over.because.starts_with(reason), "{passed_over}");
    }
    for (scenarios, first) in
        [(["gtx1080-ti", "t4"], "NVIDIA GeForce GTX 1080 Ti has no bf16"), (["k80", "t4"], "Tesla T4 has no bf16")]
    {
        let error = decide(scenarios).expect_err("neither has bf16");
        assert!(error.to_string().starts_with(first), "{error}");
    }
}

// Asks for bf16 without a pin, so that a GPU without it trains in fp32.
config! {
    InBf16, transformer(layers = 12, d_model = 768, vocab = 8192, seq = 256),
    global_batch = 512, precision = "mixed_bf16", target = "rtx4090"
}

#[test]
fn a_gpu_with_the_requested_precision_goes_before_one_that_trains_in_fp32() {
    let decide = |machine| Options::default().machine(machine).decide(&InBf16::default()).expect("there is a plan");
    let capable = decide(with_gpus(["gtx1080-ti", "rtx3060"]));
    assert_eq!((taken(&capable), capable.plan.settings.precision), (vec![1], Precision::MixedBf16));
    let because = &capable.selection.passed_over[0].because;
    assert!(because.starts_with("NVIDIA GeForce GTX 1080 Ti has no bf16 tensor cores"), "{because}");
    // Without such a GPU, or if the plan does not fit it, the first one that can train is taken.
    for (second, free) in [("t4", 15_000), ("rtx3060", 300)] {
        let mut machine = with_gpus(["gtx1080-ti", second]);
        machine.gpus[1].memory_free = Some(Bytes::from_mib(free));
        let decision = decide(machine);
        assert_eq!((taken(&decision), decision.plan.settings.precision), (vec![0], Precision::F32), "{second}");
        let fallbacks = &decision.selection.fallbacks;
        let is_precision = |fallback: &Fallback| matches!(fallback, Fallback::Precision { .. });
        assert!(fallbacks.iter().any(is_precision), "{}", decision.selection);
    }
}

#[test]
fn a_run_goes_on_with_the_gpu_that_has_its_precision() {
    let config = ForAnyGpu::default();
    let begun = on("rtx4090").set("precision=mixed_bf16".parse().expect("it is a setting"));
    let directory = tempdir().expect("a temporary directory");
    SavedRun::new(&config, &begun.decide(&config).expect("it fits")).save(&directory).expect("it is saved");
    let resumed = Options::default().machine(with_gpus(["t4", "rtx3060"])).resume(directory.path()).decide(&config);
    assert_eq!(taken(&resumed.expect("the second has bf16")), [1]);
}

#[test]
fn the_error_names_the_gpu_that_would_do() {
    let help = |options: Options| {
        let error = options.decide(&ForRtx4090::default()).expect_err("it does not fit");
        let message = error.to_string();
        message.split_once("help: ").expect("a remedy").1.to_owned()
    };
    assert_eq!(
        help(on("first-busy").gpu(0)),
        "take GPU 1 (NVIDIA GeForce RTX 4090), which has 23.5 GiB free: there it fits"
    );
    assert_eq!(
        help(Options::default().machine(with_free("first-busy", &[600, 500]))),
        "free the memory of GPU 0 (NVIDIA GeForce RTX 4090), of which 600.0 MiB of 23.5 GiB are free: then it fits"
    );
    assert_eq!(
        help(Options::default().machine(with_free("rtx4090", &[600]))),
        "free the memory of GPU 0 (NVIDIA GeForce RTX 4090), of which 600.0 MiB of 23.5 GiB are free: then it fits"
    );
}

#[test]
fn an_old_gpu_is_refused_by_its_name_where_the_driver_reports_no_compute_capability() {
    let mut machine = machine("k80");
    let gpu = &mut machine.gpus[0];
    (gpu.name, gpu.pci_id, gpu.compute_capability) = (Some("NVIDIA GeForce GTX 980".to_owned()), None, None);
    let decision = Options::default().machine(machine).decide(&ForAnyGpu::default()).expect("the CPU is left");
    let [Fallback::NoGpu { because }] = &decision.selection.fallbacks[..] else { panic!("{}", decision.selection) };
    let expected = "GPU 0 (NVIDIA GeForce GTX 980) cannot train: CUDA 13 has dropped compute capability 5.2 (Maxwell)";
    assert!(because[0].starts_with(expected), "{because:?}");
}

#[test]
fn a_lost_gpu_is_reported_and_another_one_is_used() {
    for (scenario, because) in [("gpu-lost", "GPU 0: the GPU is lost"), ("gpu-denied", "GPU 0: no access to the GPU")] {
        let second = on(scenario).gpu(1).decide(&ForRtx4090::default()).expect("the CPU is left");
        let reasons = second.selection.fallbacks[0].to_string();
        assert!(reasons.contains(because) && reasons.ends_with("; GPU 1 was asked for and there are 1"), "{reasons}");
        let one = on(scenario).strict(true).decide(&ForRtx4090::default()).expect("the other is well");
        assert!(one.selection.is_confirmed(), "{scenario}: {}", one.selection);
        assert!(one.selection.to_string().contains(&format!("\n  {because}")), "{scenario}: {}", one.selection);
    }
}
