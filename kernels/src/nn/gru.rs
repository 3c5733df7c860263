//! Gated recurrent units by cuDNN.

pub use super::config::{BiGruConfig, GruConfig};
pub use super::recurrent::{BiGru, Gru};
