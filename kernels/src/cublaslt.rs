//! NVIDIA's cuBLASLt: the functions that products need, loaded when the program runs.
//!
//! All `unsafe` code of the library is here. Types and numbers follow the library's header, versions 12 and 13.

use std::ffi::{c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::Mutex;

use libloading::Library;

use crate::find::LoadError;
use crate::functions::functions;
use crate::matrix::Matrices;

/// Oldest version with all attributes that are set here.
const OLDEST: usize = 120_000;
/// Largest alignment of addresses in bytes that the library distinguishes.
pub const MOST_ALIGNED: u64 = 256;
/// Alignment in bytes from which the library's kernels are the same: that of their widest loads.
const WIDEST_LOAD: u64 = 16;
/// Largest scratch memory of a product: what the library's manual advises for Hopper GPUs.
const MOST_WORKSPACE: u64 = 32 << 20;

/// Failure of a call of cuBLASLt.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum CublasError {
    /// A call failed.
    #[error("{call} failed with status {status}")]
    Call {
        /// The library's function.
        call: &'static str,
        /// `cublasStatus_t`.
        status: i32,
    },
    /// No algorithm of the library computes this product.
    #[error("cuBLASLt has no algorithm for this product")]
    NoAlgorithm,
    /// A matrix, vector or workspace does not lie within its buffer, or has none.
    #[error("a matrix of {needed} bytes exceeds its buffer of {found} bytes")]
    TooLarge {
        /// Bytes from the first to the last number of the matrices.
        needed: u64,
        /// Bytes of the buffer.
        found: u64,
    },
    /// An address is less aligned than the plan assumes.
    #[error("address {address:#x} is not divisible by {alignment} bytes, as planned")]
    Misaligned {
        /// Address of a matrix or vector.
        address: u64,
        /// Bytes.
        alignment: u64,
    },
}

type Object = *mut c_void;

functions! {
    version = b"cublasLtGetVersion\0": fn() -> usize;
    create = b"cublasLtCreate\0": fn(*mut Object) -> c_int;
    destroy = b"cublasLtDestroy\0": fn(Object) -> c_int;
    description_create = b"cublasLtMatmulDescCreate\0": fn(*mut Object, c_int, c_int) -> c_int;
    description_destroy = b"cublasLtMatmulDescDestroy\0": fn(Object) -> c_int;
    description_set = b"cublasLtMatmulDescSetAttribute\0": fn(Object, c_int, *const c_void, usize) -> c_int;
    layout_create = b"cublasLtMatrixLayoutCreate\0": fn(*mut Object, c_int, u64, u64, i64) -> c_int;
    layout_destroy = b"cublasLtMatrixLayoutDestroy\0": fn(Object) -> c_int;
    layout_set = b"cublasLtMatrixLayoutSetAttribute\0": fn(Object, c_int, *const c_void, usize) -> c_int;
    preference_create = b"cublasLtMatmulPreferenceCreate\0": fn(*mut Object) -> c_int;
    preference_destroy = b"cublasLtMatmulPreferenceDestroy\0": fn(Object) -> c_int;
    preference_set = b"cublasLtMatmulPreferenceSetAttribute\0": fn(Object, c_int, *const c_void, usize) -> c_int;
    heuristic = b"cublasLtMatmulAlgoGetHeuristic\0":
        fn(Object, Object, Object, Object, Object, Object, Object, c_int, *mut Heuristic, *mut c_int) -> c_int;
    matmul = b"cublasLtMatmul\0": fn(
        Object, Object, *const c_void, *const c_void, Object, *const c_void, Object, *const c_void,
        *const c_void, Object, *mut c_void, Object, *const Algorithm, *mut c_void, usize, Object) -> c_int;
}

/// `cublasLtMatmulAlgo_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Algorithm([u64; 8]);

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Heuristic {
    algorithm: Algorithm,
    workspace_bytes: usize,
    status: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

/// The loaded library.
pub struct CublasLt {
    functions: Functions,
    path: PathBuf,
    /// Keeps the functions loaded.
    _library: Library,
}

impl std::fmt::Debug for CublasLt {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("CublasLt").field("path", &self.path).finish_non_exhaustive()
    }
}

