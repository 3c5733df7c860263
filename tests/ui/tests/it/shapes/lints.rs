//! The expansion under strict lints, without the prelude, and in a deprecated struct.

use super::check;

/// Lints of rustc that are allowed unless asked for, denied with all warnings.
#[deny(
    warnings,
    let_underscore,
    nonstandard_style,
    refining_impl_trait,
    rust_2018_idioms,
    unused,
    absolute_paths_not_starting_with_crate,
    ambiguous_negative_literals,
    elided_lifetimes_in_paths,
    explicit_outlives_requirements,
    keyword_idents,
    missing_copy_implementations,
    missing_debug_implementations,
    missing_docs,
    redundant_lifetimes,
    single_use_lifetimes,
    trivial_casts,
    trivial_numeric_casts,
    unit_bindings,
    unnameable_types,
    unreachable_pub,
    unsafe_code,
    unused_lifetimes,
    unused_qualifications,
    unused_results,
    variant_size_differences,
    clippy::all,
    clippy::pedantic,
    clippy::nursery
)]
#[allow(dead_code, reason = "fields without a reader")]
pub(super) mod strict {
    use gpu_tuned::{Precision, gpu_tuned};

    /// A config with all kinds of fields.
    #[gpu_tuned(transformer(vocab = 100, seq = 16), global_batch = 64, optimizer = "sgd", target = "h200")]
    #[derive(Clone, Debug)]
    pub(super) struct Strict<'a, T: Clone> {
        /// The batch.
        #[tuned]
        batch_size: u64,
        /// Steps.
        #[tuned]
        gradient_accumulation: i64,
        /// The precision.
        #[tuned]
        precision: Precision,
        /// Layers.
        #[tuned(dim = layers, default = 2)]
        layers: u64,
        /// Width.
        #[tuned(dims(d_model: 0 = 32, causal: 1 = true))]
        width: Width,
        /// Workers, by platform.
        #[cfg(unix)]
        #[tuned]
        num_workers: usize,
        /// A file of the rank.
        #[tuned(per_rank)]
        log: &'a str,
        /// A name.
        name: &'a str,
        /// A value.
        value: Option<T>,
    }

    /// A pair of dimensions.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct Width(u64, bool);

    impl Default for Width {
        fn default() -> Self {
            Self(32, true)
        }
    }

    /// A config with one switch.
    #[gpu_tuned(mlp(widths = [8, 8]), global_batch = size, target = "h200")]
    #[derive(Clone, Copy, Debug)]
    pub(super) struct Switch {
        #[tuned(default = 8)]
        size: u64,
        #[tuned(setting = precision)]
        amp: bool,
    }

    /// Numbers.
    #[derive(Clone, Copy, Debug)]
    pub(super) enum Numbers {
        F32,
        Bf16,
        F16,
    }

    /// A config with texts and enums.
    #[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
    #[derive(Clone, Copy, Debug)]
    pub(super) struct Enum {
        #[tuned(setting = precision)]
        numbers: Numbers,
    }

    /// A config with a text.
    #[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
    #[derive(Clone, Debug)]
    pub(super) struct Text {
        #[tuned]
        precision: String,
    }
}

/// All lints of clippy's restriction group that an expansion could violate.
#[deny(
    clippy::absolute_paths,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::default_numeric_fallback,
    clippy::exhaustive_structs,
    clippy::field_scoped_visibility_modifiers,
    clippy::implicit_return,
    clippy::missing_docs_in_private_items,
    clippy::missing_inline_in_public_items,
    clippy::missing_trait_methods,
    clippy::pattern_type_mismatch,
    clippy::question_mark_used,
    clippy::shadow_reuse,
    clippy::single_call_fn,
    clippy::std_instead_of_core,
    clippy::unreachable
)]
mod restricted {
    use gpu_tuned::gpu_tuned;

    /// A config.
    #[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
    #[derive(Debug)]
    pub(super) struct Restricted {
        /// The batch.
        #[tuned]
        batch_size: usize,
        /// The precision.
        #[tuned]
        precision: gpu_tuned::Precision,
    }
}

#[forbid(warnings, deprecated, unused, clippy::all, clippy::pedantic)]
mod forbidding {
    use gpu_tuned::gpu_tuned;

    #[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
    #[derive(Clone)]
    pub(super) struct Forbidding {
        #[tuned]
        batch_size: u32,
        #[tuned(setting = precision)]
        amp: bool,
    }

