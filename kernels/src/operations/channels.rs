//! Batch norms of large tensors with the channels first, which cuDNN 9.14 computes at a seventh of the memory's rate.
//!
//! Each channel is divided into parts. A cube sums one part, and the sums of the parts are added in their order: results of two runs
//! are the same. Sums are in f32, and variances are those of numbers without their mean.

#![allow(clippy::used_underscore_binding, reason = "the macro `cube` uses the types of elements")]

use burn::backend::cubecl::dtype_to_storage_type;
use burn::tensor::{DType, Shape};
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::rows::{PLANES, UNITS, addresses, vector_size};
use super::{empty_of, stream};

/// Numbers from which these kernels are used: smaller tensors are computed by one launch of the library.
const LARGE: usize = 1 << 18;
/// Cubes of a launch, if there are as many parts.
const CUBES: usize = 2048;
/// Most parts of a channel: every unit adds their sums.
const MOST_PARTS: usize = 64;

/// Returns `true` if these kernels compute the norm of `[n, c, sizes…]`.
pub(super) fn are_large(shape: &[usize]) -> bool {
    shape.iter().product::<usize>() >= LARGE
}

/// Sum of a number of each unit, for all units of a cube.
#[cube]
fn cube_sum(value: f32) -> f32 {
    let mut sums = Shared::new_slice(PLANES);
    let of_plane = plane_sum(value);
    if UNIT_POS_PLANE == 0 {
        sums[PLANE_POS as usize] = of_plane;
    }
    sync_cube();
    let mut total = f32::new(0.0);
    for plane in 0..PLANES {
        total += sums[plane];
    }
    total
}

/// Sum of a channel's parts.
#[cube]
fn channel_sum(sums: &Tensor<f32>, channel: usize, parts: usize) -> f32 {
    let mut total = f32::new(0.0);
    for part in 0..parts {
        total += sums[channel * parts + part];
    }
    total
}

/// Number of channels, and sizes in vectors: of a channel in one sample, and in all samples.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Channels {
    count: u32,
    of_sample: u32,
    all: u32,
    parts: u32,
}

#[cube]
impl Channels {
    /// Place of a channel's vector in memory.
    fn place(&self, vector: usize) -> usize {
        let of_sample = self.of_sample as usize;
        (vector / of_sample * self.count as usize + CUBE_POS_X as usize) * of_sample + vector % of_sample
    }

    /// The first vector of the cube's part, and the one behind its last.
    fn part(&self) -> (usize, usize) {
        let (all, parts) = (self.all as usize, self.parts as usize);
        let length = all.div_ceil(parts);
        let start = CUBE_POS_Y as usize * length;
        (start, min(start + length, all))
    }
}

/// Sums of each part's numbers, or of their squared distances to the mean that the sums of an earlier launch give.
#[cube(launch, address_type = "dynamic")]
fn sums_of_parts<F: Float, N: Size>(
    input: &Tensor<Vector<F, N>>,
    numbers: &Tensor<f32>,
    output: &mut Tensor<f32>,
    sizes: Channels,
    #[comptime] squares: bool,
    #[define(F)] _type: ElemType,
) {
    let (start, end) = sizes.part();
    let (channel, parts) = (CUBE_POS_X as usize, sizes.parts as usize);
    let mut mean = f32::new(0.0);
    if squares {
        mean = channel_sum(numbers, channel, parts) / (sizes.all as usize * input.vector_size()) as f32;
    }
    let mut sum = Vector::<f32, N>::new(0.0);
    let mut vector = start + UNIT_POS_X as usize;
    while vector < end {
        let values = Vector::<f32, N>::cast_from(input[sizes.place(vector)]);
        if squares {
            let centred = values - Vector::new(mean);
            sum += centred * centred;
        } else {
            sum += values;
        }
        vector += CUBE_DIM_X as usize;
    }
    let total = cube_sum(sum.vector_sum());
    if UNIT_POS_X == 0 {
        output[channel * parts + CUBE_POS_Y as usize] = total;
    }
}

