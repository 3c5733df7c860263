//! Decisions on machines of every kind, simulated by a fake management library.

use fake_nvml::{Expectation, Scenario, play_file};
use gpu_tuned::{Decision, Fallback, Machine, Options, StartError, Tuned, detect_through};
use gpu_tuned_core::Bytes;
use gpu_tuned_core::matching::identify;
use gpu_tuned_core::profile::ProfileTable;
use serde_json::{Value, json};

use crate::played::{machine, on};

// Built for one GPU.
config! {
    ForRtx4090 {
        #[tuned] batch_size: usize,
        #[tuned] gradient_accumulation: usize,
        #[tuned] gradient_checkpointing: bool,
        #[tuned(dim = layers, default = 6)] layers: usize,
    },
    transformer(d_model = 512, vocab = 8192, seq = 256), global_batch = 512, target = "rtx4090"
}

// Built for no GPU in particular.
config! {
    ForAnyGpu, transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), global_batch = 512, target = "generic"
}

// Asks for a precision that old GPUs and CPUs do not have.
config! {
    pub(crate) InBf16, transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256),
    global_batch = 512, precision = "bf16_params", target = "rtx4090"
}

fn decide<C: Tuned>(config: &C, scenario: &str) -> Result<Decision, StartError> {
    on(scenario).decide(config)
}

fn decided(scenario: &str) -> Decision {
    decide(&ForRtx4090::default(), scenario).unwrap_or_else(|error| panic!("{scenario}: {error}"))
}

/// The name of a variant, however it is serialized.
fn kind(value: &Value) -> String {
    let name = value
        .as_str()
        .or_else(|| value["kind"].as_str())
        .or_else(|| value.as_object()?.keys().next().map(|key| &**key));
    name.unwrap_or_else(|| panic!("no kind: {value}")).to_owned()
}

/// Decision for a machine, in the words of scenario files.
fn made_of(machine: &Machine) -> Expectation {
    let (device, fallbacks, refused) = match Options::default().machine(machine.clone()).decide(&ForRtx4090::default())
    {
        Ok(decision) => (decision.selection.device().cloned(), decision.selection.fallbacks, false),
        Err(StartError::Plan(_)) => (Some(identify(&machine.gpus[0], &ProfileTable::default())), vec![], true),
        Err(error) => panic!("{error}"),
    };
    let device =
        device.map_or_else(|| json!({ "match": "cpu" }), |found| serde_json::to_value(found).expect("it serializes"));
    let fallbacks: Vec<_> =
        fallbacks.iter().map(|fallback| serde_json::to_value(fallback).expect("it serializes")).collect();
    Expectation {
        matched: serde_json::from_value(device["match"].clone()).expect("the same words"),
        profile: device["profile"].as_str().map(str::to_owned),
        differences: device["differences"].as_array().map(|all| all.iter().map(kind).collect()).unwrap_or_default(),
        fallbacks: fallbacks.iter().map(kind).collect(),
        refused,
        gpus: machine.gpus.len(),
        trouble: machine.trouble.len(),
        host_memory_mib: None,
    }
}

/// Sets the memory of GPUs that share the host's.
fn with_host_memory(mut machine: Machine, mib: u64) -> Machine {
    for gpu in machine.gpus.iter_mut().filter(|gpu| gpu.unified_memory) {
        (gpu.memory_total, gpu.memory_free) = (Some(Bytes::from_mib(mib)), Some(Bytes::from_mib(mib)));
    }
    machine
}

