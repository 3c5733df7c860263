//! Fields with a precision.

use proc_macro2::TokenStream;

use super::{formatted, run, table};

fn attribute() -> TokenStream {
    quote!(transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), global_batch = 512)
}

fn plain(field: &TokenStream, selected: &[&str]) -> String {
    let item = quote! {
        #[derive(Clone, Debug)]
        pub struct LmConfig {
            #[tuned]
            pub batch_size: usize,
            #field
        }
    };
    formatted(run(attribute(), &item, table(selected)))
}

fn of_the_goal(field: &TokenStream, selected: &[&str]) -> String {
    plain(&quote!(#[tuned] pub precision: #field), selected)
}

#[test]
fn one_struct_has_the_precision_of_its_target() {
    for target in ["rtx4090", "t4", "v100-sxm2-16gb", "gtx1080"] {
        let name = format!("one_struct_for_{}", target.replace('-', "_"));
        insta::assert_snapshot!(name, of_the_goal(&quote!(Precision), &[target]));
    }
}

#[test]
fn several_targets_get_the_precision_that_all_can_do() {
    for (selected, precision) in [
        (&["rtx4090", "h200"][..], "MixedBf16"),
        (&["rtx4090", "t4"], "MixedF16"),
        (&["v100-sxm2-16gb", "t4", "h200"], "MixedF16"),
        (&["rtx4090", "t4", "gtx1080"], "F32"),
        (&[], "F32"),
    ] {
        let expanded = of_the_goal(&quote!(Precision), selected);
        let built = format!("precision: ::gpu_tuned::Precision::{precision},");
        assert!(expanded.contains(&built), "{selected:?}: {expanded}");
    }
}

#[test]
fn a_switch_is_on_where_mixed_precision_is_planned() {
    let switch = quote!(#[tuned(setting = precision)] pub amp: bool);
    insta::assert_snapshot!(plain(&switch, &["rtx4090"]));
    assert!(plain(&switch, &["t4"]).contains("amp: true"));
    assert!(plain(&switch, &["gtx1080"]).contains("amp: false"));
}

#[test]
fn a_text_has_the_name_of_the_precision() {
    insta::assert_snapshot!(of_the_goal(&quote!(String), &["rtx4090"]));
    assert!(of_the_goal(&quote!(&'static str), &["t4"]).contains("precision: \"mixed_f16\""));
}

#[test]
fn an_enum_gets_the_variant_with_a_usual_name() {
    insta::assert_snapshot!(of_the_goal(&quote!(crate::Numbers), &["rtx4090"]));
}

#[test]
fn a_precision_in_the_goal_is_that_of_the_field() {
    let item = quote!(
        #[derive(Debug)]
        struct LmConfig {
            #[tuned(setting = precision)]
            amp: bool,
        }
    );
    let attribute = attribute();
    let fixed = |name: &str| formatted(run(quote!(#attribute, precision = #name), &item, table(&["rtx4090"])));
    assert!(fixed("f32").contains("amp: false"), "{}", fixed("f32"));
    assert!(fixed("mixed_f16").contains("precision: ::gpu_tuned::Precision::MixedF16"), "{}", fixed("mixed_f16"));
    assert!(fixed("auto").contains("::gpu_tuned::PrecisionPolicy::Auto"), "{}", fixed("auto"));
}

/// Burn parses a default in quotes as an expression, and clap takes an expression.
#[test]
fn derives_get_the_default_as_an_expression() {
    let expanded = |derive: TokenStream| {
        let item = quote!(
            #[derive(#derive)]
            struct LmConfig {
                #[tuned]
                precision: String,
            }
        );
        formatted(run(attribute(), &item, table(&["rtx4090"])))
    };
    let burn = r#"#[config(default = "::std::borrow::ToOwned::to_owned(\"mixed_bf16\")")]"#;
    assert!(expanded(quote!(Config)).contains(burn), "{}", expanded(quote!(Config)));
    let clap = r#"#[arg(default_value_t = ::std::borrow::ToOwned::to_owned("mixed_bf16"))]"#;
    assert!(expanded(quote!(Parser)).contains(clap), "{}", expanded(quote!(Parser)));
}

#[test]
fn the_precision_of_another_framework_is_refused_with_its_name_here() {
    let attribute = quote!(mlp(widths = [8, 8]), precision = "bf16-mixed");
    let item = quote! {
        #[derive(Debug)]
        struct Config {
            #[tuned]
            batch_size: usize,
        }
    };
    let expanded = run(attribute, &item, table(&["h200"])).to_string();
    let message = "there is no precision `bf16-mixed`; other frameworks' `bf16-mixed` is `mixed_bf16` here";
    assert!(expanded.contains(message), "{expanded}");
}
