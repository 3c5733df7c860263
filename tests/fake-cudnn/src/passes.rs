//! Convolutions and their gradients on host memory.

use std::ffi::{c_int, c_void};

use crate::objects::{BAD_PARAM, Convolution, NOT_SUPPORTED, Tensor};

pub(crate) const F32: c_int = 0;
pub(crate) const BF16: c_int = 9;
/// `CUDNN_DEFAULT_MATH`: TF32.
pub(crate) const DEFAULT_MATH: c_int = 0;
const TENSOR_OP_MATH: c_int = 1;
pub(crate) const FMA_MATH: c_int = 3;

/// A convolution of tensors that match.
pub(crate) struct Passes {
    convolution: Convolution,
    input: Tensor,
    weight: Tensor,
    output: Tensor,
}

/// The tensor that is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    Forward,
    Input,
    Weight,
}

impl Passes {
    /// Checks that shapes and types match.
    pub(crate) fn new(convolution: Convolution, [input, weight, output]: [Tensor; 3]) -> Result<Self, c_int> {
        let (x, w, y) = (&input.shape, &weight.shape, &output.shape);
        let sizes = x.len() - 2;
        let Convolution { padding, stride, dilation, groups, .. } = &convolution;
        let is_one_rank =
            [w.len(), y.len()] == [x.len(); 2] && [padding, stride, dilation].iter().all(|it| it.len() == sizes);
        if !is_one_rank || *groups == 0 || x[0] != y[0] || w[0] != y[1] || w[0] % groups != 0 || w[1] * groups != x[1] {
            return Err(BAD_PARAM);
        }
        for size in 0..sizes {
            let padded = x[size + 2] + 2 * padding[size];
            let reach = dilation[size] * (w[size + 2] - 1) + 1;
            if padded < reach || y[size + 2] != (padded - reach) / stride[size] + 1 {
                return Err(BAD_PARAM);
            }
        }
        let data_type = input.data_type;
        let is_one_type = [&weight, &output].iter().all(|tensor| tensor.data_type == data_type);
        let is_supported = match convolution.math {
            DEFAULT_MATH | FMA_MATH => data_type == F32,
            TENSOR_OP_MATH => data_type == BF16,
            _ => false,
        };
        if is_one_type && is_supported { Ok(Self { convolution, input, weight, output }) } else { Err(NOT_SUPPORTED) }
    }

    /// # Safety
    ///
    /// The memory of the tensors is valid.
    pub(crate) unsafe fn compute(
        &self,
        pass: Pass,
        [alpha, beta]: [f32; 2],
        [input, weight, output]: [*mut c_void; 3],
    ) {
        let Self { convolution, input: x, weight: w, output: y } = self;
        let (result, at) = match pass {
            Pass::Forward => (y, output),
            Pass::Input => (x, input),
            Pass::Weight => (w, weight),
        };
        // Sums first: the result is another tensor's memory.
        let mut sums = vec![0.0; result.shape.iter().product()];
        let round = |number| {
            let is_rounded = convolution.math == DEFAULT_MATH;
            if is_rounded { to_tf32(number) } else { number }
        };
        let per_group = [w.shape[0] / convolution.groups, w.shape[1]];
        for of_y in indices(&y.shape) {
            for of_w in indices(&w.shape[1..]) {
                let group = of_y[1] / per_group[0];
                let mut of_x = vec![of_y[0], group * per_group[1] + of_w[0]];
                for size in 0..x.shape.len() - 2 {
                    let place = of_y[size + 2] * convolution.stride[size] + of_w[size + 1] * convolution.dilation[size];
                    of_x.push(place.wrapping_sub(convolution.padding[size]));
                }
                if of_x.iter().zip(&x.shape).any(|(index, size)| index >= size) {
                    continue;
                }
                let of_w = [&[of_y[1]], &of_w[..]].concat();
                // SAFETY: by this function's contract.
                let number = |tensor: &Tensor, memory, index: &[usize]| unsafe {
                    round(read(tensor.data_type, memory, tensor.place(index)))
                };
                let (at, term) = match pass {
                    Pass::Forward => (of_y.clone(), number(x, input, &of_x) * number(w, weight, &of_w)),
                    Pass::Input => (of_x.clone(), number(y, output, &of_y) * number(w, weight, &of_w)),
                    Pass::Weight => (of_w.clone(), number(x, input, &of_x) * number(y, output, &of_y)),
                };
                sums[ordinal(&result.shape, &at)] += term;
            }
        }
        // SAFETY: by this function's contract.
        unsafe { result.write(&sums, [alpha, beta], at) };
    }
}

