//! GPU profiles: what is published, derived or observed of a GPU model.

mod builtin;
mod id;
mod model;
mod table;
mod validate;

pub use id::{ParseIdError, ProfileId};
pub use model::{Basis, Board, Compute, Memory, Peak, Peaks, Profile};
pub use table::ProfileTable;
