//! Recurrent layers of one direction, over sequences of one length.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

use super::{
    CUDNN_DATA_FLOAT, Cudnn, CudnnError, DEFAULT_MATH, Descriptor, FMA_MATH, Handle, Object, TENSOR_OP_MATH, counted,
    data_type, within,
};
use crate::convolution::{Format, Layout};
use crate::cublaslt::{Element, Memory};
use crate::recurrence::{Cell, Recurrence};

/// Matrix products and kernels for each step. The persistent algorithms exclude some sizes.
const CUDNN_RNN_ALGO_STANDARD: c_int = 0;
const CUDNN_RNN_NO_BIAS: c_int = 0;
const CUDNN_RNN_DOUBLE_BIAS: c_int = 2;
const CUDNN_UNIDIRECTIONAL: c_int = 0;
const CUDNN_LINEAR_INPUT: c_int = 0;
/// Sequences of one length are packed: they have no padding.
const CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED: c_int = 1;
const CUDNN_RNN_PADDED_IO_DISABLED: u32 = 0;
/// The only mode: gradients are added to zeros.
const CUDNN_WGRAD_MODE_ADD: c_int = 0;

/// `cudnnRNNMode_t`.
const fn cell_number(cell: Cell) -> c_int {
    match cell {
        Cell::Lstm => 2,
        Cell::Gru => 3,
    }
}

/// `cudnnForwardMode_t`.
#[derive(Clone, Copy)]
enum Mode {
    Inference = 0,
    /// Keeps what the gradients need.
    Training = 1,
}

/// A recurrent layer with its descriptions.
#[derive(Debug)]
pub struct RecurrentPlan {
    handle: &'static Handle,
    recurrence: Recurrence,
    operation: Descriptor,
    /// The operation refers to it.
    _dropout: Descriptor,
    input: Descriptor,
    output: Descriptor,
    state: Descriptor,
    /// For inference and for training.
    workspace_bytes: [usize; 2],
    reserve_bytes: usize,
}

/// Memory of a recurrent layer.
#[derive(Clone, Copy, Debug)]
pub struct Recurrent {
    /// `[steps, batch, inputs]`.
    pub input: Memory,
    /// See [`Cell::weights`].
    pub weights: Memory,
    /// The first hidden state, then that of an LSTM's cell: `[states, batch, hidden]`.
    pub states: Memory,
    /// See [`Recurrence::output_shape`].
    pub output: Memory,
    /// What the gradients need: [`RecurrentPlan::reserve_bytes`]. `None` for inference.
    pub reserve: Option<Memory>,
    /// At least [`RecurrentPlan::workspace_bytes`].
    pub workspace: Option<Memory>,
}

/// Memory of a recurrent layer's gradients.
#[derive(Clone, Copy, Debug)]
pub struct RecurrentGradients {
    /// As of [`Recurrent`].
    pub input: Memory,
    /// As of [`Recurrent`].
    pub weights: Memory,
    /// As of [`Recurrent`].
    pub states: Memory,
    /// As of [`Recurrent`].
    pub output: Memory,
    /// The gradient of the output.
    pub gradient: Memory,
    /// The gradient of the input.
    pub of_input: Memory,
    /// Zeros, to which the gradient of the weights is added.
    pub of_weights: Memory,
    /// The gradient of the first states.
    pub of_states: Memory,
    /// What the forward pass wrote. The gradients overwrite it.
    pub reserve: Memory,
    /// At least [`RecurrentPlan::workspace_bytes`] for training.
    pub workspace: Option<Memory>,
}

