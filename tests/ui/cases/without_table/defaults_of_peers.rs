#![allow(unexpected_cfgs, unused_imports)]

use clap::Parser;
use gpu_tuned::gpu_tuned;
use serde::Deserialize;
use ui_derives::{Builder, Config, Others};

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[derive(Debug, Deserialize)]
struct Serde {
    #[serde(default)]
    #[tuned]
    batch_size: usize,
    #[tuned]
    #[serde(rename = "threads", default = "four")]
    num_workers: usize,
    #[serde(skip)]
    #[tuned]
    prefetch_depth: usize,
}

fn four() -> usize {
    4
}

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[derive(Builder)]
struct Built {
    #[builder(default = 64)]
    #[tuned]
    batch_size: usize,
    #[builder(default)]
    #[tuned]
    num_workers: usize,
    #[builder(setter(into), default = "4")]
    #[tuned]
    prefetch_depth: usize,
    #[builder(default = 3)]
    #[tuned(dim = frozen_parameters, default = 4)]
    frozen: u64,
}

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[derive(Others)]
struct Other {
    #[educe(Default = 64)]
    #[tuned]
    batch_size: usize,
    #[derivative(Default(value = "4"))]
    #[tuned]
    num_workers: usize,
    #[argh(option, default = "4")]
    #[tuned]
    prefetch_depth: usize,
    #[new(value = "4")]
    #[tuned]
    eval_batch_size: usize,
}

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[cfg_attr(all(), derive(Parser))]
struct Conditional {
    #[cfg_attr(feature = "cli", arg(long, default_value_t = 64))]
    #[tuned]
    batch_size: usize,
    #[cfg_attr(all(), cfg_attr(feature = "serde", serde(default)))]
    #[cfg_attr(all(), tuned)]
    num_workers: usize,
    #[arg(long, default_value_if("batch_size", "3", "4"))]
    #[tuned]
    prefetch_depth: usize,
    #[cfg_attr(feature = "a", tuned)]
    #[cfg_attr(feature = "b", tuned)]
    eval_batch_size: usize,
}

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[cfg_attr(feature = "burn", derive(Config))]
#[derive(Clone, Default)]
struct ConditionalConfig {
    #[cfg_attr(feature = "burn", config(default = 64))]
    #[tuned]
    batch_size: usize,
}

fn main() {}