impl CublasLt {
    /// Loads the library from a file, or by a bare name from the system's paths.
    ///
    /// # Errors
    ///
    /// When the file is no such library, or a version before 12.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let refused = |error: libloading::Error| LoadError::Open { path: path.into(), reason: error.to_string() };
        // SAFETY: initialisers of NVIDIA's library need nothing of this process. Which files are loaded is the user's
        // choice, by the system's paths and the variables that `find` documents.
        let library = unsafe { Library::new(path) }.map_err(refused)?;
        let functions = Functions::load(&library).map_err(refused)?;
        // SAFETY: the function has no preconditions.
        let found = unsafe { (functions.version)() };
        if found < OLDEST {
            return Err(LoadError::Version { library: "cuBLASLt", path: path.into(), found, oldest: OLDEST });
        }
        Ok(Self { functions, path: path.into(), _library: library })
    }

    /// Major version times 10,000, minor version times 100, and patch: 130,100 is version 13.1.0.
    pub fn version(&self) -> usize {
        // SAFETY: the function has no preconditions.
        unsafe { (self.functions.version)() }
    }

    /// Major version of CUDA that the library is for.
    pub fn cuda(&self) -> usize {
        self.version() / 10_000
    }

    /// The file that was loaded, or its bare name.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Divisor of the numbers from one row of GELU's input to the next.
const LEADING_OF_GELU: usize = 8;
/// `CUBLAS_STATUS_NOT_SUPPORTED`.
const NOT_SUPPORTED: c_int = 15;

fn checked(call: &'static str, status: c_int) -> Result<(), CublasError> {
    if status == 0 { Ok(()) } else { Err(CublasError::Call { call, status }) }
}

/// A type of numbers in matrices. Sums are in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// 32 bits.
    F32 {
        /// Factors are rounded to 10 bits of fraction, and multiplied by tensor cores.
        tf32: bool,
    },
    /// 16 bits, 10 of them fraction.
    F16,
    /// 16 bits, 7 of them fraction.
    Bf16,
}

impl Element {
    /// Bytes of a number.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 { .. } => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// `cudaDataType_t`.
    const fn data_type(self) -> c_int {
        match self {
            Self::F32 { .. } => CUDA_R_32F,
            Self::F16 => 2,
            Self::Bf16 => 14,
        }
    }

    /// `cublasComputeType_t`: `32F`, or `32F_FAST_TF32`.
    const fn compute_type(self) -> c_int {
        match self {
            Self::F32 { tf32: true } => 77,
            _ => 68,
        }
    }
}

const CUDA_R_32F: c_int = 0;

/// An operation that the library adds to a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Epilogue {
    /// The product alone.
    None,
    /// A number for each column is added to the product. All batches have the same numbers.
    Bias,
    /// As [`Epilogue::Bias`], then GELU by its tanh approximation. GELU's input is written as well. Of one batch only.
    BiasGelu,
    /// Sums of the columns of the right matrix are written as well. Of one batch only.
    ColumnSums,
}

impl Epilogue {
    /// `cublasLtEpilogue_t`.
    const fn number(self) -> u32 {
        match self {
            Self::None => 1,
            Self::Bias => 4,
            Self::BiasGelu => 32 | 4 | 128,
            // The left matrix of the library is the right one here.
            Self::ColumnSums => 256,
        }
    }
}

/// A product of matrices in rows: `output = left · right`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Product {
    /// Type of all numbers.
    pub element: Element,
    /// Rows of the left matrix and of the output.
    pub rows: usize,
    /// Columns of the left matrix, rows of the right.
    pub inner: usize,
    /// Columns of the right matrix and of the output.
    pub columns: usize,
    /// Equal products of matrices at equal distances.
    pub batches: usize,
    /// Layout of the left matrices.
    pub left: Matrices,
    /// Layout of the right matrices.
    pub right: Matrices,
    /// Layout of the output, which is not transposed.
    pub output: Matrices,
    /// Added to the product.
    pub epilogue: Epilogue,
    /// The product is added to what the output has.
    pub accumulate: bool,
}

/// Device memory of a matrix: its address and its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Address on the device.
    pub address: u64,
    /// Bytes from the address to the end of the buffer.
    pub bytes: u64,
}

impl Memory {
    const NONE: Self = Self { address: 0, bytes: 0 };
}

/// Memory of one product.
#[derive(Clone, Copy, Debug)]
pub struct Operands {
    /// The left matrices.
    pub left: Memory,
    /// The right matrices.
    pub right: Memory,
    /// The output.
    pub output: Memory,
    /// Numbers for each column: written by [`Epilogue::ColumnSums`], read as a bias by others.
    pub vector: Option<Memory>,
    /// Input of an activation in the layout of the output: written by [`Epilogue::BiasGelu`].
    pub pre_activation: Option<Memory>,
    /// At least [`Plan::workspace_bytes`].
    pub workspace: Option<Memory>,
}

/// The library on one device.
#[derive(Debug)]
pub struct Handle {
    library: &'static CublasLt,
    handle: Object,
}

