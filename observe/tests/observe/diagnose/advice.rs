//! Proposed changes, and predictions compared with later runs.

use super::cases::{computing, neighbour, ours, tiny, waiting};
use super::recorded::{GIB, Made, expected};
use super::scenarios::kinds;
use gpu_tuned_core::workload::Family;
use gpu_tuned_observe::diagnose::{Diagnosis, Finding, Kind, Outcome, compare, diagnose};
use gpu_tuned_observe::recording::{Gpu, GpuSample};

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

/// The healthy run, with clocks of 300 MHz.
fn slow() -> Made {
    Made::healthy().each_sample(|sample| sample.sm_clock_mhz = Some(300))
}

/// The run with a copy of its GPU and the GPU's samples.
fn with_second_gpu(mut made: Made, gpu: impl FnOnce(&mut Gpu), sample: impl Fn(&mut GpuSample)) -> Made {
    let (mut second, mut samples) = (made.start.gpus[0].clone(), made.gpu.clone());
    gpu(&mut second);
    samples.iter_mut().for_each(sample);
    made.run.device.gpu_uuids.extend(second.uuid.clone());
    made.start.gpus.push(second);
    made.gpu.extend(samples);
    made
}

/// A GPU at a power limit below its default, with this name.
fn at_power_limit(name: &str) -> Made {
    let mut made = Made::healthy().each_sample(|sample| {
        (sample.power_limit_mw, sample.power_mw, sample.sm_clock_mhz) = (Some(60_000), Some(60_000), Some(1000));
    });
    let gpu = &mut made.start.gpus[0];
    (gpu.name, gpu.default_power_limit_mw) = (Some(name.to_owned()), Some(115_000));
    made
}

#[test]
fn changes_suit_the_run() {
    let healthy = Made::healthy;
    let skipping =
        |loss: Option<f64>| healthy().each_step(move |step| (step.loss, step.applied) = (loss, step.step < 100));
    let lone = healthy().each_step(|step| (step.samples, step.micro_batch, step.micro_batches) = (4, 4, 1));
    let with_statistics = tiny(healthy()).started(|run| run.batch_statistics = true);
    let small = healthy().each_step(|step| (step.micro_batch, step.micro_batches) = (16, 8)).started(|run| {
        run.memory_budget_bytes = Some(10 * GIB);
        run.expected = vec![expected(4, 400.0, 2), expected(16, 900.0, 6), expected(64, 1280.0, 20)];
        run.expected[2].fits = false;
    });
    let other_index = with_second_gpu(
        slow(),
        |gpu| (gpu.gpu, gpu.uuid) = (3, Some("GPU-2".to_owned())),
        |sample| (sample.gpu, sample.sm_clock_mhz) = (3, Some(210)),
    );
    let mut slice = with_second_gpu(
        slow().each_sample(|sample| sample.utilisation_percent = None),
        |gpu| (gpu.mig_slot, gpu.uuid, gpu.max_sm_clock_mhz) = (Some(1), Some("MIG-1".to_owned()), None),
        |sample| (sample.mig_slot, sample.sm_clock_mhz) = (Some(1), None),
    );
    slice.run.device.gpu_uuids = vec!["MIG-1".to_owned()];
    let runs = [
        ("workers that are not recorded", computing(waiting(healthy().started(|run| run.settings = None), 0.1), 450.0)),
        ("losses that are finite", skipping(Some(1.5))),
        ("losses that are not recorded", skipping(None)),
        ("a larger micro-batch beyond the step is another run", lone.started(|run| run.global_batch = Some(4))),
        (
            "a larger micro-batch of the same step is another run where statistics change with it",
            with_statistics.with_settings(|settings| (settings.batch_size, settings.gradient_accumulation) = (8, 16)),
        ),
        ("memory of a neighbour would fit larger batches", neighbour(small, 110 * GIB)),
        ("GPUs with one fault have one command", other_index),
        ("the clocks of a slice are those of its GPU", slice),
        // `nvidia-smi -pl` is not supported on laptops.
        ("a laptop", at_power_limit("NVIDIA GeForce RTX 4060 Laptop GPU")),
        ("a server", at_power_limit("NVIDIA GeForce RTX 4060")),
        ("measured with the library", healthy().started(|run| run.library_speed_up = Some(1.9))),
        // The recording does not show whether the program imports such modules: the setting alone may change nothing.
        ("stated for the library", healthy().started(|run| run.family = Some(Family::Transformer))),
    ];
    let text = runs.map(|(what, made)| {
        let finding = first(made);
        let Finding { kind, severity, headline, evidence, change, .. } = &finding;
        let severity = severity.name();
        let (gain, pins) = (finding.gain(), change.pins().unwrap_or_default());
        let (what_to_do, command) = (&change.what, change.command.as_deref().unwrap_or_default());
        format!(
            "# {what}\n{severity} {kind}: {headline}\nevidence: {}\nchange: {what_to_do}\npins: {pins}\ncommand: {command}\n\
             gain: {gain:.3}\n",
            evidence[0]
        )
    });
    insta::assert_snapshot!(text.join("\n"));
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

#[test]
fn gpus_are_not_judged_that_the_run_does_not_use() {
    let made = slow().started(|run| {
        (run.device.is_gpu, run.device.profile, run.target) = (false, None, Some("generic".to_owned()));
    });
    let diagnosis = diagnose(&made.records());
    assert_eq!((kinds(&diagnosis), diagnosis.judged.gpu_samples), (Vec::new(), 0));
}
