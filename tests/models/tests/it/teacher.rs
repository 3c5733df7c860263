//! A frozen teacher: memory of Burn, compared with core's.

use burn::{
    module::{Module, ModuleVisitor, Param},
    tensor::{
        Device, Tensor,
        activation::{log_softmax, softmax},
    },
};
use gpu_tuned_core::workload::{Optimizer, Teacher, Training, Workload, WorkloadSpec};
use models_tests::{
    measure,
    transformer::{Dimensions, Gpt},
};

const GPT: Dimensions = Dimensions {
    layers: 1,
    d_model: 96,
    d_ff: 200,
    heads: 3,
    kv_heads: 3,
    vocab: 700,
    seq: 32,
    dropout: 0.0,
    causal: true,
    tied: false,
    norm_first: true,
};

fn workload(teacher: Teacher) -> Workload {
    let training = Training { optimizer: Optimizer::Sgd, teacher, ..Training::default() };
    WorkloadSpec { model: GPT.gpt().into(), training }.workload()
}

/// The student is to answer as its teacher does.
fn distillation(student: &Gpt, teacher: &Gpt, samples: usize, device: &Device) -> Tensor<1> {
    let wanted = softmax(teacher.logits(&GPT, samples, &Device::flex()), 1).into_data();
    let answered = log_softmax(student.logits(&GPT, samples, device), 1);
    -(answered * Tensor::from_data(wanted, device)).sum() / samples as f64
}

struct Bytes(u64);

impl ModuleVisitor for Bytes {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0 += (param.val().shape().num_elements() * param.val().dtype().size()) as u64;
    }
}

fn bytes(model: &Gpt) -> u64 {
    let mut bytes = Bytes(0);
    model.visit(&mut bytes);
    bytes.0
}

#[test]
fn core_counts_the_weights_of_a_copy_beside_the_students() {
    let _counting = measure::counting();
    let student = Gpt::new(&GPT, &measure::device(false));
    let parameters = workload(Teacher::Copy).parameters;
    assert_eq!(4 * parameters.trained(), bytes(&student));
    assert_eq!(4 * parameters.frozen, bytes(&student.valid()));
}

#[test]
fn beyond_what_the_student_keeps_the_teachers_answer_is_kept() {
    let _counting = measure::counting();
    for checkpointed in [false, true] {
        let kept_by_core = |teacher| {
            let sample = workload(teacher).sample;
            if checkpointed { sample.checkpointed_activations.expect("BUG: known") } else { sample.activations }
        };
        let device = measure::device(checkpointed);
        let student = Gpt::new(&GPT, &device);
        let teacher = student.valid();
        let alone = measure::kept_per_sample(|samples| student.loss(&GPT, samples, &device));
        let taught = measure::kept_per_sample(|samples| distillation(&student, &teacher, samples, &device));
        let core = (kept_by_core(Teacher::Copy) - kept_by_core(Teacher::None)).0;
        println!("checkpointed {checkpointed}: {alone} alone, {taught} taught, core adds {core}");
        let ratio = core as f64 / (taught - alone) as f64;
        assert!((ratio - 1.0).abs() < 0.01, "checkpointed {checkpointed}: {alone} alone, {taught} taught, core {core}");
    }
}
