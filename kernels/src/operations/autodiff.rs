//! Gradients of library products, convolutions and recurrent layers, by the library.

use std::sync::Arc;

use burn::backend::TensorMetadata;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::Shape;
use burn_autodiff::Autodiff;
use burn_autodiff::NodeId;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};

use super::{AttentionPlans, LibraryGradients, LibraryOps, gelu};
use crate::convolution::Window;
use crate::cudnn::RecurrentPlan;
use crate::product::AdamFactors;

/// Left and right factor of a product, and `tf32`. A factor is kept where the other one has a gradient.
type State = (Option<NodeId>, Option<NodeId>, bool);

/// A tensor of the forward pass, computed again where that is cheaper than keeping.
fn kept<B: LibraryOps>(node: Option<NodeId>, checkpointer: &mut Checkpointer) -> FloatTensor<B> {
    checkpointer.retrieve_node_output(node.expect("BUG: kept for the gradient of the other factor"))
}

#[derive(Debug)]
struct ProductBackward;

impl<B: LibraryOps> Backward<B, 2> for ProductBackward {
    type State = State;

    fn backward(self, ops: Ops<State, 2>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let [of_left, of_right] = ops.parents;
        let (left, right, tf32) = ops.state;
        let gradient = gradients.consume::<B>(&ops.node);
        if let Some(node) = of_left {
            let right = B::float_transpose(kept::<B>(right, checkpointer));
            gradients.register::<B>(node.id, B::library_product(gradient.clone(), right, tf32));
        }
        if let Some(node) = of_right {
            let left = B::float_transpose(kept::<B>(left, checkpointer));
            gradients.register::<B>(node.id, B::library_product(left, gradient, tf32));
        }
    }
}

#[derive(Debug)]
struct LinearBackward;

impl<B: LibraryOps + LibraryGradients> Backward<B, 2> for LinearBackward {
    type State = State;

    fn backward(self, ops: Ops<State, 2>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let [of_input, of_weight] = ops.parents;
        let (input, weight, tf32) = ops.state;
        let gradient = gradients.consume::<B>(&ops.node);
        if let Some(node) = of_input {
            let weight = B::float_transpose(kept::<B>(weight, checkpointer));
            gradients.register::<B>(node.id, B::library_linear(gradient.clone(), weight, tf32));
        }
        if let Some(node) = of_weight {
            let input = kept::<B>(input, checkpointer);
            gradients.register::<B>(node.id, B::library_weight_gradient(input, gradient, tf32));
        }
    }
}

#[derive(Debug)]
struct LinearWithBiasBackward;

impl<B: LibraryOps + LibraryGradients> Backward<B, 3> for LinearWithBiasBackward {
    /// Factors of the product, and the input of GELU.
    type State = (State, Option<FloatTensor<B>>);

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let [of_input, of_weight, of_bias] = ops.parents;
        let ((input, weight, tf32), pre_activation) = ops.state;
        let mut gradient = gradients.consume::<B>(&ops.node);
        if let Some(pre_activation) = pre_activation {
            gradient = gelu::gradient::<B>(pre_activation, gradient);
        }
        if let Some(node) = of_input {
            let weight = B::float_transpose(kept::<B>(weight, checkpointer));
            gradients.register::<B>(node.id, B::library_linear(gradient.clone(), weight, tf32));
        }
        match (of_weight, of_bias) {
            (Some(of_weight), Some(of_bias)) => {
                let input = kept::<B>(input, checkpointer);
                let (weight, bias) = B::library_weight_and_bias_gradients(input, gradient, tf32);
                gradients.register::<B>(of_weight.id, weight);
                gradients.register::<B>(of_bias.id, bias);
            }
            (Some(of_weight), None) => {
                let input = kept::<B>(input, checkpointer);
                gradients.register::<B>(of_weight.id, B::library_weight_gradient(input, gradient, tf32));
            }
            (None, Some(of_bias)) => gradients.register::<B>(of_bias.id, B::library_column_sums(gradient)),
            (None, None) => {}
        }
    }
}

#[derive(Debug)]
struct LogProbsBackward;

