//! What is generated compiles, and does what its documentation says.

use clap::Parser;
use gpu_tuned::workload::{Optimizer, Training, Transformer};
use gpu_tuned::{Precision, Tuned, WorkloadSpec, gpu_tuned};

#[gpu_tuned(transformer(seq = 256, vocab = 8192), optimizer = "sgd", global_batch = 512, target = "h200")]
#[derive(Clone, Debug)]
pub struct LmConfig {
    #[tuned(dim = layers, default = 6)]
    pub n_layers: usize,
    #[tuned(dim = d_model, default = 512)]
    pub d_model: u32,
    #[tuned(dim = heads, default = 8)]
    pub heads: u64,
    #[tuned(dim = tied_head, default = false)]
    pub tied: bool,
    #[tuned]
    pub batch_size: usize,
    #[tuned]
    pub gradient_accumulation: u64,
    #[tuned]
    pub precision: Precision,
    #[tuned]
    pub allow_tf32: bool,
    #[tuned]
    pub gradient_checkpointing: bool,
    #[tuned]
    pub prefetch_depth: i32,
    #[tuned(setting = num_workers)]
    pub threads: u32,
    #[tuned]
    pub eval_batch_size: i64,
    #[tuned(default = 3e-4)]
    pub learning_rate: f64,
    pub note: String,
}

#[test]
fn the_default_is_what_was_built() {
    let (config, built) = (LmConfig::default(), LmConfig::BUILT.settings);
    assert_eq!(config.batch_size as u64, built.batch_size);
    assert_eq!(u64::from(config.threads), built.num_workers);
    assert_eq!((config.n_layers, config.learning_rate.to_bits(), config.note.as_str()), (6, 3e-4_f64.to_bits(), ""));
    assert_eq!(config.batch_size as u64 * config.gradient_accumulation, 512);
}

#[test]
fn the_workload_follows_the_fields() {
    let config = LmConfig { n_layers: 12, ..LmConfig::default() };
    let expected = Transformer { heads: Some(8), tied_head: false, ..Transformer::new(12, 512, 8192, 256) };
    let training = Training { optimizer: Optimizer::Sgd, ..Training::default() };
    assert_eq!(config.workload(), WorkloadSpec { model: expected.into(), training });
}

