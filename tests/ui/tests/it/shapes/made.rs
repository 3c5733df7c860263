//! Structs that `macro_rules!` makes, of fragments of every kind; whole structs are those of `shapes!`.

use gpu_tuned::{Tuned, gpu_tuned};

use super::check;

macro_rules! typed {
    ($name:ident, $ty:ty, $batch:literal, $target:literal) => {
        #[gpu_tuned(mlp(widths = [8, $batch]), global_batch = $batch, target = $target)]
        #[derive(Debug)]
        struct $name {
            #[tuned]
            batch_size: $ty,
            #[tuned(dim = frozen_parameters, default = $batch)]
            rank: $ty,
        }
    };
}

typed!(Typed, u32, 64, "h200");

macro_rules! with_fields {
    ($(#[$attribute:meta])* $visibility:vis struct $name:ident { $($(#[$of_field:meta])* $field:ident: $ty:ty = $default:expr,)* }) => {
        $(#[$attribute])*
        #[derive(Debug)]
        $visibility struct $name {
            #[tuned]
            batch_size: usize,
            $($(#[$of_field])* #[tuned(default = $default)] $field: $ty,)*
        }
    };
}

with_fields! {
    /// A config with own fields.
    #[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
    pub(crate) struct WithFields {
        /// The rate.
        rate: f64 = 1e-3,
        #[allow(dead_code, reason = "one attribute more")]
        names: Vec<&'static str> = vec!["a", "b"],
        sum: i32 = 1 + 2 * 3,
    }
}

macro_rules! generic {
    ($name:ident<$($lifetime:lifetime),*; $($parameter:ident: $bound:path),*>) => {
        #[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
        #[derive(Debug)]
        struct $name<$($lifetime,)* $($parameter: $bound),*> {
            #[tuned]
            batch_size: usize,
            values: ($($parameter,)*),
            names: ($(Option<&$lifetime str>,)*),
        }
    };
}

generic!(Generic<'a, 'b; T: Clone, U: core::fmt::Debug>);

macro_rules! by_setting {
    ($($name:ident $setting:ident: $ty:ty),*) => {
        $(
            #[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
            #[derive(Debug)]
            struct $name {
                #[tuned(setting = $setting)]
                held: $ty,
            }
        )*
    };
}

by_setting!(
    Batch batch_size: usize,
    Accumulation gradient_accumulation: u32,
    PrecisionOf precision: gpu_tuned::Precision,
    Tf32 allow_tf32: bool,
    Checkpointing gradient_checkpointing: bool,
    Prefetch prefetch_depth: i64,
    Workers num_workers: i32,
    Evaluation eval_batch_size: u64,
    Graphs cuda_graphs: bool
);

macro_rules! nested_path {
    ($model:ty, $($dim:ident: $($part:ident).+ = $default:literal),*) => {
        #[gpu_tuned(transformer(vocab = 100, seq = 16), global_batch = 64, target = "h200")]
        #[derive(Debug)]
        struct NestedPath {
            #[tuned(dims($($dim: $($part).+ = $default),*))]
            model: $model,
            #[tuned]
            batch_size: usize,
        }
    };
}

#[derive(Debug, Default)]
struct Model {
    inner: Inner,
}

#[derive(Debug)]
struct Inner {
    layers: u8,
    width: u8,
}

impl Default for Inner {
    fn default() -> Self {
        Self { layers: 2, width: 32 }
    }
}

nested_path!(Model, layers: inner.layers = 2, d_model: inner.width = 32);

macro_rules! recursive {
    ($name:ident; ; $($done:tt)*) => {
        #[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
        #[derive(Debug)]
        struct $name { $($done)* }
    };
    ($name:ident; $first:ident $($rest:ident)*; $($done:tt)*) => {
        recursive!($name; $($rest)*; $($done)* #[tuned] $first: usize,);
    };
}

recursive!(Recursive; batch_size num_workers eval_batch_size;);

#[test]
fn made_structs_have_the_planned_values() {
    check::<WithFields>();
    check::<Generic<'static, 'static, u8, u8>>();
    check::<Batch>();
    check::<Accumulation>();
    check::<PrecisionOf>();
    check::<Tf32>();
    check::<Checkpointing>();
    check::<Prefetch>();
    check::<Workers>();
    check::<Evaluation>();
    check::<Graphs>();
    check::<NestedPath>();
    check::<Recursive>();
    assert_eq!((WithFields::default().sum, WithFields::default().rate), (7, 1e-3));
    assert_eq!(Typed::default().workload().training.frozen_parameters, 64);
    assert_eq!(u64::from(Typed::default().batch_size), Typed::BUILT.settings.batch_size);
}
