//! NVIDIA's cuDNN, version 9: the functions that convolutions, batch norms, recurrent layers and attention need, loaded when
//! the program runs.
//!
//! All `unsafe` code of the library is here. Types and numbers follow the library's headers.
//!
//! cuDNN has two interfaces. Convolutions use the older one, with a function for each pass: version 9 has all of them, marked
//! as deprecated. The newer one describes graphs of operations. Attention in one kernel needs it.

mod attention;
mod graph;
mod recurrent;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libloading::Library;

use crate::convolution::{Convolution, Format, Layout, Window};
use crate::cublaslt::{Element, Memory};
use crate::find::LoadError;
use crate::functions::functions;
pub use attention::{Attended, AttendedGradients, AttentionPlan};
pub use recurrent::{Recurrent, RecurrentGradients, RecurrentPlan};

/// Version 8 counts in thousands and has other statuses.
const OLDEST: usize = 90_000;
/// Largest scratch memory of a convolution. Tensors whose channels are not contiguous are copied into it.
const MOST_WORKSPACE: usize = 1 << 30;
/// Algorithms to choose from: more than the library has for one pass, with each kind of math.
const MOST_ALGORITHMS: c_int = 16;

/// Failure of a call of cuDNN.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum CudnnError {
    /// A call failed.
    #[error("{call} failed: {reason}")]
    Call {
        /// The library's function.
        call: &'static str,
        /// `cudnnStatus_t`.
        status: i32,
        /// The library's name of the status, and its last message.
        reason: String,
    },
    /// No algorithm of the library computes this operation: the reason for each.
    #[error("cuDNN has no algorithm: {0}")]
    NoAlgorithm(String),
    /// A tensor or workspace does not lie within its buffer, or has none.
    #[error("a tensor of {needed} bytes exceeds its buffer of {found} bytes")]
    TooLarge {
        /// Bytes from the first to the last number of the tensor.
        needed: u64,
        /// Bytes of the buffer.
        found: u64,
    },
}

type Object = *mut c_void;
type Algorithms = [Algorithm; MOST_ALGORITHMS as usize];