impl Handle {
    /// Describes a recurrent layer.
    ///
    /// # Errors
    ///
    /// [`CudnnError::NoAlgorithm`] when the weights have another order than that of [`Cell::weights`], or the sizes are not
    /// [valid](Recurrence::is_valid). [`CudnnError::Call`] when a call fails: the library cannot compute the layer if its status
    /// is that.
    pub fn plan_recurrence(&'static self, recurrence: Recurrence) -> Result<RecurrentPlan, CudnnError> {
        if !recurrence.is_valid() {
            return Err(CudnnError::NoAlgorithm("its sizes are not those of a layer".into()));
        }
        let (library, functions) = (self.library, &self.library.functions);
        let created = ("cudnnCreateDropoutDescriptor", functions.dropout_create);
        let dropout = Descriptor::new(library, created, functions.dropout_destroy)?;
        let created = ("cudnnCreateRNNDescriptor", functions.recurrence_create);
        let operation = Descriptor::new(library, created, functions.recurrence_destroy)?;
        let Recurrence { cell, element, has_bias, batch, inputs, hidden, .. } = recurrence;
        let (_, sizes) = counted(&[inputs, hidden])?;
        let math = match element {
            Element::F32 { tf32: false } => FMA_MATH,
            Element::F32 { tf32: true } | Element::Bf16 => DEFAULT_MATH,
            Element::F16 => TENSOR_OP_MATH,
        };
        let data = |numbers| Descriptor::sequences(library, &recurrence, numbers);
        let (input, output) = (data(inputs)?, data(hidden)?);
        // Sizes of 1 behind: the library's tensors have at least four.
        let state = Layout::packed(&[1, batch, hidden, 1], Format::ChannelsFirst);
        let state = Descriptor::tensor(library, element, &state)?;
        let handle = self.lock();
        // SAFETY: the objects live. Without states of random numbers the library stores the factor only.
        library.checked("cudnnSetDropoutDescriptor", unsafe {
            (functions.dropout_set)(dropout.object, handle.0, 0.0, null_mut(), 0, 0)
        })?;
        // SAFETY: the objects live.
        library.checked("cudnnSetRNNDescriptor_v8", unsafe {
            (functions.recurrence_set)(
                operation.object,
                CUDNN_RNN_ALGO_STANDARD,
                cell_number(cell),
                if has_bias { CUDNN_RNN_DOUBLE_BIAS } else { CUDNN_RNN_NO_BIAS },
                CUDNN_UNIDIRECTIONAL,
                CUDNN_LINEAR_INPUT,
                data_type(element),
                CUDNN_DATA_FLOAT,
                math,
                sizes[0],
                sizes[1],
                sizes[1],
                1,
                dropout.object,
                CUDNN_RNN_PADDED_IO_DISABLED,
            )
        })?;
        let bytes_of = |mode: Mode| {
            let (mut workspace, mut reserve) = (0, 0);
            // SAFETY: all objects live, and the pointers are valid for one size each.
            library.checked("cudnnGetRNNTempSpaceSizes", unsafe {
                (functions.recurrence_bytes)(
                    handle.0,
                    operation.object,
                    mode as c_int,
                    input.object,
                    &raw mut workspace,
                    &raw mut reserve,
                )
            })?;
            Ok::<_, CudnnError>((workspace, reserve))
        };
        let ((inference, _), (training, reserve_bytes)) = (bytes_of(Mode::Inference)?, bytes_of(Mode::Training)?);
        check_weights(library, handle.0, &operation, &recurrence)?;
        drop(handle);
        let workspace_bytes = [inference, training];
        Ok(RecurrentPlan {
            handle: self,
            recurrence,
            operation,
            _dropout: dropout,
            input,
            output,
            state,
            workspace_bytes,
            reserve_bytes,
        })
    }
}

/// Address of weights that are not there.
const WEIGHTS: usize = 1 << 32;

/// Checks that the library's order of the weights is that of [`Cell::weights`].
fn check_weights(
    library: &Cudnn,
    handle: Object,
    operation: &Descriptor,
    recurrence: &Recurrence,
) -> Result<(), CudnnError> {
    let functions = &library.functions;
    let mut found = 0;
    // SAFETY: the objects live, and the pointer is valid for one size.
    library.checked("cudnnGetRNNWeightSpaceSize", unsafe {
        (functions.weight_bytes)(handle, operation.object, &raw mut found)
    })?;
    let bytes = recurrence.element.bytes();
    if found != recurrence.weights() * bytes {
        return Err(CudnnError::NoAlgorithm(format!("its weights have {found} bytes")));
    }
    let created = ("cudnnCreateTensorDescriptor", functions.tensor_create);
    let [matrix, bias] = [(); 2].map(|()| Descriptor::new(library, created, functions.tensor_destroy));
    let (matrix, bias) = (matrix?, bias?);
    for (gate, [of_matrix, of_bias]) in recurrence.places().into_iter().enumerate() {
        let (_, number) = counted(&[gate])?;
        let (mut at_matrix, mut at_bias) = (null_mut(), null_mut());
        // SAFETY: the objects live, and the pointers are valid for one address each. The library adds to the address of the
        // weights, and reads nothing there.
        library.checked("cudnnGetRNNWeightParams", unsafe {
            (functions.weight_places)(
                handle,
                operation.object,
                0,
                found,
                WEIGHTS as *const c_void,
                number[0],
                matrix.object,
                &raw mut at_matrix,
                bias.object,
                &raw mut at_bias,
            )
        })?;
        let is_bias_right = !recurrence.has_bias || at_bias.addr() == WEIGHTS + of_bias * bytes;
        if at_matrix.addr() != WEIGHTS + of_matrix * bytes || !is_bias_right {
            return Err(CudnnError::NoAlgorithm(format!("the weights of gate {gate} are elsewhere")));
        }
    }
    Ok(())
}

