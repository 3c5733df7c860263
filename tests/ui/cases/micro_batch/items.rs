// Stands in for the crate with Burn, so that the case needs none.
extern crate self as gpu_tuned;

use gpu_tuned_macros::MicroBatch;
use ui_micro_batch::{__private, MicroBatch, Tensor};

#[derive(Clone, MicroBatch)]
enum Either {
    Images(Tensor),
}

#[derive(Clone, Copy, MicroBatch)]
union Overlaid {
    index: u32,
}

#[derive(Clone, MicroBatch)]
struct Unit;

#[derive(Clone, MicroBatch)]
struct Empty {}

#[derive(Clone, MicroBatch)]
struct OnlyShared {
    #[micro_batch(shared)]
    mask: Tensor,
    #[micro_batch(shared)]
    name: String,
}

#[derive(Clone, MicroBatch)]
#[micro_batch(shared)]
struct OnItem(Tensor);

fn main() {
    // The stand-ins leave no further errors.
    Unit.narrow(0..1);
    Empty {}.narrow(0..1);
}
