//! The [`macro@gpu_tuned`] attribute and the [`macro@MicroBatch`] derive. Use them through the `gpu-tuned` crate, which
//! re-exports them.

#![forbid(unsafe_code)]

mod expand;
mod fallback;
mod micro_batch;
mod stages;

use std::path::Path;

use gpu_tuned_attribute::Table;
use gpu_tuned_project::resolved::Resolved;
use proc_macro::TokenStream;

/// Reads the table whose path the build script put into the compiler's environment.
fn table() -> Table {
    Table::read(std::env::var_os(Resolved::VARIABLE).as_ref().map(Path::new))
}

/// Fills a training config with the settings planned for the GPU that the build is for.
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
/// The attribute stands above `#[derive(…)]`, on a struct with named fields. It implements `gpu_tuned::Tuned`, and:
///
/// | struct | what it gets |
/// |---|---|
/// | derives Burn's `Config` | `#[config(default = 64)]` on tuned and dimension fields |
/// | any other | an implementation of `Default` |
/// | derives clap's `Parser` or `Args` as well | `#[arg(default_value_t = 64)]` on tuned and dimension fields; a tuned `bool` takes a value, as in `--allow-tf32 false` |
/// | derives serde's `Deserialize` as well | nothing more: `#[serde(default)]` on the struct uses `Default` |
///
/// The values for every target that the package declares are in the struct's documentation (for clap, whose help text
/// that is, in that of the implementation of `Tuned`). `gpu_tuned` looks for derives by their last name: `Config`,
/// `Parser`, `Args`, `Default`.
///
/// # In the attribute
///
/// One of `workload = "…"`, the name of a workload of `gpu-tuned.toml`, or the model's dimensions, such as
/// `transformer(…)`; beside it the goal, how the model is trained, and for packages without a build script `target`: a
/// shipped GPU profile, or `"generic"`. Values here go before those of the file.
///
/// `global_batch` takes a number, or a field of the struct that holds it: see below.
///
/// # On a field
///
/// | attribute | the field is |
/// |---|---|
/// | `#[tuned]` | the setting of the same name |
/// | `#[tuned(setting = batch_size)]` | that setting, under another name |
/// | `#[tuned(dim = layers, default = 6)]` | a dimension of the workload; the build plans with the default, which may also be Burn's or clap's, and the runtime with the field's value |
/// | `#[tuned(dims(layers: n_layers = 6, d_model = 512))]` | a struct with dimensions in fields of its own: see below |
/// | `#[tuned(default = expression)]` | not tuned; this is its value in `Default::default()` of a plain struct, which is else clap's `default_value_t`, else the type's default |
///
/// # Dimensions in a nested config
///
/// A training config often holds the model's: `pub model: ModelConfig`. `dims` names the dimensions in there as a struct
/// expression would, `dimension: field = default`, or `dimension = default` where the field is called as the dimension is;
/// a deeper one has a path, `layers: encoder.n_layers = 6`.
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
/// The build plans with the defaults, because the attribute cannot see those of another struct; they set no value. At run
/// time the fields count: a model with twelve layers gets the plan for twelve. So a default that most runs do not have
/// costs a plan at start-up, and the compile-time check against the GPU is one of the wrong model. Without `dims` a
/// nested field says nothing about the workload. The field's own default stays what it is: Burn's, clap's, or the type's.
///
/// # A field that holds the global batch
///
/// Where a program's `batch_size` is what an optimizer step takes, as in Burn's own loop, it can stay what it is:
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
/// The build plans with the field's default, and the runtime with its value. The loader goes on to take its batches from the
/// field; the session's strategy cuts them into micro-batches. No other field has to be tuned then.
///
#[doc = include_str!("reference.md")]
///
/// # To see what is generated
///
/// With `GPU_TUNED_EXPAND_DIR=directory` in the environment, each expansion is written to `directory/NAME.rs`.
#[proc_macro_attribute]
pub fn gpu_tuned(attribute: TokenStream, item: TokenStream) -> TokenStream {
    stages::run(attribute.into(), &item.into(), table()).into()
}

/// Implements `gpu_tuned::MicroBatch` for a struct whose fields are batches of equally many samples: it can then be what a
/// training step takes.
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
/// Fields may be named or not; the first that holds samples counts them. One that belongs to the batch as a whole is marked
/// `#[micro_batch(shared)]`: it has to be `Clone`, goes along with every micro-batch, stays on the device that it is on, and
/// is not counted in bytes. The struct itself has to be `Clone`, `Send` and `'static`.
#[proc_macro_derive(MicroBatch, attributes(micro_batch))]
pub fn micro_batch(item: TokenStream) -> TokenStream {
    micro_batch::run(item.into()).into()
}
