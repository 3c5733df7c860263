//! Sizes of training sets.

use super::file;
use crate::{Config, Format, KeyOverride};

/// Samples of the training set with their key, or the first mistake.
fn samples(text: &str, assigned: Option<&str>) -> Result<Option<(u64, String)>, String> {
    let file = file(Format::Yaml, text);
    let entries = file.entries().expect("valid YAML");
    let overrides = assigned.map(|key| KeyOverride::new("train_samples", key, &entries).expect("a key of the file"));
    let overrides: Vec<_> = overrides.into_iter().collect();
    let config = Config::read(&entries, &file, &overrides).map_err(|error| error.to_string())?;
    Ok(config.data_set.map(|set| (set.samples, set.key)))
}

#[test]
fn keys_of_the_training_set_are_recognised() {
    for (text, samples_and_key) in [
        ("num_samples: 1500", Some((1500, "num_samples"))),
        ("data: {numTrainSamples: 60_000}", Some((60_000, "data.numTrainSamples"))),
        ("train:\n  train_size: 45000", Some((45_000, "train.train_size"))),
        ("dataset: {size: 1797}", Some((1797, "dataset.size"))),
        ("dataset_size: 50000\nn_train: 45000", Some((45_000, "n_train"))),
        // Shares, flags, and open values.
        ("train_size: 0.8", None),
        ("train_size: 1.0", None),
        ("train_size: 1", None),
        ("num_samples: -1", None),
        ("max_train_samples: null", None),
        ("num_samples: ${data.samples}", None),
        // Other sets, and parts.
        ("model: {size: 1797}", None),
        ("val: {num_samples: 1500}", None),
        ("batch_size: 64\nn_samples: 16", None),
        ("batch_size: 64\nn_samples: 16\ndataset_size: 900", Some((900, "dataset_size"))),
        ("parts: [{num_samples: 1500}, {num_samples: 9}]", None),
    ] {
        let expected = samples_and_key.map(|(samples, key)| (samples, key.to_owned()));
        assert_eq!(samples(text, None), Ok(expected), "{text}");
    }
}

#[test]
fn an_assigned_key_replaces_all_others() {
    let text = "windows: 900\nnum_samples: 10\nshare: 0.8";
    assert_eq!(samples(text, Some("windows")), Ok(Some((900, "windows".to_owned()))));
    let refused = samples(text, Some("share")).expect_err("a share is no number of samples");
    assert_eq!(refused, "config:3:8: `share`: expected a whole number from 2 to 2^40, found 0.8");
}
