//! Proposed changes, and predictions compared with later runs.

use super::cases::{computing, neighbour, ours, tiny, waiting};
use super::recorded::{GIB, Made, expected};
use super::scenarios::kinds;
use gpu_tuned_core::workload::Family;
use gpu_tuned_observe::diagnose::{Diagnosis, Finding, Kind, Outcome, Severity, compare, diagnose};

/// Outcomes of the predictions in a later run.
fn outcomes(before: &Diagnosis, after: Made) -> Vec<Outcome> {
    compare(before, &after.records()).iter().map(|tested| tested.outcome).collect()
}

/// The first finding in a run.
fn first(made: Made) -> Finding {
    diagnose(&made.records()).findings.remove(0)
}

#[test]
fn among_findings_that_are_gone_together_the_first_is_tested() {
    let before = diagnose(&computing(waiting(tiny(Made::healthy()), 0.2), 450.0).records());
    assert_eq!(kinds(&before), [Kind::LoaderBound, Kind::BatchTooSmall]);
    assert_eq!(outcomes(&before, Made::healthy()), [Outcome::Hit, Outcome::WithAnother]);
    assert_eq!(outcomes(&before, tiny(Made::healthy())), [Outcome::Hit, Outcome::StillThere]);
}

#[test]
fn a_number_of_workers_that_is_not_recorded_is_not_invented() {
    let made = Made::healthy().started(|run| run.settings = None);
    let finding = first(computing(waiting(made, 0.1), 450.0));
    assert_eq!(finding.kind, Kind::LoaderBound);
    assert!(finding.change.what.starts_with("num_workers = ") && !finding.change.what.contains("was"), "{finding:#?}");
}

#[test]
fn losses_that_are_not_recorded_are_not_judged() {
    let skipping = |recorded: bool| {
        let loss = recorded.then_some(1.5);
        first(Made::healthy().each_step(move |step| (step.loss, step.applied) = (loss, step.step < 100)))
    };
    let [recorded, unrecorded] = [true, false].map(skipping);
    assert_eq!([recorded.kind, unrecorded.kind], [Kind::NotFinite; 2]);
    assert!(recorded.change.what.starts_with("gradients overflow though the loss is finite"), "{recorded:#?}");
    assert!(unrecorded.change.what.starts_with("check the loss, which is not recorded"), "{unrecorded:#?}");
}

#[test]
fn a_lone_larger_batch_beyond_the_step_is_another_run() {
    let made = Made::healthy().each_step(|step| (step.samples, step.micro_batch, step.micro_batches) = (4, 4, 1));
    let finding = first(made.started(|run| run.global_batch = Some(4)));
    assert_eq!((finding.kind, finding.severity), (Kind::BatchTooSmall, Severity::Warning));
    assert_eq!(finding.change.pins(), None);
    assert!(finding.change.what.starts_with("global_batch = 64 (was 4): another training run"), "{finding:#?}");
}

#[test]
fn a_larger_micro_batch_of_the_same_step_is_another_run_where_statistics_change_with_it() {
    let made = tiny(Made::healthy()).started(|run| run.batch_statistics = true);
    let made = made.with_settings(|settings| (settings.batch_size, settings.gradient_accumulation) = (8, 16));
    let finding = first(made);
    assert_eq!((finding.kind, finding.severity), (Kind::BatchTooSmall, Severity::Warning));
    assert_eq!(finding.change.pins().as_deref(), Some("batch_size=64"));
    assert!(
        finding.change.what.ends_with("and the model's batch statistics change: another training run"),
        "{finding:#?}"
    );
}

#[test]
fn uploads_are_found_beside_a_change_that_is_another_run() {
    let made = ours(tiny(Made::healthy().each_step(|step| step.upload_s = Some(0.03))));
    let with_statistics = made.clone().started(|run| run.batch_statistics = true);
    let has_uploads = |made: Made| kinds(&diagnose(&made.records())).contains(&Kind::PrefetchMissing);
    assert_eq!([made, with_statistics].map(has_uploads), [false, true]);
}

#[test]
fn a_finding_without_a_prediction_that_is_gone_is_another_change_as_well() {
    let elsewhere = |made: Made| made.started(|run| run.target = Some("rtx4090".to_owned()));
    let uploading = Made::healthy().each_step(|step| (step.seconds, step.upload_s) = (0.107, Some(0.007)));
    let before = diagnose(&elsewhere(uploading).records());
    assert_eq!(kinds(&before), [Kind::WrongTarget, Kind::PrefetchMissing]);
    assert_eq!(outcomes(&before, Made::healthy()), [Outcome::WithAnother]);
    assert_eq!(outcomes(&before, elsewhere(Made::healthy())), [Outcome::Hit]);
}

#[test]
fn memory_of_a_neighbour_would_fit_larger_batches() {
    let small = Made::healthy().each_step(|step| (step.micro_batch, step.micro_batches) = (16, 8));
    let small = small.started(|run| {
        run.memory_budget_bytes = Some(10 * GIB);
        run.expected = vec![expected(4, 400.0, 2), expected(16, 900.0, 6), expected(64, 1280.0, 20)];
        run.expected[2].fits = false;
    });
    let finding = first(neighbour(small, 110 * GIB));
    assert_eq!(finding.kind, Kind::OtherProcess);
    assert!((finding.gain() - 1280.0 / 900.0).abs() < 1e-6, "{finding:#?}");
    assert_eq!(finding.change.command.as_deref(), Some("ps -o pid,user,etime,args -p 99"));
}