impl Descriptor {
    /// Sequences of one length with so many numbers a step.
    fn sequences(library: &Cudnn, recurrence: &Recurrence, numbers: usize) -> Result<Self, CudnnError> {
        let functions = &library.functions;
        let created = ("cudnnCreateRNNDataDescriptor", functions.sequences_create);
        let sequences = Self::new(library, created, functions.sequences_destroy)?;
        let (_, sizes) = counted(&[recurrence.steps, recurrence.batch, numbers])?;
        let lengths = vec![sizes[0]; recurrence.batch];
        // SAFETY: the object lives, and there is a length for each sequence.
        library.checked("cudnnSetRNNDataDescriptor", unsafe {
            (functions.sequences_set)(
                sequences.object,
                data_type(recurrence.element),
                CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED,
                sizes[0],
                sizes[1],
                sizes[2],
                lengths.as_ptr(),
                null_mut(),
            )
        })?;
        Ok(sequences)
    }
}

const NOTHING: Memory = Memory { address: 0, bytes: 0 };

impl RecurrentPlan {
    /// The layer.
    pub fn recurrence(&self) -> &Recurrence {
        &self.recurrence
    }

    /// Bytes of scratch memory of one launch for training, else for inference.
    pub fn workspace_bytes(&self, is_training: bool) -> usize {
        self.workspace_bytes[usize::from(is_training)]
    }

    /// Bytes that a forward pass keeps for the gradients.
    pub fn reserve_bytes(&self) -> usize {
        self.reserve_bytes
    }

    fn check(&self, tensors: &[(Memory, usize)]) -> Result<(), CudnnError> {
        let bytes = self.recurrence.element.bytes();
        tensors.iter().try_for_each(|(memory, numbers)| within(*memory, numbers.saturating_mul(bytes)))
    }

    /// Address of the state of the cell behind `numbers` numbers. Null for a GRU.
    fn cell_at(&self, memory: Memory, numbers: usize) -> *mut c_void {
        match self.recurrence.cell {
            Cell::Lstm => (memory.address as usize + numbers * self.recurrence.element.bytes()) as *mut c_void,
            Cell::Gru => null_mut(),
        }
    }

    /// Numbers of the hidden states of all steps.
    fn hidden_numbers(&self) -> usize {
        self.recurrence.steps * self.recurrence.state_numbers()
    }

