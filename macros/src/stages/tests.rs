//! Snapshots of expansions.

use gpu_tuned_core::Setting;
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_core::source::Source;
use gpu_tuned_project::config::ConfigFile;
use gpu_tuned_project::lock::Lock;
use gpu_tuned_project::resolved::{Resolved, Selected};
use proc_macro2::TokenStream;
use quote::format_ident;

use super::run;
use gpu_tuned_attribute::Table;

mod forms;
mod fuzz;
mod graphs;
mod named;
mod precision;
mod several;
mod timing;

/// Returns the table of a package that declares three targets and selects some of them.
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

/// Returns the same table with measurements of a transformer of this many layers on one H200.
fn measured(lock: &str, layers: u64) -> Table {
    let text = format!(
        "{lock}\n[workload.lm.described.transformer]\nlayers = {layers}\nd_model = 512\nvocab = 8192\nseq = 256\n{}\n",
        Lock::END
    );
    let lock = Lock::parse(Source { file: Lock::NAME, text: &text }).expect("the lock is valid");
    let Table::Resolved(resolved) = table(&["h200"]) else { unreachable!() };
    Table::Resolved(Box::new(resolved.with_measured(lock)))
}

/// Measurements that are fastest at 32 samples, unlike derived costs.
const LOCK: &str = r#"format = 2

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
method = "dry-run"

[workload.lm.on.h200.mode.f32.batch]
8 = { micro_step_ms = 12.0, optimizer_ms = 1.0, reserved_bytes = 1_550_000_000 }
32 = { micro_step_ms = 33.0, reserved_bytes = 4_970_000_000 }
256 = { micro_step_ms = 270.0, reserved_bytes = 33_400_000_000 }
"#;

