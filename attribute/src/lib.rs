//! The grammar of `#[gpu_tuned]`: keys, types, defaults, and mistakes with spans.
//!
//! The macro reads the tokens of a build with this crate, the command line reads source files with it. Both get the same
//! workload, the same goal and the same mistakes. The crate is apart from `gpu-tuned-project`, so that build scripts and
//! programs compile no syn for it.

#![forbid(unsafe_code)]

mod check;
mod model;
mod parse;
#[cfg(feature = "sources")]
pub mod sources;

pub use check::{Checked, NestedDim, PlanInput, Role, Table, check, peer_default, plan_input};
pub use model::{
    Argument, DefaultForm, DerivePresence, Derives, Field, ForeignDefault, Helper, Holder, Mistake, Mistakes, Model,
    Nested, Value, bare,
};
pub use parse::{DEEPEST_IN_MACROS, allow_deprecated, check_depth, crate_path, gives_default, parse, runtime_path};
