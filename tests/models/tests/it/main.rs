//! Costs that `gpu-tuned-core` computes, compared with models in Burn.

mod adapters;
mod architectures;
mod bytes;
mod held;
mod parameters;
mod replayed;
mod teacher;
