//! Predictions compared with a simulation of the changed run.

use gpu_tuned_core::{Setting, SettingValue};
use gpu_tuned_observe::recording::{Record, StepRecord};
use proptest::prelude::*;

use super::simulation::Loop;
use gpu_tuned_observe::diagnose::{Finding, Kind, Prediction, diagnose};

/// Returns the finding of a kind in the run's recording.
fn found(run: &Loop, kind: Kind) -> Option<Finding> {
    diagnose(&run.recording()).findings.into_iter().find(|finding| finding.kind == kind)
}

/// Returns the run with the settings that a finding proposes.
fn changed(run: &Loop, finding: &Finding) -> Loop {
    let mut run = run.clone();
    for change in &finding.change.settings {
        match (change.setting, change.to) {
            (Setting::BatchSize, SettingValue::Count(batch)) => run.micro_batch = batch,
            (Setting::NumWorkers, SettingValue::Count(workers)) => run.workers = workers,
            (Setting::PrefetchDepth, SettingValue::Count(depth)) => run.depth = depth,
            (Setting::GradientCheckpointing, SettingValue::Flag(on)) => run.checkpointing = on,
            _ => {}
        }
    }
    run
}

fn predicted(finding: &Finding) -> &Prediction {
    finding.prediction.as_ref().expect("a prediction")
}

/// Seconds of a step.
fn step_s(run: &Loop) -> f64 {
    run.global_batch as f64 / run.samples_per_s()
}

/// Asserts that the changed run is as fast as predicted.
fn assert_hit(finding: &Finding, after: &Loop) -> Result<(), TestCaseError> {
    let (prediction, got) = (predicted(finding), after.samples_per_s());
    prop_assert!(prediction.is_hit_by(got), "got {got}: {finding:#?}");
    Ok(())
}

