//! Names of structs and fields, modules, and the forms of the attribute.

use gpu_tuned::{Tuned, gpu_tuned};

use super::check;

shapes! { names_are_kept:
    r#Struct => {
        struct r#Struct {
            #[tuned(setting = batch_size)] r#type: usize,
            #[tuned(setting = num_workers)] r#async: u32,
            r#match: u8,
            r#fn: Option<u8>,
        }
    }
    RawSetting => { struct RawSetting { #[tuned] r#batch_size: usize } }
    lower_case => {
        #[allow(non_camel_case_types, reason = "the shape under test")]
        struct lower_case { #[tuned] batch_size: usize }
    }
    UpperFields => {
        #[allow(non_snake_case, reason = "the shape under test")]
        struct UpperFields { #[tuned(setting = batch_size)] Batch: usize, LR: f32 }
    }
    NamesOfGeneratedCode => {
        struct NamesOfGeneratedCode {
            #[tuned(setting = batch_size)] settings: usize,
            #[tuned(setting = num_workers)] pins: usize,
            #[tuned(setting = precision)] held: gpu_tuned::Precision,
            goal: u8,
            value: u8,
            variant: u8,
            is: u8,
        }
    }
    Überprüfung => { struct Überprüfung { #[tuned(setting = batch_size)] größe: usize } }
}

shapes! { keys_may_be_raw (r#mlp(r#widths = [8, 8]), r#global_batch = 64, r#target = "h200"):
    RawKeys => { struct RawKeys { #[tuned(r#setting = r#batch_size)] micro: usize } }
}

shapes! { literals_have_many_forms (
    mlp(
        widths = [
            784,
            10,
        ],
    ),
    global_batch = 0x40,
    memory_headroom = 1e-1,
    optimizer = r"sgd",
    target = r#"h200"#,
):
    FormsOfLiterals => {
        struct FormsOfLiterals { #[tuned()] batch_size: usize, #[tuned(setting = num_workers,)] workers: usize }
    }
}

shapes! { numbers_have_underscores_and_suffixes (
    mlp(widths = [7_84, 1_0u64]), global_batch = 6_4_u32, target = "h200"
):
    UnderscoresAndSuffixes => { struct UnderscoresAndSuffixes { #[tuned] batch_size: usize } }
}

shapes! { the_crate_is_named_in_quotes (
    crate = "facade::ml::tuning", mlp(widths = [8, 8]), global_batch = 64, target = "h200"
):
    ByPathInQuotes => { struct ByPathInQuotes { #[tuned] batch_size: usize } }
}

shapes! { the_crate_is_named_from_the_root (
    crate = ::gpu_tuned, mlp(widths = [8, 8]), global_batch = 64, target = "h200"
):
    ByGlobalPath => { struct ByGlobalPath { #[tuned] batch_size: usize } }
}

#[gpu_tuned::gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[derive(Debug)]
struct FullPath {
    #[tuned]
    batch_size: usize,
}

#[::gpu_tuned::gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[derive(Debug)]
struct GlobalPath {
    #[tuned]
    batch_size: usize,
}

mod renamed {
    use gpu_tuned::gpu_tuned as planned;

    #[planned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
    #[derive(Debug)]
    pub(super) struct Renamed {
        #[tuned]
        batch_size: usize,
    }
}

mod outer {
    pub(super) mod inner {
        use super::super::gpu_tuned;

        type Count = u8;

        #[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
        #[derive(Debug)]
        pub(in super::super) struct Deep {
            #[tuned]
            pub(in super::super) batch_size: usize,
            #[tuned(default = super::START)]
            pub(in super::super) start: Count,
        }
    }

    const START: u8 = 3;
}

/// A facade that re-exports the crate, without its own name in scope.
mod facade {
    pub(super) mod ml {
        pub(in super::super) use gpu_tuned as tuning;
    }

    pub(super) use gpu_tuned::gpu_tuned as attribute;
}

mod by_facade {
    use gpu_tuned::Precision;

    #[super::facade::attribute(
        crate = super::facade::ml::tuning,
        mlp(widths = [8, 8]),
        optimizer = "sgd",
        global_batch = 64,
        target = "h200"
    )]
    #[derive(Debug, clap::Parser)]
    pub(super) struct ByFacade {
        #[arg(long)]
        #[tuned]
        batch_size: usize,
        #[arg(long)]
        #[tuned]
        precision: Precision,
        #[arg(skip)]
        extra: String,
    }
}

/// A module whose names hide those of the standard library and of the crate.
#[allow(dead_code, non_camel_case_types, non_upper_case_globals, unused_macros, reason = "the shape under test")]
mod hiding {
    use super::gpu_tuned as tuned_attribute;

    struct Option;
    struct Some;
    struct None;
    struct Default;
    struct String;
    struct Vec;
    struct Settings;
    struct Tuned;
    mod core {}
    mod std {}
    mod gpu_tuned {}
    macro_rules! env {
        () => {};
    }
    // A variable cannot hide a static or a struct of its name.
    static pins: u8 = 0;
    static settings: u8 = 0;
    static held: u8 = 0;
    static is: u8 = 0;
    static goal: u8 = 0;
    struct candidate;
    struct count;
    struct other;
    struct value;
    struct variant;

    #[derive(Debug)]
    enum Candidate {
        F32,
        Bf16,
        F16,
    }

    #[tuned_attribute(transformer(vocab = 100, seq = 16, layers = 2), global_batch = samples, optimizer = "sgd", target = "h200")]
    #[derive(Debug)]
    pub(super) struct Hiding {
        #[tuned]
        batch_size: i64,
        #[tuned(setting = precision)]
        numbers: Candidate,
        #[cfg_attr(all(), tuned(dims(d_model: 0 = 32), default = (32,)))]
        width: (i64,),
        #[tuned(default = 64)]
        samples: u64,
    }
}

#[test]
fn paths_are_kept() {
    check::<FullPath>();
    check::<GlobalPath>();
    check::<renamed::Renamed>();
    check::<outer::inner::Deep>();
    check::<by_facade::ByFacade>();
    check::<hiding::Hiding>();
    assert_eq!((r#Struct::BUILT.config, r#Struct::BUILT.targets), ("Struct", &["h200"][..]));
    assert_eq!(outer::inner::Deep::default().start, 3);
}

#[test]
fn a_struct_in_a_function_sees_its_scope() {
    const RATE: f32 = 0.5;

    #[derive(Debug, Default)]
    struct Local(u8);

    #[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
    #[derive(Debug)]
    struct InFunction {
        #[tuned]
        batch_size: usize,
        #[tuned(default = RATE)]
        rate: f32,
        local: Local,
    }

    check::<InFunction>();
    assert_eq!((InFunction::default().rate, InFunction::default().local.0), (RATE, 0));
    {
        #[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
        #[derive(Debug)]
        struct InFunction {
            #[tuned]
            eval_batch_size: usize,
        }

        check::<InFunction>();
    }
}
