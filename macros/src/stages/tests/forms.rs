//! Forms of tokens: raw keys, groups of `macro_rules!`, broken tables and defaults.

use std::path::Path;

use gpu_tuned_attribute::Table;
use proc_macro2::{Delimiter, Group, TokenStream};
use quote::ToTokens;

use super::{config, formatted, run, table};
use crate::stages::file_name;

#[test]
fn a_global_batch_takes_the_place_of_tokens_in_the_file() {
    let item = config(&quote!(#[tuned(default = 512)] samples: usize));
    let model = quote!(transformer(seq = 256, vocab = 8192, layers = 6, d_model = 512));
    let expanded = |goal: TokenStream| {
        let Table::Resolved(mut resolved) = table(&["h200"]) else { unreachable!() };
        (resolved.goal.global_tokens, resolved.goal.mean_tokens) = (Some(65_536), Some(100.0));
        formatted(run(quote!(#model, #goal), &item, Table::Resolved(resolved)))
    };
    for goal in [quote!(global_batch = 512), quote!(global_batch = samples)] {
        let expansion = expanded(goal);
        assert!(expansion.contains("global_batch: ::std::option::Option::Some(512)"), "{expansion}");
        assert!(!expansion.contains("tokens: "), "{expansion}");
    }
    // In the attribute itself they contradict each other.
    let twice = expanded(quote!(mean_tokens = 100.0, global_batch = 512));
    assert!(twice.contains("mean_tokens converts global_tokens to samples"), "{twice}");
    let twice = expanded(quote!(global_batch = 512, global_tokens = 65536));
    assert!(twice.contains("global_tokens and global_batch both set the size"), "{twice}");
}

#[test]
fn a_table_that_cannot_be_read_is_reported_and_nothing_else() {
    let item = config(&quote!());
    let expansion =
        run(quote!(workload = "digits"), &item, Table::Broken("cannot read the table".to_owned())).to_string();
    assert_eq!(expansion.matches("compile_error").count(), 1, "{expansion}");
    assert!(expansion.contains("cannot read the table"), "{expansion}");
}

#[test]
fn code_that_is_no_rust_is_called_a_struct_only_if_it_is_one() {
    let expand = |item: TokenStream| run(quote!(workload = "digits"), &item, table(&["h200"])).to_string();
    let of_struct = expand(quote!(#[derive(Debug)] struct Config { #[tuned, tuned] batch_size: usize }));
    assert!(of_struct.contains("cannot read this struct: unexpected token"), "{of_struct}");
    let of_function = expand(quote!(
        fn f() {}
    ));
    assert!(of_function.contains("needs a struct with named fields"), "{of_function}");
}

#[test]
fn a_default_that_is_no_expression_does_not_take_the_item_along() {
    let item = config(&quote!(#[tuned(default = 3e-4 lr)] learning_rate: f64));
    let expansion = formatted(run(quote!(workload = "digits"), &item, table(&["h200"])));
    assert!(expansion.contains("`default` takes an expression"), "{expansion}");
    assert!(expansion.contains("struct Config"), "{expansion}");
}

#[test]
fn expansions_of_one_name_have_a_file_each() {
    let file = |directory: &str, place: &str| file_name(Path::new(directory), "Config", place.to_owned());
    let names = [("a", "1"), ("a", "2"), ("a", "1"), ("b", "3"), ("a", "2")].map(|(folder, place)| file(folder, place));
    assert_eq!(names, ["Config.rs", "Config-2.rs", "Config.rs", "Config.rs", "Config-2.rs"]);
}

#[test]
fn raw_keys_mean_what_bare_ones_do() {
    let [raw, bare] =
        [quote!(r#workload = "digits", r#optimizer = "sgd"), quote!(workload = "digits", optimizer = "sgd")]
            .map(|attribute| run(attribute, &config(&quote!()), table(&["h200"])).to_string());
    assert_eq!(raw, bare);
}

/// `macro_rules!` puts a `$t:ty` into a group without delimiters.
#[test]
fn types_from_macro_rules_and_in_parentheses_are_those_within() {
    let item = |count: TokenStream, flag: TokenStream| {
        quote! {
            #[derive(Parser)]
            struct Config {
                #[tuned(dim = layers, default = 6)]
                layers: #count,
                #[tuned]
                batch_size: #count,
                #[tuned]
                allow_tf32: #flag,
            }
        }
    };
    let group = |tokens: TokenStream| Group::new(Delimiter::None, tokens).to_token_stream();
    let expanded = |item: TokenStream| {
        let attribute = quote!(transformer(seq = 256, vocab = 8192, d_model = 512), global_batch = 512);
        run(attribute, &item, table(&["h200"])).to_string()
    };
    let plain = expanded(item(quote!(u64), quote!(bool)));
    assert!(plain.contains("ArgAction :: Set") && !plain.contains("compile_error"), "{plain}");
    let grouped = expanded(item(group(quote!(u64)), group(group(quote!(bool)))));
    assert_eq!(grouped, plain);
    let in_parentheses = expanded(item(quote!((u64)), quote!((bool))));
    assert_eq!(in_parentheses.replace("(u64)", "u64").replace("(bool)", "bool"), plain);
    assert!(!expanded(item(group(quote!(usize)), quote!(bool))).contains("compile_error"));
}

#[test]
fn code_that_would_overflow_the_stack_of_the_compiler_is_refused() {
    for (deep, is_refused) in [(20, false), (100_000, true)] {
        let default: TokenStream = format!("{}1", "-".repeat(deep)).parse().expect("tokens");
        let item = config(&quote!(#[tuned(default = #default)] x: i32));
        let attribute = quote!(transformer(layers = 6, seq = 256, vocab = 8192, d_model = 512), global_batch = 512);
        let text = run(attribute, &item, table(&["h200"])).to_string();
        assert_eq!(text.contains("nested or chained too deeply"), is_refused);
    }
}
