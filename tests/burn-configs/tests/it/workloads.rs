//! Computed costs of the configs, compared with the networks in Burn.

use burn::config::Config;
use burn::module::Module;
use burn::nn::transformer::TransformerEncoderConfig;
use burn_configs::networks::{digits, mnist, text};
use burn_configs::{custom_loop, guide, text_classification};
use gpu_tuned::{Tuned, gpu_tuned};
use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan::{Plan, plan};
use gpu_tuned_core::profile::ProfileTable;
use models_tests::measure::{device, trainable};

fn parameters_in_burn(config: &text_classification::ExperimentConfig) -> u64 {
    let network = text::ModelConfig::new(config.transformer.clone(), 4, 28_996, 256);
    network.init(&device(false)).num_params() as u64
}

#[test]
fn the_text_classifier_has_the_parameters_of_its_dimensions() {
    let mut config = text_classification::config();
    assert_eq!(config.workload().parameters(), parameters_in_burn(&config));
    let transformer = &mut config.transformer;
    (transformer.n_layers, transformer.d_model, transformer.n_heads, transformer.d_ff) = (2, 96, 3, 200);
    assert_eq!(config.workload().parameters(), parameters_in_burn(&config));
}

/// A config with its dimensions in the file. The file's dimensions apply, not those of `transformer`.
#[gpu_tuned(workload = "text-classification")]
#[derive(Config, Debug)]
struct DbPediaConfig {
    transformer: TransformerEncoderConfig,
    #[tuned]
    batch_size: usize,
}

#[test]
fn the_files_text_classifier_has_the_parameters_of_burns() {
    let config = DbPediaConfig::new(text_classification::config().transformer);
    let network = text::ModelConfig::new(config.transformer.clone(), 14, 28_996, 256).init(&device(false));
    assert_eq!(config.workload().parameters(), network.num_params() as u64);
    assert_eq!(config.batch_size as u64, DbPediaConfig::BUILT.settings.batch_size);
}

#[test]
fn declared_networks_have_the_parameters_that_the_file_says() {
    let digits = |config: &digits::ModelConfig| trainable(&config.init(&device(false))) as u64;
    let (guide, looped) = (guide::config(), custom_loop::config());
    assert_eq!(guide.workload().parameters(), digits(&guide.model));
    assert_eq!(looped.workload().parameters(), digits(&looped.model));
    let network = mnist::Model::new(&device(false));
    assert_eq!(burn_configs::mnist::config().workload().parameters(), trainable(&network) as u64);
}

fn plan_for(id: &str, config: &text_classification::ExperimentConfig) -> Plan {
    let profile = ProfileTable::builtin().get(id).expect("a shipped profile");
    let goal = text_classification::ExperimentConfig::goal();
    plan(&DeviceFacts::nominal(profile), &config.workload().workload(), &goal).expect("it fits")
}

#[test]
fn more_layers_in_the_nested_config_are_another_plan() {
    let small = text_classification::config();
    let mut large = small.clone();
    large.transformer.n_layers = 48;
    let (of_small, of_large) = (plan_for("gtx1080", &small), plan_for("gtx1080", &large));
    assert!(of_large.memory.total() > of_small.memory.total());
    assert!(of_large.settings.batch_size < of_small.settings.batch_size, "{of_small:?} {of_large:?}");
}
