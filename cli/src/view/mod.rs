//! Plans, explanations and findings as several commands print them.

mod device;
mod explanation;
mod finding;
mod plan;

pub(crate) use device::memory_origin;
pub(crate) use explanation::{explanation, method};
pub(crate) use finding::expectation;
pub(crate) use plan::{cells, heading, headings, kept_from_builds};
