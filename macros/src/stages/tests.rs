//! What is generated, formatted, and what keeps it true to the schema.

use gpu_tuned_core::Setting;
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_core::source::Source;
use gpu_tuned_project::config::ConfigFile;
use gpu_tuned_project::lock::Lock;
use gpu_tuned_project::resolved::{Resolved, Selected};
use proc_macro2::{Delimiter, Group, TokenStream};
use quote::{ToTokens, quote};

use super::run;
use crate::table::Table;

mod named;
mod several;
mod timing;

/// The table of a package that declares three targets and selects some of them.
pub(super) fn table(selected: &[&str]) -> Table {
    let text = "[workload.digits]\nparameters = 60000\nactivation_bytes_per_sample = 200000\nflops_per_sample = 1e7\n";
    let file = ConfigFile::parse(Source { file: "gpu-tuned.toml", text }).expect("the file is valid");
    let id = |id: &&str| id.parse().expect("a profile id");
    let declared = ["gtx1080", "rtx4090", "h200"].iter().map(id).collect();
    let selected = match selected {
        [] => Selected::Generic,
        ids => Selected::Targets(ids.iter().map(id).collect()),
    };
    Table::Resolved(Box::new(Resolved::new(selected, declared, &file, ProfileTable::builtin())))
}

/// The same table with what was measured of a transformer with this many layers on one H200.
fn measured(layers: u64) -> Table {
    let text = format!(
        "{LOCK}\n[workload.lm.described.transformer]\nlayers = {layers}\nd_model = 512\nvocab = 8192\nseq = 256\n{}\n",
        Lock::END
    );
    let lock = Lock::parse(Source { file: Lock::NAME, text: &text }).expect("the lock is valid");
    let Table::Resolved(resolved) = table(&["h200"]) else { unreachable!() };
    Table::Resolved(Box::new(resolved.with_measured(lock)))
}

/// Of a GPU that is fastest at 32 samples, which no costs would say.
const LOCK: &str = r#"format = 1

[workload.lm]
parameters = 27_300_000
shape = "00ff"

[workload.lm.on.h200]
burn = "0.22.1"
context_bytes = 563_085_312
device = "NVIDIA H200"
kernels_bytes = 31_457_280
kind = "gpu"
memory_bytes = 150_754_820_096
sm_count = 132
fp32_tflops = 60.0
bandwidth_gb_s = 4_800.0

[workload.lm.on.h200.mode.f32]
residual = 0.01
way = "dry-run"

[workload.lm.on.h200.mode.f32.batch.8]
micro_step_ms = 12.0
optimizer_ms = 1.0
reserved_bytes = 1_550_000_000

[workload.lm.on.h200.mode.f32.batch.32]
micro_step_ms = 33.0
reserved_bytes = 4_970_000_000

[workload.lm.on.h200.mode.f32.batch.256]
micro_step_ms = 270.0
reserved_bytes = 33_400_000_000
"#;

fn formatted(expansion: TokenStream) -> String {
    prettyplease::unparse(&syn::parse2(expansion).expect("the expansion is Rust"))
}

fn language_model(selected: &[&str]) -> String {
    expanded(table(selected))
}

fn expanded(table: Table) -> String {
    let attribute = quote!(transformer(seq = 256, vocab = 8192), global_batch = 512);
    let item = quote! {
        #[derive(Clone, Debug)]
        pub struct LmConfig {
            #[tuned(dim = layers, default = 6)]
            pub n_layers: usize,
            #[tuned(dim = d_model, default = 512)]
            pub d_model: usize,
            #[tuned]
            pub batch_size: usize,
            #[tuned]
            pub gradient_accumulation: u64,
            #[tuned]
            pub allow_tf32: bool,
        }
    };
    formatted(run(attribute, &item, table))
}

#[test]
fn constants_and_documentation_follow_from_what_was_measured() {
    insta::assert_snapshot!(expanded(measured(6)));
}

#[test]
fn measurements_of_other_dimensions_are_named_in_the_documentation() {
    let said = "gpu-tuned.lock: `lm` was measured with layers = 4, now 6: run `cargo gpu-tuned measure`.";
    let other = expanded(measured(4));
    assert!(other.contains(said), "{other}");
    let lines = |expansion: String| expansion.lines().filter(|line| !line.contains(said)).count();
    assert!(!expanded(measured(6)).contains("was measured with"));
    assert_eq!(lines(other), lines(language_model(&["h200"])) + 1, "nothing else follows from them");
}

