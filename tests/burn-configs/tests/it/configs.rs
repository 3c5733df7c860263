//! The annotated configs: their values, and values read from older files.

use burn::config::Config;
use burn_configs::{before, custom_loop, guide, mnist, text_classification};
use gpu_tuned::{Built, Options, Setting, Settings, Tuned};

/// The settings in the row of a target in the struct's documentation, from the expansion that the build wrote.
fn documented(built: &Built) -> Vec<(String, String)> {
    let file = format!("{}/burn_configs/{}.rs", env!("GPU_TUNED_EXPAND_DIR"), built.config);
    let expansion = std::fs::read_to_string(&file).expect("the build writes expansions");
    let cells = |marker: &str| -> Vec<String> {
        let start = expansion.find(marker).unwrap_or_else(|| panic!("{file} has no {marker}"));
        let line = expansion[start..].split("\\n").next().unwrap_or_default();
        let cells = line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`').to_owned());
        cells.skip(1).collect()
    };
    cells("| target |").into_iter().zip(cells(&format!("| `{}` |", built.target))).collect()
}

fn values(settings: &Settings, names: &[(String, String)]) -> Vec<(String, String)> {
    let value = |name: &String| settings.get(Setting::named(name).expect("a setting")).to_string();
    names.iter().map(|(name, _)| (name.clone(), value(name))).collect()
}

#[test]
fn new_configs_hold_what_their_documentation_says() {
    let counts = |pairs: &[(&str, usize)]| -> Vec<(String, String)> {
        pairs.iter().map(|(name, count)| ((*name).to_owned(), count.to_string())).collect()
    };
    let (guide, mnist, looped, text) =
        (guide::config(), mnist::config(), custom_loop::config(), text_classification::config());
    for (built, held) in [
        (guide::TrainingConfig::BUILT, counts(&[("batch_size", guide.batch_size), ("num_workers", guide.num_workers)])),
        (
            mnist::MnistTrainingConfig::BUILT,
            counts(&[("batch_size", mnist.batch_size), ("num_workers", mnist.num_workers)]),
        ),
        (
            custom_loop::LoopConfig::BUILT,
            counts(&[("batch_size", looped.batch_size), ("num_workers", looped.num_workers)]),
        ),
        (text_classification::ExperimentConfig::BUILT, counts(&[("batch_size", text.batch_size)])),
    ] {
        assert_eq!(documented(&built), held, "{}", built.config);
        assert_eq!(values(&built.settings, &held), held, "{}", built.config);
    }
}

#[test]
fn what_is_not_tuned_stays_burns() {
    let (ours, theirs) = (guide::config(), before::guide::config());
    assert_eq!(
        (ours.num_epochs, ours.seed, ours.learning_rate),
        (theirs.num_epochs, theirs.seed, theirs.learning_rate)
    );
    let (ours, theirs) = (text_classification::config(), before::text_classification::config());
    assert_eq!(ours.transformer.to_string(), theirs.transformer.to_string());
}

#[test]
fn a_saved_config_is_loaded_as_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config.json");
    let config = text_classification::config().with_batch_size(7);
    config.save(&file).expect("it is saved");
    let loaded = text_classification::ExperimentConfig::load(&file).expect("it is loaded");
    assert_eq!(loaded.to_string(), config.to_string());
}

/// Burn's `Config` ignores keys without a field, so adding a key only to a file has no effect.
#[test]
fn a_key_without_a_field_is_passed_over() {
    let text = guide::config().to_string();
    let more = text.replacen('{', "{\"gradient_accumulation\": 4,", 1);
    let loaded = guide::TrainingConfig::load_binary(more.as_bytes()).expect("the key is passed over");
    assert_eq!(loaded.to_string(), text);
}

/// A file written before the annotation contains Burn's batch size. The file counts as the user's choice and stays.
#[test]
fn a_config_saved_before_the_annotation_pins_what_it_holds() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config.json");
    before::guide::config().with_batch_size(48).save(&file).expect("it is saved");
    let loaded = guide::TrainingConfig::load(&file).expect("the fields are the same");
    assert_eq!((loaded.batch_size, loaded.num_workers), (48, 4));
    let decision = Options::default().cpu().decide(&loaded).expect("it fits");
    assert_eq!(decision.plan.settings.batch_size, 48);
}

/// Burn's `Config` reads every field, defaults or not: a file from before a field was there does not load. Take the
/// config from code then, or add the field to the file.
#[test]
fn a_file_without_a_tuned_field_is_refused_by_burn() {
    let text = guide::config().to_string();
    let kept: Vec<_> = text.lines().filter(|line| !line.contains("num_workers")).collect();
    assert!(kept.len() < text.lines().count(), "{text}");
    let error = guide::TrainingConfig::load_binary(kept.join("\n").as_bytes()).expect_err("a field is missing");
    assert!(error.to_string().contains("missing field `num_workers`"), "{error}");
}