    /// Launches the layer on a CUDA stream of the handle's device.
    ///
    /// # Errors
    ///
    /// When a tensor exceeds its memory, or the library refuses the launch.
    ///
    /// # Safety
    ///
    /// As of [`Plan::launch`](super::Plan::launch).
    pub unsafe fn launch(&self, memory: Recurrent, stream: *mut c_void) -> Result<(), CudnnError> {
        let Recurrent { input, weights, states, output, reserve, workspace } = memory;
        let it = &self.recurrence;
        let state = it.state_numbers();
        self.check(&[
            (input, it.input_numbers()),
            (weights, it.weights()),
            (states, it.cell.states() * state),
            (output, it.output_numbers()),
        ])?;
        let (mode, reserve_bytes) =
            if reserve.is_some() { (Mode::Training, self.reserve_bytes) } else { (Mode::Inference, 0) };
        let (reserve, workspace) = (reserve.unwrap_or(NOTHING), workspace.unwrap_or(NOTHING));
        let workspace_bytes = self.workspace_bytes[mode as usize];
        within(reserve, reserve_bytes)?;
        within(workspace, workspace_bytes)?;
        let library = self.handle.library;
        let handle = self.handle.lock();
        // SAFETY: the handle lives, and the stream is the caller's promise.
        library.checked("cudnnSetStream", unsafe { (library.functions.set_stream)(handle.0, stream) })?;
        // SAFETY: objects live, sizes are checked above, and the rest is the caller's promise.
        library.checked("cudnnRNNForward", unsafe {
            (library.functions.recur)(
                handle.0,
                self.operation.object,
                mode as c_int,
                null(),
                self.input.object,
                input.address as *const c_void,
                self.output.object,
                output.address as *mut c_void,
                self.state.object,
                states.address as *const c_void,
                // The last hidden state is that of the last step.
                null_mut(),
                self.state.object,
                self.cell_at(states, state).cast_const(),
                self.cell_at(output, self.hidden_numbers()),
                it.weights() * it.element.bytes(),
                weights.address as *const c_void,
                workspace_bytes,
                workspace.address as *mut c_void,
                reserve_bytes,
                reserve.address as *mut c_void,
            )
        })
    }

    /// Launches the gradients of [`launch`](Self::launch), once for each launch.
    ///
    /// # Errors
    ///
    /// As of [`launch`](Self::launch).
    ///
    /// # Safety
    ///
    /// As of [`Plan::launch`](super::Plan::launch).
    pub unsafe fn launch_gradients(&self, memory: RecurrentGradients, stream: *mut c_void) -> Result<(), CudnnError> {
        let RecurrentGradients { input, weights, states, output, gradient, .. } = memory;
        let RecurrentGradients { of_input, of_weights, of_states, reserve, workspace, .. } = memory;
        let it = &self.recurrence;
        let (state, all_states) = (it.state_numbers(), it.cell.states() * it.state_numbers());
        self.check(&[
            (input, it.input_numbers()),
            (weights, it.weights()),
            (states, all_states),
            (output, it.output_numbers()),
            (gradient, it.output_numbers()),
            (of_input, it.input_numbers()),
            (of_weights, it.weights()),
            (of_states, all_states),
        ])?;
        let workspace = workspace.unwrap_or(NOTHING);
        let [_, workspace_bytes] = self.workspace_bytes;
        within(reserve, self.reserve_bytes)?;
        within(workspace, workspace_bytes)?;
        let library = self.handle.library;
        let weight_bytes = it.weights() * it.element.bytes();
        let handle = self.handle.lock();
        // SAFETY: the handle lives, and the stream is the caller's promise.
        library.checked("cudnnSetStream", unsafe { (library.functions.set_stream)(handle.0, stream) })?;
        // SAFETY: objects live, sizes are checked above, and the rest is the caller's promise.
        library.checked("cudnnRNNBackwardData_v8", unsafe {
            (library.functions.recurrence_data_gradients)(
                handle.0,
                self.operation.object,
                null(),
                self.output.object,
                output.address as *const c_void,
                gradient.address as *const c_void,
                self.input.object,
                of_input.address as *mut c_void,
                self.state.object,
                states.address as *const c_void,
                null(),
                of_states.address as *mut c_void,
                self.state.object,
                self.cell_at(states, state).cast_const(),
                self.cell_at(gradient, self.hidden_numbers()).cast_const(),
                self.cell_at(of_states, state),
                weight_bytes,
                weights.address as *const c_void,
                workspace_bytes,
                workspace.address as *mut c_void,
                self.reserve_bytes,
                reserve.address as *mut c_void,
            )
        })?;
        // SAFETY: as above.
        library.checked("cudnnRNNBackwardWeights_v8", unsafe {
            (library.functions.recurrence_weight_gradients)(
                handle.0,
                self.operation.object,
                CUDNN_WGRAD_MODE_ADD,
                null(),
                self.input.object,
                input.address as *const c_void,
                self.state.object,
                states.address as *const c_void,
                self.output.object,
                output.address as *const c_void,
                weight_bytes,
                of_weights.address as *mut c_void,
                workspace_bytes,
                workspace.address as *mut c_void,
                self.reserve_bytes,
                reserve.address as *mut c_void,
            )
        })
    }
}