#[cube(launch, address_type = "dynamic")]
fn normalise<F: Float, N: Size>(
    input: &Tensor<Vector<F, N>>,
    gamma: &Tensor<f32>,
    beta: &Tensor<f32>,
    sums: &Tensor<f32>,
    squares: &Tensor<f32>,
    output: &mut Tensor<Vector<F, N>>,
    mean: &mut Tensor<f32>,
    variance: &mut Tensor<f32>,
    deviation: &mut Tensor<f32>,
    sizes: Channels,
    epsilon: f32,
    #[define(F)] _type: ElemType,
) {
    let (start, end) = sizes.part();
    let (channel, parts) = (CUBE_POS_X as usize, sizes.parts as usize);
    let count = (sizes.all as usize * input.vector_size()) as f32;
    let of_channel = channel_sum(sums, channel, parts) / count;
    let of_squares = channel_sum(squares, channel, parts);
    let scale = f32::new(1.0) / (of_squares / count + epsilon).sqrt();
    if UNIT_POS_X == 0 && CUBE_POS_Y == 0 {
        mean[channel] = of_channel;
        variance[channel] = of_squares / (count - 1.0);
        deviation[channel] = scale;
    }
    let (factor, term) = (scale * gamma[channel], beta[channel]);
    let mut vector = start + UNIT_POS_X as usize;
    while vector < end {
        let place = sizes.place(vector);
        let centred = Vector::<f32, N>::cast_from(input[place]) - Vector::new(of_channel);
        output[place] = Vector::cast_from(centred * Vector::new(factor) + Vector::new(term));
        vector += CUBE_DIM_X as usize;
    }
}

/// Sums of each part's gradients, and of their products with the normalised numbers.
#[cube(launch, address_type = "dynamic")]
fn gradient_sums_of_parts<F: Float, N: Size>(
    input: &Tensor<Vector<F, N>>,
    gradient: &Tensor<Vector<F, N>>,
    mean: &Tensor<f32>,
    deviation: &Tensor<f32>,
    sums: &mut Tensor<f32>,
    products: &mut Tensor<f32>,
    sizes: Channels,
    #[define(F)] _type: ElemType,
) {
    let (start, end) = sizes.part();
    let channel = CUBE_POS_X as usize;
    let (centre, scale) = (mean[channel], deviation[channel]);
    let mut sum = Vector::<f32, N>::new(0.0);
    let mut product = Vector::<f32, N>::new(0.0);
    let mut vector = start + UNIT_POS_X as usize;
    while vector < end {
        let place = sizes.place(vector);
        let of_output = Vector::<f32, N>::cast_from(gradient[place]);
        sum += of_output;
        product += of_output * (Vector::<f32, N>::cast_from(input[place]) - Vector::new(centre));
        vector += CUBE_DIM_X as usize;
    }
    let total = cube_sum(sum.vector_sum());
    let total_of_products = cube_sum(product.vector_sum()) * scale;
    if UNIT_POS_X == 0 {
        let place = channel * sizes.parts as usize + CUBE_POS_Y as usize;
        sums[place] = total;
        products[place] = total_of_products;
    }
}

#[cube(launch, address_type = "dynamic")]
fn normalise_backward<F: Float, N: Size>(
    input: &Tensor<Vector<F, N>>,
    gradient: &Tensor<Vector<F, N>>,
    gamma: &Tensor<f32>,
    mean: &Tensor<f32>,
    deviation: &Tensor<f32>,
    sums: &Tensor<f32>,
    products: &Tensor<f32>,
    output: &mut Tensor<Vector<F, N>>,
    of_gamma: &mut Tensor<f32>,
    of_beta: &mut Tensor<f32>,
    sizes: Channels,
    #[define(F)] _type: ElemType,
) {
    let (start, end) = sizes.part();
    let (channel, parts) = (CUBE_POS_X as usize, sizes.parts as usize);
    let count = (sizes.all as usize * input.vector_size()) as f32;
    let sum = channel_sum(sums, channel, parts);
    let product = channel_sum(products, channel, parts);
    if UNIT_POS_X == 0 && CUBE_POS_Y == 0 {
        of_gamma[channel] = product;
        of_beta[channel] = sum;
    }
    let (centre, scale) = (mean[channel], deviation[channel]);
    let factor = scale * gamma[channel];
    let (sum, product) = (sum / count, product / count * scale);
    let mut vector = start + UNIT_POS_X as usize;
    while vector < end {
        let place = sizes.place(vector);
        let centred = Vector::<f32, N>::cast_from(input[place]) - Vector::new(centre);
        let of_output = Vector::<f32, N>::cast_from(gradient[place]);
        let of_input = of_output - Vector::new(sum) - centred * Vector::new(product);
        output[place] = Vector::cast_from(of_input * Vector::new(factor));
        vector += CUBE_DIM_X as usize;
    }
}

/// How a tensor `[n, c, sizes…]` without gaps is divided.
struct Division {
    channels: usize,
    of_sample: usize,
    all: usize,
    parts: usize,
    vector_size: usize,
}

