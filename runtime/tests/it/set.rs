//! Settings that are fixed for one start, by the program or the environment.

use gpu_tuned::{Decision, Options, Pins, StartError};

// Optimizer steps of 48 samples.
config! {
    Config { #[tuned] batch_size: usize, #[tuned] gradient_accumulation: usize, #[tuned] num_workers: usize },
    mlp(widths = [64, 32]), global_batch = 48, target = "generic"
}

// Steps of whatever its own fields say.
config! { Free, mlp(widths = [64, 32]), target = "generic" }

// The same with a number of micro-batches.
config! {
    Accumulating { #[tuned] gradient_accumulation: usize },
    transformer(layers = 2, d_model = 256, vocab = 4096, seq = 128), target = "generic"
}

fn pins(text: &str) -> Pins {
    text.parse().expect("it fixes settings")
}

fn decide(config: &Config, set: &str) -> Result<Decision, StartError> {
    Options::default().cpu().set(pins(set)).decide(config)
}

#[test]
fn the_samples_of_a_step_stay_the_same() {
    for (set, batch_size, steps) in
        [("batch_size=16", 16, 3), ("batch_size=20", 20, 3), ("gradient_accumulation=6", 8, 6)]
    {
        let decision = decide(&Config::default(), set).unwrap();
        let settings = decision.plan.settings;
        assert_eq!((settings.batch_size, settings.gradient_accumulation), (batch_size, steps), "{set}");
        assert_eq!(decision.plan.schedule.global_batch, 48, "{set}");
    }
}

#[test]
fn they_count_before_the_fields_of_the_config() {
    let config = Config { gradient_accumulation: 4, num_workers: 2, ..Config::default() };
    let decision = decide(&config, "batch_size=24").unwrap();
    let settings = decision.plan.settings;
    assert_eq!((settings.batch_size, settings.gradient_accumulation, settings.num_workers), (24, 2, 2));
}

#[test]
fn a_step_that_the_config_makes_is_kept_too() {
    let decide = |set: &str| Options::default().cpu().set(pins(set)).decide(&Free { batch_size: 24 }).unwrap();
    let (plain, set) = (decide(""), decide("batch_size=6"));
    assert_eq!(plain.plan.schedule.global_batch, 24);
    assert_eq!(set.plan.schedule.global_batch, 24);
    assert_eq!((set.plan.settings.batch_size, set.plan.settings.gradient_accumulation), (6, 4));
    // Only the micro-batch of this start has to fit.
    let huge = Options::default().cpu().set(pins("batch_size=1")).decide(&Free { batch_size: 1 << 20 }).unwrap();
    assert_eq!((huge.plan.settings.batch_size, huge.plan.schedule.global_batch), (1, 1 << 20));
}

#[test]
fn a_step_that_follows_from_the_number_of_micro_batches_is_kept_whatever_is_set() {
    let config = || Accumulating { gradient_accumulation: 3 };
    let decide = |set: &str| Options::default().cpu().set(pins(set)).decide(&config()).unwrap();
    let samples = decide("").plan.schedule.global_batch;
    for set in ["gradient_checkpointing=true", "num_workers=1", "batch_size=1"] {
        assert_eq!(decide(set).plan.schedule.global_batch, samples, "{set}");
    }
}

#[test]
fn the_report_says_that_they_were_set() {
    let decision = decide(&Config::default(), "batch_size=16,num_workers=3").unwrap();
    let report = decision.to_string();
    for line in
        ["batch_size                    16  set for this start", "num_workers                    3  set for this start"]
    {
        assert!(report.contains(line), "no `{line}` in {report}");
    }
    let by_user = decision.selection.changes.iter().filter(|change| change.by_user);
    assert_eq!(by_user.map(|change| change.setting.name()).collect::<Vec<_>>(), ["batch_size", "num_workers"]);
    let plain = decide(&Config::default(), "").unwrap().to_string();
    assert!(!plain.contains("set for this start"), "{plain}");
}

#[test]
fn values_that_make_no_plan_are_an_error_that_names_them() {
    let error = decide(&Config::default(), "batch_size=64").unwrap_err();
    assert!(matches!(error, StartError::SetPlan { .. }));
    assert_eq!(
        error.to_string(),
        "batch_size = 64 is not between 1 and the 48 samples of a step\n  help: `batch_size=64` was set for this start, \
         and the samples of a step stay the same: choose other values, or leave it out"
    );
}

/// Run by the test below in a process of its own, with the variable set.
#[test]
#[ignore = "a part of another test"]
fn started() {
    let decision = Options::default().cpu().set(pins("num_workers=1")).decide(&Config::default());
    let settings = |decision: Decision| serde_json::to_string(&decision.plan.settings).expect("it serializes");
    match decision.map(settings) {
        Ok(settings) => println!("settings: {settings}"),
        Err(error) => println!("error: {error}"),
    }
}

#[test]
fn the_variable_counts_before_the_program() {
    let message = |value: &str| {
        let output = own_process::run(own_process::command(started).env(Options::SET_VARIABLE, value));
        String::from_utf8(output.stdout).expect("text")
    };
    let set = message("batch_size=12");
    assert!(set.contains(r#""batch_size":12,"gradient_accumulation":4,"#), "{set}");
    assert!(set.contains(r#""num_workers":1"#), "{set}");
    let set = message("num_workers=5");
    assert!(set.contains(r#""num_workers":5"#), "{set}");
    let wrong = message("batchsize=12");
    assert!(
        wrong.contains("error: GPU_TUNED_SET: there is no setting `batchsize`; did you mean `batch_size`?"),
        "{wrong}"
    );
}