impl<B: LibraryOps + LibraryGradients> Backward<B, 1> for LogProbsBackward {
    type State = (NodeId, IntTensor<B>);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let [of_logits] = ops.parents;
        let (logits, targets) = ops.state;
        let gradient = gradients.consume::<B>(&ops.node);
        if let Some(node) = of_logits {
            let logits: FloatTensor<B> = checkpointer.retrieve_node_output(logits);
            gradients.register::<B>(node.id, B::library_log_probs_gradient(logits, targets, gradient));
        }
    }
}

#[derive(Debug)]
struct LayerNormBackward;

impl<B: LibraryOps + LibraryGradients> Backward<B, 3> for LayerNormBackward {
    type State = (NodeId, NodeId, f32);

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let [of_input, of_gamma, of_beta] = ops.parents;
        let (input, gamma, epsilon) = ops.state;
        let gradient = gradients.consume::<B>(&ops.node);
        let input: FloatTensor<B> = checkpointer.retrieve_node_output(input);
        let gamma: FloatTensor<B> = checkpointer.retrieve_node_output(gamma);
        let (input, gamma) = B::library_layer_norm_gradients(input, gamma, gradient.clone(), epsilon);
        if let Some(node) = of_input {
            gradients.register::<B>(node.id, input);
        }
        if let Some(node) = of_gamma {
            gradients.register::<B>(node.id, B::library_column_sums(gamma));
        }
        if let Some(node) = of_beta {
            gradients.register::<B>(node.id, B::library_column_sums(gradient));
        }
    }
}

/// A convolution: input and weight, each kept where the other one has a gradient, with their shapes.
#[derive(Clone, Debug)]
struct ConvolutionState {
    input: Option<NodeId>,
    weight: Option<NodeId>,
    shapes: [Shape; 2],
    window: Window,
    tf32: bool,
}

#[derive(Debug)]
struct ConvolutionBackward;

impl<B: LibraryOps + LibraryGradients> Backward<B, 2> for ConvolutionBackward {
    type State = ConvolutionState;

    fn backward(self, ops: Ops<Self::State, 2>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let [of_input, of_weight] = ops.parents;
        let ConvolutionState { input, weight, shapes: [input_shape, weight_shape], window, tf32 } = ops.state;
        let gradient = gradients.consume::<B>(&ops.node);
        if let Some(node) = of_input {
            let weight = kept::<B>(weight, checkpointer);
            let (gradient, window) = (gradient.clone(), window.clone());
            let gradient = B::library_convolution_input_gradient(gradient, weight, input_shape, window, tf32);
            gradients.register::<B>(node.id, gradient);
        }
        if let Some(node) = of_weight {
            let input = kept::<B>(input, checkpointer);
            let gradient = B::library_convolution_weight_gradient(input, gradient, weight_shape, window, tf32);
            gradients.register::<B>(node.id, gradient);
        }
    }
}

#[derive(Debug)]
struct TransposedConvolutionBackward;

impl<B: LibraryOps + LibraryGradients> Backward<B, 2> for TransposedConvolutionBackward {
    type State = ConvolutionState;

    fn backward(self, ops: Ops<Self::State, 2>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let [of_input, of_weight] = ops.parents;
        let ConvolutionState { input, weight, shapes: [_, weight_shape], window, tf32 } = ops.state;
        let gradient = gradients.consume::<B>(&ops.node);
        if let Some(node) = of_input {
            let weight = kept::<B>(weight, checkpointer);
            let gradient = B::library_convolution(gradient.clone(), weight, window.clone(), tf32);
            gradients.register::<B>(node.id, gradient);
        }
        if let Some(node) = of_weight {
            // The gradient of the output is the input of the convolution, and the input its output.
            let input = kept::<B>(input, checkpointer);
            let gradient = B::library_convolution_weight_gradient(gradient, input, weight_shape, window, tf32);
            gradients.register::<B>(node.id, gradient);
        }
    }
}

#[derive(Debug)]
struct BatchNormBackward;

