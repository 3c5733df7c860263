//! What a config has beside its model: the training set, ranks, optimizer and features.

use gpu_tuned_core::workload::Optimizer::{self, Adam, Sgd};

use super::{MODEL, file};
use crate::{Config, ConfigText, Format, KeyOverride};

fn read(text: &str) -> Config {
    let file = file(Format::Yaml, text);
    Config::read(&file.entries().expect("valid YAML"), &file, &[]).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Samples of the training set, or the first mistake.
fn samples(text: &str, assigned: Option<&str>) -> Result<Option<u64>, String> {
    let file = file(Format::Yaml, text);
    let entries = file.entries().expect("valid YAML");
    let overrides = assigned.map(|key| KeyOverride::new("train_samples", key, &entries).expect("a key of the file"));
    let overrides: Vec<_> = overrides.into_iter().collect();
    let config = Config::read(&entries, &file, &overrides).map_err(|error| error.to_string())?;
    Ok(config.data_set)
}

#[test]
fn keys_of_the_training_set_are_recognised() {
    for (text, expected) in [
        ("num_samples: 1500", Some(1500)),
        ("data: {numTrainSamples: 60_000}", Some(60_000)),
        ("train:\n  train_size: 45000", Some(45_000)),
        ("dataset: {size: 1797}", Some(1797)),
        ("dataset_size: 50000\nn_train: 45000", Some(45_000)),
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
        ("batch_size: 64\nn_samples: 16\ndataset_size: 900", Some(900)),
        ("parts: [{num_samples: 1500}, {num_samples: 9}]", None),
    ] {
        assert_eq!(samples(text, None), Ok(expected), "{text}");
    }
}

#[test]
fn an_assigned_key_replaces_all_others() {
    let text = "seed: 900\nnum_samples: 10\nsplit: 0.8";
    assert_eq!(samples(text, Some("seed")), Ok(Some(900)));
    let refused = samples(text, Some("split")).expect_err("a share is no number of samples");
    assert_eq!(refused, "config:3:8: `split`: expected a whole number from 2 to 2^40, found 0.8");
}

#[test]
fn optimizers_are_read_from_the_keys_of_each_program() {
    let rows: [(&str, Optimizer); 6] = [
        ("optim: {name: sgd, lr: 0.1}", Sgd),
        ("optim_g: {type: Adam}", Adam),
        ("opt_class: !name:torch.optim.Adam\n  lr: 0.1", Adam),
        ("opt_class: !name:torch.optim.SGD", Sgd),
        ("optim: {_target_: torch.optim.Adam}", Adam),
        ("optim: {_target_: nemo.lightning.MegatronOptimizerModule, config: {optimizer: sgd}}", Sgd),
    ];
    for (key, optimizer) in rows {
        assert_eq!(read(&format!("batch_size: 8\nlr: 1\n{key}\n")).optimizer, Some(optimizer), "{key}");
    }
}

#[test]
fn ranks_are_read_from_data_parallel_sizes_or_noted_where_they_are_open() {
    let megatron = "micro_batch_size: 2\nglobal_batch_size: 64\ntensor_model_parallel_size: 1\nlr: 1\n";
    let ranks = |text: &str| {
        let config = read(&format!("{MODEL}{text}"));
        (config.ranks, config.open_ranks().map(str::to_owned))
    };
    assert_eq!(ranks(&format!("{megatron}data_parallel_size: 4\n")), (Some(4), None));
    assert_eq!(ranks(megatron), (None, Some("global_batch_size".to_owned())));
    let composer = "device_train_microbatch_size: auto\nglobal_train_batch_size: 256\nmax_duration: 48ba\n";
    let composer = read(composer);
    assert_eq!((composer.ranks, composer.open_ranks()), (None, Some("global_train_batch_size")));
    let titan =
        "local_batch_size: 1\nglobal_batch_size: 64\ndata_parallel_replicate_degree: 2\ndata_parallel_shard_degree: ";
    assert_eq!(ranks(&format!("{titan}4\n")), (Some(8), None));
    assert_eq!(ranks(&format!("{titan}-1\n")), (Some(2), Some("data_parallel_shard_degree".to_owned())));
    assert_eq!(ranks("batch_size: 8\nlr: 1\n"), (None, None));
    assert_eq!(ranks("batch_size: 8\nlr: 1\ndistributed: ddp\n"), (None, Some("distributed".to_owned())));
    assert_eq!(ranks("batch_size: 8\nlr: 1\ndist_backend: nccl\n"), (None, Some("dist_backend".to_owned())));
    assert_eq!(ranks("batch_size: 8\nlr: 1\ndistributed: false\n"), (None, None));
    // All devices of the machine are their default.
    let litgpt = "train: {global_batch_size: 8, micro_batch_size: 1}\nnum_nodes: 1\n";
    let litgpt = read(litgpt);
    assert_eq!((litgpt.ranks, litgpt.open_ranks()), (Some(1), Some("train.global_batch_size")));
    let trainer = "trainer: {max_epochs: 1, accelerator: gpu}\nbatch_size: 8\n";
    assert_eq!(ranks(trainer), (None, Some("trainer.devices".to_owned())));
    // Lightning counts `"4"`, and takes the device of `"3,"`.
    let lightning = |devices: &str| {
        ranks(&format!(
            "trainer: {{max_epochs: 1, accelerator: gpu, num_nodes: 2, devices: {devices}}}\nbatch_size: 8\n"
        ))
    };
    assert_eq!(lightning("'4'"), (Some(8), None));
    assert_eq!(lightning("'3,'"), (Some(2), None));
    assert_eq!(lightning("'-1'"), (Some(2), Some("trainer.devices".to_owned())));
    assert_eq!(ranks("batch_size: 8\nlr: 1\ngpus: '1'\n"), (None, Some("gpus".to_owned())));
    assert_eq!(ranks("batch_size: 8\nlr: 1\nworld_size: '4'\n"), (Some(4), None));
}

#[test]
fn the_strongest_of_several_keys_decides_on_a_feature() {
    const AXOLOTL: &str = "base_model: x\nmicro_batch_size: 8\nsequence_len: 64\n";
    for (given, feature, without) in [
        ("flash_attention: false\nsdp_attention: true\n", "flash_attention", Some("sdpa")),
        ("liger_fused_linear_cross_entropy: false\ncut_cross_entropy: true\n", "fused_cross_entropy", Some("false")),
    ] {
        let found = |given: &str| read(&format!("{AXOLOTL}plugins: [CutCrossEntropyPlugin]\n{given}")).feature(feature);
        assert_eq!(found(given).as_deref(), Some("true"));
        assert_eq!(found(&given.replace("true", "false")).as_deref(), without);
    }
}

#[cfg(unix)]
#[test]
fn only_regular_files_of_a_bounded_size_are_read() {
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = temporary.path();
    let read = |name: &str| ConfigText::read(&folder.join(name)).expect_err("not read").to_string();
    std::os::unix::fs::symlink("/dev/zero", folder.join("zero.yaml")).expect("a link");
    let socket = std::os::unix::net::UnixListener::bind(folder.join("socket.yaml")).expect("a socket");
    let large = std::fs::File::create(folder.join("large.yaml")).expect("a file");
    large.set_len((8 << 20) + 1).expect("a size");
    let found = ["zero.yaml", "socket.yaml", "large.yaml"].map(read);
    drop(socket);
    assert!(
        found[0].ends_with("it is not a regular file") && found[1].ends_with("it is not a regular file"),
        "{found:?}"
    );
    assert!(found[2].contains("it is larger than 8 MiB, the most that is read"), "{found:?}");
}