functions! {
    version = b"cudnnGetVersion\0": fn() -> usize;
    cudart_version = b"cudnnGetCudartVersion\0": fn() -> usize;
    error_string = b"cudnnGetErrorString\0": fn(c_int) -> *const c_char;
    last_error = b"cudnnGetLastErrorString\0": fn(*mut c_char, usize) -> ();
    create = b"cudnnCreate\0": fn(*mut Object) -> c_int;
    destroy = b"cudnnDestroy\0": fn(Object) -> c_int;
    set_stream = b"cudnnSetStream\0": fn(Object, Object) -> c_int;
    tensor_create = b"cudnnCreateTensorDescriptor\0": fn(*mut Object) -> c_int;
    tensor_destroy = b"cudnnDestroyTensorDescriptor\0": fn(Object) -> c_int;
    tensor_set = b"cudnnSetTensorNdDescriptor\0": fn(Object, c_int, c_int, *const c_int, *const c_int) -> c_int;
    filter_create = b"cudnnCreateFilterDescriptor\0": fn(*mut Object) -> c_int;
    filter_destroy = b"cudnnDestroyFilterDescriptor\0": fn(Object) -> c_int;
    filter_set = b"cudnnSetFilterNdDescriptor\0": fn(Object, c_int, c_int, c_int, *const c_int) -> c_int;
    convolution_create = b"cudnnCreateConvolutionDescriptor\0": fn(*mut Object) -> c_int;
    convolution_destroy = b"cudnnDestroyConvolutionDescriptor\0": fn(Object) -> c_int;
    convolution_set = b"cudnnSetConvolutionNdDescriptor\0":
        fn(Object, c_int, *const c_int, *const c_int, *const c_int, c_int, c_int) -> c_int;
    groups_set = b"cudnnSetConvolutionGroupCount\0": fn(Object, c_int) -> c_int;
    math_set = b"cudnnSetConvolutionMathType\0": fn(Object, c_int) -> c_int;
    forward_algorithms = b"cudnnGetConvolutionForwardAlgorithm_v7\0":
        fn(Object, Object, Object, Object, Object, c_int, *mut c_int, *mut Algorithm) -> c_int;
    input_algorithms = b"cudnnGetConvolutionBackwardDataAlgorithm_v7\0":
        fn(Object, Object, Object, Object, Object, c_int, *mut c_int, *mut Algorithm) -> c_int;
    weight_algorithms = b"cudnnGetConvolutionBackwardFilterAlgorithm_v7\0":
        fn(Object, Object, Object, Object, Object, c_int, *mut c_int, *mut Algorithm) -> c_int;
    forward_workspace = b"cudnnGetConvolutionForwardWorkspaceSize\0":
        fn(Object, Object, Object, Object, Object, c_int, *mut usize) -> c_int;
    input_workspace = b"cudnnGetConvolutionBackwardDataWorkspaceSize\0":
        fn(Object, Object, Object, Object, Object, c_int, *mut usize) -> c_int;
    weight_workspace = b"cudnnGetConvolutionBackwardFilterWorkspaceSize\0":
        fn(Object, Object, Object, Object, Object, c_int, *mut usize) -> c_int;
    forward = b"cudnnConvolutionForward\0": fn(
        Object, *const c_void, Object, *const c_void, Object, *const c_void, Object, c_int, *mut c_void, usize,
        *const c_void, Object, *mut c_void) -> c_int;
    input_gradient = b"cudnnConvolutionBackwardData\0": fn(
        Object, *const c_void, Object, *const c_void, Object, *const c_void, Object, c_int, *mut c_void, usize,
        *const c_void, Object, *mut c_void) -> c_int;
    weight_gradient = b"cudnnConvolutionBackwardFilter\0": fn(
        Object, *const c_void, Object, *const c_void, Object, *const c_void, Object, c_int, *mut c_void, usize,
        *const c_void, Object, *mut c_void) -> c_int;
    channel_sums = b"cudnnConvolutionBackwardBias\0":
        fn(Object, *const c_void, Object, *const c_void, *const c_void, Object, *mut c_void) -> c_int;
    batch_norm = b"cudnnBatchNormalizationForwardTraining\0": fn(
        Object, c_int, *const c_void, *const c_void, Object, *const c_void, Object, *mut c_void, Object, *const c_void,
        *const c_void, f64, *mut c_void, *mut c_void, f64, *mut c_void, *mut c_void) -> c_int;
    batch_norm_gradients = b"cudnnBatchNormalizationBackward\0": fn(
        Object, c_int, *const c_void, *const c_void, *const c_void, *const c_void, Object, *const c_void, Object,
        *const c_void, Object, *mut c_void, Object, *const c_void, *mut c_void, *mut c_void, f64, *const c_void,
        *const c_void) -> c_int;
    dropout_create = b"cudnnCreateDropoutDescriptor\0": fn(*mut Object) -> c_int;
    dropout_destroy = b"cudnnDestroyDropoutDescriptor\0": fn(Object) -> c_int;
    dropout_set = b"cudnnSetDropoutDescriptor\0": fn(Object, Object, f32, *mut c_void, usize, u64) -> c_int;
    recurrence_create = b"cudnnCreateRNNDescriptor\0": fn(*mut Object) -> c_int;
    recurrence_destroy = b"cudnnDestroyRNNDescriptor\0": fn(Object) -> c_int;
    recurrence_set = b"cudnnSetRNNDescriptor_v8\0": fn(
        Object, c_int, c_int, c_int, c_int, c_int, c_int, c_int, c_int, i32, i32, i32, i32, Object, u32) -> c_int;
    sequences_create = b"cudnnCreateRNNDataDescriptor\0": fn(*mut Object) -> c_int;
    sequences_destroy = b"cudnnDestroyRNNDataDescriptor\0": fn(Object) -> c_int;
    sequences_set = b"cudnnSetRNNDataDescriptor\0":
        fn(Object, c_int, c_int, c_int, c_int, c_int, *const c_int, *mut c_void) -> c_int;
    recurrence_bytes = b"cudnnGetRNNTempSpaceSizes\0":
        fn(Object, Object, c_int, Object, *mut usize, *mut usize) -> c_int;
    weight_bytes = b"cudnnGetRNNWeightSpaceSize\0": fn(Object, Object, *mut usize) -> c_int;
    weight_places = b"cudnnGetRNNWeightParams\0": fn(
        Object, Object, i32, usize, *const c_void, i32, Object, *mut *mut c_void, Object, *mut *mut c_void) -> c_int;
    recur = b"cudnnRNNForward\0": fn(
        Object, Object, c_int, *const i32, Object, *const c_void, Object, *mut c_void, Object, *const c_void,
        *mut c_void, Object, *const c_void, *mut c_void, usize, *const c_void, usize, *mut c_void, usize,
        *mut c_void) -> c_int;
    recurrence_data_gradients = b"cudnnRNNBackwardData_v8\0": fn(
        Object, Object, *const i32, Object, *const c_void, *const c_void, Object, *mut c_void, Object, *const c_void,
        *const c_void, *mut c_void, Object, *const c_void, *const c_void, *mut c_void, usize, *const c_void, usize,
        *mut c_void, usize, *mut c_void) -> c_int;
    recurrence_weight_gradients = b"cudnnRNNBackwardWeights_v8\0": fn(
        Object, Object, c_int, *const i32, Object, *const c_void, Object, *const c_void, Object, *const c_void, usize,
        *mut c_void, usize, *mut c_void, usize, *mut c_void) -> c_int;
    backend_create = b"cudnnBackendCreateDescriptor\0": fn(c_int, *mut Object) -> c_int;
    backend_destroy = b"cudnnBackendDestroyDescriptor\0": fn(Object) -> c_int;
    backend_finalize = b"cudnnBackendFinalize\0": fn(Object) -> c_int;
    backend_set = b"cudnnBackendSetAttribute\0": fn(Object, c_int, c_int, i64, *const c_void) -> c_int;
    backend_get = b"cudnnBackendGetAttribute\0": fn(Object, c_int, c_int, i64, *mut i64, *mut c_void) -> c_int;
    backend_execute = b"cudnnBackendExecute\0": fn(Object, Object, Object) -> c_int;
}

