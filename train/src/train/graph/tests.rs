use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};

use super::{CHECKS, FixedBatchGraphs, Graphs};
use crate::mixed::LossScale;
use crate::train::GraphStatus;

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

#[test]
fn gradients_are_those_of_the_share_and_a_device_without_graphs_is_the_reason() {
    let device = Device::flex().autodiff();
    let model = LinearConfig::new(2, 1).with_bias(false).init(&device);
    let batch = Tensor::<2>::from_floats([[1.0, 3.0], [3.0, 5.0]], &device);
    let mut graphs = FixedBatchGraphs::new(&device);
    for step in 0..10 {
        graphs.begin_step(2);
        let loss = |model: &Linear| model.forward(batch.clone()).mean().into();
        let (gradients, _) = graphs.gradients(&model, 2, (0.5, &LossScale::none()), &loss).expect("there is memory");
        graphs.complete(&model).expect("there is memory");
        let gradient = gradients.get::<2>(model.weight.id).expect("a gradient").into_data();
        assert_eq!(gradient.try_to_vec::<f32>().expect("f32"), [1.0, 2.0], "step {step}");
    }
    let GraphStatus::Refused { because } = graphs.status() else { panic!("a CPU has none") };
    assert_eq!(because, "graph capture is not supported by this backend");
}
