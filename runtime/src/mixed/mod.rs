//! Mixed precision.
mod cast;
mod error;
mod gradients;
mod half;
mod island;
mod loss;
mod loss_scale;
mod master;
mod optimizer;
mod place;
mod statistics;

#[cfg(test)]
mod tests;

pub use error::MixedError;
pub use gradients::{clip, global_norm, widen};
pub use half::Half;
pub use island::InF32;
pub use loss::in_f32;
pub use loss_scale::{LossScale, Step};
pub use master::Master;
pub use optimizer::{F32State, Wide};
