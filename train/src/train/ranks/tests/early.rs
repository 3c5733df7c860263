//! Gradients in the middle of a backward pass, and sums that begin there.

use std::sync::{Arc, Mutex};

use burn::module::{Module, ModuleMapper, Param, ParamId};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Distribution, FloatDType, Tensor};
use burn_dispatch::backends::Flex;
use burn_dispatch::backends::autodiff::checkpoint::base::Checkpointer;
use burn_dispatch::backends::autodiff::checkpoint::strategy::NoCheckpointing;
use burn_dispatch::backends::autodiff::grads::Gradients;
use burn_dispatch::backends::autodiff::ops::{Backward, Ops, OpsKind};
use burn_dispatch::{BackendTensor, DispatchTensor, DispatchTensorKind as Kind};

use super::super::exchange::Buckets;
use super::super::hook::{Anchors, Receive};
use super::threads::{run, run_all};
use super::{RATE, SIZES, model};
use crate::loss::Loss;
use crate::micro_batch::MicroBatch;
use crate::mixed::Half;
use crate::shape::visit_floats;
use crate::train::tests::{Batch, Network, batch, parameters};

/// Layers in a row: one that is used twice, one that is frozen, and one that is not used.
#[derive(Module, Debug)]
struct Layers {
    first: Linear,
    twice: Linear,
    frozen: Linear,
    unused: Linear,
    last: Linear,
}

impl Layers {
    fn new(device: &Device) -> Self {
        let linear = || LinearConfig::new(6, 6).init(device);
        Self { first: linear(), twice: linear(), frozen: linear().no_grad(), unused: linear(), last: linear() }
    }

    /// Each layer is followed by many operations, but fewer than hooks allow.
    fn loss(&self, input: Tensor<2>) -> Tensor<1> {
        [&self.first, &self.twice, &self.frozen, &self.twice, &self.last]
            .into_iter()
            .fold(input, |hidden, layer| (0..6).fold(layer.forward(hidden), |hidden, _| relu(hidden + 0.1)))
            .mean()
    }
}

/// The model, whose gradients a function receives.
fn hooked(model: &Layers, receive: impl Fn(ParamId, Tensor<1>) + Send + Sync + 'static) -> Layers {
    let receive: Receive = Arc::new(receive);
    Anchors::default().hooked(model, &receive)
}

/// Gradients in the order of their arrival at hooks.
fn received(model: &Layers, input: Tensor<2>) -> Vec<(ParamId, Vec<f32>)> {
    let arrived = Arc::new(Mutex::new(Vec::new()));
    let arriving = Arc::clone(&arrived);
    let hooked = hooked(model, move |id, gradient| arriving.lock().unwrap().push((id, values(gradient))));
    let left = GradientsParams::from_grads(hooked.loss(input).backward(), &hooked);
    assert!(left.is_empty(), "a gradient that a hook received was kept");
    arrived.lock().unwrap().clone()
}

fn values(tensor: Tensor<1>) -> Vec<f32> {
    tensor.cast(FloatDType::F32).into_data().iter().collect()
}

