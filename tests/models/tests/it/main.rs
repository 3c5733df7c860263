//! Costs that `gpu-tuned-core` computes, compared with models in Burn.

mod adapters;
mod costs;
mod held;
mod replayed;
mod teacher;
