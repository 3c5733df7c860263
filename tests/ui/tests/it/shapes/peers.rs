//! Structs with derives of other crates, whose field defaults are read.

use clap::{Args, Parser, Subcommand};
use gpu_tuned::{Tuned, gpu_tuned};
use serde::{Deserialize, Serialize};
use ui_derives::{Builder, Config};

use super::check_from;

shapes! { defaults_of_other_derives_are_those_of_the_struct:
    Command => {
        #[derive(Parser)]
        #[command(name = "train", version = "1", about = "Trains")]
        struct Command {
            /// Samples in a micro-batch.
            #[arg(short, long, value_name = "N")] #[tuned] batch_size: usize,
            #[arg(long, action = clap::ArgAction::Set)] #[tuned] allow_tf32: bool,
            #[arg(long, num_args = 1)] #[tuned] cuda_graphs: bool,
            #[arg(long, default_value_t = 3)] epochs: u32,
            #[arg(long, default_value = "adam")] optimizer: String,
            #[arg(long, default_value = "1")] rate: f64,
            #[arg(long, default_values_t = [1, 2])] sizes: Vec<u8>,
            #[clap(skip)] skipped: Option<u8>,
        }
    }
    Part => { #[derive(Args)] struct Part { #[arg(long)] #[tuned] batch_size: u32 } }
    Other => {
        #[derive(clap::Args)]
        struct Other { #[arg(long = "workers")] #[tuned(setting = num_workers)] threads: usize }
    }
    Dimensions => {
        #[derive(Parser)]
        struct Dimensions {
            #[arg(long)] #[tuned] batch_size: usize,
            #[arg(long, default_value = "5")] #[tuned(dim = frozen_parameters)] frozen: u64,
            #[arg(long)] #[tuned(dim = layer_scratch_bytes, default = 6)] scratch: u64,
        }
    }
    Document => {
        #[derive(PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields, rename_all = "camelCase")]
        struct Document {
            #[tuned] batch_size: usize,
            #[serde(rename = "threads", alias = "workers")] #[tuned] num_workers: usize,
            #[serde(skip)] #[tuned] allow_tf32: bool,
            #[serde(with = "as_text")] #[tuned] prefetch_depth: i64,
            #[serde(default = "rate")] rate: f32,
            #[serde(default = "<f32 as Rates>::decay")] decay: f32,
            #[serde(default, skip_serializing_if = "Option::is_none")] note: Option<String>,
        }
    }
    GenericDocument<u8> => {
        #[derive(Serialize, Deserialize)]
        #[serde(bound = "T: serde::de::DeserializeOwned + Default + Serialize", default)]
        struct GenericDocument<T> { #[tuned] batch_size: usize, value: T }
    }
    Required => {
        #[derive(Serialize, Deserialize)]
        struct Required {
            #[tuned] batch_size: usize,
            #[serde(default = "zero")] #[tuned(dim = frozen_parameters, default = 8)] rank: usize,
        }
    }
    Built => {
        #[derive(Builder)]
        struct Built {
            #[builder(setter(into))] #[tuned] batch_size: usize,
            #[builder(default = 5)] epochs: u32,
            #[builder(default = 0.5)] rate: f64,
            #[builder(default = true)] is_verbose: bool,
            #[builder(default = 5)] #[builder(setter(into))] boxed: Boxed,
            #[builder(default = "7")] quoted: String,
            #[builder(default)] empty: Option<u8>,
        }
    }
}

shapes! { dimensions_of_builders_are_those_of_the_struct (
    transformer(vocab = 100, seq = 16), global_batch = size, target = "h200"
):
    BuiltDims => {
        #[derive(Builder)]
        struct BuiltDims {
            #[builder(default = 2)] #[tuned(dim = layers)] layers: usize,
            #[builder(default = "32")] #[tuned(dim = d_model)] width: usize,
            #[builder(default_code = "48")] size: u32,
            #[tuned] batch_size: usize,
        }
    }
}

#[derive(Debug, Parser)]
struct Flattened {
    #[command(flatten)]
    settings: Part,
    #[command(subcommand)]
    command: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Train(Other),
}

trait Rates {
    fn decay() -> Self;
}

impl Rates for f32 {
    fn decay() -> Self {
        0.125
    }
}

fn rate() -> f32 {
    0.25
}

mod as_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
    pub(super) fn serialize<S: Serializer>(value: &i64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&value.to_string())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

fn zero() -> usize {
    0
}

#[derive(Debug, Default)]
struct Boxed(u8);

// The stand-in implements nothing, as Burn's derive has no `Default`.
#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[derive(Config, Debug)]
struct Burn {
    #[tuned]
    batch_size: usize,
    #[config(default = "3e-4")]
    rate: f64,
    #[config(default = 6)]
    #[tuned(dim = frozen_parameters)]
    rank: usize,
    name: Option<String>,
}

#[test]
fn fields_have_the_defaults_of_burn_and_builders() {
    let batch_size = usize::try_from(Burn::BUILT.settings.batch_size).expect("small");
    let burn = Burn { batch_size, rate: 0.0, rank: 6, name: None };
    assert_eq!(burn.workload().training.frozen_parameters, 6);
    check_from(burn);
    let built = Built::default();
    assert_eq!((built.epochs, built.rate.to_bits(), built.is_verbose), (5, 0.5_f64.to_bits(), true));
    assert_eq!((built.boxed.0, built.quoted.as_str(), built.empty), (0, "", None));
    assert_eq!((BuiltDims::default().layers, BuiltDims::default().width), (2, 32));
    assert_eq!((BuiltDims::BUILT.global_batch, BuiltDims::default().size), (48, 48));
}

#[test]
fn clap_fills_what_is_not_given() {
    let command = Command::parse_from(["train"]);
    assert_eq!(command.tuned(), Command::default().tuned());
    let default = Command::default();
    assert_eq!((default.optimizer.as_str(), default.rate.to_bits()), ("adam", 1.0_f64.to_bits()));
    assert_eq!((command.epochs, command.optimizer.as_str(), command.sizes.as_slice()), (3, "adam", &[1, 2][..]));
    let command = Command::parse_from(["train", "-b", "3", "--allow-tf32", "false", "--cuda-graphs", "true"]);
    assert_eq!((command.batch_size, command.allow_tf32, command.cuda_graphs), (3, false, true));
    let flattened = Flattened::parse_from(["train", "train", "--workers", "2"]);
    assert_eq!(flattened.settings.batch_size, Part::default().batch_size);
    let Some(Verb::Train(other)) = flattened.command else { panic!("given above") };
    assert_eq!(other.threads, 2);
    let dimensions = Dimensions::parse_from(["train"]);
    let training = dimensions.workload().training;
    assert_eq!((training.frozen_parameters, training.layer_scratch_bytes), (5, 6));
    assert_eq!(dimensions.workload(), Dimensions::default().workload());
}

#[test]
fn serde_fills_what_is_not_given() {
    let document: Document = serde_json::from_str("{}").expect("each field has a default");
    assert_eq!(document, Document::default());
    assert_eq!((document.rate.to_bits(), document.decay.to_bits()), (0.25_f32.to_bits(), 0.125_f32.to_bits()));
    let written = serde_json::to_string(&document).expect("it is JSON");
    assert_eq!(serde_json::from_str::<Document>(&written).expect("it was written"), document);
    let document: Document = serde_json::from_str(r#"{ "workers": 9, "batchSize": 3 }"#).expect("two are given");
    assert_eq!((document.num_workers, document.batch_size), (9, 3));
    let required: Required = serde_json::from_str(r#"{ "batch_size": 3 }"#).expect("the rank has a default");
    assert_eq!((required.rank, Required::default().rank), (0, 8));
}