#[test]
fn hooks_receive_whole_gradients_from_the_last_layer_to_the_first() {
    for device in [Device::flex().autodiff(), Device::flex().autodiff().gradient_checkpointing()] {
        let model = Layers::new(&device);
        let input = Tensor::<2>::random([3, 6], Distribution::Default, &device);
        let gradients = GradientsParams::from_grads(model.loss(input.clone()).backward(), &model);
        let expected = visit_floats!(
            &model,
            (found, gradients) = (Vec::new(), &gradients),
            (Vec<(ParamId, Vec<f32>)>, &'v GradientsParams),
            |param| {
                if let Some(gradient) = gradients.get::<D>(param.id) {
                    let elements = gradient.shape().num_elements();
                    found.push((param.id, values(gradient.reshape([elements]))));
                }
            }
        );
        let mut arrived = received(&model, input);
        assert_eq!(arrived.len(), 6);
        let layer = |layer: &Linear| [layer.weight.id, layer.bias.as_ref().unwrap().id];
        let order = [&model.last, &model.twice, &model.first].map(layer);
        for (pair, layer) in arrived.chunks(2).zip(order) {
            assert!(pair.iter().all(|(id, _)| layer.contains(id)), "{device:?}");
        }
        arrived.sort_by_key(|(id, _)| expected.0.iter().position(|(known, _)| known == id));
        assert_eq!(arrived, expected.0, "{device:?}");
    }
}

type Notes = Arc<Mutex<Vec<String>>>;

/// The tensor itself, whose gradient is noted.
#[derive(Debug)]
struct Noting;

impl Backward<Flex, 1> for Noting {
    type State = (&'static str, Notes);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let (name, notes) = ops.state;
        notes.lock().unwrap().push(name.to_owned());
        let gradient = gradients.consume::<Flex>(&ops.node);
        if let [Some(parent)] = ops.parents {
            gradients.register::<Flex>(parent.id, gradient);
        }
    }
}

fn noting(tensor: Tensor<2>, name: &'static str, notes: &Notes) -> Tensor<2> {
    let DispatchTensor { kind, autodiff } = tensor.into_dispatch();
    let Kind::Autodiff(inner) = kind else { panic!("it has autodiff") };
    let Kind::Flex(BackendTensor::Autodiff(tensor)) = *inner else { panic!("it is on the CPU") };
    let prepared = Backward::<Flex, 1>::prepare::<NoCheckpointing>(Noting, [tensor.node()]).compute_bound().stateful();
    let noted = match prepared {
        OpsKind::Tracked(prep) => prep.finish((name, Arc::clone(notes)), tensor.into_primitive()),
        OpsKind::UnTracked(prep) => prep.finish(tensor.into_primitive()),
    };
    let kind = Kind::Autodiff(Box::new(Kind::Flex(BackendTensor::Autodiff(noted))));
    Tensor::from_dispatch(DispatchTensor { kind, autodiff })
}

#[test]
fn a_gradient_arrives_before_earlier_layers_are_differentiated() {
    let device = Device::flex().autodiff();
    let model = Layers::new(&device);
    let notes = Notes::default();
    let weights = [("first", &model.first), ("twice", &model.twice), ("last", &model.last)];
    let weights = weights.map(|(name, layer)| (name, layer.weight.id));
    let noted = Arc::clone(&notes);
    let hooked = hooked(&model, move |id, _| {
        let weight = weights.iter().find(|(_, weight)| *weight == id);
        noted.lock().unwrap().extend(weight.map(|(name, _)| format!("weight of {name}")));
    });
    let hidden = hooked.first.forward(Tensor::<2>::random([3, 6], Distribution::Default, &device));
    let hidden = hooked.twice.forward(noting(relu(hidden), "input of twice", &notes));
    let _ = hooked.last.forward(noting(relu(hidden), "input of last", &notes)).mean().backward();
    let expected = ["weight of last", "input of last", "weight of twice", "input of twice", "weight of first"];
    assert_eq!(*notes.lock().unwrap(), expected);
}

#[test]
fn buckets_that_begin_again_keep_the_vectors_that_were_taken() {
    let device = Device::flex().autodiff();
    let linear = |dtype: FloatDType| {
        let layer = LinearConfig::new(3, 2).init(&device);
        layer.map(&mut Cast(dtype))
    };
    // A vector has one type.
    let model = [linear(FloatDType::F32), linear(FloatDType::BF16), linear(FloatDType::F32)];
    let parameters = visit_floats!(&model, found = Vec::new(), Vec<(ParamId, Tensor<1>)>, |param| {
        let elements = param.shape().num_elements();
        found.push((param.id, param.val().without_autodiff().reshape([elements])));
    });
    let mut whole = Buckets::empty_for(&model, 2.0, false);
    for (id, value) in parameters.iter().rev() {
        whole.add(*id, value.clone());
    }
    let expected: Vec<_> = whole.take_vectors().into_iter().map(values).collect();
    assert_eq!(expected.len(), 3);
    for taken in 0..3 {
        let mut buckets = Buckets::empty_for(&model, 2.0, false);
        // The order of arrival does not matter, and a failure leaves some parameters out.
        for (id, value) in parameters.iter().skip(1) {
            buckets.add(*id, value.clone());
        }
        let mut first = buckets.take_vectors();
        assert_eq!(first.len(), 2);
        first.truncate(taken);
        buckets.begin_again(taken);
        for (id, value) in &parameters {
            buckets.add(*id, value.clone());
        }
        let vectors: Vec<_> = first.into_iter().chain(buckets.take_vectors()).map(values).collect();
        assert_eq!(vectors, expected, "{taken} were taken");
        assert_eq!(buckets.present, [true; 6]);
    }
}

/// Casts parameters.
struct Cast(FloatDType);

impl ModuleMapper for Cast {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|value| value.detach().cast(self.0).detach().require_grad())
    }
}

