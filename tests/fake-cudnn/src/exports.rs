//! cuDNN's C functions.
//!
//! Every function is called under cuDNN's contract: out-pointers are valid for writes, and arrays for reads of as many
//! numbers as dimensions. Objects are numbers and checked.
#![allow(non_snake_case, reason = "the names are cuDNN's")]

mod graph;
mod recurrent;

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::behaviour::{self, Behaviour};
use crate::norm::Norm;
use crate::objects::{
    self, BAD_PARAM, Convolution, INTERNAL_ERROR, MOST_DIMENSIONS, NOT_SUPPORTED, Object, Tensor, WORKSPACE_BYTES,
};
use crate::passes::{Pass, Passes, sum_channels};

/// An object: its address is a number.
type Opaque = *mut c_void;

/// The algorithm that computes. It needs a workspace.
const FASTEST: c_int = 1;
/// An algorithm that is predicted to be faster, with a larger workspace, and does not compute.
const REFUSED: c_int = 2;

/// `cudnnConvolutionFwdAlgoPerf_t`, and those of both gradients.
#[repr(C)]
struct Algorithm {
    number: c_int,
    status: c_int,
    milliseconds: f32,
    workspace_bytes: usize,
    determinism: c_int,
    math: c_int,
    reserved: [c_int; 3],
}

/// Status of a call, unless the function is to fail. Wrong arguments count as a mistake.
fn call(name: &str, work: impl FnOnce() -> Result<(), c_int>) -> c_int {
    if behaviour::current().fails.as_deref() == Some(name) {
        return INTERNAL_ERROR;
    }
    match work() {
        Ok(()) => 0,
        Err(status) => {
            if status == BAD_PARAM {
                objects::add_mistake();
            }
            status
        }
    }
}

/// # Safety
/// `numbers` is valid for reads of so many.
unsafe fn sizes(numbers: *const c_int, count: usize) -> Result<Vec<usize>, c_int> {
    if numbers.is_null() || count > MOST_DIMENSIONS {
        return Err(BAD_PARAM);
    }
    // SAFETY: by this function's contract.
    let numbers = unsafe { std::slice::from_raw_parts(numbers, count) };
    numbers.iter().map(|number| usize::try_from(*number).map_err(|_| BAD_PARAM)).collect()
}

macro_rules! getters {
    ($($name:ident -> $kind:ident($type:ty);)*) => {$(
        fn $name(object: Opaque) -> Result<$type, c_int> {
            match objects::get(object.addr())? {
                Object::$kind(Some(it)) => Ok(it),
                _ => Err(BAD_PARAM),
            }
        }
    )*};
}

getters! {
    tensor -> Tensor(Tensor);
    filter -> Filter(Tensor);
    convolution -> Convolution(Convolution);
}

fn check_handle(handle: Opaque) -> Result<(), c_int> {
    match objects::get(handle.addr())? {
        Object::Handle => Ok(()),
        _ => Err(BAD_PARAM),
    }
}

macro_rules! objects {
    ($($create:ident, $destroy:ident: $object:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $create(out: *mut Opaque) -> c_int {
            call(stringify!($create), || {
                // SAFETY: by cuDNN's contract.
                unsafe { out.write(std::ptr::without_provenance_mut(objects::create($object))) };
                Ok(())
            })
        }

        #[unsafe(no_mangle)]
        extern "C" fn $destroy(object: Opaque) -> c_int {
            call(stringify!($destroy), || objects::destroy(object.addr(), &$object))
        }
    )*};
}