impl<B: LibraryOps + LibraryGradients> Backward<B, 3> for BatchNormBackward {
    /// Input and factors, means and reciprocals of standard deviations.
    type State = (NodeId, NodeId, FloatTensor<B>, FloatTensor<B>, f64);

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let [of_input, of_gamma, of_beta] = ops.parents;
        let (input, gamma, mean, deviation, epsilon) = ops.state;
        let gradient = gradients.consume::<B>(&ops.node);
        let input: FloatTensor<B> = checkpointer.retrieve_node_output(input);
        let gamma: FloatTensor<B> = checkpointer.retrieve_node_output(gamma);
        let (input, gamma, beta) = B::library_batch_norm_gradients(input, gamma, gradient, mean, deviation, epsilon);
        for (node, gradient) in [(of_input, input), (of_gamma, gamma), (of_beta, beta)] {
            if let Some(node) = node {
                gradients.register::<B>(node.id, gradient);
            }
        }
    }
}

#[derive(Debug)]
struct RecurrenceBackward;

impl<B: LibraryOps + LibraryGradients> Backward<B, 3> for RecurrenceBackward {
    /// Input, weights and states, the output, and what the forward pass kept.
    type State = ([NodeId; 3], FloatTensor<B>, FloatTensor<B>, Arc<RecurrentPlan>);

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let parents = ops.parents;
        let (read, output, reserve, plan) = ops.state;
        let gradient = gradients.consume::<B>(&ops.node);
        let [input, weights, states] = read.map(|node| checkpointer.retrieve_node_output::<FloatTensor<B>>(node));
        let (input, weights, states) =
            B::library_recurrence_gradients(input, weights, states, output, gradient, reserve, plan);
        for (node, gradient) in parents.into_iter().zip([input, weights, states]) {
            if let Some(node) = node {
                gradients.register::<B>(node.id, gradient);
            }
        }
    }
}

#[derive(Debug)]
struct AttentionBackward;

impl<B: LibraryOps + LibraryGradients> Backward<B, 3> for AttentionBackward {
    /// Query, key and value; the bias if the plans have one; the output and the statistics of the softmax.
    type State = ([NodeId; 3], Option<FloatTensor<B>>, [FloatTensor<B>; 2], f32, Arc<AttentionPlans>);

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let parents = ops.parents;
        let (read, bias, [output, statistics], scale, plans) = ops.state;
        let gradient = gradients.consume::<B>(&ops.node);
        let [query, key, value] = read.map(|node| checkpointer.retrieve_node_output::<FloatTensor<B>>(node));
        let bias = bias.unwrap_or_else(|| query.clone());
        let (query, key, value) =
            B::library_attention_gradients(query, key, value, bias, output, statistics, gradient, scale, plans);
        for (node, gradient) in parents.into_iter().zip([query, key, value]) {
            if let Some(node) = node {
                gradients.register::<B>(node.id, gradient);
            }
        }
    }
}

#[derive(Debug)]
struct AddToChannelsBackward;

impl<B: LibraryOps + LibraryGradients> Backward<B, 2> for AddToChannelsBackward {
    type State = ();

    fn backward(self, ops: Ops<(), 2>, gradients: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let [of_tensor, of_bias] = ops.parents;
        let gradient = gradients.consume::<B>(&ops.node);
        if let Some(node) = of_bias {
            gradients.register::<B>(node.id, B::library_channel_sums(gradient.clone()));
        }
        if let Some(node) = of_tensor {
            gradients.register::<B>(node.id, gradient);
        }
    }
}

impl<B: LibraryOps + LibraryGradients, C: CheckpointStrategy> LibraryOps for Autodiff<B, C> {
    fn library_product(left: FloatTensor<Self>, right: FloatTensor<Self>, tf32: bool) -> FloatTensor<Self> {
        match ProductBackward.prepare::<C>([left.node(), right.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let of_left = right.is_tracked().then(|| prep.checkpoint(&left));
                let state = (of_left, left.is_tracked().then(|| prep.checkpoint(&right)), tf32);
                prep.finish(state, B::library_product(left.into_primitive(), right.into_primitive(), tf32))
            }
            OpsKind::UnTracked(prep) => {
                prep.finish(B::library_product(left.into_primitive(), right.into_primitive(), tf32))
            }
        }
    }