type Choose = unsafe extern "C" fn(Object, Object, Object, Object, Object, c_int, *mut c_int, *mut Algorithm) -> c_int;
type Measure = unsafe extern "C" fn(Object, Object, Object, Object, Object, c_int, *mut usize) -> c_int;
type Compute = unsafe extern "C" fn(
    Object,
    *const c_void,
    Object,
    *const c_void,
    Object,
    *const c_void,
    Object,
    c_int,
    *mut c_void,
    usize,
    *const c_void,
    Object,
    *mut c_void,
) -> c_int;

/// `cudnnConvolutionFwdAlgoPerf_t`, and those of both gradients.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Algorithm {
    number: c_int,
    status: c_int,
    milliseconds: f32,
    workspace_bytes: usize,
    determinism: c_int,
    math: c_int,
    reserved: [c_int; 3],
}

// `cudnnMathType_t`
/// TF32 for f32.
const DEFAULT_MATH: c_int = 0;
const TENSOR_OP_MATH: c_int = 1;
/// Rounds f32 to 16 bits: never used.
const TENSOR_OP_MATH_ALLOW_CONVERSION: c_int = 2;
/// Keeps all bits of f32.
const FMA_MATH: c_int = 3;

/// Of an [`Algorithm`] whose equal runs have equal bits.
const CUDNN_DETERMINISTIC: c_int = 1;

const CUDNN_DATA_FLOAT: c_int = 0;
const CUDNN_CROSS_CORRELATION: c_int = 1;
/// Statistics of each channel. The faster persistent mode limits the range of numbers.
const CUDNN_BATCHNORM_SPATIAL: c_int = 1;

/// `cudnnDataType_t`.
const fn data_type(element: Element) -> c_int {
    match element {
        Element::F32 { .. } => CUDNN_DATA_FLOAT,
        Element::F16 => 2,
        Element::Bf16 => 9,
    }
}

/// `cudnnTensorFormat_t`.
const fn format_number(format: Format) -> c_int {
    match format {
        Format::ChannelsFirst => 0,
        Format::ChannelsLast => 1,
    }
}

/// The loaded library.
pub struct Cudnn {
    functions: Functions,
    path: PathBuf,
    /// Keeps the functions loaded.
    _library: Library,
}

impl std::fmt::Debug for Cudnn {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Cudnn").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Cudnn {
    /// Loads the library from a file, or by a bare name from the system's paths.
    ///
    /// # Errors
    ///
    /// When the file is no such library, or a version before 9.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let refused = |error: libloading::Error| LoadError::Open { path: path.into(), reason: error.to_string() };
        // SAFETY: initialisers of NVIDIA's library need nothing of this process. Which files are loaded is the user's
        // choice, by the system's paths and the variables that `find` documents.
        let library = unsafe { Library::new(path) }.map_err(refused)?;
        // SAFETY: as below. Versions before 9 lack some of the other functions.
        let version =
            unsafe { library.get::<unsafe extern "C" fn() -> usize>(b"cudnnGetVersion\0") }.map_err(refused)?;
        // SAFETY: the function has no preconditions.
        let found = unsafe { version() };
        if found < OLDEST {
            return Err(LoadError::Version { library: "cuDNN", path: path.into(), found, oldest: OLDEST });
        }
        let functions = Functions::load(&library).map_err(refused)?;
        Ok(Self { functions, path: path.into(), _library: library })
    }

    /// Major version times 10,000, minor version times 100, and patch: 92,801 is version 9.28.1.
    pub fn version(&self) -> usize {
        // SAFETY: the function has no preconditions.
        unsafe { (self.functions.version)() }
    }

    /// Major version of CUDA that the library is for.
    pub fn cuda(&self) -> usize {
        // SAFETY: the function has no preconditions.
        unsafe { (self.functions.cudart_version)() / 1000 }
    }

    /// The file that was loaded, or its bare name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn checked(&self, call: &'static str, status: c_int) -> Result<(), CudnnError> {
        match status {
            0 => Ok(()),
            _ => Err(CudnnError::Call { call, status, reason: self.reason(status) }),
        }
    }

    fn status_name(&self, status: c_int) -> String {
        // SAFETY: the function accepts every number, and returns a string that is never freed.
        let name = unsafe { (self.functions.error_string)(status) };
        if name.is_null() {
            return format!("status {status}");
        }
        // SAFETY: a string of the library.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }

    /// Name of a status that a call has just returned, with the library's message.
    fn reason(&self, status: c_int) -> String {
        let name = self.status_name(status);
        let mut message = [0_u8; 2048];
        // SAFETY: the library writes no more than so many bytes, and ends them with 0.
        unsafe { (self.functions.last_error)(message.as_mut_ptr().cast(), message.len()) };
        let message = CStr::from_bytes_until_nul(&message).unwrap_or_default().to_string_lossy();
        let message = message.trim();
        if message.is_empty() { name } else { format!("{name}: {message}") }
    }
}

