//! Costs of models compared with published figures.

mod convnets;
mod published;
