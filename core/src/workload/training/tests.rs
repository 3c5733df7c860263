use super::*;
use crate::workload::{Mlp, Transformer};

fn trained(model: impl Into<WorkloadSpec>, training: Training) -> crate::workload::Parameters {
    WorkloadSpec { training, ..model.into() }.workload().parameters
}

#[test]
fn pruning_takes_its_share_of_the_matrices_within_the_network_only() {
    let halved = trained(Mlp { widths: vec![784, 512, 512, 10] }, Training { pruned: 0.5, ..Training::default() });
    // Of 784 x 512 + 512 x 512 half stay; the head, 512 x 10, and the biases are left whole.
    assert_eq!(halved.trained(), (392 + 256) * 512 + 512 * 10 + 512 + 512 + 10);
}

#[test]
fn frozen_parameters_have_neither_gradients_nor_state_and_are_counted_from_the_input_on() {
    let model = || Transformer::new(12, 768, 50257, 1024);
    let embedding = 50257 * 768;
    let parameters = trained(model(), Training { frozen_parameters: embedding, ..Training::default() });
    assert_eq!((parameters.frozen, parameters.trained()), (embedding, 124_439_808 - embedding));
}

#[test]
fn packed_values_have_bits_and_scales() {
    // A block of 32 values: 32 or 16 bytes, and a scale of 4.
    assert_eq!(WeightFormat::Q8.packed(64), Some(Bytes(72)));
    assert_eq!(WeightFormat::Q4.packed(64), Some(Bytes(40)));
    assert_eq!(WeightFormat::Full.packed(64), None);
}

#[test]
fn adapters_are_as_many_as_peft_counts() {
    // `print_trainable_parameters()` of Llama-2-7B with LoraConfig(r=8) on q_proj and v_proj: 4,194,304.
    let model = Transformer { d_ff: Some(11008), gated: true, ..Transformer::new(32, 4096, 32000, 256) };
    assert_eq!(trained(model, Training { lora_rank: Some(8), ..Training::default() }).trained(), 4_194_304);
}
