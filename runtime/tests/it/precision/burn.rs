//! Fields of Burn's `Config` that have the precision.

use burn::config::Config;
use gpu_tuned::{Precision, Tuned, gpu_tuned};

use super::decide;

#[derive(Config, Debug, PartialEq)]
enum Numbers {
    Float32,
    Bf16,
    Half,
}

#[gpu_tuned(transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), global_batch = 512, target = "rtx4090")]
#[derive(Config, Debug)]
struct Switched {
    #[tuned(setting = precision)]
    amp: bool,
}

#[gpu_tuned(transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), global_batch = 512, target = "t4")]
#[derive(Config, Debug)]
struct Named {
    #[tuned]
    precision: String,
}

#[gpu_tuned(transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), global_batch = 512, target = "t4")]
#[derive(Config, Debug)]
struct WithEnum {
    #[tuned(setting = precision)]
    numbers: Numbers,
}

#[gpu_tuned(transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), global_batch = 512, target = "gtx1080")]
#[derive(Config, Debug)]
struct Plain {
    #[tuned]
    precision: Precision,
}

#[test]
fn a_new_config_has_the_planned_precision() {
    assert!(Switched::new().amp);
    assert_eq!(Named::new().precision, "mixed_f16");
    assert_eq!(WithEnum::new().numbers, Numbers::Half);
    assert_eq!(Plain::new().precision, Precision::F32);
}

#[test]
fn a_saved_config_keeps_what_was_set() {
    let json = Switched::new().with_amp(false).to_string();
    let read: Switched = serde_json::from_str(&json).expect("it is its own text");
    assert!(!read.amp);
    assert_eq!(decide(&read, "rtx4090").plan.settings.precision, Precision::F32);
    let mut config = WithEnum::new();
    config.apply(&decide(&config, "rtx4090").plan.settings);
    assert_eq!(config.numbers, Numbers::Bf16);
}