    /// Without `Debug`.
    #[derive(Clone, Default)]
    pub(super) struct Untold;

    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(super) enum Numbers {
        Full,
        Half,
        Bf16,
    }

    /// Methods of every type, with usual names.
    trait OfAll {
        fn text(&self) {}
        fn or(&self) {}
        fn found(&self) {}
    }

    impl<T> OfAll for T {}

    pub(super) fn call_all() {
        ().text();
        ().or();
        ().found();
    }

    #[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
    #[derive(Clone)]
    pub(super) struct WithTraits {
        #[tuned]
        batch_size: u32,
        #[tuned]
        precision: Numbers,
        untold: Untold,
    }
}

#[deny(warnings)]
mod deprecated {
    use gpu_tuned::gpu_tuned;

    #[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
    #[derive(Clone)]
    pub(super) struct Fields {
        #[deprecated]
        #[tuned]
        batch_size: usize,
        #[deprecated(note = "use another")]
        #[tuned]
        precision: gpu_tuned::Precision,
        #[deprecated]
        #[tuned(default = 3)]
        epochs: i32,
        #[deprecated]
        other: u8,
    }

    #[gpu_tuned(transformer(vocab = 100, seq = 16), global_batch = size, target = "h200")]
    #[derive(Clone)]
    pub(super) struct Dims {
        #[deprecated]
        #[tuned(dim = layers, default = 2)]
        layers: i32,
        #[deprecated]
        #[tuned(dims(d_model: width = 32))]
        model: Model,
        #[deprecated]
        #[tuned(default = 64)]
        size: usize,
    }

    #[derive(Clone)]
    pub(super) struct Model {
        #[deprecated]
        width: u8,
    }

    #[allow(deprecated, reason = "the shape under test")]
    impl Default for Model {
        fn default() -> Self {
            Self { width: 32 }
        }
    }
}

#[allow(deprecated, reason = "the struct as a whole is")]
mod deprecated_struct {
    use gpu_tuned::gpu_tuned;

    #[deny(deprecated)]
    mod inner {
        use super::gpu_tuned;

        #[deprecated]
        #[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
        #[derive(Clone)]
        pub(in super::super) struct Whole {
            #[tuned]
            batch_size: usize,
        }
    }

    pub(super) use inner::Whole;
}

#[no_implicit_prelude]
mod without_prelude {
    use ::core::clone::Clone;
    use ::core::fmt::Debug;
    use ::core::option::Option;
    use ::core::prelude::v1::derive;
    use ::gpu_tuned::{Precision, gpu_tuned};
    use ::std::string::String;

    #[gpu_tuned(transformer(vocab = 100, seq = 16), global_batch = 64, optimizer = "sgd", lora_rank = 4, lora_targets = ["query"], target = "h200")]
    #[derive(Clone, Debug)]
    pub(super) struct AllKinds<T> {
        #[tuned]
        batch_size: usize,
        #[tuned]
        precision: Precision,
        #[tuned(dim = layers, default = 2)]
        layers: i32,
        #[tuned(dims(d_model: 0 = 32), default = (32,))]
        width: (u8,),
        #[tuned]
        allow_tf32: bool,
        value: Option<T>,
    }

    #[gpu_tuned(convnet(image = 8, classes = 10, channels = 1, stages = [[8, 1]]), global_batch = size, target = "h200")]
    #[derive(Clone, Debug)]
    pub(super) struct Text {
        #[tuned]
        precision: String,
        #[tuned(default = 8)]
        size: i64,
    }

    #[derive(Clone, Copy, Debug)]
    pub(super) enum Numbers {
        Full,
        Bf16,
        Half,
    }

    #[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
    #[derive(Debug)]
    pub(super) struct Enum {
        #[tuned(setting = precision)]
        numbers: Numbers,
    }
}

#[test]
fn expansions_add_no_warning() {
    check::<strict::Strict<'static, u8>>();
    check::<strict::Switch>();
    check::<strict::Enum>();
    check::<strict::Text>();
    check::<restricted::Restricted>();
    check::<forbidding::Forbidding>();
    check::<forbidding::WithTraits>();
    forbidding::call_all();
    check::<deprecated::Fields>();
    check::<deprecated::Dims>();
    #[allow(deprecated, reason = "the shape under test")]
    check::<deprecated_struct::Whole>();
}

#[test]
fn expansions_need_no_prelude() {
    check::<without_prelude::AllKinds<u8>>();
    check::<without_prelude::Text>();
    check::<without_prelude::Enum>();
}