objects! {
    cudnnCreate, cudnnDestroy: Object::Handle;
    cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor: Object::Tensor(None);
    cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor: Object::Filter(None);
    cudnnCreateConvolutionDescriptor, cudnnDestroyConvolutionDescriptor: Object::Convolution(None);
    cudnnCreateDropoutDescriptor, cudnnDestroyDropoutDescriptor: Object::Dropout(false);
    cudnnCreateRNNDescriptor, cudnnDestroyRNNDescriptor: Object::Recurrence(None);
    cudnnCreateRNNDataDescriptor, cudnnDestroyRNNDataDescriptor: Object::Sequences(None);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fake_cudnn_behave(text: *const c_char) {
    // SAFETY: a string, as `Fake::behave` passes it.
    behaviour::set(&unsafe { CStr::from_ptr(text) }.to_string_lossy());
}

#[unsafe(no_mangle)]
extern "C" fn fake_cudnn_created() -> usize {
    objects::counts()[0]
}

#[unsafe(no_mangle)]
extern "C" fn fake_cudnn_alive() -> usize {
    objects::counts()[1]
}

#[unsafe(no_mangle)]
extern "C" fn fake_cudnn_mistakes() -> usize {
    objects::counts()[2]
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetVersion() -> usize {
    behaviour::current().version
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetCudartVersion() -> usize {
    behaviour::current().cuda
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetErrorString(status: c_int) -> *const c_char {
    match status {
        BAD_PARAM => c"CUDNN_STATUS_BAD_PARAM",
        NOT_SUPPORTED => c"CUDNN_STATUS_NOT_SUPPORTED",
        INTERNAL_ERROR => c"CUDNN_STATUS_INTERNAL_ERROR",
        _ => c"CUDNN_UNKNOWN_STATUS",
    }
    .as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnGetLastErrorString(message: *mut c_char, size: usize) {
    let text = c"of the fake".to_bytes_with_nul();
    let count = text.len().min(size);
    // SAFETY: by cuDNN's contract, the message has so many bytes.
    unsafe { message.copy_from_nonoverlapping(text.as_ptr().cast(), count) };
}

#[unsafe(no_mangle)]
extern "C" fn cudnnSetStream(handle: Opaque, _stream: Opaque) -> c_int {
    call("cudnnSetStream", || check_handle(handle))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnSetTensorNdDescriptor(
    object: Opaque,
    data_type: c_int,
    rank: c_int,
    shape: *const c_int,
    strides: *const c_int,
) -> c_int {
    call("cudnnSetTensorNdDescriptor", || {
        let rank = usize::try_from(rank).map_err(|_| BAD_PARAM)?;
        // SAFETY: by cuDNN's contract.
        let (shape, strides) = unsafe { (sizes(shape, rank)?, sizes(strides, rank)?) };
        if rank < 4 || shape.contains(&0) || strides.contains(&0) {
            return Err(BAD_PARAM);
        }
        let last = shape.iter().zip(&strides).map(|(size, stride)| (size - 1) * stride).sum::<usize>();
        if c_int::try_from(last).is_err() {
            return Err(NOT_SUPPORTED);
        }
        objects::set(object.addr(), Object::Tensor(Some(Tensor { data_type, shape, strides })))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnSetFilterNdDescriptor(
    object: Opaque,
    data_type: c_int,
    format: c_int,
    rank: c_int,
    shape: *const c_int,
) -> c_int {
    call("cudnnSetFilterNdDescriptor", || {
        let rank = usize::try_from(rank).map_err(|_| BAD_PARAM)?;
        // SAFETY: by cuDNN's contract.
        let shape = unsafe { sizes(shape, rank)? };
        if rank < 4 || shape.contains(&0) {
            return Err(BAD_PARAM);
        }
        let order: Vec<usize> = match format {
            0 => (0..rank).collect(),
            1 => [0].into_iter().chain(2..rank).chain([1]).collect(),
            _ => return Err(BAD_PARAM),
        };
        let mut strides = vec![1; rank];
        order.iter().rev().fold(1, |next, dimension| {
            strides[*dimension] = next;
            next * shape[*dimension]
        });
        objects::set(object.addr(), Object::Filter(Some(Tensor { data_type, shape, strides })))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnSetConvolutionNdDescriptor(
    object: Opaque,
    count: c_int,
    padding: *const c_int,
    stride: *const c_int,
    dilation: *const c_int,
    mode: c_int,
    compute_type: c_int,
) -> c_int {
    call("cudnnSetConvolutionNdDescriptor", || {
        let count = usize::try_from(count).map_err(|_| BAD_PARAM)?;
        // SAFETY: by cuDNN's contract.
        let (padding, stride, dilation) =
            unsafe { (sizes(padding, count)?, sizes(stride, count)?, sizes(dilation, count)?) };
        // A cross-correlation with sums in f32.
        if stride.contains(&0) || dilation.contains(&0) || (mode, compute_type) != (1, 0) {
            return Err(BAD_PARAM);
        }
        let convolution = Convolution { padding, stride, dilation, groups: 1, math: 0 };
        objects::set(object.addr(), Object::Convolution(Some(convolution)))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudnnSetConvolutionGroupCount(object: Opaque, groups: c_int) -> c_int {
    call("cudnnSetConvolutionGroupCount", || {
        let groups = usize::try_from(groups).map_err(|_| BAD_PARAM)?;
        objects::set(object.addr(), Object::Convolution(Some(Convolution { groups, ..convolution(object)? })))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudnnSetConvolutionMathType(object: Opaque, math: c_int) -> c_int {
    call("cudnnSetConvolutionMathType", || {
        objects::set(object.addr(), Object::Convolution(Some(Convolution { math, ..convolution(object)? })))
    })
}

impl Pass {
    /// Input, weight and output of the library's arguments.
    fn tensors<T>(self, [one, other, result]: [T; 3]) -> [T; 3] {
        match self {
            Self::Forward => [one, other, result],
            Self::Input => [result, one, other],
            Self::Weight => [one, result, other],
        }
    }

    fn described(self, handle: Opaque, operation: Opaque, tensors: [Opaque; 3]) -> Result<Passes, c_int> {
        check_handle(handle)?;
        let [input, weight, output] = self.tensors(tensors);
        Passes::new(convolution(operation)?, [tensor(input)?, filter(weight)?, tensor(output)?])
    }
}

fn workspace_of(algorithm: c_int) -> Result<usize, c_int> {
    match algorithm {
        FASTEST => Ok(WORKSPACE_BYTES),
        REFUSED => Ok(2 * WORKSPACE_BYTES),
        _ => Err(BAD_PARAM),
    }
}

macro_rules! passes {
    ($($pass:ident: $choose:ident, $measure:ident, $compute:ident;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $choose(
            handle: Opaque,
            one: Opaque,
            other: Opaque,
            operation: Opaque,
            result: Opaque,
            requested: c_int,
            returned: *mut c_int,
            results: *mut Algorithm,
        ) -> c_int {
            call(stringify!($choose), || {
                Pass::$pass.described(handle, operation, [one, other, result])?;
                if requested < 3 {
                    return Err(BAD_PARAM);
                }
                let Behaviour { has_algorithms, is_deterministic, mispredicts, .. } = behaviour::current();
                // One that rounds f32 to 16 bits comes first, and must not be used.
                let math = convolution(operation)?.math;
                let refused = mispredicts.then_some((REFUSED, math));
                let found = [(FASTEST, 2)].into_iter().chain(refused).chain([(FASTEST, math)]);
                for (index, (number, math)) in found.enumerate() {
                    let algorithm = Algorithm {
                        number,
                        status: if has_algorithms { 0 } else { NOT_SUPPORTED },
                        milliseconds: 1.0,
                        workspace_bytes: workspace_of(number)?,
                        determinism: is_deterministic.into(),
                        math,
                        reserved: [0; 3],
                    };
                    // SAFETY: by cuDNN's contract, there is room for the results that are asked for.
                    unsafe { results.add(index).write(algorithm) };
                }
                // SAFETY: as above.
                unsafe { returned.write(2 + c_int::from(mispredicts)) };
                Ok(())
            })
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $measure(
            handle: Opaque,
            one: Opaque,
            other: Opaque,
            operation: Opaque,
            result: Opaque,
            algorithm: c_int,
            bytes: *mut usize,
        ) -> c_int {
            call(stringify!($measure), || {
                Pass::$pass.described(handle, operation, [one, other, result])?;
                // SAFETY: by cuDNN's contract.
                unsafe { bytes.write(workspace_of(algorithm)?) };
                Ok(())
            })
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $compute(
            handle: Opaque,
            alpha: *const c_void,
            one_descriptor: Opaque,
            one: *mut c_void,
            other_descriptor: Opaque,
            other: *mut c_void,
            operation: Opaque,
            algorithm: c_int,
            workspace: *mut c_void,
            workspace_bytes: usize,
            beta: *const c_void,
            result_descriptor: Opaque,
            result: *mut c_void,
        ) -> c_int {
            call(stringify!($compute), || {
                let pass = Pass::$pass;
                let passes = pass.described(handle, operation, [one_descriptor, other_descriptor, result_descriptor])?;
                let needed = workspace_of(algorithm)?;
                let has_workspace = workspace_bytes >= needed && (needed == 0 || !workspace.is_null());
                let memory = [one, other, result];
                if !has_workspace || alpha.is_null() || beta.is_null() || memory.iter().any(|it| it.is_null()) {
                    return Err(BAD_PARAM);
                }
                if algorithm == REFUSED {
                    return Err(NOT_SUPPORTED);
                }
                // SAFETY: by cuDNN's contract; so many bytes are checked above.
                unsafe {
                    workspace.cast::<u8>().write_bytes(0xa5, needed);
                    let factors = [alpha.cast::<f32>().read(), beta.cast::<f32>().read()];
                    passes.compute(pass, factors, pass.tensors(memory));
                }
                Ok(())
            })
        }
    )*};
}

passes! {
    Forward: cudnnGetConvolutionForwardAlgorithm_v7, cudnnGetConvolutionForwardWorkspaceSize, cudnnConvolutionForward;
    Input:
        cudnnGetConvolutionBackwardDataAlgorithm_v7,
        cudnnGetConvolutionBackwardDataWorkspaceSize,
        cudnnConvolutionBackwardData;
    Weight:
        cudnnGetConvolutionBackwardFilterAlgorithm_v7,
        cudnnGetConvolutionBackwardFilterWorkspaceSize,
        cudnnConvolutionBackwardFilter;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnConvolutionBackwardBias(
    handle: Opaque,
    alpha: *const c_void,
    descriptor: Opaque,
    memory: *mut c_void,
    beta: *const c_void,
    sums_descriptor: Opaque,
    sums: *mut c_void,
) -> c_int {
    call("cudnnConvolutionBackwardBias", || {
        check_handle(handle)?;
        let tensors = [tensor(descriptor)?, tensor(sums_descriptor)?];
        if alpha.is_null() || beta.is_null() || memory.is_null() || sums.is_null() {
            return Err(BAD_PARAM);
        }
        // SAFETY: by cuDNN's contract.
        unsafe {
            let factors = [alpha.cast::<f32>().read(), beta.cast::<f32>().read()];
            sum_channels([&tensors[0], &tensors[1]], factors, [memory, sums])
        }
    })
}

/// `CUDNN_BATCHNORM_SPATIAL`.
const SPATIAL: c_int = 1;

/// # Safety
/// Pointers are null or valid for a number.
unsafe fn are_one_and_zero(alpha: *const c_void, beta: *const c_void) -> bool {
    // SAFETY: by this function's contract.
    !alpha.is_null()
        && !beta.is_null()
        && unsafe { (alpha.cast::<f32>().read(), beta.cast::<f32>().read()) == (1.0, 0.0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnBatchNormalizationForwardTraining(
    handle: Opaque,
    mode: c_int,
    alpha: *const c_void,
    beta: *const c_void,
    input_descriptor: Opaque,
    input: *mut c_void,
    output_descriptor: Opaque,
    output: *mut c_void,
    statistics_descriptor: Opaque,
    gamma: *mut c_void,
    bias: *mut c_void,
    factor: f64,
    mean: *mut c_void,
    variance: *mut c_void,
    epsilon: f64,
    saved_mean: *mut c_void,
    deviation: *mut c_void,
) -> c_int {
    call("cudnnBatchNormalizationForwardTraining", || {
        check_handle(handle)?;
        let norm = Norm::new([tensor(input_descriptor)?, tensor(output_descriptor)?], &tensor(statistics_descriptor)?)?;
        let memory = [input, output, gamma, bias, mean, variance, saved_mean, deviation];
        // SAFETY: by cuDNN's contract.
        let is_plain = unsafe { are_one_and_zero(alpha, beta) };
        if mode != SPATIAL || !is_plain || epsilon <= 0.0 || memory.iter().any(|it| it.is_null()) {
            return Err(BAD_PARAM);
        }
        // SAFETY: as above.
        unsafe { norm.train(memory, factor as f32, epsilon as f32) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnBatchNormalizationBackward(
    handle: Opaque,
    mode: c_int,
    alpha: *const c_void,
    beta: *const c_void,
    alpha_of_channels: *const c_void,
    beta_of_channels: *const c_void,
    input_descriptor: Opaque,
    input: *mut c_void,
    gradient_descriptor: Opaque,
    gradient: *mut c_void,
    result_descriptor: Opaque,
    of_input: *mut c_void,
    statistics_descriptor: Opaque,
    gamma: *mut c_void,
    of_gamma: *mut c_void,
    of_beta: *mut c_void,
    epsilon: f64,
    saved_mean: *mut c_void,
    deviation: *mut c_void,
) -> c_int {
    call("cudnnBatchNormalizationBackward", || {
        check_handle(handle)?;
        let statistics = tensor(statistics_descriptor)?;
        let norm = Norm::new([tensor(input_descriptor)?, tensor(gradient_descriptor)?], &statistics)?;
        Norm::new([tensor(input_descriptor)?, tensor(result_descriptor)?], &statistics)?;
        let memory = [input, gradient, of_input, gamma, of_gamma, of_beta, saved_mean, deviation];
        // SAFETY: by cuDNN's contract.
        let is_plain =
            unsafe { are_one_and_zero(alpha, beta) && are_one_and_zero(alpha_of_channels, beta_of_channels) };
        if mode != SPATIAL || !is_plain || epsilon <= 0.0 || memory.iter().any(|it| it.is_null()) {
            return Err(BAD_PARAM);
        }
        // SAFETY: as above.
        unsafe { norm.gradients(memory) };
        Ok(())
    })
}
