//! Functions of recurrent layers.

use std::ffi::{c_int, c_void};

use super::{Opaque, call, check_handle, tensor};
use crate::behaviour;
use crate::objects::{self, BAD_PARAM, Layer, NOT_SUPPORTED, Object, Sequences, WORKSPACE_BYTES};
use crate::passes::{BF16, DEFAULT_MATH, F32, FMA_MATH};
use crate::recurrent::{Gradients, Memory, Recurrent};

/// `CUDNN_FWD_MODE_TRAINING`.
const TRAINING: c_int = 1;

fn layer(object: Opaque) -> Result<Layer, c_int> {
    match objects::get(object.addr())? {
        Object::Recurrence(Some(layer)) if matches!(objects::get(layer.dropout)?, Object::Dropout(true)) => Ok(layer),
        _ => Err(BAD_PARAM),
    }
}

fn sequences(object: Opaque) -> Result<Sequences, c_int> {
    match objects::get(object.addr())? {
        Object::Sequences(Some(sequences)) => Ok(sequences),
        _ => Err(BAD_PARAM),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cudnnSetDropoutDescriptor(
    object: Opaque,
    handle: Opaque,
    factor: f32,
    states: *mut c_void,
    bytes: usize,
    _seed: u64,
) -> c_int {
    call("cudnnSetDropoutDescriptor", || {
        check_handle(handle)?;
        if factor != 0.0 || !states.is_null() || bytes != 0 {
            return Err(BAD_PARAM);
        }
        objects::set(object.addr(), Object::Dropout(true))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudnnSetRNNDescriptor_v8(
    object: Opaque,
    algorithm: c_int,
    cell: c_int,
    bias: c_int,
    direction: c_int,
    input_mode: c_int,
    data_type: c_int,
    math_type: c_int,
    math: c_int,
    inputs: i32,
    hidden: i32,
    projected: i32,
    layers: i32,
    dropout: Opaque,
    flags: u32,
) -> c_int {
    call("cudnnSetRNNDescriptor_v8", || {
        let size = |size: i32| usize::try_from(size).ok().filter(|size| *size > 0).ok_or(BAD_PARAM);
        // One layer in one direction by the standard algorithm, with sums in f32, no biases or two for each gate, and without
        // a projection.
        let is_known = [algorithm, direction, input_mode, math_type] == [0; 4]
            && [2, 3].contains(&cell)
            && [0, 2].contains(&bias)
            && (projected, layers, flags) == (hidden, 1, 0);
        if !is_known {
            return Err(BAD_PARAM);
        }
        let is_supported = match math {
            DEFAULT_MATH => [F32, BF16].contains(&data_type),
            FMA_MATH => data_type == F32,
            _ => false,
        };
        if !is_supported || !behaviour::current().has_algorithms {
            return Err(NOT_SUPPORTED);
        }
        let layer = Layer {
            is_lstm: cell == 2,
            has_bias: bias == 2,
            data_type,
            math,
            inputs: size(inputs)?,
            hidden: size(hidden)?,
            dropout: dropout.addr(),
        };
        objects::set(object.addr(), Object::Recurrence(Some(layer)))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnSetRNNDataDescriptor(
    object: Opaque,
    data_type: c_int,
    layout: c_int,
    steps: c_int,
    batch: c_int,
    numbers: c_int,
    lengths: *const c_int,
    _padding: *mut c_void,
) -> c_int {
    call("cudnnSetRNNDataDescriptor", || {
        let [of_steps, of_batch, numbers] =
            [steps, batch, numbers].map(|size| usize::try_from(size).ok().filter(|size| *size > 0).ok_or(BAD_PARAM));
        let (of_steps, of_batch, numbers) = (of_steps?, of_batch?, numbers?);
        if lengths.is_null() || layout != 1 {
            return Err(BAD_PARAM);
        }
        // SAFETY: by cuDNN's contract, there is a length for each sequence.
        let lengths = unsafe { std::slice::from_raw_parts(lengths, of_batch) };
        if lengths.iter().any(|length| *length != steps) {
            return Err(BAD_PARAM);
        }
        let sequences = Sequences { data_type, steps: of_steps, batch: of_batch, numbers };
        objects::set(object.addr(), Object::Sequences(Some(sequences)))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnGetRNNTempSpaceSizes(
    handle: Opaque,
    operation: Opaque,
    mode: c_int,
    input: Opaque,
    workspace_bytes: *mut usize,
    reserve_bytes: *mut usize,
) -> c_int {
    call("cudnnGetRNNTempSpaceSizes", || {
        check_handle(handle)?;
        let reserve = Recurrent::reserve_bytes(&layer(operation)?, &sequences(input)?);
        // SAFETY: by cuDNN's contract.
        unsafe {
            workspace_bytes.write(WORKSPACE_BYTES);
            reserve_bytes.write(if mode == TRAINING { reserve } else { 0 });
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnGetRNNWeightSpaceSize(handle: Opaque, operation: Opaque, bytes: *mut usize) -> c_int {
    call("cudnnGetRNNWeightSpaceSize", || {
        check_handle(handle)?;
        // SAFETY: by cuDNN's contract.
        unsafe { bytes.write(layer(operation)?.weight_bytes()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnGetRNNWeightParams(
    handle: Opaque,
    operation: Opaque,
    pseudo_layer: i32,
    bytes: usize,
    weights: *mut c_void,
    number: i32,
    matrix: Opaque,
    matrix_at: *mut *mut c_void,
    bias: Opaque,
    bias_at: *mut *mut c_void,
) -> c_int {
    call("cudnnGetRNNWeightParams", || {
        check_handle(handle)?;
        let layer = layer(operation)?;
        let gates = layer.gates();
        let number = usize::try_from(number).ok().filter(|number| *number < 2 * gates).ok_or(BAD_PARAM)?;
        let are_tensors =
            [matrix, bias].iter().all(|object| matches!(objects::get(object.addr()), Ok(Object::Tensor(_))));
        if pseudo_layer != 0 || bytes != layer.weight_bytes() || weights.is_null() || !are_tensors {
            return Err(BAD_PARAM);
        }
        // Another library might have the biases first.
        let first = if behaviour::current().has_other_weights { layer.sections()[2] } else { 0 };
        let [of_input, of_hidden, _] = layer.sections();
        let gate = number % gates;
        let at_matrix = if number < gates {
            gate * layer.hidden * layer.inputs
        } else {
            of_input + gate * layer.hidden * layer.hidden
        };
        let at_bias = of_input + of_hidden + number * layer.hidden;
        let place = |numbers: usize| weights.wrapping_byte_add(numbers * layer.bytes());
        // SAFETY: by cuDNN's contract.
        unsafe {
            matrix_at.write(place(first + at_matrix));
            // Without biases, nothing is promised.
            bias_at.write(place(at_bias));
        }
        Ok(())
    })
}

/// Checks scratch memory and what the forward pass keeps, and overwrites the scratch memory.
///
/// # Safety
///
/// The workspace has so many bytes, or is null.
unsafe fn check_memory(
    layer: &Layer,
    input: &Sequences,
    [workspace_bytes, reserve_bytes, weight_bytes]: [usize; 3],
    [workspace, reserve]: [*mut c_void; 2],
) -> Result<(), c_int> {
    let is_enough = workspace_bytes >= WORKSPACE_BYTES
        && !workspace.is_null()
        && (reserve.is_null() || reserve_bytes >= Recurrent::reserve_bytes(layer, input))
        && weight_bytes == layer.weight_bytes();
    if !is_enough {
        return Err(BAD_PARAM);
    }
    // SAFETY: by this function's contract.
    unsafe { workspace.cast::<u8>().write_bytes(0xa5, WORKSPACE_BYTES) };
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnRNNForward(
    handle: Opaque,
    operation: Opaque,
    mode: c_int,
    lengths: *const i32,
    input_descriptor: Opaque,
    input: *mut c_void,
    output_descriptor: Opaque,
    output: *mut c_void,
    hidden_descriptor: Opaque,
    hidden: *mut c_void,
    last_hidden: *mut c_void,
    cell_descriptor: Opaque,
    cell: *mut c_void,
    last_cell: *mut c_void,
    weight_bytes: usize,
    weights: *mut c_void,
    workspace_bytes: usize,
    workspace: *mut c_void,
    reserve_bytes: usize,
    reserve: *mut c_void,
) -> c_int {
    call("cudnnRNNForward", || {
        check_handle(handle)?;
        let (layer, sequences) = (layer(operation)?, (sequences(input_descriptor)?, sequences(output_descriptor)?));
        let states = [tensor(hidden_descriptor)?, tensor(cell_descriptor)?];
        let [state, _] = &states;
        let recurrent = Recurrent::new(layer.clone(), &sequences.0, &sequences.1, state)?;
        Recurrent::new(layer.clone(), &sequences.0, &sequences.1, &states[1])?;
        let is_missing = [input, output, hidden, weights].iter().any(|it| it.is_null())
            || [cell, last_cell].iter().any(|it| it.is_null() == layer.is_lstm)
            || reserve.is_null() == (mode == TRAINING);
        if is_missing || !lengths.is_null() || !last_hidden.is_null() {
            return Err(BAD_PARAM);
        }
        // SAFETY: by cuDNN's contract.
        unsafe {
            let bytes = [workspace_bytes, reserve_bytes, weight_bytes];
            check_memory(&layer, &sequences.0, bytes, [workspace, reserve])?;
            recurrent.forward(Memory { input, output, hidden, cell, weights, last_cell, reserve });
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnRNNBackwardData_v8(
    handle: Opaque,
    operation: Opaque,
    lengths: *const i32,
    output_descriptor: Opaque,
    output: *mut c_void,
    gradient: *mut c_void,
    input_descriptor: Opaque,
    of_input: *mut c_void,
    hidden_descriptor: Opaque,
    hidden: *mut c_void,
    of_last_hidden: *mut c_void,
    of_hidden: *mut c_void,
    cell_descriptor: Opaque,
    cell: *mut c_void,
    of_last_cell: *mut c_void,
    of_cell: *mut c_void,
    weight_bytes: usize,
    weights: *mut c_void,
    workspace_bytes: usize,
    workspace: *mut c_void,
    reserve_bytes: usize,
    reserve: *mut c_void,
) -> c_int {
    call("cudnnRNNBackwardData_v8", || {
        check_handle(handle)?;
        let (layer, sequences) = (layer(operation)?, (sequences(input_descriptor)?, sequences(output_descriptor)?));
        let states = [tensor(hidden_descriptor)?, tensor(cell_descriptor)?];
        let [state, _] = &states;
        let recurrent = Recurrent::new(layer.clone(), &sequences.0, &sequences.1, state)?;
        let is_missing =
            [output, gradient, of_input, hidden, of_hidden, weights, reserve].iter().any(|it| it.is_null())
                || [cell, of_last_cell, of_cell].iter().any(|it| it.is_null() == layer.is_lstm);
        if is_missing || !lengths.is_null() || !of_last_hidden.is_null() {
            return Err(BAD_PARAM);
        }
        let nothing = std::ptr::null_mut();
        let memory = Memory { input: nothing, output, hidden, cell, weights, last_cell: nothing, reserve };
        let gradients = Gradients { output: gradient, last_cell: of_last_cell, of_input, of_hidden, of_cell };
        // SAFETY: by cuDNN's contract.
        unsafe {
            let bytes = [workspace_bytes, reserve_bytes, weight_bytes];
            check_memory(&layer, &sequences.0, bytes, [workspace, reserve])?;
            recurrent.data_gradients(memory, gradients)
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnRNNBackwardWeights_v8(
    handle: Opaque,
    operation: Opaque,
    mode: c_int,
    lengths: *const i32,
    input_descriptor: Opaque,
    input: *mut c_void,
    hidden_descriptor: Opaque,
    hidden: *mut c_void,
    output_descriptor: Opaque,
    output: *mut c_void,
    weight_bytes: usize,
    of_weights: *mut c_void,
    workspace_bytes: usize,
    workspace: *mut c_void,
    reserve_bytes: usize,
    reserve: *mut c_void,
) -> c_int {
    call("cudnnRNNBackwardWeights_v8", || {
        check_handle(handle)?;
        let (layer, sequences) = (layer(operation)?, (sequences(input_descriptor)?, sequences(output_descriptor)?));
        let recurrent = Recurrent::new(layer.clone(), &sequences.0, &sequences.1, &tensor(hidden_descriptor)?)?;
        let is_missing = [input, output, hidden, of_weights, reserve].iter().any(|it| it.is_null());
        // The gradients are added to what is there.
        if is_missing || mode != 0 || !lengths.is_null() {
            return Err(BAD_PARAM);
        }
        let nothing = std::ptr::null_mut();
        let memory = Memory { input, output, hidden, cell: nothing, weights: nothing, last_cell: nothing, reserve };
        // SAFETY: by cuDNN's contract.
        unsafe {
            let bytes = [workspace_bytes, reserve_bytes, weight_bytes];
            check_memory(&layer, &sequences.0, bytes, [workspace, reserve])?;
            recurrent.weight_gradients(memory, of_weights)
        }
    })
}
