//! Each kind has a run in which it is found, and a run near it in which it is not.

use gpu_tuned_observe::diagnose::{Diagnosis, Kind, Unjudged, diagnose};
use gpu_tuned_observe::recording::{GpuSample, Throttle};

use super::cases::{cases, computing, throttled, tiny, waiting};
use super::recorded::Made;
use super::runs::later;

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
fn what_is_not_recorded_is_listed() {
    let mut short = Made::healthy();
    short.steps.truncate(15);
    let mut without_monitor = waiting(Made::healthy(), 0.1);
    (without_monitor.gpu, without_monitor.host) = (Vec::new(), Vec::new());
    let lost = Made::healthy().each_sample(|sample| {
        *sample = GpuSample::new(sample.at, sample.gpu);
        sample.trouble = Some("the GPU is lost".to_owned());
    });
    let text = [
        ("a short recording", short.records()),
        ("without steps", throttled(Made::healthy(), Throttle::ThermalHardware, 900).without_steps().records()),
        ("without a monitor", without_monitor.records()),
        ("a lost GPU", lost.without_steps().records()),
        ("nothing", Vec::new()),
    ]
    .map(|(name, records)| {
        let diagnosis = diagnose(&records);
        let findings = diagnosis.findings.iter().map(|finding| {
            format!("{}, {}", finding.kind, if finding.prediction.is_some() { "predicted" } else { "not predicted" })
        });
        let unjudged = diagnosis.unjudged.iter().map(|Unjudged { what, how, .. }| format!("{what}; {how}"));
        let lines: Vec<_> = findings.chain(unjudged).collect();
        format!("# {name}, {} samples of the GPU\n{}\n", diagnosis.judged.gpu_samples, lines.join("\n"))
    });
    insta::assert_snapshot!(text.join("\n"));
}

#[test]
fn the_last_run_of_a_file_is_judged() {
    let second = later(Made::healthy(), 100.0, 7);
    let records = [waiting(Made::healthy(), 0.1).records(), second.records()].concat();
    assert_eq!(kinds(&diagnose(&records)), []);
}