// SAFETY: the library's manual allows calls from several threads with one handle.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    /// Opens the library on the device whose CUDA context is current.
    ///
    /// # Errors
    ///
    /// When the library does not support the device or has no memory.
    pub fn new(library: &'static CublasLt) -> Result<Self, CublasError> {
        let mut handle = null_mut();
        // SAFETY: the pointer is valid for one handle.
        checked("cublasLtCreate", unsafe { (library.functions.create)(&raw mut handle) })?;
        Ok(Self { library, handle })
    }

    /// Describes a product and chooses the algorithm that the library predicts to be the fastest.
    ///
    /// `alignment` has powers of two by which the addresses of left, right, and of output and vector are divisible.
    ///
    /// # Errors
    ///
    /// [`CublasError::NoAlgorithm`] when the library cannot compute the product, one of the sizes is 0 or more than the
    /// library counts, or the output is transposed. GELU needs rows at distances of whole eights.
    /// [`CublasError::Call`] when a call fails.
    pub fn plan(&'static self, product: Product, alignment: [u64; 3]) -> Result<Plan, CublasError> {
        let Product { element, rows, inner, columns, batches, left, right, output, epilogue, .. } = product;
        let library = self.library;
        let is_counted = |size: usize| (1..=i32::MAX as usize).contains(&size);
        let writes_pre_activation = epilogue == Epilogue::BiasGelu;
        let is_of_batches = (epilogue == Epilogue::ColumnSums || writes_pre_activation) && batches > 1;
        let is_unaligned = writes_pre_activation && !output.leading.is_multiple_of(LEADING_OF_GELU);
        // Layouts have no transposed output, and one batch is the library's default: it would compute these wrongly.
        if ![rows, inner, columns, batches].into_iter().all(is_counted)
            || output.transposed
            || is_of_batches
            || is_unaligned
        {
            return Err(CublasError::NoAlgorithm);
        }
        // A matrix in rows is the transpose of the same memory in columns, so the right matrix comes first.
        let layouts = [
            Layout::new(library, element, inner, columns, batches, right)?,
            Layout::new(library, element, rows, inner, batches, left)?,
            Layout::new(library, element, rows, columns, batches, output)?,
        ];
        let description = Description::new(library, element)?;
        description.set(TRANSA, &c_int::from(right.transposed))?;
        description.set(TRANSB, &c_int::from(left.transposed))?;
        description.set(EPILOGUE, &epilogue.number())?;
        if epilogue != Epilogue::None {
            // Any address will do to choose an algorithm.
            description.set(BIAS_POINTER, &MOST_ALIGNED)?;
        }
        if writes_pre_activation {
            description.set(AUXILIARY_POINTER, &MOST_ALIGNED)?;
            let leading = i64::try_from(output.leading).map_err(|_| CublasError::NoAlgorithm)?;
            description.set(AUXILIARY_LEADING, &leading)?;
        }
        let preference = Preference::new(library)?;
        preference.set(PREFERENCE_WORKSPACE_BYTES, &MOST_WORKSPACE)?;
        // Else the library may add parts of a sum in the output's 16 bits.
        preference.set(PREFERENCE_REDUCTIONS, &IN_COMPUTE_TYPE)?;
        let [of_left, of_right, of_output] = alignment.map(|bytes| bytes.min(MOST_ALIGNED) as u32);
        for (attribute, bytes) in PREFERENCE_ALIGNMENTS.zip([of_right, of_left, of_output, of_output]) {
            preference.set(attribute, &bytes)?;
        }
        let (mut best, mut found) = (Heuristic::default(), 0);
        // SAFETY: all objects live, and the pointers are valid for the one result that is asked for.
        let status = unsafe {
            (library.functions.heuristic)(
                self.handle,
                description.0.object,
                layouts[0].0.object,
                layouts[1].0.object,
                layouts[2].0.object,
                layouts[2].0.object,
                preference.0.object,
                1,
                &raw mut best,
                &raw mut found,
            )
        };
        if status == NOT_SUPPORTED || (status == 0 && (found == 0 || best.status != 0)) {
            return Err(CublasError::NoAlgorithm);
        }
        checked("cublasLtMatmulAlgoGetHeuristic", status)?;
        let alignment = alignment.map(|bytes| bytes.min(WIDEST_LOAD));
        Ok(Plan { handle: self, product, alignment, description: Mutex::new(description), layouts, best })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: created by this library, and destroyed once.
        unsafe { (self.library.functions.destroy)(self.handle) };
    }
}