impl Division {
    fn new(tensors: &[&CubeTensor]) -> Self {
        let shape = tensors[0].meta.shape();
        let (channels, numbers) = (shape[1], shape.iter().skip(2).product::<usize>());
        let leading = tensors.iter().map(|tensor| (*tensor, numbers as u32)).collect::<Vec<_>>();
        let vector_size = vector_size(&leading);
        let of_sample = numbers / vector_size;
        let all = shape[0] * of_sample;
        // A part has a vector for each unit.
        let parts = (CUBES / channels).min(all / UNITS as usize).clamp(1, MOST_PARTS);
        Self { channels, of_sample, all, parts, vector_size }
    }

    fn sizes(&self) -> ChannelsLaunch {
        let [channels, of_sample, all, parts] =
            [self.channels, self.of_sample, self.all, self.parts].map(|size| size as u32);
        ChannelsLaunch::new(channels, of_sample, all, parts)
    }

    fn cubes(&self) -> CubeCount {
        CubeCount::Static(self.channels as u32, self.parts as u32, 1)
    }

    /// Sums in f32: one for each part.
    fn sums(&self, beside: &CubeTensor) -> CubeTensor {
        empty_of(beside, Shape::new([self.channels * self.parts]), DType::F32)
    }
}

/// Numbers in f32, one for each channel.
fn of_channels(beside: &CubeTensor) -> CubeTensor {
    empty_of(beside, Shape::new([beside.meta.shape()[1]]), DType::F32)
}

/// Fills the output. Returns means, variances and reciprocals of standard deviations.
pub(super) fn batch_norm(
    input: &CubeTensor,
    gamma: CubeTensor,
    beta: CubeTensor,
    output: &CubeTensor,
    epsilon: f64,
) -> [CubeTensor; 3] {
    stream::count_in_place_of_cudnn();
    let division = Division::new(&[input, output]);
    let [mean, variance, deviation] = [(); 3].map(|()| of_channels(input));
    let [sums, squares] = [(); 2].map(|()| division.sums(input));
    let (client, units, at) = (&input.client, CubeDim::new_1d(UNITS), addresses(&[input, output]));
    let element = dtype_to_storage_type(input.dtype);
    for (numbers, into, of_squares) in [(&gamma, &sums, false), (&sums, &squares, true)] {
        sums_of_parts::launch(
            client,
            division.cubes(),
            units,
            at,
            division.vector_size,
            input.clone().into_tensor_arg(),
            numbers.clone().into_tensor_arg(),
            into.clone().into_tensor_arg(),
            division.sizes(),
            of_squares,
            element,
        );
    }
    normalise::launch(
        client,
        division.cubes(),
        units,
        at,
        division.vector_size,
        input.clone().into_tensor_arg(),
        gamma.into_tensor_arg(),
        beta.into_tensor_arg(),
        sums.into_tensor_arg(),
        squares.into_tensor_arg(),
        output.clone().into_tensor_arg(),
        mean.clone().into_tensor_arg(),
        variance.clone().into_tensor_arg(),
        deviation.clone().into_tensor_arg(),
        division.sizes(),
        epsilon as f32,
        element,
    );
    [mean, variance, deviation]
}

/// Fills the gradient of the input. Returns those of gamma and beta.
pub(super) fn batch_norm_gradients(
    input: &CubeTensor,
    gradient: &CubeTensor,
    [gamma, mean, deviation]: [CubeTensor; 3],
    of_input: &CubeTensor,
) -> [CubeTensor; 2] {
    stream::count_in_place_of_cudnn();
    let tensors = [input, gradient, of_input];
    let division = Division::new(&tensors);
    let [of_gamma, of_beta] = [(); 2].map(|()| of_channels(input));
    let [sums, products] = [(); 2].map(|()| division.sums(input));
    let (client, units, at) = (&input.client, CubeDim::new_1d(UNITS), addresses(&tensors));
    let element = dtype_to_storage_type(input.dtype);
    gradient_sums_of_parts::launch(
        client,
        division.cubes(),
        units,
        at,
        division.vector_size,
        input.clone().into_tensor_arg(),
        gradient.clone().into_tensor_arg(),
        mean.clone().into_tensor_arg(),
        deviation.clone().into_tensor_arg(),
        sums.clone().into_tensor_arg(),
        products.clone().into_tensor_arg(),
        division.sizes(),
        element,
    );
    normalise_backward::launch(
        client,
        division.cubes(),
        units,
        at,
        division.vector_size,
        input.clone().into_tensor_arg(),
        gradient.clone().into_tensor_arg(),
        gamma.into_tensor_arg(),
        mean.into_tensor_arg(),
        deviation.into_tensor_arg(),
        sums.into_tensor_arg(),
        products.into_tensor_arg(),
        of_input.clone().into_tensor_arg(),
        of_gamma.clone().into_tensor_arg(),
        of_beta.clone().into_tensor_arg(),
        division.sizes(),
        element,
    );
    [of_gamma, of_beta]
}