#[test]
fn adapters_over_packed_weights_are_part_of_the_workload() {
    let attribute = quote!(
        transformer(layers = 32, d_model = 4096, vocab = 32000, seq = 512, d_ff = 11008, gated = true, norm = "rms"),
        optimizer = "adafactor",
        lora_targets = ["query", "value"],
        frozen_weights = "q4",
        precision = "bf16_params",
        global_tokens = 65536
    );
    let item = quote! {
        #[derive(Debug)]
        struct Finetune {
            #[tuned(dim = lora_rank, default = 8)]
            rank: u32,
            #[tuned]
            batch_size: usize,
        }
    };
    insta::assert_snapshot!(formatted(run(attribute, &item, table(&["h200"]))));
}

#[test]
fn plain_struct_for_gtx1080() {
    insta::assert_snapshot!(language_model(&["gtx1080"]));
}

#[test]
fn plain_struct_for_rtx4090() {
    insta::assert_snapshot!(language_model(&["rtx4090"]));
}

#[test]
fn plain_struct_for_h200() {
    insta::assert_snapshot!(language_model(&["h200"]));
}

#[test]
fn plain_struct_for_h200_and_rtx4090() {
    insta::assert_snapshot!(language_model(&["h200", "rtx4090"]));
}

#[test]
fn burn_config_gets_bare_defaults() {
    let item = quote! {
        /// How digits are trained.
        #[derive(Config, Debug)]
        pub struct TrainingConfig {
            pub model: ModelConfig,
            #[tuned]
            pub batch_size: usize,
            #[tuned]
            pub precision: Precision,
            #[config(default = 10)]
            pub num_epochs: usize,
        }
    };
    insta::assert_snapshot!(formatted(run(quote!(workload = "digits", global_batch = 512), &item, table(&[]))));
}

#[test]
fn a_global_batch_stays_in_its_field() {
    let item = quote! {
        /// How digits are trained.
        #[derive(Config, Debug)]
        pub struct TrainingConfig {
            #[config(default = "64")]
            pub batch_size: usize,
            #[config(default = 10)]
            pub num_epochs: usize,
        }
    };
    let attribute = quote!(workload = "digits", global_batch = batch_size);
    let expansion = formatted(run(attribute, &item, table(&["h200"])));
    assert!(expansion.contains("#[config(default = \"64\")]"), "{expansion}");
    assert!(expansion.contains("global_batch: ::core::option::Option::Some(64)"), "{expansion}");
    insta::assert_snapshot!(expansion);
}

