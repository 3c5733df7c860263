//! `cfg_attr` on structs and fields.

use clap::Parser;
use gpu_tuned::workload::{ModelSpec, Transformer};
use gpu_tuned::{Tuned, gpu_tuned};
use ui_derives::Builder;

use super::check;

#[cfg_attr(all(), gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200"))]
#[cfg_attr(any(), gpu_tuned(mlp(widths = [8, 8]), global_batch = 32, target = "h200"))]
#[cfg_attr(all(), derive(Debug))]
struct ConditionalAttribute {
    #[cfg_attr(all(), tuned)]
    batch_size: usize,
    #[cfg_attr(any(), tuned)]
    num_workers: usize,
}

shapes! { conditions_of_attributes_hold_for_the_expansion:
    Nested => {
        struct Nested {
            #[cfg_attr(all(), cfg_attr(not(any()), tuned(setting = batch_size)))] on: usize,
            #[cfg_attr(all(), cfg_attr(any(), tuned(setting = num_workers)))] off: usize,
        }
    }
    BesideOthers => {
        struct BesideOthers {
            #[cfg_attr(all(), allow(dead_code, reason = "beside"), tuned, doc = "The batch.")] batch_size: usize,
            #[cfg_attr(true, tuned)] num_workers: usize,
            #[cfg_attr(all(), tuned(default = 3))] three: u8,
            #[cfg_attr(any(), tuned(default = 3))] zero: u8,
        }
    }
    ConditionalCfg => {
        struct ConditionalCfg {
            #[cfg_attr(all(), cfg(any()))] #[tuned] batch_size: usize,
            #[cfg_attr(any(), cfg(any()))] #[tuned] num_workers: usize,
        }
    }
    ConditionalClap => {
        #[cfg_attr(all(), derive(Parser))]
        struct ConditionalClap {
            #[cfg_attr(all(), arg(long))] #[tuned] batch_size: usize,
            #[cfg_attr(all(), arg(long), tuned)] allow_tf32: bool,
            #[cfg_attr(all(), arg(long, default_value_t = 4))] epochs: u32,
        }
    }
    WithoutClap => {
        #[cfg_attr(any(), derive(Parser))]
        struct WithoutClap { #[cfg_attr(any(), arg(long))] #[tuned] batch_size: usize }
    }
    WithoutBurn => {
        #[cfg_attr(any(), derive(Config))]
        struct WithoutBurn {
            #[tuned] batch_size: usize,
            #[cfg_attr(any(), config(default = 3))] #[tuned(default = 3)] epochs: usize,
        }
    }
    ConditionalSerde => {
        #[cfg_attr(all(), derive(serde::Deserialize), serde(default, rename_all = "kebab-case"))]
        struct ConditionalSerde {
            #[tuned] batch_size: usize,
            #[cfg_attr(all(), serde(rename = "threads"))] #[tuned] num_workers: usize,
        }
    }
}

shapes! { a_dimension_that_is_left_out_has_the_planned_value (
    transformer(vocab = 100, seq = 16), global_batch = 64, target = "h200"
):
    ConditionalDims => {
        struct ConditionalDims {
            #[cfg_attr(all(), tuned(dim = layers, default = 2))] layers: usize,
            #[cfg_attr(any(), tuned(dim = d_model, default = 32))] width: usize,
            #[cfg_attr(any(), tuned(dims(heads: 0 = 4)))] heads: (u8,),
            #[tuned] batch_size: usize,
        }
    }
}

shapes! { without_tuned_a_field_may_be_a_dimension_no_more (
    transformer(vocab = 100, seq = 16, layers = 2), global_batch = 64, target = "h200"
):
    PeersWithoutTuned<u8> => {
        #[derive(Builder)]
        struct PeersWithoutTuned<T> {
            #[tuned] batch_size: usize,
            #[builder(default = 48)] #[cfg_attr(any(), tuned(dim = d_ff))] width: usize,
            #[cfg_attr(all(), tuned(dim = d_model, default = 32))] on: usize,
            #[cfg_attr(any(), tuned(default = None.expect("left out")))] value: T,
        }
    }
}

#[test]
fn defaults_are_those_of_the_attributes_that_are_there() {
    check::<ConditionalAttribute>();
    let (on, off) = (ConditionalAttribute::default().tuned(), ConditionalAttribute::BUILT.settings);
    assert_eq!((on.batch_size, on.num_workers), (Some(off.batch_size), None));
    assert_eq!((ConditionalAttribute::BUILT.global_batch, ConditionalAttribute::default().num_workers), (64, 0));
    assert_eq!((BesideOthers::default().three, BesideOthers::default().zero), (3, 0));
    assert_eq!(WithoutBurn::default().epochs, 3);
    // Without `#[tuned]` a field has the default of another derive.
    let config = PeersWithoutTuned::<String>::default();
    assert_eq!((config.width, config.on, config.value.as_str()), (48, 32, ""));
    let config = ConditionalDims { layers: 7, width: 1, heads: (9,), batch_size: 1 };
    let ModelSpec::Transformer(model) = config.workload().model else { panic!("a transformer") };
    assert_eq!(model, Transformer { heads: Some(4), ..Transformer::new(7, 32, 100, 16) });
}

#[test]
fn clap_gets_defaults_where_its_derive_is_present() {
    let config = ConditionalClap::parse_from(["train"]);
    assert_eq!(config.batch_size, ConditionalClap::default().batch_size);
    assert_eq!((config.epochs, config.allow_tf32), (4, ConditionalClap::BUILT.settings.allow_tf32));
    let config: ConditionalSerde = serde_json::from_str(r#"{ "threads": 9 }"#).expect("the rest has defaults");
    assert_eq!((config.num_workers, config.batch_size), (9, ConditionalSerde::default().batch_size));
}
