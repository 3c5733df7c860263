//! Plans by what was measured, on machines that a fake management library plays.

use gpu_tuned::{Built, Decision, Provenance, SavedRun, Setting};
use tempfile::tempdir;

use crate::played::{decide, on};

config! {
    Lm {
        #[tuned] batch_size: usize,
        #[tuned] gradient_accumulation: usize,
        #[tuned(dim = layers, default = 6)] layers: usize,
    },
    transformer(d_model = 512, vocab = 8192, seq = 256), global_batch = 512, target = "generic"
}

// The same in a package whose build script read a `gpu-tuned.lock`.
rebuilt!(Measured, Lm, Built { table: Some(include_str!("measured.toml")), ..Lm::BUILT });

// The same in a package whose `gpu-tuned.lock` has it under two names, one of which the attribute may name.
rebuilt! { Renamed<const NAMED: bool>, Lm, Built {
    workload: if NAMED { Some("a-old") } else { None },
    table: Some(include_str!("renamed.toml")),
    ..Lm::BUILT
} }

fn stands_behind(decision: &Decision, setting: Setting) -> Provenance {
    decision.plan.reasons.iter().find(|reason| reason.setting == setting).expect("each has a reason").provenance
}

#[test]
fn what_was_measured_decides_and_the_plan_says_so() {
    let (costs, measured) = (decide(&Lm::default(), "rtx4090"), decide(&Measured::default(), "rtx4090"));
    assert_eq!(costs.plan.samples_per_s_provenance, Provenance::Derived);
    assert!(costs.plan.settings.batch_size > 32, "{}", costs.plan);
    let plan = &measured.plan;
    assert_eq!((plan.settings.batch_size, plan.settings.gradient_accumulation), (32, 16), "{plan}");
    assert_eq!(plan.samples_per_s_provenance, Provenance::Measured);
    // 16 micro-batches and one step of the optimizer.
    let samples_per_s = 512.0 / (16.0 * 0.033 + 0.001);
    assert!((plan.samples_per_s / samples_per_s - 1.0).abs() < 1e-9, "{plan}");
    assert_eq!(stands_behind(&measured, Setting::NumWorkers), Provenance::Measured);
    assert_eq!(plan.advice.iter().filter(|advice| advice.contains("gpu-tuned.lock")).count(), 0, "{plan}");
}

#[test]
fn between_points_it_is_estimated_and_elsewhere_transferred() {
    let between = Measured(Lm { batch_size: 64, ..Lm::default() });
    let provenance = |config: &Measured, scenario: &str| decide(config, scenario).plan.samples_per_s_provenance;
    assert_eq!(provenance(&between, "rtx4090"), Provenance::Estimated);
    assert_eq!(provenance(&Measured::default(), "h200"), Provenance::Transferred);
    assert_eq!(provenance(&Measured::default(), "no-gpu"), Provenance::Derived);
}

#[test]
fn of_two_names_the_configs_own_counts_and_else_the_device() {
    // 32 is the only micro-batch that was measured on it.
    let fixed = Lm { batch_size: 32, ..Lm::default() };
    let provenance = |decision: Decision| decision.plan.samples_per_s_provenance;
    assert_eq!(provenance(decide(&Renamed::<false>(fixed.clone()), "rtx4090")), Provenance::Measured);
    assert_eq!(provenance(decide(&Renamed::<true>(fixed), "rtx4090")), Provenance::Transferred);
}

#[test]
fn a_config_of_other_dimensions_is_planned_by_costs_and_told_what_to_do() {
    let deeper = Lm { layers: 8, ..Lm::default() };
    let (costs, reported) = (decide(&deeper, "rtx4090"), decide(&Measured(deeper), "rtx4090"));
    assert_eq!(reported.plan.settings, costs.plan.settings);
    let note = "gpu-tuned.lock: `lm` was measured with layers = 6, now 8: run `cargo gpu-tuned measure`";
    assert_eq!(reported.plan.advice.last().map(String::as_str), Some(note));
    assert!(reported.to_string().contains(note), "{reported}");
}

#[test]
fn a_run_goes_on_after_its_workload_was_measured() {
    let directory = tempdir().expect("a directory");
    let begun = decide(&Lm::default(), "rtx4090");
    let saved = SavedRun::new(&Lm::default(), &begun);
    saved.save(directory.path()).expect("it can be written");
    let resumed = on("rtx4090").resume(directory.path()).decide(&Measured::default()).expect("it is the same model");
    assert_eq!(resumed.plan.schedule, begun.plan.schedule);
    let after = SavedRun::new(&Measured::default(), &resumed);
    let text = |run: &SavedRun| serde_json::to_value(run).expect("it is JSON")["workload"].clone();
    assert_eq!(text(&after), text(&saved), "what was measured is not saved");
}
