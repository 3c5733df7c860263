use burn::nn::Linear;
use burn::tensor::Device;

use super::{CHECKS, Graphs};

#[test]
fn a_recording_that_begins_anew_within_a_step_is_compared_first() {
    let mut graphs = Graphs::<Linear, ()>::new(Device::flex().autodiff());
    graphs.begin_step(8);
    graphs.checked = CHECKS;
    graphs.begin_step(8);
    assert!(!graphs.is_due);
    graphs.begin_anew();
    assert!(graphs.is_due);
}
