//! A frozen teacher: memory of Burn, compared with core's.

use burn::{
    module::Module,
    optim::GradientsParams,
    tensor::{
        Device, Tensor,
        activation::{log_softmax, softmax},
    },
};
use gpu_tuned_core::workload::{Optimizer, Teacher, Training, Transformer, Workload, WorkloadSpec};
use models_tests::{Network, measure, transformer::Gpt};

use crate::{costs::kept, held};

fn dimensions() -> Transformer {
    Transformer {
        heads: Some(3),
        d_ff: Some(200),
        dropout: false,
        tied_head: false,
        ..Transformer::new(1, 96, 700, 32)
    }
}

fn workload(teacher: Teacher) -> Workload {
    let training = Training { optimizer: Optimizer::Sgd, teacher, ..Training::default() };
    WorkloadSpec { model: dimensions().into(), training }.workload()
}

/// The student is to answer as its teacher does.
fn distillation(student: &Gpt, teacher: &Gpt, samples: usize, device: &Device) -> Tensor<1> {
    let wanted = softmax(teacher.logits(&dimensions(), samples, &Device::flex()), 1).into_data();
    let answered = log_softmax(student.logits(&dimensions(), samples, device), 1);
    -(answered * Tensor::from_data(wanted, device)).sum() / samples as f64
}

fn bytes(model: &Gpt) -> u64 {
    let held::Counts { trained, frozen, .. } = held::counts(model, &GradientsParams::new());
    trained + frozen
}

#[test]
fn core_counts_the_weights_of_a_copy_beside_the_students() {
    let _counting = measure::counting();
    let student = Gpt::new(&dimensions(), &measure::device(false));
    let parameters = workload(Teacher::Copy).parameters;
    assert_eq!(4 * parameters.trained(), bytes(&student));
    assert_eq!(4 * parameters.frozen, bytes(&student.valid()));
}

#[test]
fn beyond_what_the_student_keeps_the_teachers_answer_is_kept() {
    let _counting = measure::counting();
    for checkpointed in [false, true] {
        let device = measure::device(checkpointed);
        let student = Gpt::new(&dimensions(), &device);
        let teacher = student.valid();
        let alone = measure::kept_per_sample(|samples| student.loss(&dimensions(), samples, &device));
        let taught = measure::kept_per_sample(|samples| distillation(&student, &teacher, samples, &device));
        let [taught_by_core, alone_by_core] =
            [Teacher::Copy, Teacher::None].map(|teacher| kept(&workload(teacher), checkpointed));
        let core = taught_by_core - alone_by_core;
        println!("checkpointed {checkpointed}: {alone} alone, {taught} taught, core adds {core}");
        let ratio = core as f64 / (taught - alone) as f64;
        assert!((ratio - 1.0).abs() < 0.01, "checkpointed {checkpointed}: {alone} alone, {taught} taught, core {core}");
    }
}
