//! Files drawn at random.

pub(crate) mod locks;
pub(crate) mod mutated;
#[path = "../../../../core/tests/it/planner/workloads.rs"]
pub(crate) mod workloads;
pub(crate) mod written;
