//! The [`macro@gpu_tuned`] attribute and the [`macro@MicroBatch`] derive. Use them through the `gpu-tuned` crate, which
//! re-exports them.

#![forbid(unsafe_code)]

/// [`quote::quote!`] with variables of the macro's own. Their names begin with `__`, because a user's static or struct of the same
/// name is visible all the same.
macro_rules! quote {
    ($($tokens:tt)*) => { ::quote::quote_spanned!(::proc_macro2::Span::mixed_site()=> $($tokens)*) };
}

mod expand;
mod micro_batch;
mod stages;

use std::path::Path;

use gpu_tuned_attribute::Table;
use gpu_tuned_project::resolved::Resolved;
use proc_macro::TokenStream;

/// Reads the table whose path the package's build script put into the compiler's environment.
fn table() -> Table {
    let package = std::env::var("CARGO_PKG_NAME").ok();
    Table::read(std::env::var_os(Resolved::VARIABLE).as_ref().map(Path::new), package.as_deref())
}

/// Fills a training config with the planned settings of the build's GPU.
///
/// ```ignore
/// #[gpu_tuned(transformer(seq = 256, vocab = 8192), global_batch = 512)]
/// #[derive(Clone, Debug)]
/// pub struct LmConfig {
///     #[tuned(dim = layers, default = 6)] pub n_layers: usize,
///     #[tuned(dim = d_model, default = 512)] pub d_model: usize,
///     #[tuned] pub batch_size: usize,
///     #[tuned] pub gradient_accumulation: usize,
///     #[tuned(default = 3e-4)] pub learning_rate: f64,
/// }
/// ```
///
/// The attribute is above `#[derive(…)]`, on a struct with named fields. It implements `gpu_tuned::Tuned`, and:
///
/// | struct | expansion |
/// |---|---|
/// | derives Burn's `Config` | `#[config(default = 64)]` on tuned and dimension fields |
/// | any other | an implementation of `Default` |
/// | derives clap's `Parser` or `Args` as well | `#[arg(default_value_t = 64)]` on tuned and dimension fields; a tuned `bool` takes a value, as in `--allow-tf32 false` |
/// | derives serde's `Deserialize` as well | nothing more: `#[serde(default)]` on the struct uses `Default` |
///
/// The struct's documentation lists the values for the build's target. With clap, whose help text is the struct's
/// documentation, the implementation of `Tuned` lists them. `gpu_tuned` recognizes derives by their last name: `Config`,
/// `Parser`, `Args`, `Default`.
///
/// # In the attribute
///
/// The model is either `workload = "…"`, the name of a workload of `gpu-tuned.toml` (the package's, else the workspace's), or a list of dimensions, such as
/// `transformer(…)`. Beside the model, the attribute takes keys of the goal and of the training. Packages without a build
/// script add `target`: a shipped GPU profile, or `"generic"`. A workload that does not fit the target is an error. Without a
/// GPU's feature the values are placeholders: `generic` has 8 GiB, or as much as the workload needs, up to 512 GiB. Values in
/// the attribute override those of the file.
///
/// `global_batch` takes a number, or a field of the struct: see below.
///
/// The expansion names this crate as `Cargo.toml` does, also in `tune = { package = "gpu-tuned" }`. `crate = path` names a
/// re-export: `crate = my_facade::gpu_tuned`.
///
/// # On a field
///
/// | attribute | the field is |
/// |---|---|
/// | `#[tuned]` | the setting of the same name |
/// | `#[tuned(setting = batch_size)]` | this setting, under another name |
/// | `#[tuned(dim = layers, default = 6)]` | a dimension of the workload. The build plans with the default, which may be Burn's or clap's. The runtime plans with the field's value |
/// | `#[tuned(dims(layers: n_layers = 6, d_model = 512))]` | a struct with dimensions in its own fields: see below |
/// | `#[tuned(default = expression)]` | not tuned; the expression is the field's value in `Default::default()` of a plain struct. Without it, the value is clap's `default_value_t` or `skip`, serde's function, a number or flag in the attribute of another derive, clap's text of a `String`, else the type's default |
/// | `#[tuned(per_rank)]` | not tuned, and may differ between the processes that train together, such as a path of each host. Other fields with `Debug` have to be equal on all ranks |
///
/// The attribute may be in a `cfg_attr`: without the condition, the field is the user's own. A tuned field takes no default
/// of Burn, clap, serde, bon, typed-builder, `derive_builder` or another derive with such an attribute.
///
/// # Dimensions in a nested config
///
/// A training config often contains the model's config: `pub model: ModelConfig`. `dims` names the dimensions inside:
/// `dimension: field = default`. `dimension = default` is enough if the field has the dimension's name. A deeper field has
/// a path: `layers: encoder.n_layers = 6`.
///
/// ```ignore
/// #[gpu_tuned(transformer(vocab = 8192, seq = 256), global_batch = 512)]
/// #[derive(Config, Debug)]
/// pub struct TrainingConfig {
///     #[tuned(dims(layers: n_layers = 6, heads: n_heads = 8, d_model = 512, d_ff = 2048))]
///     pub model: TransformerEncoderConfig,
///     #[tuned] pub batch_size: usize,
/// }
/// ```
///
/// The build plans with these defaults, because the attribute cannot see another struct. The defaults set no value. At
/// run time the fields count: a model with twelve layers gets the plan for twelve layers. With an unusual default, the
/// program plans again at start-up, and the compile-time check is of another model. Without `dims`, a nested field is no
/// part of the workload. The field's own default remains: Burn's, clap's, or the type's.
///
/// # The global batch in a field
///
/// In Burn's own loop, `batch_size` is the samples of an optimizer step. Such a field can stay as it is:
///
/// ```ignore
/// #[gpu_tuned(convnet(image = 28, channels = 1, classes = 10, stages = [[8, 1], [16, 1]]), global_batch = batch_size)]
/// #[derive(Config, Debug)]
/// pub struct TrainingConfig {
///     #[config(default = 64)]
///     pub batch_size: usize,
/// }
/// ```
///
/// The build plans with the field's default, and the runtime with its value. The loader takes its batches from the field
/// as before. The session's strategy cuts them into micro-batches. No other field has to be tuned.
///
#[doc = include_str!("reference.md")]
///
/// # Generated code
///
/// With `GPU_TUNED_EXPAND_DIR=directory` in the environment, each expansion is written to `directory/CRATE/NAME.rs`. A second
/// struct of this name in the crate has `NAME-2.rs`. A change of the variable compiles the package again.
#[proc_macro_attribute]
pub fn gpu_tuned(attribute: TokenStream, item: TokenStream) -> TokenStream {
    stages::run(attribute.into(), &item.into(), table()).into()
}

/// Implements `gpu_tuned::MicroBatch` for a struct whose fields are batches of equally many samples. A
/// training step can then take the struct.
///
/// ```ignore
/// #[derive(Clone, MicroBatch)]
/// struct Batch {
///     tokens: Tensor<2, Int>,
///     lengths: Vec<usize>,
///     #[micro_batch(shared)]
///     vocabulary: Arc<Vocabulary>,
/// }
/// ```
///
/// Fields may be named or not. The first field with samples gives their number. A field of another length is an error of
/// `MicroBatch::check`. A field of the whole batch is marked `#[micro_batch(shared)]`. A shared field has to be `Clone`. Every micro-batch gets a clone, on the same device, and the
/// clone counts no bytes. `#[micro_batch(crate = path)]` on the struct names a re-export of `gpu-tuned`. The struct itself has to be `Clone`, `Send` and `'static`.
#[proc_macro_derive(MicroBatch, attributes(micro_batch))]
pub fn micro_batch(item: TokenStream) -> TokenStream {
    micro_batch::run(item.into()).into()
}