#[derive(Clone, Debug)]
pub struct Encoder {
    pub n_layers: u32,
    pub width: Width,
    pub is_tied: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Width(usize);

impl Default for Encoder {
    fn default() -> Self {
        Self { n_layers: 12, width: Width(768), is_tied: false }
    }
}

#[gpu_tuned(transformer(seq = 256, vocab = 8192), target = "h200")]
#[derive(Clone, Debug)]
pub struct NestedConfig {
    #[tuned(dims(layers: n_layers = 6, d_model: width.0 = 512, tied_head: is_tied = true))]
    pub encoder: Encoder,
    #[tuned]
    pub batch_size: usize,
}

#[test]
fn the_workload_follows_the_fields_of_a_nested_config() {
    let mut config = NestedConfig::default();
    let expected = |layers| Transformer { tied_head: false, ..Transformer::new(layers, 768, 8192, 256) };
    // The default is that of the nested type, not the one that the build planned with.
    assert_eq!(config.workload(), WorkloadSpec::from(expected(12)));
    config.encoder.n_layers = 3;
    assert_eq!(config.workload(), WorkloadSpec::from(expected(3)));
}

#[gpu_tuned(convnet(image = 8, classes = 10, channels = 1, stages = [[32, 2], [64, 2]]), target = "generic")]
#[derive(Debug, Parser)]
struct Arguments {
    /// Samples in a micro-batch.
    #[arg(long)]
    #[tuned(setting = batch_size)]
    batch: usize,
    #[arg(long)]
    #[tuned]
    allow_tf32: bool,
    #[arg(long)]
    #[tuned]
    precision: Precision,
    #[arg(long, default_value_t = 10)]
    epochs: u32,
}

#[test]
fn clap_takes_the_planned_value_where_none_is_given() {
    let planned = Arguments::parse_from(["train"]);
    assert_eq!(planned.batch as u64, Arguments::BUILT.settings.batch_size);
    assert_eq!((planned.epochs, Arguments::default().epochs), (10, 10));
    let given = Arguments::parse_from(["train", "--batch", "3", "--allow-tf32", "true", "--precision", "bf16_params"]);
    assert_eq!((given.batch, given.allow_tf32, given.precision), (3, true, Precision::Bf16Params));
}

/// Formats of numbers by their usual names.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
enum Numbers {
    Fp32,
    Bf16,
    Fp16,
}

#[gpu_tuned(transformer(seq = 256, vocab = 8192, layers = 6, d_model = 512), global_batch = 512, target = "rtx4090")]
#[derive(Clone, Debug, PartialEq, Parser, serde::Serialize, serde::Deserialize)]
#[serde(default)]
struct Mixed {
    #[arg(long)]
    #[tuned(setting = precision)]
    amp: bool,
}

#[gpu_tuned(transformer(seq = 256, vocab = 8192, layers = 6, d_model = 512), global_batch = 512, target = "t4")]
#[derive(Clone, Debug, PartialEq, Parser, serde::Serialize, serde::Deserialize)]
#[serde(default)]
struct MixedByName {
    #[arg(long, value_enum)]
    #[tuned(setting = precision)]
    numbers: Numbers,
}

#[gpu_tuned(transformer(seq = 256, vocab = 8192, layers = 6, d_model = 512), global_batch = 512, target = "t4")]
#[derive(Clone, Debug, PartialEq, Parser, serde::Serialize, serde::Deserialize)]
#[serde(default)]
struct MixedByText {
    #[arg(long)]
    #[tuned]
    precision: String,
}

#[test]
fn clap_and_serde_take_the_planned_precision_where_none_is_given() {
    fn empty<C: serde::de::DeserializeOwned>() -> C {
        serde_json::from_str("{}").expect("every field has a default")
    }

    assert!(Mixed::parse_from(["train"]).amp && !Mixed::parse_from(["train", "--amp", "false"]).amp);
    assert_eq!(MixedByName::parse_from(["train"]).numbers, Numbers::Fp16);
    assert_eq!(MixedByName::parse_from(["train", "--numbers", "bf16"]).numbers, Numbers::Bf16);
    assert_eq!(MixedByText::parse_from(["train"]).precision, "mixed_f16");
    assert_eq!(empty::<Mixed>(), Mixed { amp: true });
    assert_eq!(empty::<MixedByName>().numbers, Numbers::Fp16);
    assert_eq!(empty::<MixedByText>().precision, "mixed_f16");
    let off: Mixed = serde_json::from_str(r#"{ "amp": false }"#).expect("a switch");
    assert_eq!(
        (off.tuned().precision, Mixed::default().tuned().precision),
        (Some(Precision::F32), Some(Precision::MixedBf16))
    );
}

/// Seven billion parameters on a card of 24 GiB: adapters of rank 8 over weights packed to 4 bits.
#[gpu_tuned(
    transformer(
        layers = 32,
        d_model = 4096,
        d_ff = 11008,
        vocab = 32000,
        seq = 256,
        gated = true,
        bias = false,
        norm = "rms",
        positions = "rotary",
        tied_head = false,
        dropout = false
    ),
    lora_rank = 8,
    frozen_weights = "q4",
    precision = "bf16_params",
    global_batch = 16,
    target = "rtx4090"
)]
#[derive(Clone, Debug)]
pub struct FinetuneConfig {
    #[tuned]
    pub batch_size: usize,
    #[tuned]
    pub gradient_accumulation: usize,
}

#[test]
fn seven_billion_packed_parameters_with_adapters_compile_for_a_gaming_card() {
    let config = FinetuneConfig::default();
    assert_eq!(config.batch_size * config.gradient_accumulation, 16);
    assert_eq!(config.workload().parameters(), 6_738_415_616);
}
