//! Files drawn at random.

pub(crate) mod locks;
pub(crate) mod mutated;
#[path = "../../../../core/src/plan/tests/planner/workloads.rs"]
pub(crate) mod workloads;
pub(crate) mod written;