#[test]
fn a_build_without_cuda_gets_the_command_with_its_features() {
    let command = |target: &str, features: &[&str], present: Option<&str>| {
        let mut made = Made::healthy().started(|run| {
            (run.device.is_gpu, run.device.profile) = (false, None);
            run.target = Some(target.to_owned());
            run.features = features.iter().map(ToString::to_string).collect();
            run.fallbacks = vec!["no usable GPU: this program is built without feature `cuda`".to_owned()];
        });
        made.start.gpus[0].profile = present.map(str::to_owned);
        let findings = diagnose(&made.records()).findings;
        findings.into_iter().find(|finding| finding.kind == Kind::NoCuda)?.change.command
    };
    for (target, features, present, with) in [
        ("rtx4070", &["rtx4070"][..], None, Some("rtx4070,cuda")),
        ("h200 + rtx4070", &["h200", "rtx4070"], Some("rtx4070"), Some("h200,rtx4070,cuda")),
        ("h200 + rtx4070", &[], None, Some("h200,rtx4070,cuda")),
        ("rtx4070", &["native"], None, Some("native,cuda")),
        ("generic", &["generic"], Some("l4"), Some("l4,cuda")),
        // A generic build on a machine without a GPU.
        ("generic", &["generic"], None, None),
    ] {
        let expected = with.map(|features| format!("cargo run --release --features {features}"));
        assert_eq!(command(target, features, present), expected, "{target}");
    }
}

/// The healthy run, with clocks of 300 MHz.
fn slow() -> Made {
    Made::healthy().each_sample(|sample| sample.sm_clock_mhz = Some(300))
}

#[test]
fn gpus_with_one_fault_have_one_command() {
    let mut made = slow();
    let mut second = made.start.gpus[0].clone();
    (second.gpu, second.uuid) = (3, Some("GPU-2".to_owned()));
    made.start.gpus.push(second);
    made.run.device.gpu_uuids.push("GPU-2".to_owned());
    let mut others = made.gpu.clone();
    for sample in &mut others {
        (sample.gpu, sample.sm_clock_mhz) = (3, Some(210));
    }
    made.gpu.extend(others);
    let finding = first(made);
    assert_eq!(finding.headline, "the clocks of GPUs 0 and 3 are 210 of 1980 MHz under load: not by power or heat");
    assert_eq!(finding.change.command.as_deref(), Some("sudo nvidia-smi -i 0,3 -rgc; sudo nvidia-smi -i 0,3 -rac"));
    assert!(finding.evidence[0].starts_with("GPU 3: 11% of the highest clock"), "{finding:#?}");
}

#[test]
fn the_clocks_of_a_slice_are_those_of_its_gpu() {
    let mut made = slow().each_sample(|sample| sample.utilisation_percent = None);
    let mut slice = made.start.gpus[0].clone();
    (slice.mig_slot, slice.uuid, slice.max_sm_clock_mhz) = (Some(1), Some("MIG-1".to_owned()), None);
    made.start.gpus.push(slice);
    made.run.device.gpu_uuids = vec!["MIG-1".to_owned()];
    let mut of_slice = made.gpu.clone();
    for sample in &mut of_slice {
        (sample.mig_slot, sample.sm_clock_mhz) = (Some(1), None);
    }
    made.gpu.extend(of_slice);
    let finding = first(made);
    assert_eq!((finding.kind, finding.severity), (Kind::LowClocks, Severity::Critical));
}

#[test]
fn a_laptop_gets_other_advice_than_a_server() {
    let advice = |name: &str| {
        let mut made = Made::healthy().each_sample(|sample| {
            (sample.power_limit_mw, sample.power_mw, sample.sm_clock_mhz) = (Some(60_000), Some(60_000), Some(1000));
        });
        let gpu = &mut made.start.gpus[0];
        (gpu.name, gpu.default_power_limit_mw) = (Some(name.to_owned()), Some(115_000));
        let finding = first(made);
        assert_eq!((finding.kind, finding.severity), (Kind::PowerCap, Severity::Critical));
        finding.change.command.unwrap_or_default()
    };
    // `nvidia-smi -pl` is not supported on laptops.
    assert!(advice("NVIDIA GeForce RTX 4060 Laptop GPU").ends_with("sudo systemctl enable --now nvidia-powerd"));
    assert_eq!(advice("NVIDIA GeForce RTX 4060"), "sudo nvidia-smi -i 0 -pl 115");
}

#[test]
fn gpus_are_not_judged_that_the_run_does_not_use() {
    let made = slow().started(|run| {
        (run.device.is_gpu, run.device.profile, run.target) = (false, None, Some("generic".to_owned()));
    });
    let diagnosis = diagnose(&made.records());
    assert_eq!((kinds(&diagnosis), diagnosis.judged.gpu_samples), (Vec::new(), 0));
}

#[test]
fn the_library_is_proposed_with_its_measured_gain() {
    let measured = first(Made::healthy().started(|run| run.library_speed_up = Some(1.9)));
    assert_eq!(measured.change.pins().as_deref(), Some("kernels=library"));
    // Launches, which take 5 of 100 ms, are as fast as before.
    assert!((1.5..=1.9).contains(&measured.gain()), "{measured:#?}");
    assert_eq!(measured.severity, Severity::Critical);
    // Whether the program imports such modules is not recorded, so the setting alone may change nothing.
    let stated = first(Made::healthy().started(|run| run.family = Some(Family::Transformer)));
    assert!(stated.headline.contains("2.6 to 3.4 times as fast on an H200 (transformers"), "{stated:#?}");
    assert!(stated.change.what.starts_with("import modules from `gpu_tuned::nn`"), "{stated:#?}");
    assert_eq!((stated.change.pins(), stated.prediction, stated.severity), (None, None, Severity::Warning));
}