/// Parameters and losses after steps of some ranks, whose sums begin beside or behind the backward pass.
fn trained(
    count: usize,
    half: Option<Half>,
    is_early: bool,
    loss: fn(&Network, Batch) -> Loss,
) -> (Vec<f32>, Vec<[u32; 2]>) {
    let all = run_all(count, 5, move |rank| {
        let optimizer = AdamWConfig::new().init();
        let trainer = rank.trainer(model(rank), optimizer)?.clip_norm(0.5);
        let trainer = match half {
            Some(half) => trainer.mixed(half)?,
            None => trainer,
        };
        let mut trainer = if is_early { trainer.overlap_sums() } else { trainer };
        let mut taken = Vec::new();
        for (seed, samples) in SIZES.iter().enumerate() {
            let own = batch(*samples, seed as u64).narrow(rank.part(*samples));
            let step = trainer.step(RATE, own, |model, (input, target)| {
                loss(model, (input.cast(FloatDType::from(model.first.weight.dtype())), target))
            })?;
            // NaN equals itself.
            taken.push([step.loss, step.gradient_norm].map(f32::to_bits));
        }
        Ok((parameters(trainer.master()), taken))
    });
    assert!(all.iter().all(|(parameters, _)| *parameters == all[0].0), "the ranks came apart");
    all.into_iter().next().unwrap()
}

#[test]
fn sums_that_begin_early_are_those_behind_the_backward_pass() {
    let mean = |model: &Network, micro: Batch| Loss::from(crate::mixed::in_f32(model.loss(micro)));
    let weighted = |model: &Network, micro: Batch| {
        let weight = (micro.1.clone() + 1).sum();
        Loss::new(crate::mixed::in_f32(model.loss(micro)), weight)
    };
    for count in [2, 3] {
        for half in [None, Some(Half::Bf16), Some(Half::F16)] {
            for loss in [mean as fn(&Network, Batch) -> Loss, weighted] {
                let [early, late] = [true, false].map(|is_early| trained(count, half, is_early, loss));
                assert!(early == late, "{count} ranks, {half:?}");
            }
        }
    }
}

#[test]
fn a_loss_that_calls_backward_is_refused() {
    let ended = run(&[5, 5], 5, |rank| {
        let mut trainer = rank.trainer(model(rank), AdamWConfig::new().init())?.overlap_sums();
        for seed in 0..20 {
            let own = batch(10, seed).narrow(rank.part(10));
            trainer.step(RATE, own, |model, micro| {
                let _ = model.loss(micro.clone()).backward();
                model.loss(micro)
            })?;
        }
        Ok(())
    });
    for ended in ended {
        let error = ended.unwrap_err().to_string();
        assert!(error.contains("`overlap_sums` allows no loss that calls `backward`"), "{error}");
    }
}

#[test]
fn an_unused_parameter_keeps_the_gradients_of_earlier_micro_batches() {
    // The norm is in micro-batches of full size only: the last one of a rank is smaller, or the only one.
    let loss = |model: &Network, micro: Batch| {
        let is_full = micro.0.dims()[0] == 5;
        let model =
            if is_full { model.clone() } else { Network { last: model.last.clone().no_grad(), ..model.clone() } };
        Loss::from(model.loss(micro))
    };
    let [early, late] = [true, false].map(|is_early| trained(2, None, is_early, loss));
    assert!(early == late);
}
