// Stands in for the crate with Burn, so that the case needs none.
extern crate self as gpu_tuned;

use gpu_tuned_macros::MicroBatch;
use ui_micro_batch::{__private, MicroBatch, Tensor};

#[derive(Clone, MicroBatch)]
struct FiveMistakes {
    #[micro_batch(shred)]
    mistyped: Tensor,
    #[micro_batch(shared, shared)]
    twice: Tensor,
    #[micro_batch(shared = true)]
    valued: Tensor,
    #[micro_batch]
    bare: Tensor,
    #[micro_batch()]
    nothing: Tensor,
    images: Tensor,
}

#[derive(Clone, MicroBatch)]
struct NotOfEachSample {
    images: Tensor,
    name: String,
}

#[derive(Clone, MicroBatch)]
struct PartsOfOtherLengths {
    images: Tensor,
    boxes: [Tensor; 2],
    mask: Option<Tensor>,
}

#[derive(MicroBatch)]
struct NotClone(Tensor);

fn main() {}