/// A pass of a convolution: what is computed from the two other tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pass {
    /// The output.
    Forward,
    /// The gradient of the input.
    Input,
    /// The gradient of the weight.
    Weight,
}

/// Functions of a pass, with their names.
struct PassFunctions {
    choose: (&'static str, Choose),
    measure: (&'static str, Measure),
    compute: (&'static str, Compute),
}

impl Pass {
    /// All.
    pub const ALL: [Self; 3] = [Self::Forward, Self::Input, Self::Weight];

    fn functions(self, functions: &Functions) -> PassFunctions {
        match self {
            Self::Forward => PassFunctions {
                choose: ("cudnnGetConvolutionForwardAlgorithm_v7", functions.forward_algorithms),
                measure: ("cudnnGetConvolutionForwardWorkspaceSize", functions.forward_workspace),
                compute: ("cudnnConvolutionForward", functions.forward),
            },
            Self::Input => PassFunctions {
                choose: ("cudnnGetConvolutionBackwardDataAlgorithm_v7", functions.input_algorithms),
                measure: ("cudnnGetConvolutionBackwardDataWorkspaceSize", functions.input_workspace),
                compute: ("cudnnConvolutionBackwardData", functions.input_gradient),
            },
            Self::Weight => PassFunctions {
                choose: ("cudnnGetConvolutionBackwardFilterAlgorithm_v7", functions.weight_algorithms),
                measure: ("cudnnGetConvolutionBackwardFilterWorkspaceSize", functions.weight_workspace),
                compute: ("cudnnConvolutionBackwardFilter", functions.weight_gradient),
            },
        }
    }

    /// The tensors in the order of the library's arguments: the two that are read, and the result.
    fn ordered<T>(self, [input, weight, output]: [T; 3]) -> [T; 3] {
        match self {
            Self::Forward => [input, weight, output],
            Self::Input => [weight, output, input],
            Self::Weight => [input, output, weight],
        }
    }
}

/// Memory of one convolution.
#[derive(Clone, Copy, Debug)]
pub struct Operands {
    /// The input, or its gradient.
    pub input: Memory,
    /// The weight, or its gradient.
    pub weight: Memory,
    /// The output, or its gradient.
    pub output: Memory,
    /// At least [`Plan::workspace_bytes`].
    pub workspace: Option<Memory>,
}

/// The library on one device.
#[derive(Debug)]
pub struct Handle {
    library: &'static Cudnn,
    /// One thread at a time uses a handle.
    handle: Mutex<Pointer>,
}

#[derive(Debug)]
struct Pointer(Object);

// SAFETY: the library's manual allows a handle on any thread, one at a time.
unsafe impl Send for Pointer {}

impl Handle {
    /// Opens the library on the device whose CUDA context is current.
    ///
    /// # Errors
    ///
    /// When the library does not support the device or has no memory.
    pub fn new(library: &'static Cudnn) -> Result<Self, CudnnError> {
        let mut handle = null_mut();
        // SAFETY: the pointer is valid for one handle.
        library.checked("cudnnCreate", unsafe { (library.functions.create)(&raw mut handle) })?;
        Ok(Self { library, handle: Mutex::new(Pointer(handle)) })
    }

    fn lock(&self) -> MutexGuard<'_, Pointer> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Describes a pass of a convolution and chooses the algorithms that the library predicts to be the fastest. With
    /// `is_deterministic`, those whose equal runs have equal bits.
    ///
    /// # Errors
    ///
    /// [`CudnnError::NoAlgorithm`] when the library cannot compute the pass, or the shapes are no convolution.
    /// [`CudnnError::Call`] when a call fails, or the library does not support what it describes.
    pub fn plan(
        &'static self,
        convolution: Convolution,
        pass: Pass,
        is_deterministic: bool,
    ) -> Result<Plan, CudnnError> {
        let library = self.library;
        if !convolution.is_valid() {
            return Err(CudnnError::NoAlgorithm("the shapes are no convolution, or exceed i32".into()));
        }
        let Convolution { element, ref input, ref weight, format, ref output, ref window } = convolution;
        let tensors = [
            Descriptor::tensor(library, element, input)?,
            Descriptor::weight(library, element, weight, format)?,
            Descriptor::tensor(library, element, output)?,
        ];
        let math = match element {
            Element::F32 { tf32: false } => FMA_MATH,
            Element::F32 { .. } => DEFAULT_MATH,
            Element::F16 | Element::Bf16 => TENSOR_OP_MATH,
        };
        let operation = Descriptor::convolution(library, window, math)?;
        let (mut algorithms, mut found): (Algorithms, c_int) = (Default::default(), 0);
        let handle = self.lock();
        let PassFunctions { choose: (name, choose), measure: (_, measure), .. } = pass.functions(&library.functions);
        let [one, other, result] = pass.ordered([&tensors[0], &tensors[1], &tensors[2]]).map(|it| it.object);
        // SAFETY: all objects live, and the pointers are valid for so many results.
        library.checked(name, unsafe {
            choose(
                handle.0,
                one,
                other,
                operation.object,
                result,
                MOST_ALGORITHMS,
                &raw mut found,
                algorithms.as_mut_ptr(),
            )
        })?;
        let count = found.clamp(0, MOST_ALGORITHMS) as usize;
        let (mut choices, mut reasons) = (Vec::<Choice>::new(), Vec::new());
        for algorithm in &algorithms[..count] {
            let number = algorithm.number;
            let rounds = matches!(element, Element::F32 { .. }) && algorithm.math == TENSOR_OP_MATH_ALLOW_CONVERSION;
            if algorithm.status != 0 {
                reasons.push(format!("{number} {}", library.status_name(algorithm.status)));
                continue;
            }
            if rounds {
                reasons.push(format!("{number} rounds f32 to 16 bits"));
                continue;
            }
            if is_deterministic && algorithm.determinism != CUDNN_DETERMINISTIC {
                reasons.push(format!("{number} is not deterministic"));
                continue;
            }
            // Without TF32, the library's choice of math must not bring it back.
            let math = if math == FMA_MATH { FMA_MATH } else { algorithm.math };
            let operation = Descriptor::convolution(library, window, math)?;
            let mut bytes = 0;
            // SAFETY: all objects live, and the pointer is valid for one size.
            let status = unsafe { measure(handle.0, one, other, operation.object, result, number, &raw mut bytes) };
            // Those that follow get the workspace of the first.
            let most = choices.first().map_or(MOST_WORKSPACE, |first| first.workspace_bytes);
            if status == 0 && bytes <= most {
                choices.push(Choice { operation, algorithm: number, workspace_bytes: bytes });
                continue;
            }
            let reason = if status == 0 { format!("needs {bytes} bytes") } else { library.reason(status) };
            reasons.push(format!("{number} {reason}"));
        }
        drop(handle);
        if choices.is_empty() {
            return Err(CudnnError::NoAlgorithm(format!("{name} found {count} ({})", reasons.join(", "))));
        }
        Ok(Plan { handle: self, convolution, pass, tensors, choices })
    }

    /// Describes the sums of a tensor's channels in f32: the gradient of a bias. The library has none for bf16.
    ///
    /// # Errors
    ///
    /// As [`plan`](Self::plan).
    pub fn plan_sums(&'static self, tensor: Layout) -> Result<ChannelSums, CudnnError> {
        let sums = of_channels(&tensor)?;
        let channels = sums.span();
        let element = Element::F32 { tf32: false };
        let descriptors = [&tensor, &sums].map(|layout| Descriptor::tensor(self.library, element, layout));
        let [of_tensor, of_sums] = descriptors;
        Ok(ChannelSums { handle: self, tensor, channels, descriptors: [of_tensor?, of_sums?] })
    }

    /// Describes a batch norm of a tensor's channels, with statistics in f32.
    ///
    /// # Errors
    ///
    /// As [`plan`](Self::plan).
    pub fn plan_batch_norm(&'static self, element: Element, tensor: Layout) -> Result<BatchNorm, CudnnError> {
        let statistics = of_channels(&tensor)?;
        let channels = statistics.span();
        let of_tensor = Descriptor::tensor(self.library, element, &tensor)?;
        let of_channels = Descriptor::tensor(self.library, Element::F32 { tf32: false }, &statistics)?;
        Ok(BatchNorm { handle: self, element, tensor, channels, descriptors: [of_tensor, of_channels] })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let handle = self.handle.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: created by this library, and destroyed once.
        unsafe { (self.library.functions.destroy)(handle.0) };
    }
}

/// A pass of a convolution with its descriptions and its algorithms.
#[derive(Debug)]
pub struct Plan {
    handle: &'static Handle,
    convolution: Convolution,
    pass: Pass,
    tensors: [Descriptor; 3],
    /// At least one, by predicted time. The workspace of the first is enough for all.
    choices: Vec<Choice>,
}

/// An algorithm with the description of its math.
#[derive(Debug)]
struct Choice {
    operation: Descriptor,
    algorithm: c_int,
    workspace_bytes: usize,
}

impl Plan {
    /// The algorithms and what they compute, for messages.
    pub fn description(&self) -> String {
        let algorithms: Vec<_> = self.choices.iter().map(|choice| choice.algorithm.to_string()).collect();
        format!("algorithm {} of {:?} of {:?}", algorithms.join(" or "), self.pass, self.convolution)
    }

    /// Bytes of scratch memory of one launch.
    pub fn workspace_bytes(&self) -> usize {
        self.choices.first().map_or(0, |first| first.workspace_bytes)
    }

    /// Launches the pass on a CUDA stream of the handle's device. The library predicts that it supports algorithms which it then
    /// refuses, so the next one follows.
    ///
    /// # Errors
    ///
    /// When a tensor exceeds its memory, a workspace is missing, or the library refuses the launch with all algorithms.
    ///
    /// # Safety
    ///
    /// The memory belongs to the device and stays allocated until the pass has run, `stream` is a `CUstream` of the
    /// device, and its context is current.
    pub unsafe fn launch(&self, operands: Operands, stream: *mut c_void) -> Result<(), CudnnError> {
        let Convolution { element, input, weight, output, .. } = &self.convolution;
        let bytes = element.bytes();
        for (memory, numbers) in [
            (operands.input, input.span()),
            (operands.weight, weight.iter().product()),
            (operands.output, output.span()),
        ] {
            within(memory, numbers.saturating_mul(bytes))?;
        }
        let workspace = operands.workspace.unwrap_or(Memory { address: 0, bytes: 0 });
        within(workspace, self.workspace_bytes())?;
        let library = self.handle.library;
        let (name, compute) = self.pass.functions(&library.functions).compute;
        let addresses = [operands.input, operands.weight, operands.output].map(|memory| memory.address);
        let [a, b, c] = self.pass.ordered(addresses);
        let [of_a, of_b, of_c] = self.pass.ordered([&self.tensors[0], &self.tensors[1], &self.tensors[2]]);
        let handle = self.handle.lock();
        // SAFETY: the handle lives, and the stream is the caller's promise.
        library.checked("cudnnSetStream", unsafe { (library.functions.set_stream)(handle.0, stream) })?;
        let mut refused = Ok(());
        for choice in &self.choices {
            // SAFETY: objects live, sizes are checked above, and the rest is the caller's promise.
            let launched = library.checked(name, unsafe {
                compute(
                    handle.0,
                    (&raw const ONE).cast(),
                    of_a.object,
                    a as *const c_void,
                    of_b.object,
                    b as *const c_void,
                    choice.operation.object,
                    choice.algorithm,
                    workspace.address as *mut c_void,
                    choice.workspace_bytes,
                    (&raw const ZERO).cast(),
                    of_c.object,
                    c as *mut c_void,
                )
            });
            match launched {
                // The first reason is that of the algorithm which is predicted to be the fastest.
                Err(CudnnError::Call { status: 3000..4000, .. }) => refused = refused.and(launched),
                launched => return launched,
            }
        }
        refused
    }
}

/// Sums of a tensor's channels in f32.
#[derive(Debug)]
pub struct ChannelSums {
    handle: &'static Handle,
    tensor: Layout,
    channels: usize,
    descriptors: [Descriptor; 2],
}

impl ChannelSums {
    /// Launches the sums on a CUDA stream of the handle's device.
    ///
    /// # Errors
    ///
    /// When the tensor or the sums exceed their memory, or the library refuses the launch.
    ///
    /// # Safety
    ///
    /// As of [`Plan::launch`].
    pub unsafe fn launch(&self, tensor: Memory, sums: Memory, stream: *mut c_void) -> Result<(), CudnnError> {
        within(tensor, self.tensor.span().saturating_mul(size_of::<f32>()))?;
        within(sums, self.channels.saturating_mul(size_of::<f32>()))?;
        let library = self.handle.library;
        let handle = self.handle.lock();
        // SAFETY: the handle lives, and the stream is the caller's promise.
        library.checked("cudnnSetStream", unsafe { (library.functions.set_stream)(handle.0, stream) })?;
        let [of_tensor, of_sums] = &self.descriptors;
        // SAFETY: objects live, sizes are checked above, and the rest is the caller's promise.
        library.checked("cudnnConvolutionBackwardBias", unsafe {
            (library.functions.channel_sums)(
                handle.0,
                (&raw const ONE).cast(),
                of_tensor.object,
                tensor.address as *const c_void,
                (&raw const ZERO).cast(),
                of_sums.object,
                sums.address as *mut c_void,
            )
        })
    }
}

/// A batch norm of a tensor's channels. Results have the tensor's layout.
#[derive(Debug)]
pub struct BatchNorm {
    handle: &'static Handle,
    element: Element,
    tensor: Layout,
    channels: usize,
    descriptors: [Descriptor; 2],
}

/// Memory of a batch norm. All but input and output are a number in f32 for each channel.
#[derive(Clone, Copy, Debug)]
pub struct Normalised {
    /// The tensor.
    pub input: Memory,
    /// Factors.
    pub gamma: Memory,
    /// Terms.
    pub beta: Memory,
    /// The result.
    pub output: Memory,
    /// Zeros, to which the means are added.
    pub mean: Memory,
    /// Zeros, to which the variances are added: sums of squares, divided by their number less 1.
    pub variance: Memory,
    /// Means, for the gradients.
    pub saved_mean: Memory,
    /// Reciprocals of standard deviations, for the gradients.
    pub deviation: Memory,
}

/// Memory of a batch norm's gradients. All but those of input and output are a number in f32 for each channel.
#[derive(Clone, Copy, Debug)]
pub struct NormalisedGradients {
    /// The tensor.
    pub input: Memory,
    /// Factors.
    pub gamma: Memory,
    /// The gradient of the output.
    pub gradient: Memory,
    /// See [`Normalised::saved_mean`].
    pub saved_mean: Memory,
    /// See [`Normalised::deviation`].
    pub deviation: Memory,
    /// The gradient of the input.
    pub of_input: Memory,
    /// The gradient of the factors.
    pub of_gamma: Memory,
    /// The gradient of the terms.
    pub of_beta: Memory,
}

impl BatchNorm {
    fn check(&self, tensors: &[Memory], of_channels: &[Memory]) -> Result<(), CudnnError> {
        let bytes = self.tensor.span().saturating_mul(self.element.bytes());
        tensors.iter().try_for_each(|memory| within(*memory, bytes))?;
        of_channels.iter().try_for_each(|memory| within(*memory, self.channels.saturating_mul(size_of::<f32>())))
    }

    /// Launches the norm, by statistics of the tensor, on a CUDA stream of the handle's device.
    ///
    /// # Errors
    ///
    /// When a tensor exceeds its memory, or the library refuses the launch.
    ///
    /// # Safety
    ///
    /// As of [`Plan::launch`].
    pub unsafe fn launch(&self, memory: Normalised, epsilon: f64, stream: *mut c_void) -> Result<(), CudnnError> {
        let Normalised { input, gamma, beta, output, mean, variance, saved_mean, deviation } = memory;
        self.check(&[input, output], &[gamma, beta, mean, variance, saved_mean, deviation])?;
        let library = self.handle.library;
        let handle = self.handle.lock();
        // SAFETY: the handle lives, and the stream is the caller's promise.
        library.checked("cudnnSetStream", unsafe { (library.functions.set_stream)(handle.0, stream) })?;
        let [of_tensor, of_channels] = &self.descriptors;
        // SAFETY: objects live, sizes are checked above, and the rest is the caller's promise.
        library.checked("cudnnBatchNormalizationForwardTraining", unsafe {
            (library.functions.batch_norm)(
                handle.0,
                CUDNN_BATCHNORM_SPATIAL,
                (&raw const ONE).cast(),
                (&raw const ZERO).cast(),
                of_tensor.object,
                input.address as *const c_void,
                of_tensor.object,
                output.address as *mut c_void,
                of_channels.object,
                gamma.address as *const c_void,
                beta.address as *const c_void,
                // The statistics of this tensor alone.
                1.0,
                mean.address as *mut c_void,
                variance.address as *mut c_void,
                epsilon,
                saved_mean.address as *mut c_void,
                deviation.address as *mut c_void,
            )
        })
    }

    /// Launches the gradients of [`launch`](Self::launch).
    ///
    /// # Errors
    ///
    /// As of [`launch`](Self::launch).
    ///
    /// # Safety
    ///
    /// As of [`Plan::launch`].
    pub unsafe fn launch_gradients(
        &self,
        memory: NormalisedGradients,
        epsilon: f64,
        stream: *mut c_void,
    ) -> Result<(), CudnnError> {
        let NormalisedGradients { input, gamma, gradient, saved_mean, deviation, of_input, of_gamma, of_beta } = memory;
        self.check(&[input, gradient, of_input], &[gamma, saved_mean, deviation, of_gamma, of_beta])?;
        let library = self.handle.library;
        let handle = self.handle.lock();
        // SAFETY: the handle lives, and the stream is the caller's promise.
        library.checked("cudnnSetStream", unsafe { (library.functions.set_stream)(handle.0, stream) })?;
        let [of_tensor, of_channels] = &self.descriptors;
        // SAFETY: objects live, sizes are checked above, and the rest is the caller's promise.
        library.checked("cudnnBatchNormalizationBackward", unsafe {
            (library.functions.batch_norm_gradients)(
                handle.0,
                CUDNN_BATCHNORM_SPATIAL,
                (&raw const ONE).cast(),
                (&raw const ZERO).cast(),
                (&raw const ONE).cast(),
                (&raw const ZERO).cast(),
                of_tensor.object,
                input.address as *const c_void,
                of_tensor.object,
                gradient.address as *const c_void,
                of_tensor.object,
                of_input.address as *mut c_void,
                of_channels.object,
                gamma.address as *const c_void,
                of_gamma.address as *mut c_void,
                of_beta.address as *mut c_void,
                epsilon,
                saved_mean.address as *const c_void,
                deviation.address as *const c_void,
            )
        })
    }
}

/// A number for each channel of a tensor.
fn of_channels(tensor: &Layout) -> Result<Layout, CudnnError> {
    let mut shape = vec![1; tensor.shape.len()];
    shape[1] = *tensor.shape.get(1).ok_or_else(|| CudnnError::NoAlgorithm("a tensor without channels".into()))?;
    Ok(Layout::packed(&shape, Format::ChannelsFirst))
}

/// Factors of results and of what was there, which the library reads on the host.
static ONE: f32 = 1.0;
static ZERO: f32 = 0.0;

fn within(memory: Memory, needed: usize) -> Result<(), CudnnError> {
    let needed = needed as u64;
    if needed <= memory.bytes { Ok(()) } else { Err(CudnnError::TooLarge { needed, found: memory.bytes }) }
}

/// Sizes as the library counts them, and their number.
fn counted(sizes: &[usize]) -> Result<(c_int, Vec<c_int>), CudnnError> {
    let count = |size: usize| c_int::try_from(size).map_err(|_| CudnnError::NoAlgorithm(format!("{size} exceeds i32")));
    Ok((count(sizes.len())?, sizes.iter().map(|size| count(*size)).collect::<Result<_, _>>()?))
}

type Create = unsafe extern "C" fn(*mut Object) -> c_int;
type Destroy = unsafe extern "C" fn(Object) -> c_int;

/// A description that the library owns, freed at the end.
#[derive(Debug)]
struct Descriptor {
    object: Object,
    destroy: Destroy,
}

// SAFETY: descriptions are plain memory without ties to a thread.
unsafe impl Send for Descriptor {}
// SAFETY: nothing changes a description once it is in a plan.
unsafe impl Sync for Descriptor {}

impl Descriptor {
    fn new(library: &Cudnn, (name, create): (&'static str, Create), destroy: Destroy) -> Result<Self, CudnnError> {
        let mut object = null_mut();
        // SAFETY: the pointer is valid for one object.
        library.checked(name, unsafe { create(&raw mut object) })?;
        Ok(Self { object, destroy })
    }

    fn tensor(library: &Cudnn, element: Element, layout: &Layout) -> Result<Self, CudnnError> {
        let ((rank, shape), (_, strides)) = (counted(&layout.shape)?, counted(&layout.strides)?);
        let functions = &library.functions;
        let created = ("cudnnCreateTensorDescriptor", functions.tensor_create);
        let tensor = Self::new(library, created, functions.tensor_destroy)?;
        // SAFETY: the object lives, and the pointers are valid for so many numbers.
        library.checked("cudnnSetTensorNdDescriptor", unsafe {
            (functions.tensor_set)(tensor.object, data_type(element), rank, shape.as_ptr(), strides.as_ptr())
        })?;
        Ok(tensor)
    }

    fn weight(library: &Cudnn, element: Element, shape: &[usize], format: Format) -> Result<Self, CudnnError> {
        let (rank, shape) = counted(shape)?;
        let functions = &library.functions;
        let created = ("cudnnCreateFilterDescriptor", functions.filter_create);
        let weight = Self::new(library, created, functions.filter_destroy)?;
        // SAFETY: the object lives, and the pointer is valid for so many numbers.
        library.checked("cudnnSetFilterNdDescriptor", unsafe {
            (functions.filter_set)(weight.object, data_type(element), format_number(format), rank, shape.as_ptr())
        })?;
        Ok(weight)
    }

    fn convolution(library: &Cudnn, window: &Window, math: c_int) -> Result<Self, CudnnError> {
        let functions = &library.functions;
        let created = ("cudnnCreateConvolutionDescriptor", functions.convolution_create);
        let operation = Self::new(library, created, functions.convolution_destroy)?;
        let [padding, stride, dilation] = [&window.padding, &window.stride, &window.dilation].map(|it| counted(it));
        let ((sizes, padding), (_, stride), (_, dilation)) = (padding?, stride?, dilation?);
        let (_, groups) = counted(&[window.groups])?;
        // SAFETY: the object lives, and the pointers are valid for so many numbers.
        library.checked("cudnnSetConvolutionNdDescriptor", unsafe {
            (functions.convolution_set)(
                operation.object,
                sizes,
                padding.as_ptr(),
                stride.as_ptr(),
                dilation.as_ptr(),
                CUDNN_CROSS_CORRELATION,
                CUDNN_DATA_FLOAT,
            )
        })?;
        // SAFETY: the object lives.
        library
            .checked("cudnnSetConvolutionGroupCount", unsafe { (functions.groups_set)(operation.object, groups[0]) })?;
        // SAFETY: as above.
        library.checked("cudnnSetConvolutionMathType", unsafe { (functions.math_set)(operation.object, math) })?;
        Ok(operation)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: created with the function's counterpart, and destroyed once.
        unsafe { (self.destroy)(self.object) };
    }
}
