//! Types and defaults of fields.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use gpu_tuned::{Tuned, gpu_tuned};

/// An enum that is named as ours.
mod own {
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub(super) enum Precision {
        Fp32,
        Bf16,
        Fp16,
    }
}

shapes! { fields_of_each_type_have_the_planned_values:
    EachInteger => {
        struct EachInteger {
            #[tuned] batch_size: u32,
            #[tuned] gradient_accumulation: u64,
            #[tuned] prefetch_depth: i32,
            #[tuned] num_workers: i64,
            #[tuned] eval_batch_size: usize,
        }
    }
    EachFlag => {
        struct EachFlag { #[tuned] allow_tf32: bool, #[tuned] gradient_checkpointing: bool, #[tuned] cuda_graphs: bool }
    }
    PathsOfTypes => {
        struct PathsOfTypes {
            #[tuned] batch_size: std::primitive::usize,
            #[tuned] precision: gpu_tuned::Precision,
            #[tuned] allow_tf32: core::primitive::bool,
            #[tuned] num_workers: ::core::primitive::u32,
        }
    }
    Parenthesized => {
        #[allow(unused_parens, reason = "the shape under test")]
        struct Parenthesized { #[tuned] batch_size: (usize) }
    }
    TextPrecision => { struct TextPrecision { #[tuned] precision: String } }
    StrPrecision => { struct StrPrecision { #[tuned] precision: &'static str } }
    SwitchedPrecision => { struct SwitchedPrecision { #[tuned(setting = precision)] amp: bool } }
    OwnPrecision => { struct OwnPrecision { #[tuned] precision: own::Precision } }
    TypedKernels => { struct TypedKernels { #[tuned] kernels: gpu_tuned::Kernels } }
    TextKernels => { struct TextKernels { #[tuned] kernels: String } }
    StrKernels => { struct StrKernels { #[tuned] kernels: &'static str } }
    SwitchedKernels => { struct SwitchedKernels { #[tuned(setting = kernels)] cublas: bool } }
    RenamedSettings => {
        struct RenamedSettings {
            #[tuned(setting = batch_size)] micro: usize,
            #[tuned(setting = gradient_accumulation)] steps: usize,
            #[tuned(setting = num_workers)] threads: usize,
        }
    }
    OwnDefaults => {
        struct OwnDefaults {
            #[tuned] batch_size: usize,
            #[tuned(default = 3e-4)] rate: f64,
            #[tuned(default = -1)] offset: i8,
            #[tuned(default = "out".into())] folder: PathBuf,
            #[tuned(default = vec![(1, "a"), (2, "b")])] pairs: Vec<(u8, &'static str)>,
            #[tuned(default = Some(Duration::from_secs(3)))] limit: Option<Duration>,
            #[tuned(default = BTreeMap::<u8, [u8; 2]>::from([(1, [2, 3])]))] map: BTreeMap<u8, [u8; 2]>,
            #[tuned(default = if cfg!(windows) { '\\' } else { '/' })] separator: char,
            #[tuned(default = { let half = 4; half * 2 })] block: u16,
            #[tuned(default = |value| value + 1)] next: fn(u8) -> u8,
            #[tuned(default = (1, 2.5))] pair: (u8, f32),
            #[tuned(default = &[1, 2])] slice: &'static [u8],
            #[tuned(default = "as \"quoted\" \u{1f600} text, with = and ,")] text: &'static str,
            #[tuned(default = matches!(Some(1), Some(0..=3)))] flag: bool,
            #[tuned(default = 1 < 2)] compared: bool,
        }
    }
    TypeDefaults => {
        struct TypeDefaults {
            #[tuned] batch_size: usize,
            unit: (),
            tuple: (u8, String),
            array: [u8; 3],
            nested: Option<Box<Self>>,
            text: Box<str>,
            pointer: Option<fn(&str) -> &str>,
        }
    }
}

shapes! { a_global_batch_is_read_from_its_field (mlp(widths = [8, 8]), global_batch = size, target = "h200"):
    GlobalBatchInField => { struct GlobalBatchInField { #[tuned(default = 48)] size: u32 } }
}

shapes! { a_field_named_as_a_setting_has_the_global_batch (
    mlp(widths = [8, 8]), global_batch = batch_size, target = "h200"
):
    NamedAsSetting => { struct NamedAsSetting { #[tuned(default = 48)] batch_size: i64, #[tuned] num_workers: usize } }
}

shapes! { kernels_of_the_attribute_are_planned (
    mlp(widths = [8, 8]), global_batch = 64, kernels = "library", target = "h200"
):
    AskedKernels => {
        struct AskedKernels { #[tuned] kernels: &'static str, #[tuned(setting = precision)] amp: bool }
    }
}

#[derive(Debug)]
struct Model {
    depth: u8,
    width: (i32, Inner),
}

#[derive(Debug)]
struct Inner {
    heads: u16,
    r#type: bool,
}

impl Default for Model {
    fn default() -> Self {
        Self { depth: 2, width: (64, Inner { heads: 4, r#type: true }) }
    }
}

shapes! { dimensions_are_fields_of_each_type (
    transformer(vocab = 100, seq = 16), global_batch = 64, target = "h200"
):
    NestedDims => {
        struct NestedDims {
            #[tuned(dims(layers: depth = 2, d_model: width.0 = 64, heads: width.1.heads = 4, causal: width.1.r#type = true))]
            model: Model,
            #[tuned] batch_size: usize,
        }
    }
    DimsOfEachType => {
        struct DimsOfEachType {
            #[tuned(dim = layers, default = 2)] a: i32,
            #[tuned(dim = d_model, default = 64)] b: i64,
            #[tuned(dim = heads, default = 4)] c: u32,
            #[tuned(dim = causal, default = false)] d: bool,
            #[tuned(default = 2, dim = kv_heads)] e: u64,
            #[tuned] batch_size: usize,
        }
    }
}

#[test]
fn own_defaults_are_the_written_expressions() {
    let config = OwnDefaults::default();
    assert_eq!((config.rate.to_bits(), config.offset, config.block), (3e-4_f64.to_bits(), -1, 8));
    assert_eq!((config.next)(3), 4);
    assert_eq!((config.map[&1], config.pairs[1], config.slice), ([2, 3], (2, "b"), &[1, 2][..]));
    assert_eq!((config.limit, config.pair.0), (Some(Duration::from_secs(3)), 1));
    assert!(config.flag && config.compared);
    assert_eq!(config.text, "as \"quoted\" \u{1f600} text, with = and ,");
    assert_eq!(GlobalBatchInField::default().asked().global_batch, Some(48));
    assert_eq!(GlobalBatchInField { size: 12 }.asked().global_batch, Some(12));
}

#[test]
fn texts_that_name_no_kernels_are_found() {
    use gpu_tuned::{Pins, Setting};

    assert_eq!((TextKernels::default().kernels.as_str(), AskedKernels::default().kernels), ("burn", "library"));
    assert!(!SwitchedKernels::default().cublas);
    let library: Pins = "kernels=library".parse().expect("a pin");
    assert_eq!(SwitchedKernels { cublas: true }.tuned(), library);
    assert_eq!(TextKernels { kernels: "library".to_owned() }.tuned(), library);
    assert_eq!(StrKernels { kernels: "cublas" }.unreadable(), Some((Setting::Kernels, "kernels")));
    assert_eq!(StrPrecision { precision: "f33" }.unreadable(), Some((Setting::Precision, "precision")));
}

#[test]
fn negative_counts_are_named() {
    let config = EachInteger { num_workers: -4, ..EachInteger::default() };
    assert_eq!(config.negative(), Some(("num_workers", -4)));
    let config = DimsOfEachType { a: -2, ..DimsOfEachType::default() };
    assert_eq!(config.negative(), Some(("a", -2)));
    let mut config = NestedDims::default();
    config.model.width.0 = -64;
    assert_eq!(config.negative(), Some(("model.width.0", -64)));
    let config = NamedAsSetting { batch_size: i64::MIN, ..NamedAsSetting::default() };
    assert_eq!(config.negative(), Some(("batch_size", i64::MIN)));
}