#[test]
fn a_global_batch_takes_the_place_of_tokens_in_the_file() {
    let item = quote! {
        #[derive(Debug)]
        struct Config {
            #[tuned(default = 512)]
            samples: usize,
            #[tuned]
            batch_size: usize,
        }
    };
    let model = quote!(transformer(seq = 256, vocab = 8192, layers = 6, d_model = 512));
    let expanded = |goal: TokenStream| {
        let Table::Resolved(mut resolved) = table(&["h200"]) else { unreachable!() };
        (resolved.goal.global_tokens, resolved.goal.mean_tokens) = (Some(65_536), Some(100.0));
        formatted(run(quote!(#model, #goal), &item, Table::Resolved(resolved)))
    };
    for goal in [quote!(global_batch = 512), quote!(global_batch = samples)] {
        let expansion = expanded(goal);
        assert!(expansion.contains("global_batch: ::core::option::Option::Some(512)"), "{expansion}");
        assert!(!expansion.contains("tokens: "), "{expansion}");
    }
    // In the attribute itself they contradict each other.
    let twice = expanded(quote!(mean_tokens = 100.0, global_batch = 512));
    assert!(twice.contains("mean_tokens says how many samples make up `global_tokens`"), "{twice}");
    let twice = expanded(quote!(global_batch = 512, global_tokens = 65536));
    assert!(twice.contains("global_tokens and global_batch both say how large"), "{twice}");
}

#[test]
fn clap_arguments_get_defaults_and_keep_their_help() {
    let item = quote! {
        /// Trains.
        #[derive(Parser)]
        struct Arguments {
            #[arg(long)]
            #[tuned(setting = batch_size)]
            batch: u32,
            #[arg(long)]
            #[tuned]
            allow_tf32: bool,
            #[arg(long, default_value_t = 3e-4)]
            learning_rate: f64,
        }
    };
    insta::assert_snapshot!(formatted(run(quote!(workload = "digits"), &item, table(&["h200"]))));
}

#[test]
fn dimensions_of_a_nested_config_are_read_through_its_field() {
    let attribute = quote!(transformer(seq = 256, vocab = 28996, classes = 4), global_batch = 32);
    let item = quote! {
        #[derive(Config, Debug)]
        pub struct ExperimentConfig {
            #[tuned(dims(layers: n_layers = 4, heads: n_heads = 8, d_model = 256, d_ff = 1024))]
            pub transformer: TransformerEncoderConfig,
            #[tuned(dims(final_norm: norms.0.r#final = false, lora_rank = 8))]
            pub layout: Layout,
            #[tuned]
            pub batch_size: usize,
        }
    };
    insta::assert_snapshot!(formatted(run(attribute, &item, table(&["h200"]))));
}

#[test]
fn a_plain_struct_takes_the_default_of_a_nested_config() {
    let attribute = quote!(transformer(seq = 256, vocab = 8192));
    let item = quote! {
        #[derive(Debug)]
        struct LmConfig {
            #[tuned(dims(layers = 4))]
            depth: Depth,
            #[tuned(dims(d_model = 256), default = Width { d_model: 256 })]
            width: Width,
        }
    };
    let expansion = formatted(run(attribute, &item, table(&["h200"])));
    assert!(expansion.contains("depth: ::core::default::Default::default(),"), "{expansion}");
    assert!(expansion.contains("width: Width { d_model: 256 },"), "{expansion}");
}

#[test]
fn generics_cfgs_and_raw_identifiers_are_kept() {
    let item = quote! {
        #[derive(Debug)]
        #[must_use]
        pub(crate) struct r#Loop<'a, T: Clone = u8, const N: usize = 3>
        where
            T: core::fmt::Debug,
        {
            /// Untouched.
            r#type: Option<T>,
            #[tuned(default = "a, b")]
            name: &'a str,
            #[tuned(default = HashMap::<A, B, C>::default())]
            map: HashMap<A, B, C>,
            sizes: [usize; N],
            #[cfg(feature = "workers")]
            #[tuned(setting = num_workers)]
            r#fn: usize,
            #[cfg(feature = "extra")]
            extra: u8,
        }
    };
    insta::assert_snapshot!(formatted(run(quote!(workload = "digits"), &item, table(&["h200"]))));
}

#[test]
fn a_table_that_cannot_be_read_is_reported_and_nothing_else() {
    let item = quote!(
        #[derive(Debug)]
        struct Config {
            #[tuned]
            batch_size: usize,
        }
    );
    let expansion = run(quote!(workload = "digits"), &item, Table::Broken("the table".to_owned())).to_string();
    assert_eq!(expansion.matches("compile_error").count(), 1, "{expansion}");
    assert!(expansion.contains("cannot read the table"), "{expansion}");
}

#[test]
fn a_default_that_is_no_expression_does_not_take_the_item_along() {
    let item = quote!(
        #[derive(Debug)]
        struct Config {
            #[tuned]
            batch_size: usize,
            #[tuned(default = 3e-4 lr)]
            learning_rate: f64,
        }
    );
    let expansion = formatted(run(quote!(workload = "digits"), &item, table(&["h200"])));
    assert!(expansion.contains("`default` takes an expression"), "{expansion}");
    assert!(expansion.contains("struct Config"), "{expansion}");
}

#[test]
fn raw_keys_mean_what_bare_ones_do() {
    let item = quote!(
        #[derive(Debug)]
        struct Config {
            #[tuned]
            batch_size: usize,
        }
    );
    let [raw, bare] =
        [quote!(r#workload = "digits", r#optimizer = "sgd"), quote!(workload = "digits", optimizer = "sgd")]
            .map(|attribute| run(attribute, &item, table(&["h200"])).to_string());
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
fn the_documentation_lists_every_setting() {
    let documentation = include_str!("../lib.rs");
    let is_missing = |name: &&str| !documentation.contains(&format!("/// | `{name}` |"));
    let missing: Vec<_> = Setting::ALL.map(Setting::name).into_iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
