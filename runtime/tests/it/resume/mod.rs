//! Going on with a saved run: on machines of every kind, and with files of every kind.

mod files;
mod settings;
#[cfg(feature = "distributed")]
mod steps;

use std::fs;
use std::path::PathBuf;

use gpu_tuned::{Decision, Fallback, Options, Precision, ResumeError, SavedRun, Setting, StartError, Tuned};
use serde_json::Value;
use tempfile::{TempDir, tempdir};

use crate::decisions::InBf16;
use crate::played::machine_in_fixed_host as machine;

// Built for one GPU.
config! {
    Lm {
        #[tuned] batch_size: usize,
        #[tuned] gradient_accumulation: usize,
        #[tuned] gradient_checkpointing: bool,
        #[tuned] precision: Precision,
        #[tuned] num_workers: usize,
        #[tuned(dim = layers, default = 6)] layers: usize,
    },
    transformer(d_model = 512, vocab = 8192, seq = 256), global_batch = 512, precision = "f32", target = "rtx4090"
}

// Requests no global batch, so the saved run's is used.
config! { Free, transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), target = "rtx4090" }

// A network whose micro-batch is part of what it computes.
#[cfg(feature = "distributed")]
config! {
    WithStatistics, convnet(image = 224, classes = 1000, stages = [[256, 4], [512, 4]], batch_statistics = true),
    global_batch = 256, target = "h200"
}

fn begin<C: Tuned>(config: &C, scenario: &str) -> Decision {
    Options::default().machine(machine(scenario)).decide(config).unwrap_or_else(|error| panic!("{scenario}: {error}"))
}

/// A directory with a run that was decided on for `config`.
fn saved<C: Tuned>(config: &C, decision: &Decision) -> TempDir {
    let directory = tempdir().expect("a directory");
    SavedRun::new(config, decision).save(directory.path()).expect("it can be written");
    directory
}

/// A config, its decision for an RTX 4090, and a directory with that run.
fn saved_there<C: Tuned + Default>() -> (C, Decision, TempDir) {
    let config = C::default();
    let first = begin(&config, "rtx4090");
    let directory = saved(&config, &first);
    (config, first, directory)
}

fn resume<C: Tuned>(config: &C, scenario: &str, directory: &TempDir) -> Result<Decision, StartError> {
    Options::default().machine(machine(scenario)).resume(directory.path()).decide(config)
}

fn refused<C: Tuned>(config: &C, scenario: &str, directory: &TempDir) -> ResumeError {
    match resume(config, scenario, directory) {
        Err(StartError::Resume(error)) => error,
        Err(other) => panic!("{scenario}: {other}"),
        Ok(decision) => panic!("{scenario}: {decision}"),
    }
}

fn file(directory: &TempDir) -> PathBuf {
    directory.path().join(SavedRun::FILE_NAME)
}

/// Rewrites the saved file.
fn edit(directory: &TempDir, change: impl FnOnce(&mut Value)) {
    let mut value = serde_json::from_slice(&fs::read(file(directory)).expect("it was saved")).expect("it is JSON");
    change(&mut value);
    fs::write(file(directory), value.to_string()).expect("it can be written");
}

/// The micro-batches of an optimizer step over all ranks, sorted.
fn micro_batches(decision: &Decision) -> Vec<u64> {
    let schedule = &decision.plan.schedule;
    let mut sizes: Vec<u64> = (0..schedule.world_size).flat_map(|_| schedule.micro_batches()).collect();
    sizes.sort_unstable();
    sizes
}

#[test]
fn the_same_machine_goes_on_with_the_same_schedule() {
    let config = Lm { batch_size: 48, ..Lm::default() };
    let first = begin(&config, "rtx4090");
    let directory = saved(&config, &first);
    // Values set in the saved config stay, set again or not.
    for config in [config, Lm::default()] {
        let again = resume(&config, "rtx4090", &directory).expect("the same machine");
        assert_eq!((again.plan.settings, again.plan.schedule), (first.plan.settings, first.plan.schedule));
        assert_eq!(again.selection.fallbacks, []);
        let report = again.to_string();
        assert!(report.contains("resumed: same schedule as saved (global batch 512 = 10 x 48 + 32)"), "{report}");
    }
}

#[test]
fn every_machine_goes_on_with_what_it_began() {
    fn check<C: Tuned + Default>(scenario: &str) {
        let config = C::default();
        // Nothing fits, so no run can be resumed.
        let Ok(first) = Options::default().machine(machine(scenario)).decide(&config) else {
            assert_eq!(scenario, "full");
            return;
        };
        let again = resume(&config, scenario, &saved(&config, &first));
        let again = again.unwrap_or_else(|error| panic!("{scenario}: {error}"));
        assert_eq!(again.plan.settings, first.plan.settings, "{scenario}");
        assert_eq!(again.plan.schedule, first.plan.schedule, "{scenario}");
    }
    for file in fake_nvml::scenarios() {
        let name = file.file_stem().and_then(|stem| stem.to_str()).expect("a scenario has a name");
        check::<Lm>(name);
        check::<Free>(name);
        check::<InBf16>(name);
    }
}

#[test]
fn another_gpu_keeps_the_micro_batch_when_it_fits() {
    let (config, first, directory) = saved_there::<Lm>();
    let again = resume(&config, "h200", &directory).expect("there is more memory");
    assert_eq!(again.plan.schedule, first.plan.schedule);
    assert!(matches!(again.selection.fallbacks[..], [Fallback::OtherGpu { .. }]), "{}", again.selection);
    assert_ne!(begin(&config, "h200").plan.schedule, first.plan.schedule, "the plan of a run that begins there");
}