prop_compose! {
    /// Healthy programs: the loader has time to spare, and a step waits for the device.
    fn healthy()(
        (forward, backward, update) in (20..80_u64, 60..160_u64, 10..50_u64),
        launch_us in 4.0..12.0_f64,
        per_sample_us in 0.4..1.5_f64,
        micro_batch in prop::sample::select(vec![64_u64, 128]),
        batches in 1..4_u64,
        jitter in 0.0..0.3_f64,
        outside_us in 0.0..200.0_f64,
        (records_workers, is_monitored) in any::<(bool, bool)>(),
    ) -> Loop {
        let kernel_s = 5e-6;
        let run = Loop {
            kernels: [forward, backward, update],
            launch_s: launch_us * 1e-6,
            kernel_s,
            kernel_s_per_sample: per_sample_us * 1e-6,
            micro_batch,
            global_batch: micro_batch * batches,
            jitter,
            outside_s: outside_us * 1e-6,
            records_workers,
            is_monitored,
            ..Loop::default()
        };
        // A sample takes the workers half the time that the device takes for it.
        let sample_s = 0.5 * run.workers as f64 * (run.kernels[0] + run.kernels[1]) as f64 * run.kernel_s_per_sample;
        Loop { sample_s, ..run }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_found_in_a_healthy_run(run in healthy()) {
        let findings = diagnose(&run.recording()).findings;
        let but_hints: Vec<_> = findings.iter().filter(|finding| finding.severity < gpu_tuned_observe::diagnose::Severity::Hint).collect();
        prop_assert!(but_hints.is_empty(), "{but_hints:#?}");
    }

    #[test]
    fn more_workers_gain_as_predicted(run in healthy(), slower in 3.0..20.0_f64, workers in 1..5_u64) {
        let sample_s = run.sample_s * slower * workers as f64 / run.workers as f64;
        let slow = Loop { workers, sample_s, ..run };
        let finding = found(&slow, Kind::LoaderBound).expect("a finding");
        assert_hit(&finding, &changed(&slow, &finding))?;
    }

    #[test]
    fn the_first_workers_gain_as_predicted(run in healthy(), load in 0.2..6.0_f64) {
        let none = Loop { workers: 0, sample_s: run.sample_s * load, ..run };
        let findings = diagnose(&none.recording()).findings;
        prop_assert!(matches!(findings[0].kind, Kind::LoaderBound | Kind::PrefetchMissing), "{findings:#?}");
        assert_hit(&findings[0], &changed(&none, &findings[0]))?;
    }

    #[test]
    fn a_deeper_queue_gains_as_predicted(run in healthy(), every in 15..25_u64, steps in 8.0..12.0_f64) {
        let unsteady = Loop { hiccup: Some((every, steps * step_s(&run))), steps: 200, ..run };
        let finding = found(&unsteady, Kind::PrefetchMissing).expect("a finding");
        assert_hit(&finding, &changed(&unsteady, &finding))?;
    }

    #[test]
    fn reads_in_the_loss_function_cost_as_predicted(run in healthy(), reads in 1..12_u64, spins: bool) {
        let every = (run.kernels[0] / reads).max(1);
        let reading = Loop { reads_after: (1..=reads).map(|read| read * every).collect(), spins, ..run.clone() };
        let Some(finding) = found(&reading, Kind::HostSync) else {
            // A working thread counts as launching, unless it takes far longer than the backward pass.
            let [loss, backward] = [|step: &StepRecord| step.loss_s, |step: &StepRecord| step.backward_s].map(|part| {
                let step = |record: &Record| if let Record::Step(step) = record { part(step) } else { None };
                reading.recording().iter().filter_map(step).sum::<f64>()
            });
            prop_assert!(spins && loss < 1.6 * backward, "{reading:#?}");
            return Ok(());
        };
        assert_hit(&finding, &run)?;
    }

    #[test]
    fn larger_micro_batches_gain_as_predicted(run in healthy(), smaller in prop::sample::select(vec![8_u64, 16, 64])) {
        let small = Loop { micro_batch: (run.micro_batch / smaller).max(1), steps: 40, ..run };
        let finding = diagnose(&small.recording()).findings.into_iter().next().expect("a finding");
        prop_assert_eq!(finding.kind, Kind::BatchTooSmall);
        assert_hit(&finding, &changed(&small, &finding))?;
    }

    #[test]
    fn uploads_go_where_larger_micro_batches_make_room_on_the_device(
        run in healthy(),
        smaller in prop::sample::select(vec![16_u64, 64]),
        steps in 0.1..1.0_f64,
    ) {
        let upload_s = steps * step_s(&run);
        let small = Loop { micro_batch: (run.micro_batch / smaller).max(1), records_workers: true, upload_s, steps: 40, ..run };
        let finding = found(&small, Kind::BatchTooSmall).expect("a finding");
        assert_hit(&finding, &changed(&small, &finding))?;
    }

    #[test]
    fn work_between_steps_costs_as_predicted(run in healthy(), steps in 0.2..3.0_f64) {
        let slow = Loop { outside_s: steps * step_s(&run), ..run.clone() };
        let finding = found(&slow, Kind::SlowLoop).expect("a finding");
        assert_hit(&finding, &Loop { outside_s: 0.0, ..run })?;
    }

    #[test]
    fn overlapped_uploads_gain_as_predicted(run in healthy(), steps in 0.1..1.5_f64) {
        // A loader of the program's own uploads nothing.
        let run = Loop { records_workers: false, ..run };
        let slow = Loop { upload_s: steps * step_s(&run), ..run.clone() };
        let finding = found(&slow, Kind::PrefetchMissing).expect("a finding");
        assert_hit(&finding, &run)?;
    }

    #[test]
    fn a_leak_ends_the_run_when_it_is_predicted_to(run in healthy(), mib in 1..400_u64) {
        let leaking = Loop { leak: mib << 20, ..run.clone() };
        let finding = diagnose(&leaking.recording()).findings.into_iter().next().expect("a finding");
        prop_assert_eq!(finding.kind, Kind::MemoryLeak);
        let fails = leaking.fails_at().expect("it leaks") as f64;
        prop_assert!(predicted(&finding).is_hit_by(fails), "{fails}: {:#?}", finding);
        prop_assert!(found(&run, Kind::MemoryLeak).is_none());
    }

    #[test]
    fn memory_of_a_neighbour_gains_as_predicted(run in healthy(), left_gib in 3..8_u64) {
        let run = Loop { is_monitored: true, ..run };
        let mut crowded = Loop { ballast: run.memory - (left_gib << 30), ..run.clone() };
        // The planner takes the best that fits beside it.
        let fits = crowded.curve().into_iter().filter(|point| point.fits && !point.checkpointing && point.batch <= run.global_batch);
        let best = fits.max_by(|a, b| a.samples_per_s.total_cmp(&b.samples_per_s)).expect("one that fits").batch;
        crowded.micro_batch = best;
        let finding = found(&crowded, Kind::OtherProcess).expect("a finding");
        let regained = finding.figures.get("regained_micro_batch").map_or(best, |batch| batch as u64);
        assert_hit(&finding, &Loop { ballast: 0, micro_batch: regained, ..run.clone() })?;
        prop_assert!(found(&run, Kind::OtherProcess).is_none());
    }

    #[test]
    fn training_without_checkpointing_is_as_fast_as_predicted(run in healthy()) {
        let recomputing = Loop { checkpointing: true, ..run };
        let finding = found(&recomputing, Kind::NeedlessCheckpointing).expect("a finding");
        assert_hit(&finding, &changed(&recomputing, &finding))?;
    }

    #[test]
    fn a_cool_device_is_as_fast_as_predicted(run in healthy(), clock in 0.3..0.85_f64) {
        let hot = Loop { clock, is_monitored: true, ..run.clone() };
        let finding = found(&hot, Kind::ThermalThrottle).expect("a finding");
        assert_hit(&finding, &Loop { clock: 1.0, ..hot })?;
    }

    #[test]
    fn half_the_launches_gain_as_predicted(run in healthy(), launch_us in 60.0..200.0_f64) {
        // All batches are as fast as launching allows, up to the largest that fits.
        let slow = Loop { launch_s: launch_us * 1e-6, kernel_s_per_sample: 0.05e-6, sample_s: 0.0, is_monitored: true, ..run };
        let slow = Loop { global_batch: slow.micro_batch * 4, ..slow };
        let findings = diagnose(&slow.recording()).findings;
        prop_assert!(matches!(findings[0].kind, Kind::BatchTooSmall | Kind::HostBound), "{findings:#?}");
        assert_hit(&findings[0], &changed(&slow, &findings[0]))?;
    }
}
