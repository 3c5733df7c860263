//! The configs as Burn has them.

pub mod custom_loop;
pub mod guide;
pub mod mnist;
pub mod text_classification;