#[test]
fn a_smaller_machine_keeps_the_global_batch_and_says_so() {
    let config = Free::default();
    let mut first = begin(&config, "h200");
    first.plan.schedule.global_batch = 512;
    first.plan.schedule.micro_batch = 512;
    first.plan.settings.batch_size = 512;
    first.plan.settings.gradient_accumulation = 1;
    let directory = saved(&config, &first);
    for scenario in ["rtx4090", "neighbour", "a100-mig-slice"] {
        let again = resume(&config, scenario, &directory).unwrap_or_else(|error| panic!("{scenario}: {error}"));
        assert_eq!(micro_batches(&again).iter().sum::<u64>(), 512, "{scenario}");
        let used = again.plan.settings.batch_size;
        let reported = again.selection.fallbacks.iter().any(|fallback| {
            matches!(fallback, Fallback::SavedMicroBatch { saved: 512, used: now, .. } if *now == used && used < 512)
        });
        assert!(reported && again.plan.memory.fits(), "{scenario}: {}", again.selection);
        let report = again.selection.to_string();
        assert!(report.contains("resumed: same global batch as saved (512), as "), "{report}");
        let strict = Options::default().strict(true).machine(machine(scenario)).resume(directory.path());
        assert!(matches!(strict.decide(&config), Err(StartError::Strict { .. })), "{scenario}");
    }
}

#[test]
fn the_cpu_goes_on_with_the_global_batch() {
    let (config, _, directory) = saved_there::<Lm>();
    let again = resume(&config, "no-gpu", &directory).expect("the CPU will do");
    assert_eq!(micro_batches(&again).iter().sum::<u64>(), 512);
    assert!(matches!(again.selection.fallbacks[0], Fallback::NoGpu { .. }), "{}", again.selection);
    // TF32 belongs to the device, and that it is gone is not passed over.
    let resumed = again.selection.resumed.expect("it was resumed");
    assert!(resumed.changes.iter().any(|change| change.setting == Setting::AllowTf32), "{resumed}");
}

#[test]
fn another_model_is_refused_with_the_figures_that_differ() {
    let (_, _, directory) = saved_there::<Lm>();
    let deeper = Lm { layers: 8, ..Lm::default() };
    let message = refused(&deeper, "rtx4090", &directory).to_string();
    // 12 d^2 + 13 d parameters a layer, d = 512.
    let (then, now) = (Lm::default().workload().parameters(), deeper.workload().parameters());
    assert_eq!(now - then, 2 * (12 * 512 * 512 + 13 * 512));
    assert!(message.contains(&format!("parameters was {then}, is {now}")), "{message}");
    assert!(message.contains("transformer.layers was 6, is 8"), "{message}");
}

#[test]
fn what_would_make_it_another_run_is_refused() {
    let (config, _, directory) = saved_there::<Lm>();
    let error = refused(&Free::default(), "rtx4090", &directory);
    assert!(matches!(&error, ResumeError::Config { then, now } if then == "Lm" && now == "Free"), "{error}");
    let error = refused(&Lm { precision: Precision::Bf16Params, ..config.clone() }, "rtx4090", &directory);
    let (f32, bf16) = (Precision::F32, Precision::Bf16Params);
    assert!(matches!(error, ResumeError::Precision { then, now } if then == f32 && now == bf16), "{error}");
    edit(&directory, |run| {
        run["schedule"]["global_batch"] = 256.into();
        run["settings"]["gradient_accumulation"] = 256_u64.div_ceil(config.batch_size as u64).into();
    });
    let error = refused(&config, "rtx4090", &directory);
    assert!(matches!(error, ResumeError::GlobalBatch { then: 256, now: 512 }), "{error}");
    assert!(error.to_string().contains("set global_batch = 256"), "{error}");
}

#[test]
fn a_field_that_contradicts_the_saved_schedule_is_refused() {
    let (config, _, directory) = saved_there::<Lm>();
    for (config, setting) in [
        (Lm { batch_size: config.batch_size + 1, ..config.clone() }, Setting::BatchSize),
        (Lm { gradient_accumulation: 512, ..config.clone() }, Setting::GradientAccumulation),
    ] {
        let error = refused(&config, "rtx4090", &directory);
        assert!(matches!(error, ResumeError::Pinned { setting: found, .. } if found == setting), "{error}");
    }
    let workers = Lm { num_workers: 3, ..config };
    let again = resume(&workers, "rtx4090", &directory).expect("workers are no part of the schedule");
    assert_eq!(again.plan.settings.num_workers, 3);
}

#[test]
fn a_precision_that_the_device_lacks_is_refused_and_one_that_was_given_up_is_kept() {
    let (config, _, in_bf16) = saved_there::<InBf16>();
    let error = refused(&config, "no-gpu", &in_bf16);
    assert!(matches!(error, ResumeError::PrecisionUnsupported { .. }), "{error}");
    let in_f32 = saved(&config, &begin(&config, "no-gpu"));
    let again = resume(&config, "rtx4090", &in_f32).expect("f32 goes on in f32");
    assert_eq!(again.plan.settings.precision, Precision::F32);
}

#[test]
fn a_session_saves_what_the_next_one_resumes() {
    let directory = tempdir().expect("a directory");
    let first = Options::default().cpu().start(Lm::default()).expect("the CPU will do");
    first.save(directory.path()).expect("it can be written");
    let again = Options::default().cpu().resume(directory.path()).start(Lm::default()).expect("the same machine");
    assert_eq!((again.schedule(), again.config().batch_size), (first.schedule(), first.config().batch_size));
    let saved = SavedRun::load(directory.path()).expect("it is whole").expect("it is there");
    assert_eq!((saved.config.as_str(), saved.parameters), ("Lm", Lm::default().workload().parameters()));
    assert_eq!(saved.gpu_tuned, env!("CARGO_PKG_VERSION"));
}