#[test]
fn every_machine_is_taken_for_what_its_scenario_says() {
    let mut wrong = Vec::new();
    for file in fake_nvml::scenarios() {
        let scenario = Scenario::load(&file).unwrap_or_else(|error| panic!("{error}"));
        let mut expected = scenario.expect.unwrap_or_else(|| panic!("{} expects nothing", file.display()));
        let machine = play_file(&file, |library| detect_through(Some(library)));
        let machine = match expected.host_memory_mib.take() {
            Some(mib) => with_host_memory(machine, mib),
            None => machine,
        };
        let found = made_of(&machine);
        if found != expected {
            wrong.push(format!("{}:\n  expected {expected:?}\n  found    {found:?}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn whatever_the_machine_the_global_batch_stays_and_the_plan_fits() {
    for file in fake_nvml::scenarios() {
        let name = file.file_stem().and_then(|stem| stem.to_str()).expect("a scenario has a name");
        for decision in [decide(&ForRtx4090::default(), name), decide(&ForAnyGpu::default(), name)] {
            match decision {
                Ok(Decision { plan, .. }) => {
                    assert_eq!(plan.schedule.micro_batches().sum::<u64>(), 512, "{name}");
                    assert!(plan.memory.fits(), "{name}: {plan}");
                }
                Err(error) => assert!(error.to_string().starts_with("does not fit"), "{name}: {error}"),
            }
        }
    }
}

#[test]
fn without_a_library_the_reason_names_it() {
    let machine = detect_through(Some("no/such/libnvidia-ml.so.1".as_ref()));
    let decision = Options::default().machine(machine).decide(&ForRtx4090::default()).expect("the CPU will do");
    let [Fallback::NoGpu { because }] = &decision.selection.fallbacks[..] else { panic!("{}", decision.selection) };
    assert!(because[0].contains("no/such/libnvidia-ml.so.1"), "{because:?}");
}

#[test]
fn a_neighbour_costs_micro_batch_and_is_made_up_for_by_accumulation() {
    let (alone, beside) = (decided("rtx4090").plan.settings, decided("neighbour").plan.settings);
    assert!(beside.batch_size < alone.batch_size, "{beside:?} against {alone:?}");
    assert!(beside.gradient_accumulation > alone.gradient_accumulation);
}

#[test]
fn what_the_user_set_is_kept_and_reported() {
    let config = ForRtx4090 { batch_size: 50, ..ForRtx4090::default() };
    let decision = decide(&config, "rtx4090").expect("50 fits");
    assert_eq!(decision.plan.settings.batch_size, 50);
    assert_eq!(decision.plan.schedule.micro_batches().sum::<u64>(), 512);
    let change = decision.selection.changes.iter().find(|change| change.by_user).expect("it is reported");
    assert_eq!(change.setting.name(), "batch_size");
}

#[test]
fn what_the_user_set_is_refused_when_it_cannot_be() {
    let too_large = ForRtx4090 { batch_size: 512, gradient_checkpointing: false, ..ForRtx4090::default() };
    let error = decide(&too_large, "rtx4090").expect_err("512 at once do not fit 24 GiB");
    let message = error.to_string();
    assert!(message.starts_with("does not fit NVIDIA GeForce RTX 4090 at batch size 512"), "{message}");
    assert!(message.contains("\n  help: leave the fixed settings to the planner, which needs "), "{message}");
}

#[test]
fn a_deeper_model_than_the_compiled_one_gets_a_plan_of_its_own() {
    let deeper = ForRtx4090 { layers: 24, ..ForRtx4090::default() };
    let (built, now) = (decided("rtx4090").plan, decide(&deeper, "rtx4090").expect("it fits").plan);
    assert!(now.memory.weights > built.memory.weights);
    assert!(now.settings.batch_size < built.settings.batch_size);
}

#[test]
fn a_dimension_that_no_model_has_is_an_error() {
    let error = decide(&ForRtx4090 { layers: 0, ..ForRtx4090::default() }, "rtx4090").expect_err("no layers");
    assert_eq!(error.to_string(), "the config describes no model: layers = 0 is out of range, expected 1 to 65536");
}

#[test]
fn a_build_for_no_gpu_in_particular_is_planned_without_a_fallback() {
    let decision = decide(&ForAnyGpu::default(), "h200").expect("it fits");
    assert_eq!(decision.selection.fallbacks, []);
    assert!(decision.plan.settings.batch_size >= 64, "{}", decision.plan);
}

#[test]
fn losing_a_precision_is_reported_as_a_change_of_meaning() {
    let decision = decide(&InBf16::default(), "no-gpu").expect("f32 will do");
    let meaning = decision.selection.fallbacks.iter().filter(|fallback| fallback.changes_meaning()).count();
    assert_eq!(meaning, 1, "{}", decision.selection);
}

#[test]
fn a_gpu_that_says_nothing_of_its_memory_is_not_planned_for() {
    let mut machine = machine("rtx4090");
    let mut nameless = gpu_tuned::GpuReading::default();
    nameless.index = 3;
    machine.gpus = vec![nameless];
    let decision = Options::default().machine(machine).decide(&ForRtx4090::default()).expect("the CPU will do");
    let because =
        vec!["GPU 0 (without a name) cannot be planned for: the driver does not report its memory".to_owned()];
    assert_eq!(decision.selection.fallbacks, [Fallback::NoGpu { because }]);
}

#[test]
fn strict_mode_turns_a_fallback_into_an_error() {
    let strict = |scenario| Options::default().strict(true).machine(machine(scenario)).decide(&ForRtx4090::default());
    assert!(strict("rtx4090").is_ok());
    for scenario in ["neighbour", "h200", "no-gpu"] {
        assert!(matches!(strict(scenario), Err(StartError::Strict { .. })), "{scenario}");
    }
}

#[test]
fn the_wanted_gpu_is_taken_and_a_missing_one_is_no_gpu() {
    let take = |gpu| {
        let options = Options::default().gpu(gpu).machine(machine("two-gpus"));
        options.decide(&ForRtx4090::default()).expect("it fits").selection
    };
    let name = |gpu| take(gpu).gpu.expect("a GPU").name();
    assert_ne!(name(0), name(1));
    assert_eq!(take(2).device(), None);
}

#[test]
fn a_session_writes_the_plan_into_the_config_and_serializes() {
    let session = Options::default().cpu().start(ForRtx4090::default()).expect("the CPU will do");
    assert_eq!(session.config().batch_size as u64, session.plan().settings.batch_size);
    let json = serde_json::to_value(&session).expect("it serializes");
    assert_eq!(json["selection"]["fallbacks"][0]["kind"], "no_gpu");
    assert_eq!(json["plan"]["schedule"]["global_batch"], 512);
}

/// Says up to which level the program of the next test has a log.
const LOG: &str = "PROGRAM_LOGS";

/// Not a test of its own: what the next one runs.
#[test]
#[ignore = "a program for the test below"]
fn program() {
    if let Ok(level) = std::env::var(LOG) {
        let level: tracing::Level = level.parse().expect("a level");
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(level).init();
    }
    let options = Options::default().machine(machine("no-gpu"));
    options.start(ForRtx4090::default()).expect("the CPU will do");
}

/// Standard error of the program, with these variables.
fn said_with(variables: &[(&str, &str)]) -> String {
    let output = own_process::command(program).envs(variables.iter().copied()).output().expect("it runs");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_the_environment_asks_for_in_vain_is_told() {
    let text = said_with(&[("GPU_TUNED_RECORD", "/nowhere/run.jsonl")]);
    assert!(text.contains("gpu-tuned: no recording: `/nowhere/run.jsonl` cannot be written: "), "{text}");
    let text = said_with(&[("GPU_TUNED_STRICT", "yes")]);
    assert!(text.contains("Switch { variable: \"GPU_TUNED_STRICT\", value: \"yes\" }"), "{text}");
    for no in ["", "0", "False"] {
        assert!(said_with(&[("GPU_TUNED_STRICT", no)]).contains("gpu-tuned: built for rtx4090, but no"), "{no}");
    }
    assert!(said_with(&[("GPU_TUNED_STRICT", "TRUE")]).contains("Strict { built_for"), "it is strict");
}

#[test]
fn a_program_whose_log_does_not_say_it_is_told_once_that_it_trains_elsewhere() {
    for (log, by_log) in [(None, false), (Some("ERROR"), false), (Some("WARN"), true)] {
        let output = own_process::run(own_process::command(program).envs(log.map(|level| (LOG, level))));
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(text.contains("gpu-tuned: built for rtx4090, but no"), !by_log, "{log:?}: {text}");
        assert_eq!(text.contains("WARN"), by_log, "{log:?}: {text}");
    }
}

/// As when a terminal has gone, or who read the pipe has.
#[cfg(unix)]
#[test]
fn that_nobody_hears_it_stops_nobody() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    own_process::run(own_process::command(program).stderr(writer));
}
