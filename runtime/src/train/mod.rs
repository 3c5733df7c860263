//! Training steps that keep the global batch exact, whatever fits the device.

mod micro_batch;

pub use micro_batch::MicroBatch;