/// A product with its descriptions and its algorithm.
#[derive(Debug)]
pub struct Plan {
    handle: &'static Handle,
    product: Product,
    /// Least alignment of left, right, and output and vector.
    alignment: [u64; 3],
    /// Has the addresses of a vector and of GELU's input while a product is launched.
    description: Mutex<Description>,
    layouts: [Layout; 3],
    best: Heuristic,
}

impl std::fmt::Debug for Heuristic {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Heuristic").field("workspace_bytes", &self.workspace_bytes).finish_non_exhaustive()
    }
}

impl Plan {
    /// Bytes of scratch memory of one product.
    pub fn workspace_bytes(&self) -> usize {
        self.best.workspace_bytes
    }

    /// Launches the product on a CUDA stream of the handle's device.
    ///
    /// # Errors
    ///
    /// When a matrix exceeds its memory or is less aligned than planned, a vector, matrix or workspace is missing, or the
    /// library refuses the launch. Nothing is launched then.
    ///
    /// # Safety
    ///
    /// The memory belongs to the device and stays allocated until the product has run, `stream` is a `CUstream` of the
    /// device, and its context is current.
    pub unsafe fn launch(&self, operands: Operands, stream: *mut c_void) -> Result<(), CublasError> {
        let Product { rows, inner, columns, batches, left, right, output, element, epilogue, .. } = self.product;
        let [of_left, of_right, of_output] = self.alignment;
        let bytes = element.bytes();
        for (memory, matrices, rows, columns, alignment) in [
            (operands.left, left, rows, inner, of_left),
            (operands.right, right, inner, columns, of_right),
            (operands.output, output, rows, columns, of_output),
        ] {
            within(memory, matrices.span(rows, columns, batches).saturating_mul(bytes))?;
            aligned(memory, alignment)?;
        }
        let vector = (epilogue != Epilogue::None).then(|| operands.vector.unwrap_or(Memory::NONE));
        if let Some(vector) = vector {
            within(vector, columns.saturating_mul(bytes))?;
            aligned(vector, of_output)?;
        }
        let pre_activation = (epilogue == Epilogue::BiasGelu).then(|| operands.pre_activation.unwrap_or(Memory::NONE));
        if let Some(pre_activation) = pre_activation {
            within(pre_activation, output.span(rows, columns, batches).saturating_mul(bytes))?;
            aligned(pre_activation, WIDEST_LOAD)?;
        }
        let workspace = operands.workspace.unwrap_or(Memory::NONE);
        within(workspace, self.best.workspace_bytes)?;
        let description = self.description.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(vector) = vector {
            description.set(BIAS_POINTER, &vector.address)?;
        }
        if let Some(pre_activation) = pre_activation {
            description.set(AUXILIARY_POINTER, &pre_activation.address)?;
        }
        let (one, before) = (1f32, f32::from(u8::from(self.product.accumulate)));
        // SAFETY: objects live, sizes are checked above, and the rest is the caller's promise.
        let status = unsafe {
            (self.handle.library.functions.matmul)(
                self.handle.handle,
                description.0.object,
                (&raw const one).cast(),
                operands.right.address as *const c_void,
                self.layouts[0].0.object,
                operands.left.address as *const c_void,
                self.layouts[1].0.object,
                (&raw const before).cast(),
                operands.output.address as *const c_void,
                self.layouts[2].0.object,
                operands.output.address as *mut c_void,
                self.layouts[2].0.object,
                &raw const self.best.algorithm,
                workspace.address as *mut c_void,
                self.best.workspace_bytes,
                stream,
            )
        };
        checked("cublasLtMatmul", status)
    }
}

fn within(memory: Memory, needed: usize) -> Result<(), CublasError> {
    let needed = needed as u64;
    if needed <= memory.bytes { Ok(()) } else { Err(CublasError::TooLarge { needed, found: memory.bytes }) }
}

fn aligned(memory: Memory, alignment: u64) -> Result<(), CublasError> {
    let address = memory.address;
    if address.is_multiple_of(alignment) { Ok(()) } else { Err(CublasError::Misaligned { address, alignment }) }
}

// `cublasLtMatmulDescAttributes_t`
const TRANSA: c_int = 3;
const TRANSB: c_int = 4;
const EPILOGUE: c_int = 7;
const BIAS_POINTER: c_int = 8;
const AUXILIARY_POINTER: c_int = 11;
const AUXILIARY_LEADING: c_int = 12;
// `cublasLtMatrixLayoutAttribute_t`
const BATCH_COUNT: c_int = 5;
const BATCH_STRIDE: c_int = 6;
// `cublasLtMatmulPreferenceAttributes_t`: alignments of the library's A, B, C and D.
const PREFERENCE_WORKSPACE_BYTES: c_int = 1;
const PREFERENCE_REDUCTIONS: c_int = 3;
const PREFERENCE_ALIGNMENTS: std::ops::RangeInclusive<c_int> = 5..=8;
// `cublasLtReductionScheme_t`
const IN_COMPUTE_TYPE: u32 = 2;