    fn library_linear(input: FloatTensor<Self>, weight: FloatTensor<Self>, tf32: bool) -> FloatTensor<Self> {
        match LinearBackward.prepare::<C>([input.node(), weight.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let of_input = weight.is_tracked().then(|| prep.checkpoint(&input));
                let state = (of_input, input.is_tracked().then(|| prep.checkpoint(&weight)), tf32);
                prep.finish(state, B::library_linear(input.into_primitive(), weight.into_primitive(), tf32))
            }
            OpsKind::UnTracked(prep) => {
                prep.finish(B::library_linear(input.into_primitive(), weight.into_primitive(), tf32))
            }
        }
    }

    fn library_linear_with_bias(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        gelu: bool,
        tf32: bool,
    ) -> FloatTensor<Self> {
        let nodes = [input.node(), weight.node(), bias.node()];
        match LinearWithBiasBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let of_input = weight.is_tracked().then(|| prep.checkpoint(&input));
                let state = (of_input, input.is_tracked().then(|| prep.checkpoint(&weight)), tf32);
                let [input, weight, bias] = [input, weight, bias].map(Self::FloatTensorPrimitive::into_primitive);
                if gelu {
                    let (output, pre_activation) = B::library_linear_with_gelu(input, weight, bias, tf32);
                    prep.finish((state, Some(pre_activation)), output)
                } else {
                    prep.finish((state, None), B::library_linear_with_bias(input, weight, bias, false, tf32))
                }
            }
            OpsKind::UnTracked(prep) => {
                let [input, weight, bias] = [input, weight, bias].map(Self::FloatTensorPrimitive::into_primitive);
                prep.finish(B::library_linear_with_bias(input, weight, bias, gelu, tf32))
            }
        }
    }

    fn library_log_probs(logits: FloatTensor<Self>, targets: IntTensor<Self>) -> FloatTensor<Self> {
        match LogProbsBackward.prepare::<C>([logits.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let state = (prep.checkpoint(&logits), targets.clone());
                prep.finish(state, B::library_log_probs(logits.into_primitive(), targets))
            }
            OpsKind::UnTracked(prep) => prep.finish(B::library_log_probs(logits.into_primitive(), targets)),
        }
    }

    fn library_layer_norm(
        input: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f32,
    ) -> FloatTensor<Self> {
        let computed = |input: FloatTensor<Self>, gamma: FloatTensor<Self>, beta: FloatTensor<Self>| {
            B::library_layer_norm(input.into_primitive(), gamma.into_primitive(), beta.into_primitive(), epsilon)
        };
        let nodes = [input.node(), gamma.node(), beta.node()];
        match LayerNormBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let state = (prep.checkpoint(&input), prep.checkpoint(&gamma), epsilon);
                prep.finish(state, computed(input, gamma, beta))
            }
            OpsKind::UnTracked(prep) => prep.finish(computed(input, gamma, beta)),
        }
    }

    fn library_convolution(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        window: Window,
        tf32: bool,
    ) -> FloatTensor<Self> {
        let computed = |input: FloatTensor<Self>, weight: FloatTensor<Self>, window| {
            B::library_convolution(input.into_primitive(), weight.into_primitive(), window, tf32)
        };
        match ConvolutionBackward.prepare::<C>([input.node(), weight.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let state = ConvolutionState {
                    input: weight.is_tracked().then(|| prep.checkpoint(&input)),
                    weight: input.is_tracked().then(|| prep.checkpoint(&weight)),
                    shapes: [input.shape(), weight.shape()],
                    window: window.clone(),
                    tf32,
                };
                prep.finish(state, computed(input, weight, window))
            }
            OpsKind::UnTracked(prep) => prep.finish(computed(input, weight, window)),
        }
    }

    fn library_transposed_convolution(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        window: Window,
        added: Vec<usize>,
        tf32: bool,
    ) -> FloatTensor<Self> {
        let computed = |input: FloatTensor<Self>, weight: FloatTensor<Self>, window| {
            B::library_transposed_convolution(input.into_primitive(), weight.into_primitive(), window, added, tf32)
        };
        match TransposedConvolutionBackward.prepare::<C>([input.node(), weight.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let state = ConvolutionState {
                    input: weight.is_tracked().then(|| prep.checkpoint(&input)),
                    weight: input.is_tracked().then(|| prep.checkpoint(&weight)),
                    shapes: [input.shape(), weight.shape()],
                    window: window.clone(),
                    tf32,
                };
                prep.finish(state, computed(input, weight, window))
            }
            OpsKind::UnTracked(prep) => prep.finish(computed(input, weight, window)),
        }
    }

    fn library_batch_norm(
        input: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let computed = |input: FloatTensor<Self>, gamma: FloatTensor<Self>, beta: FloatTensor<Self>| {
            B::library_batch_norm(input.into_primitive(), gamma.into_primitive(), beta.into_primitive(), epsilon)
        };
        let detached = <FloatTensor<Self>>::new;
        let nodes = [input.node(), gamma.node(), beta.node()];
        match BatchNormBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let (of_input, of_gamma) = (prep.checkpoint(&input), prep.checkpoint(&gamma));
                let (output, mean, variance, deviation) = computed(input, gamma, beta);
                let state = (of_input, of_gamma, mean.clone(), deviation.clone(), epsilon);
                (prep.finish(state, output), detached(mean), detached(variance), detached(deviation))
            }
            OpsKind::UnTracked(prep) => {
                let (output, mean, variance, deviation) = computed(input, gamma, beta);
                (prep.finish(output), detached(mean), detached(variance), detached(deviation))
            }
        }
    }

    fn library_recurrence(
        input: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        states: FloatTensor<Self>,
        plan: Arc<RecurrentPlan>,
    ) -> FloatTensor<Self> {
        let nodes = [input.node(), weights.node(), states.node()];
        match RecurrenceBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let read = [&input, &weights, &states].map(|tensor| prep.checkpoint(tensor));
                let [input, weights, states] = [input, weights, states].map(Self::FloatTensorPrimitive::into_primitive);
                let (output, reserve) = B::library_recurrence_in_training(input, weights, states, plan.clone());
                prep.finish((read, output.clone(), reserve, plan), output)
            }
            OpsKind::UnTracked(prep) => {
                let [input, weights, states] = [input, weights, states].map(Self::FloatTensorPrimitive::into_primitive);
                prep.finish(B::library_recurrence(input, weights, states, plan))
            }
        }
    }

    fn library_attention(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        scale: f32,
        plans: Arc<AttentionPlans>,
    ) -> FloatTensor<Self> {
        let nodes = [query.node(), key.node(), value.node()];
        let bias = bias.into_primitive();
        match AttentionBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let read = [&query, &key, &value].map(|tensor| prep.checkpoint(tensor));
                let [query, key, value] = [query, key, value].map(Self::FloatTensorPrimitive::into_primitive);
                let (output, statistics) =
                    B::library_attention_in_training(query, key, value, bias.clone(), scale, plans.clone());
                let bias = plans.has_bias().then_some(bias);
                prep.finish((read, bias, [output.clone(), statistics], scale, plans), output)
            }
            OpsKind::UnTracked(prep) => {
                let [query, key, value] = [query, key, value].map(Self::FloatTensorPrimitive::into_primitive);
                prep.finish(B::library_attention(query, key, value, bias, scale, plans))
            }
        }
    }

    fn library_add_to_channels(tensor: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self> {
        let nodes = [tensor.node(), bias.node()];
        let computed = |tensor: FloatTensor<Self>, bias: FloatTensor<Self>| {
            B::library_add_to_channels(tensor.into_primitive(), bias.into_primitive())
        };
        match AddToChannelsBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((), computed(tensor, bias)),
            OpsKind::UnTracked(prep) => prep.finish(computed(tensor, bias)),
        }
    }

    /// The update of a parameter is no part of a graph.
    fn library_adam(
        parameter: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        moment_1: FloatTensor<Self>,
        moment_2: FloatTensor<Self>,
        factors: AdamFactors,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let [parameter, gradient, moment_1, moment_2] =
            [parameter, gradient, moment_1, moment_2].map(Self::FloatTensorPrimitive::into_primitive);
        let (parameter, moment_1, moment_2) = B::library_adam(parameter, gradient, moment_1, moment_2, factors);
        (<FloatTensor<Self>>::new(parameter), <FloatTensor<Self>>::new(moment_1), <FloatTensor<Self>>::new(moment_2))
    }
}
