//! GPU profiles: what is published, derived or observed of a GPU model.

mod builtin;
mod id;
mod known;
mod model;
mod sources;
mod table;
mod validate;

pub use id::{ParseIdError, ProfileId};
pub use known::Known;
pub use model::{Basis, Board, Compute, Memory, Peak, Peaks, Profile};
pub use sources::source_in_words;
pub use table::ProfileTable;
