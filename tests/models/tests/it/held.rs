//! Weights, gradients and optimizer state of Burn in training, compared with a plan.

use burn::{
    module::{Module, ModuleVisitor, Param, ParamGroup},
    optim::{
        AdafactorConfig, AdamConfig, AdamWConfig, GradientsParams, ModuleOptimizer, MuonConfig, SgdConfig,
        momentum::MomentumConfig,
    },
    tensor::Tensor,
};
use gpu_tuned_core::{
    Bytes, Goal,
    device::DeviceFacts,
    plan,
    plan::MemoryEstimate,
    workload::{ModelSpec, Optimizer, Training, Transformer, WorkloadSpec},
};
use models_tests::{
    Network, measure,
    recurrent::{self, Recurrent},
    transformer::Gpt,
    unet::{self, UNet},
};

/// Memory planned for the CPU.
fn planned(model: &ModelSpec, optimizer: Optimizer) -> MemoryEstimate {
    let training = Training { optimizer, ..Training::default() };
    let workload = WorkloadSpec { model: model.clone(), training }.workload();
    let cpu = DeviceFacts::cpu(Bytes::from_mib(65536), Bytes::from_mib(60000), 16);
    let goal = Goal { global_batch: Some(2), ..Goal::default() };
    plan(&cpu, &workload, &goal).expect("BUG: a small model fits").memory
}

/// Bytes of a tensor's values.
fn bytes<const D: usize>(tensor: &Tensor<D>) -> u64 {
    (tensor.shape().num_elements() * tensor.dtype().size()) as u64
}

/// Bytes of a module's tensors that are trained, of the others, and of gradients.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) trained: u64,
    pub(crate) frozen: u64,
    gradients: u64,
}

struct Count<'a> {
    counts: Counts,
    gradients: &'a GradientsParams,
}

impl ModuleVisitor for Count<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let counts = &mut self.counts;
        let counted = if param.is_require_grad() { &mut counts.trained } else { &mut counts.frozen };
        *counted += bytes(&param.val());
        if let Some(gradient) = self.gradients.get::<D>(param.id) {
            counts.gradients += bytes(&gradient);
        }
    }
}

pub(crate) fn counts<M: Module>(model: &M, gradients: &GradientsParams) -> Counts {
    let mut count = Count { counts: Counts::default(), gradients };
    model.visit(&mut count);
    count.counts
}

/// Bytes of the tensors that an optimizer keeps.
fn state(optimizer: &ModuleOptimizer) -> u64 {
    let record = optimizer.to_record().into_bytes().expect("BUG: a record can be written");
    let tensors = burn_pack::Reader::from_bytes(record).and_then(burn_pack::Reader::into_tensors);
    let tensors = tensors.expect("BUG: what was written can be read");
    tensors.iter().map(|tensor| tensor.byte_len() as u64).sum()
}

/// Burn's optimizer of this name; Muon on the hidden matrices only.
fn burn_optimizer(optimizer: Optimizer, hidden: &ParamGroup) -> ModuleOptimizer {
    match optimizer {
        Optimizer::Sgd => SgdConfig::new().init(),
        Optimizer::Momentum => SgdConfig::new().with_momentum(Some(MomentumConfig::new())).init(),
        Optimizer::Adam => AdamConfig::new().init(),
        Optimizer::AdamW => AdamWConfig::new().init(),
        Optimizer::Adafactor => AdafactorConfig::new().init(),
        Optimizer::Muon => AdamWConfig::new().init().with_group(hidden.clone(), MuonConfig::new().build(), None),
    }
}

/// Takes two steps with each optimizer, and compares the bytes of Burn's tensors with the plan.
fn check<N: Network>(dimensions: &N::Dimensions, hidden: &ParamGroup) {
    let _counting = measure::counting();
    let (spec, device) = (dimensions.clone().into(), measure::device(false));
    for optimizer in Optimizer::ALL {
        let memory = planned(&spec, optimizer);
        let (mut model, mut burn) = (N::new(dimensions, &device), burn_optimizer(optimizer, hidden));
        for number in 1..=2 {
            let name = format!("{optimizer}, step {number}");
            let gradients = GradientsParams::from_grads(model.loss(dimensions, 2, &device).backward(), &model);
            let held = counts(&model, &gradients);
            assert_eq!(memory.weights.0, held.trained, "{name}");
            assert_eq!(memory.frozen_weights.0, held.frozen, "{name}");
            assert_eq!(memory.gradients.0, held.gradients, "{name}");
            model = burn.step(1e-3, model, gradients);
            assert_eq!(memory.optimizer_state.0, state(&burn), "{name}");
        }
    }
}

const LSTM: recurrent::Dimensions = recurrent::Dimensions {
    input: 60,
    hidden: 50,
    layers: 2,
    seq: 4,
    classes: 7,
    vocab: 90,
    every_step: true,
    gru: false,
    bidirectional: false,
};

#[test]
fn a_plan_has_the_bytes_that_models_hold() {
    let group = |predicates: &[&str]| ParamGroup::from_any_predicates(predicates.to_vec());
    let matrices = ["query.weight", "key.weight", "value.weight", "output.weight", "inner.weight", "outer.weight"];
    let gpt = Transformer {
        heads: Some(3),
        d_ff: Some(200),
        dropout: false,
        tied_head: false,
        ..Transformer::new(2, 96, 331, 24)
    };
    check::<Gpt>(&gpt, &group(&matrices));
    check::<Recurrent>(&LSTM, &group(&["input_transform.weight", "hidden_transform.weight"]));
    // Muon rejects kernels, which are not matrices.
    let unet = unet::Dimensions { image: 16, channels: 3, base: 8, depth: 2, classes: 3, group_norm: false };
    check::<UNet>(&unet, &ParamGroup::from_ids(Vec::new()));
}

#[test]
fn amsgrad_holds_a_third_moment() {
    let _counting = measure::counting();
    let device = measure::device(false);
    let (mut burn, model) = (AdamConfig::new().with_amsgrad(true).init(), Recurrent::new(&LSTM, &device));
    let gradients = GradientsParams::from_grads(model.loss(&LSTM, 2, &device).backward(), &model);
    let model = burn.step(1e-3, model, gradients);
    assert_eq!(state(&burn), 3 * counts(&model, &GradientsParams::new()).trained);
}
