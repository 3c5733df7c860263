//! Each kind has a run in which it is found, and a run near it in which it is not.

use gpu_tuned_observe::diagnose::{Diagnosis, Kind, diagnose};
use gpu_tuned_observe::recording::{GpuSample, Throttle};

use super::cases::{cases, computing, throttled, tiny, waiting};
use super::recorded::Made;

pub(super) fn kinds(diagnosis: &Diagnosis) -> Vec<Kind> {
    diagnosis.findings.iter().map(|finding| finding.kind).collect()
}

#[test]
fn nothing_is_found_in_a_healthy_run() {
    let diagnosis = diagnose(&Made::healthy().records());
    assert_eq!((kinds(&diagnosis), diagnosis.unjudged), (Vec::new(), Vec::new()));
}

#[test]
fn each_kind_is_found_in_its_case_and_not_near_it() {
    let cases = cases();
    for (kind, has, has_not) in &cases {
        let [has, has_not] = [has, has_not].map(|made| diagnose(&made.clone().records()));
        assert_eq!(kinds(&has).first(), Some(kind), "{has:#?}");
        assert!(!kinds(&has_not).contains(kind), "{has_not:#?}");
    }
    for kind in Kind::ALL {
        assert!(cases.iter().any(|(of, ..)| *of == kind), "{kind} has no case");
    }
}

#[test]
fn the_finding_that_explains_most_comes_first() {
    let both = computing(waiting(tiny(Made::healthy()), 0.2), 450.0).records();
    let diagnosis = diagnose(&both);
    assert_eq!(kinds(&diagnosis), [Kind::LoaderBound, Kind::BatchTooSmall]);
    assert_eq!(diagnosis.findings[1].behind, Some(Kind::LoaderBound));
    // A larger micro-batch alone gains nothing: the loader is no faster for it.
    assert!(diagnosis.findings[1].gain() < 1.01, "{diagnosis:#?}");
}

#[test]
fn workers_may_have_all_processors_while_the_trainer_waits_for_them() {
    let with_cores = |cores: u64| {
        let mut made = waiting(Made::healthy().with_settings(|settings| settings.num_workers = 1), 0.9);
        made.start.cores = cores;
        let diagnosis = diagnose(&computing(made, 110.0).records());
        diagnosis.findings[0].change.pins()
    };
    for (cores, pins) in [(2, Some("num_workers=2")), (4, Some("num_workers=4")), (16, Some("num_workers=13"))] {
        assert_eq!(with_cores(cores).as_deref(), pins, "{cores}");
    }
    assert_eq!(with_cores(1), None, "there are none");
}

#[test]
fn too_short_a_recording_is_not_judged() {
    let mut made = Made::healthy();
    made.steps.truncate(15);
    let diagnosis = diagnose(&made.records());
    assert_eq!(kinds(&diagnosis), []);
    let what = &diagnosis.unjudged[0].what;
    assert_eq!(what, "steps: the recording is too short, with 13 after those that compile and autotune; 20 are needed");
}

#[test]
fn without_steps_the_machine_is_judged_and_the_rest_is_listed() {
    let hot = throttled(Made::healthy(), Throttle::ThermalHardware, 900).without_steps();
    let diagnosis = diagnose(&hot.records());
    assert_eq!(kinds(&diagnosis), [Kind::ThermalThrottle]);
    assert!(diagnosis.findings[0].prediction.is_none());
    assert!(diagnosis.unjudged[0].how.contains("GPU_TUNED_RECORD=run.jsonl"), "{diagnosis:#?}");
}

#[test]
fn without_a_monitor_steps_are_judged_and_the_rest_is_listed() {
    let mut made = waiting(Made::healthy(), 0.1);
    (made.gpu, made.host) = (Vec::new(), Vec::new());
    let diagnosis = diagnose(&made.records());
    assert_eq!(kinds(&diagnosis), [Kind::LoaderBound]);
    assert!(diagnosis.unjudged[0].what.starts_with("power, temperature, the PCIe link"), "{diagnosis:#?}");
}

#[test]
fn a_gpu_that_never_answers_is_not_judged() {
    let mut made = Made::healthy();
    for sample in &mut made.gpu {
        let mut lost = GpuSample::new(sample.at, sample.gpu);
        lost.trouble = Some("the GPU is lost".to_owned());
        *sample = lost;
    }
    let diagnosis = diagnose(&made.without_steps().records());
    assert_eq!((diagnosis.judged.gpu_samples, diagnosis.severity()), (0, None));
    let whats: Vec<_> = diagnosis.unjudged.iter().map(|it| &*it.what).collect();
    assert!(whats[1].ends_with("utilization: the GPU did not answer: the GPU is lost"), "{whats:?}");
}

#[test]
fn an_empty_recording_has_no_findings() {
    let diagnosis = diagnose(&[]);
    assert_eq!((diagnosis.findings.len(), diagnosis.severity()), (0, None));
    assert_eq!(diagnosis.unjudged.len(), 2);
}

#[test]
fn the_last_run_of_a_file_is_judged() {
    let mut records = waiting(Made::healthy(), 0.1).records();
    let mut second = Made::healthy();
    second.run.at = 100.0;
    second.steps.iter_mut().for_each(|step| step.at += 100.0);
    second.gpu.iter_mut().for_each(|sample| sample.at += 100.0);
    records.extend(second.records());
    assert_eq!(kinds(&diagnose(&records)), []);
}
