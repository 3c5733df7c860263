//! GPU profiles: published, derived and observed figures of GPU models.

mod detected;
mod estimate;
mod facts;
mod id;
mod keys;
mod model;
mod names;
mod rates;
mod sources;
mod speed;
mod table;
mod typo;
mod validate;

pub use detected::{DetectedFigures, Figure, NoDescription, Origin, PeakFigure};
pub use id::{ParseIdError, ProfileId};
pub use model::{Basis, Board, Compute, Memory, Peak, Peaks, Profile};
pub use names::ProfileNames;
pub use sources::describe_source;
pub use table::ProfileTable;
pub use validate::{Fault, Strictness, faults};
