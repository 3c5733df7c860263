//! Recordings of several runs, and of a run with steps of others.

use gpu_tuned_observe::export::prometheus;
use gpu_tuned_observe::monitor::Summary;
use gpu_tuned_observe::recording::Record;
use gpu_tuned_observe::trace::{Steps, from_records};

use super::cases::{tiny, waiting};
use super::recorded::Made;
use super::scenarios::kinds;
use gpu_tuned_observe::diagnose::{Kind, diagnose};

/// The run, `seconds` later, of a process that records its ID.
pub(super) fn later(mut made: Made, seconds: f64, pid: u32) -> Made {
    (made.start.at, made.run.at, made.run.pid) = (seconds, made.run.at + seconds, pid);
    for step in &mut made.steps {
        (step.at, step.pid) = (step.at + seconds, Some(pid));
    }
    made.gpu.iter_mut().for_each(|sample| sample.at += seconds);
    made.host.iter_mut().for_each(|sample| sample.at += seconds);
    made
}

/// Records in the order of time.
fn interleaved(mut records: Vec<Record>) -> Vec<Record> {
    records.sort_by(|a, b| a.at().expect("a time").total_cmp(&b.at().expect("a time")));
    records
}

#[test]
fn the_order_of_files_does_not_matter() {
    let mut old = waiting(Made::healthy(), 0.1);
    old.start.cores = 2;
    for of_older_version in [false, true] {
        let mut new = later(Made::healthy(), 100.0, 7);
        if of_older_version {
            new.steps.iter_mut().for_each(|step| step.pid = None);
        }
        let in_order = diagnose(&[old.clone().records(), new.clone().records()].concat());
        assert_eq!((kinds(&in_order), in_order.judged.steps, in_order.unjudged.len()), (Vec::new(), 198, 0));
        assert_eq!(diagnose(&[new.records(), old.clone().records()].concat()), in_order);
    }
}

#[test]
fn two_programs_in_one_file_are_told_apart() {
    // Small steps, in one micro-batch each.
    let other = tiny(Made::healthy()).each_step(|step| (step.samples, step.micro_batches) = (8, 1));
    let both = [later(other, 0.05, 8).records(), later(Made::healthy(), 0.1, 7).records()].concat();
    let diagnosis = diagnose(&interleaved(both.clone()));
    assert_eq!((kinds(&diagnosis), diagnosis.judged.steps), (Vec::new(), 198), "{diagnosis:#?}");
    assert_eq!(diagnosis.unjudged, []);

    // Steps without process IDs are told apart by their numbers, and judged all the same.
    let mut of_older_version = both;
    for record in &mut of_older_version {
        if let Record::Step(step) = record {
            step.pid = None;
        }
    }
    let diagnosis = diagnose(&interleaved(of_older_version));
    assert!(kinds(&diagnosis).contains(&Kind::NoAccumulation), "{diagnosis:#?}");
    assert!(diagnosis.unjudged[0].what.contains("their numbers repeat, from 1 on"), "{diagnosis:#?}");
}

#[test]
fn steps_that_end_before_their_run_begins_are_no_short_recording() {
    for (pid, taken_by) in [(None, 7), (Some(7), 7), (Some(8), 8)] {
        let mut made = Made::healthy();
        made.run.at = 3600.0;
        made.steps.iter_mut().for_each(|step| step.pid = pid);
        let diagnosis = diagnose(&made.records());
        assert_eq!((kinds(&diagnosis), diagnosis.judged.steps), (Vec::new(), 0));
        let unjudged = &diagnosis.unjudged[0];
        let (what, how) = if taken_by == 7 {
            ("200 ended before it began", "the clock was set back after its start")
        } else {
            ("and 200 of other processes", "let it run for longer")
        };
        assert!(unjudged.what.ends_with(what) && unjudged.how.contains(how), "{unjudged:?}");
        assert!(!diagnosis.unjudged.iter().any(|unjudged| unjudged.what.contains("too short")), "{diagnosis:#?}");
    }
}

#[test]
fn a_clock_that_is_set_back_within_a_run_gives_no_negative_times() {
    for (seconds, steps) in [(4.0, 198), (3600.0, 98)] {
        let mut made = Made::healthy().each_step(|step| step.pid = Some(7)).started(|run| run.pid = 7);
        made.steps[100..].iter_mut().for_each(|step| step.at -= seconds);
        made.gpu[20..].iter_mut().for_each(|sample| sample.at -= seconds);
        made.host[20..].iter_mut().for_each(|sample| sample.at -= seconds);
        let records = made.records();
        let diagnosis = diagnose(&records);
        assert_eq!((kinds(&diagnosis), diagnosis.judged.steps), (Vec::new(), steps), "{diagnosis:#?}");
        assert_eq!(diagnosis.unjudged.iter().any(|it| it.what.starts_with("100 steps of the run: ")), steps == 98);
        assert!(prometheus(&records).contains("\ngpu_tuned_steps_total{rank=\"0\"} 200\n"));
        assert!((0.0..=20.0).contains(&diagnosis.judged.seconds), "{diagnosis:#?}");
        let summary = Summary::from_records(&records);
        assert!((0.0..=20.0).contains(&summary.seconds), "{summary:#?}");
        let mut trace = Vec::new();
        from_records(&records, Steps::ALL).expect("steps").write(&mut trace).expect("memory");
        let trace = String::from_utf8(trace).expect("JSON");
        assert!(trace.contains("\"dur\":") && !trace.contains("\":-"), "{trace}");
    }
}
