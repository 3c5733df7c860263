//! Step of Adam in one kernel for each parameter.

#![allow(clippy::used_underscore_binding, reason = "the macro `cube` uses the types of elements")]

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::rows::{addresses, in_rows};
use super::{empty, last};
use crate::product::AdamFactors;

/// Units of a cube.
const UNITS: u32 = 256;

/// The operations of Burn's Adam and AdamW on one element, in their order.
#[cube(launch, address_type = "dynamic")]
fn adam(
    parameter: &Tensor<f32>,
    gradient: &Tensor<f32>,
    moment_1: &Tensor<f32>,
    moment_2: &Tensor<f32>,
    new_parameter: &mut Tensor<f32>,
    new_moment_1: &mut Tensor<f32>,
    new_moment_2: &mut Tensor<f32>,
    elements: u32,
    width: u32,
    leading: u32,
    gradient_leading: u32,
    moment_1_leading: u32,
    moment_2_leading: u32,
    new_leading: u32,
    penalty: f32,
    beta_1: f32,
    beta_2: f32,
    share_1: f32,
    share_2: f32,
    correction_1: f32,
    correction_2: f32,
    epsilon: f32,
    kept: f32,
    rate: f32,
) {
    if ABSOLUTE_POS < elements as usize {
        let row = ABSOLUTE_POS / width as usize;
        let column = ABSOLUTE_POS % width as usize;
        let value = parameter[row * leading as usize + column];
        let mut change = gradient[row * gradient_leading as usize + column];
        if penalty != 0.0 {
            change += value * penalty;
        }
        let first = moment_1[row * moment_1_leading as usize + column] * beta_1 + change * share_1;
        let second = moment_2[row * moment_2_leading as usize + column] * beta_2 + change * change * share_2;
        let delta = first / correction_1 / ((second / correction_2).sqrt() + epsilon);
        let place = row * new_leading as usize + column;
        new_parameter[place] = value * kept - delta * rate;
        new_moment_1[place] = first;
        new_moment_2[place] = second;
    }
}

/// New parameter and moments, of parameter, gradient and moments in f32 and of one shape.
pub(super) fn step(tensors: [CubeTensor; 4], factors: AdamFactors) -> [CubeTensor; 3] {
    let shape = tensors[0].meta.shape().clone();
    let new = [(); 3].map(|()| empty(&tensors[0], shape.clone()));
    let elements = shape.num_elements();
    if elements == 0 {
        return new;
    }
    let [parameter, gradient, moment_1, moment_2] = tensors.map(in_rows);
    let [(new_parameter, new_leading), (new_moment_1, _), (new_moment_2, _)] = new.map(in_rows);
    let client = parameter.0.client.clone();
    adam::launch(
        &client,
        CubeCount::Static((elements as u32).div_ceil(UNITS), 1, 1),
        CubeDim::new_1d(UNITS),
        addresses(&[&parameter.0, &gradient.0, &moment_1.0, &moment_2.0, &new_parameter]),
        parameter.0.into_tensor_arg(),
        gradient.0.into_tensor_arg(),
        moment_1.0.into_tensor_arg(),
        moment_2.0.into_tensor_arg(),
        new_parameter.clone().into_tensor_arg(),
        new_moment_1.clone().into_tensor_arg(),
        new_moment_2.clone().into_tensor_arg(),
        elements as u32,
        last(&shape) as u32,
        parameter.1,
        gradient.1,
        moment_1.1,
        moment_2.1,
        new_leading,
        factors.penalty,
        factors.beta_1,
        factors.beta_2,
        factors.share_1,
        factors.share_2,
        factors.correction_1,
        factors.correction_2,
        factors.epsilon,
        factors.kept,
        factors.rate,
    );
    [new_parameter, new_moment_1, new_moment_2]
}
