//! The networks of Burn's examples, as far as the configs' workloads describe them.

pub mod digits;
pub mod mnist;
pub mod text;