/// Sums of the channels of a tensor.
///
/// # Safety
///
/// The memory of both tensors is valid.
pub(crate) unsafe fn sum_channels(
    [tensor, sums]: [&Tensor; 2],
    factors: [f32; 2],
    [memory, result]: [*mut c_void; 2],
) -> Result<(), c_int> {
    let mut shape = vec![1; tensor.shape.len()];
    shape[1] = tensor.shape[1];
    if sums.shape != shape || sums.data_type != tensor.data_type {
        return Err(BAD_PARAM);
    }
    // NVIDIA's library has no bf16 here either.
    if tensor.data_type != F32 {
        return Err(NOT_SUPPORTED);
    }
    let mut numbers = vec![0.0; shape[1]];
    for index in indices(&tensor.shape) {
        // SAFETY: by this function's contract.
        numbers[index[1]] += unsafe { read(tensor.data_type, memory, tensor.place(&index)) };
    }
    // SAFETY: as above.
    unsafe { sums.write(&numbers, factors, result) };
    Ok(())
}

impl Tensor {
    pub(crate) fn place(&self, index: &[usize]) -> usize {
        index.iter().zip(&self.strides).map(|(index, stride)| index * stride).sum()
    }

    /// `alpha · numbers + beta · memory`.
    ///
    /// # Safety
    ///
    /// The memory of the tensor is valid.
    unsafe fn write(&self, numbers: &[f32], [alpha, beta]: [f32; 2], memory: *mut c_void) {
        for (index, number) in indices(&self.shape).into_iter().zip(numbers) {
            let place = self.place(&index);
            let mut number = alpha * number;
            if beta != 0.0 {
                // SAFETY: by this function's contract.
                number += beta * unsafe { read(self.data_type, memory, place) };
            }
            // SAFETY: as above.
            unsafe { self.write_one(memory, place, number) };
        }
    }

    /// # Safety
    ///
    /// The memory has a number of the tensor's type there.
    pub(crate) unsafe fn write_one(&self, memory: *mut c_void, place: usize, number: f32) {
        // SAFETY: by this function's contract.
        unsafe { write(self.data_type, memory, place, number) };
    }
}

/// # Safety
///
/// The memory has a number of this type there.
pub(crate) unsafe fn write(data_type: c_int, memory: *mut c_void, place: usize, number: f32) {
    // SAFETY: by this function's contract.
    unsafe {
        if data_type == F32 {
            memory.cast::<f32>().add(place).write_unaligned(number);
        } else {
            memory.cast::<u16>().add(place).write_unaligned(to_bf16(number));
        }
    }
}

/// All indices of a shape in order.
pub(crate) fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    shape.iter().fold(vec![Vec::new()], |indices, size| {
        indices.iter().flat_map(|index| (0..*size).map(move |last| [&index[..], &[last]].concat())).collect()
    })
}

fn ordinal(shape: &[usize], index: &[usize]) -> usize {
    shape.iter().zip(index).fold(0, |ordinal, (size, index)| ordinal * size + index)
}

/// # Safety
///
/// The memory has a number of this type there.
pub(crate) unsafe fn read(data_type: c_int, memory: *const c_void, place: usize) -> f32 {
    // SAFETY: by this function's contract.
    unsafe {
        if data_type == F32 {
            memory.cast::<f32>().add(place).read_unaligned()
        } else {
            f32::from_bits(u32::from(memory.cast::<u16>().add(place).read_unaligned()) << 16)
        }
    }
}

/// Rounds half to even.
fn to_bf16(number: f32) -> u16 {
    let bits = number.to_bits();
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// Rounds to 10 bits of fraction.
pub(crate) fn to_tf32(number: f32) -> f32 {
    f32::from_bits((number.to_bits() + 0x1000) & !0x1fff)
}
