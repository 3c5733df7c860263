//! Costs of models compared with published figures.

mod contradictions;
mod convnets;
mod published;