/// An object of the library, freed at the end.
struct Owned {
    object: Object,
    destroy: unsafe extern "C" fn(Object) -> c_int,
}

// SAFETY: the objects are plain memory without ties to a thread.
unsafe impl Send for Owned {}
// SAFETY: nothing changes an object through a shared reference but `Description::set`, behind a mutex.
unsafe impl Sync for Owned {}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: created with the function's counterpart, and destroyed once.
        unsafe { (self.destroy)(self.object) };
    }
}

impl std::fmt::Debug for Owned {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Owned").field(&self.object).finish()
    }
}

#[derive(Debug)]
struct Layout(Owned);

impl Layout {
    /// Layout of matrices of `rows` and `columns`, in the library's order: columns.
    fn new(
        library: &'static CublasLt,
        element: Element,
        rows: usize,
        columns: usize,
        batches: usize,
        matrices: Matrices,
    ) -> Result<Self, CublasError> {
        let (rows, columns) = if matrices.transposed { (columns, rows) } else { (rows, columns) };
        let counted = |size: usize| i64::try_from(size).map_err(|_| CublasError::NoAlgorithm);
        let (leading, stride) = (counted(matrices.leading)?, counted(matrices.batch_stride)?);
        let count = i32::try_from(batches).map_err(|_| CublasError::NoAlgorithm)?;
        let mut object = null_mut();
        // SAFETY: the pointer is valid for one layout.
        checked("cublasLtMatrixLayoutCreate", unsafe {
            (library.functions.layout_create)(
                &raw mut object,
                element.data_type(),
                columns as u64,
                rows as u64,
                leading,
            )
        })?;
        let layout = Self(Owned { object, destroy: library.functions.layout_destroy });
        let set = |attribute, value: *const c_void, bytes| {
            // SAFETY: the layout lives, and the value has the attribute's type.
            checked("cublasLtMatrixLayoutSetAttribute", unsafe {
                (library.functions.layout_set)(object, attribute, value, bytes)
            })
        };
        if batches > 1 {
            set(BATCH_COUNT, (&raw const count).cast(), size_of_val(&count))?;
            set(BATCH_STRIDE, (&raw const stride).cast(), size_of_val(&stride))?;
        }
        Ok(layout)
    }
}

#[derive(Debug)]
struct Description(Owned, &'static CublasLt);

impl Description {
    fn new(library: &'static CublasLt, element: Element) -> Result<Self, CublasError> {
        let mut object = null_mut();
        // SAFETY: the pointer is valid for one description.
        checked("cublasLtMatmulDescCreate", unsafe {
            (library.functions.description_create)(&raw mut object, element.compute_type(), CUDA_R_32F)
        })?;
        Ok(Self(Owned { object, destroy: library.functions.description_destroy }, library))
    }

    /// Sets an attribute to a value of the attribute's type.
    fn set<T: Copy>(&self, attribute: c_int, value: &T) -> Result<(), CublasError> {
        // SAFETY: the description lives; the attributes above have the types that the callers give.
        checked("cublasLtMatmulDescSetAttribute", unsafe {
            (self.1.functions.description_set)(
                self.0.object,
                attribute,
                std::ptr::from_ref(value).cast(),
                size_of::<T>(),
            )
        })
    }
}

struct Preference(Owned, &'static CublasLt);

impl Preference {
    fn new(library: &'static CublasLt) -> Result<Self, CublasError> {
        let mut object = null_mut();
        // SAFETY: the pointer is valid for one preference.
        checked("cublasLtMatmulPreferenceCreate", unsafe { (library.functions.preference_create)(&raw mut object) })?;
        Ok(Self(Owned { object, destroy: library.functions.preference_destroy }, library))
    }

    /// Sets an attribute to a value of the attribute's type.
    fn set<T: Copy>(&self, attribute: c_int, value: &T) -> Result<(), CublasError> {
        // SAFETY: the preference lives; the attributes above have the types that the callers give.
        checked("cublasLtMatmulPreferenceSetAttribute", unsafe {
            (self.1.functions.preference_set)(
                self.0.object,
                attribute,
                std::ptr::from_ref(value).cast(),
                size_of::<T>(),
            )
        })
    }
}
