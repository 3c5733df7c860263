//! Values as the literals that stand for them.

use gpu_tuned_core::workload::{Family, Optimizer};
use gpu_tuned_core::{Goal, Precision, SettingValue, Settings};
use proc_macro2::{Literal, TokenStream};
use quote::{ToTokens, quote};

/// A bare whole number, which takes the type of its place.
pub(super) fn count(value: u64) -> Literal {
    Literal::u64_unsuffixed(value)
}

/// A bare number with a point.
pub(super) fn number(value: f64) -> Literal {
    Literal::f64_unsuffixed(value)
}

/// A count that may be absent.
pub(super) fn optional(value: Option<u64>) -> TokenStream {
    option(value.map(count))
}

fn option(value: Option<impl ToTokens>) -> TokenStream {
    value.map_or_else(|| quote!(::core::option::Option::None), |it| quote!(::core::option::Option::Some(#it)))
}

pub(super) fn precision(value: Precision) -> TokenStream {
    match value {
        Precision::F32 => quote!(::gpu_tuned::Precision::F32),
        Precision::MixedBf16 => quote!(::gpu_tuned::Precision::MixedBf16),
        Precision::MixedF16 => quote!(::gpu_tuned::Precision::MixedF16),
        Precision::Bf16Params => quote!(::gpu_tuned::Precision::Bf16Params),
    }
}

pub(super) fn optimizer(value: Optimizer) -> TokenStream {
    match value {
        Optimizer::Sgd => quote!(::gpu_tuned::Optimizer::Sgd),
        Optimizer::Momentum => quote!(::gpu_tuned::Optimizer::Momentum),
        Optimizer::Adam => quote!(::gpu_tuned::Optimizer::Adam),
        Optimizer::AdamW => quote!(::gpu_tuned::Optimizer::AdamW),
    }
}

pub(super) fn family(value: Family) -> TokenStream {
    match value {
        Family::Transformer => quote!(::gpu_tuned::__private::Family::Transformer),
        Family::Convnet => quote!(::gpu_tuned::__private::Family::Convnet),
        Family::Other => quote!(::gpu_tuned::__private::Family::Other),
    }
}

pub(super) fn setting(value: SettingValue) -> TokenStream {
    match value {
        SettingValue::Count(value) => count(value).to_token_stream(),
        SettingValue::Flag(flag) => flag.to_token_stream(),
        SettingValue::Precision(value) => precision(value),
    }
}

pub(super) fn settings(settings: &Settings) -> TokenStream {
    let values = gpu_tuned_core::Setting::ALL.map(|it| {
        let name = quote::format_ident!("{}", it.name());
        let value = setting(it.of(settings));
        quote!(#name: #value)
    });
    quote!(::gpu_tuned::Settings { #(#values),* })
}

pub(super) fn goal(goal: &Goal) -> TokenStream {
    let global_batch = optional(goal.global_batch);
    let world_size = count(goal.world_size);
    let precision = option(goal.precision.map(precision));
    let (headroom, tolerance) = (number(goal.memory_headroom), number(goal.throughput_tolerance));
    quote! {
        ::gpu_tuned::Goal {
            global_batch: #global_batch,
            world_size: #world_size,
            precision: #precision,
            memory_headroom: #headroom,
            throughput_tolerance: #tolerance,
            pins: ::core::default::Default::default(),
        }
    }
}