/// A config with a field for the micro-batch, and others.
fn config(fields: &TokenStream) -> TokenStream {
    quote! {
        #[derive(Debug)]
        struct Config {
            #[tuned]
            batch_size: usize,
            #fields
        }
    }
}

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
fn a_semicolon_between_arguments_is_reported_alone() {
    let config = config(&quote!(#[tuned(per_rank; default = 3)] other: u8));
    let attribute = quote!(mlp(widths = [8, 8];); global_batch = 64; target = "h200");
    let text = run(attribute, &config, Table::Absent).to_string();
    let errors: Vec<_> = text.match_indices("compile_error").collect();
    assert_eq!((errors.len(), text.matches("expected `,`, found `;`").count()), (4, 4), "{text}");
}

#[test]
fn a_field_that_clap_skips_has_the_value_of_clap() {
    let attribute = quote!(mlp(widths = [8, 8]), global_batch = 64, target = "h200");
    let of = |batch_size: TokenStream| {
        let item = quote! {
            #[derive(Parser)]
            struct Config {
                #batch_size
                #[arg(skip = Vec::from([1]))]
                sizes: Vec<u8>,
                #[arg(skip)]
                other: u8,
            }
        };
        run(attribute.clone(), &item, Table::Absent)
    };
    let expansion = formatted(of(quote!(#[tuned] batch_size: usize,)));
    assert!(expansion.contains("sizes: Vec::from([1]),"), "{expansion}");
    assert!(expansion.contains("other: <u8 as ::gpu_tuned::__private::FieldDefault>::field_default(),"), "{expansion}");
    for skip in [quote!(skip), quote!(skip = 4)] {
        let refused = of(quote!(#[tuned] #[arg(#skip)] batch_size: usize,)).to_string();
        let message =
            format!("cannot have a default of its own\\n= help: drop `{skip}` to train with the planned value");
        assert!(refused.contains(&message), "{message}: {refused}");
    }
}

#[test]
fn constants_and_documentation_follow_from_what_was_measured() {
    insta::assert_snapshot!(expanded(measured(LOCK, 6)));
}

#[test]
fn measurements_of_other_dimensions_are_named_in_the_documentation() {
    let message = "gpu-tuned.lock: `lm` was measured with layers = 4, now 6: run `cargo gpu-tuned measure`.";
    let other = expanded(measured(LOCK, 4));
    assert!(other.contains(message), "{other}");
    let lines = |expansion: String| expansion.lines().filter(|line| !line.contains(message)).count();
    assert!(!expanded(measured(LOCK, 6)).contains("was measured with"));
    assert_eq!(lines(other), lines(language_model(&["h200"])) + 1, "nothing else follows from them");
    // Rustdoc takes a number in brackets for a link.
    let lock = format!(
        "{LOCK}\n[workload.lm.described.convnet]\nimage = 8\nclasses = 10\nstages = [[8, 1]]\nkernels = [3]\n{}\n",
        Lock::END
    );
    let lock = Lock::parse(Source { file: Lock::NAME, text: &lock }).expect("the lock is valid");
    let Table::Resolved(resolved) = table(&["h200"]) else { unreachable!() };
    let attribute = quote!(convnet(image = 8, classes = 10, stages = [[8, 1]], kernels = [5]), global_batch = 64);
    let measured = Table::Resolved(Box::new(resolved.with_measured(lock)));
    let expansion = run(attribute, &config(&quote!()), measured).to_string();
    assert!(expansion.contains(r"was measured with kernels = \\[3\\], now \\[5\\]"), "{expansion}");
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
fn a_plain_struct_has_the_constants_of_its_targets() {
    for targets in [&["gtx1080"][..], &["rtx4090"], &["h200"], &["h200", "rtx4090"]] {
        insta::assert_snapshot!(format!("plain_struct_for_{}", targets.join("_and_")), language_model(targets));
    }
}

#[test]
fn a_build_that_names_no_gpu_is_for_the_memory_that_the_workload_needs() {
    let attribute = quote!(
        transformer(layers = 24, d_model = 1024, vocab = 50257, seq = 256, dropout = false),
        global_batch = 512,
        precision = "mixed_bf16"
    );
    let expansion = |attribute, table| run(attribute, &config(&quote!()), table).to_string();
    let expanded = expansion(attribute.clone(), table(&[]));
    assert!(expanded.contains("more than `generic` has: these values are for 16.0 GiB."), "{expanded}");
    for part in ["target : \"generic\" , targets : & [] ,", "precision : :: gpu_tuned :: Precision :: MixedBf16"] {
        assert!(expanded.contains(part), "{expanded}");
    }
    // By name, `generic` is a card of 8 GiB without tensor cores.
    let named = expansion(quote!(#attribute, target = "generic"), Table::Absent);
    assert!(named.contains("generic has no bf16 tensor cores for mixed_bf16"), "{named}");
    let named = expansion(quote!(mlp(widths = [8, 8]), target = "generic"), Table::Absent);
    assert!(named.contains("target : \"generic\" , targets : & [] ,"), "{named}");
    let small = expansion(quote!(mlp(widths = [8, 8])), table(&[]));
    assert!(!small.contains("these values are for"), "{small}");
}

#[test]
fn burn_config_gets_bare_defaults() {
    let item = quote! {
        /// Training of digits.
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
        /// Training of digits.
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
    assert!(expansion.contains("global_batch: ::std::option::Option::Some(64)"), "{expansion}");
    insta::assert_snapshot!(expansion);
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
    let of_type = "depth: <Depth as ::gpu_tuned::__private::FieldDefault>::field_default(),";
    assert!(expansion.contains(of_type), "{expansion}");
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

/// Every setting is read, written and documented for a field of each suitable type.
#[test]
fn every_setting_is_generated_for_a_field() {
    let reference = include_str!("../reference.md");
    for setting in Setting::ALL {
        assert!(reference.contains(&format!("| `{setting}` |")), "{setting}");
        for ty in setting.kind().field_types() {
            let field = format_ident!("{}", setting.name());
            let ty: syn::Type = syn::parse_str(ty).expect("a type of Rust");
            let item = quote!(#[derive(Debug)] struct Config { #[tuned] #field: #ty });
            let expanded = run(quote!(workload = "digits"), &item, table(&["h200"])).to_string();
            let (read, written) = (quote!(__pins.#field =), quote!(__settings.#field));
            for code in [read, written, quote!(#field:)] {
                assert!(expanded.contains(&code.to_string()), "{code}: {expanded}");
            }
            assert!(!expanded.contains("compile_error") && expanded.contains(&format!("| target | `{setting}` |")));
        }
    }
}
