//! Shapes of structs, modelled on the kinds in the test suites of serde, clap, bon, `derive_builder` and typed-builder. Each is
//! compiled, and its fields are compared with the constants of the build.

use core::any::type_name;

use gpu_tuned::{Kernels, Precision, Settings, Tuned};

/// A test of a list of configs: each row has the type to check and the struct, which gets the attribute and `Debug`. Arguments
/// of the attribute are for an H200 unless the list begins with others.
macro_rules! shapes {
    ($test:ident: $($rows:tt)*) => {
        shapes! { $test (mlp(widths = [8, 8]), global_batch = 64, target = "h200"): $($rows)* }
    };
    ($test:ident $arguments:tt: $($checked:ty => { $($shape:tt)* })*) => {
        $(
            #[gpu_tuned $arguments]
            #[derive(Debug)]
            $($shape)*
        )*

        #[test]
        fn $test() {
            $( $crate::shapes::check::<$checked>(); )*
        }
    };
}

mod attributes;
mod compared;
mod conditional;
mod fields;
mod generics;
mod lints;
mod made;
mod micro_batches;
mod names;
mod peers;

/// Checks a config: its default has the planned values, and applied values are read back.
fn check<C: Tuned + Default>() {
    check_from(C::default());
}

/// Checks a config whose tuned fields have their defaults.
fn check_from<C: Tuned>(mut config: C) {
    let name = type_name::<C>();
    let planned = config.tuned();
    let is_planned = |setting| planned.get(setting).is_none_or(|value| value == C::BUILT.settings.get(setting));
    assert!(gpu_tuned::Setting::ALL.into_iter().all(is_planned), "{name}: {planned:?}");
    assert!(config.workload().mistakes().is_empty(), "{name}");
    assert_eq!((config.unreadable(), config.negative()), (None, None), "{name}");
    // No value is the planned one, which the fields have already.
    let built = C::BUILT.settings;
    let other = Settings {
        batch_size: 3,
        gradient_accumulation: 5,
        precision: Precision::F32,
        allow_tf32: !built.allow_tf32,
        gradient_checkpointing: !built.gradient_checkpointing,
        prefetch_depth: 7,
        num_workers: 11,
        eval_batch_size: 13,
        cuda_graphs: !built.cuda_graphs,
        kernels: Kernels::switched(!built.kernels.is_library()),
    };
    config.apply(&other);
    let applied = config.tuned();
    for setting in gpu_tuned::Setting::ALL {
        assert_eq!(applied.get(setting).is_some(), planned.get(setting).is_some(), "{name}: {setting}");
        assert!(applied.get(setting).is_none_or(|value| value == other.get(setting)), "{name}: {setting}");
    }
}
