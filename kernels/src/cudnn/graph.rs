//! Graphs of operations, which the library computes in few kernels.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use super::{CUDNN_DATA_FLOAT, Cudnn, CudnnError, Descriptor, Handle, MOST_WORKSPACE, Object, Pointer};

// `cudnnBackendDescriptorType_t`
const POINTWISE: c_int = 0;
const ENGINE_CONFIG: c_int = 3;
const HEURISTIC: c_int = 4;
const EXECUTION_PLAN: c_int = 5;
const OPERATION_POINTWISE: c_int = 13;
const OPERATION_GRAPH: c_int = 15;
const VARIANT_PACK: c_int = 16;
const TENSOR: c_int = 17;
const MATMUL: c_int = 18;
const OPERATION_MATMUL: c_int = 19;
const REDUCTION: c_int = 21;
const OPERATION_REDUCTION: c_int = 22;
const OPERATION_RESHAPE: c_int = 31;

// `cudnnBackendAttributeName_t`
const POINTWISE_MODE: c_int = 0;
const POINTWISE_PRECISION: c_int = 1;
const POINTWISE_AXIS: c_int = 9;
const HEURISTIC_MODE: c_int = 200;
const HEURISTIC_GRAPH: c_int = 201;
const HEURISTIC_RESULTS: c_int = 202;
const PLAN_HANDLE: c_int = 400;
const PLAN_ENGINE_CONFIG: c_int = 401;
const PLAN_WORKSPACE_BYTES: c_int = 402;
const POINTWISE_FUNCTION: c_int = 750;
const POINTWISE_X: c_int = 751;
const POINTWISE_B: c_int = 752;
const POINTWISE_Y: c_int = 753;
const POINTWISE_T: c_int = 758;
const GRAPH_HANDLE: c_int = 800;
const GRAPH_OPERATIONS: c_int = 801;
const TENSOR_ALIGNMENT: c_int = 900;
const TENSOR_DATA_TYPE: c_int = 901;
const TENSOR_SHAPE: c_int = 902;
const TENSOR_STRIDES: c_int = 903;
const TENSOR_ID: c_int = 906;
const TENSOR_IS_VIRTUAL: c_int = 907;
const TENSOR_IS_BY_VALUE: c_int = 908;
const PACK_IDS: c_int = 1000;
const PACK_POINTERS: c_int = 1001;
const PACK_WORKSPACE: c_int = 1003;
const MATMUL_COMPUTE_TYPE: c_int = 1500;
const MATMUL_A: c_int = 1520;
const MATMUL_B: c_int = 1521;
const MATMUL_C: c_int = 1522;
const MATMUL_FUNCTION: c_int = 1523;
const REDUCTION_OPERATOR: c_int = 1600;
const REDUCTION_COMPUTE_TYPE: c_int = 1601;
const REDUCTION_X: c_int = 1610;
const REDUCTION_Y: c_int = 1611;
const REDUCTION_FUNCTION: c_int = 1612;
const RESHAPE_X: c_int = 2200;
const RESHAPE_Y: c_int = 2201;

// `cudnnDataType_t`
pub(super) const FLOAT: c_int = CUDNN_DATA_FLOAT;
const INT32: c_int = 4;
const BOOLEAN: c_int = 11;

// `cudnnPointwiseMode_t`
pub(super) const ADD: Mode = Mode(0);
pub(super) const MUL: Mode = Mode(1);
pub(super) const DIV: Mode = Mode(6);
pub(super) const SUB: Mode = Mode(9);
pub(super) const EXP: Mode = Mode(13);
pub(super) const LOG: Mode = Mode(15);
pub(super) const IDENTITY: Mode = Mode(21);
const CMP_GE: Mode = Mode(303);
const GEN_INDEX: Mode = Mode(501);
const BINARY_SELECT: Mode = Mode(601);

// `cudnnReduceTensorOp_t`
pub(super) const SUMS: Reduction = Reduction(0);
pub(super) const LARGEST: Reduction = Reduction(3);

/// `CUDNN_HEUR_MODE_A`.
const BY_PREDICTED_TIME: HeuristicMode = HeuristicMode(3);
/// Bytes by which addresses of tensors are divisible.
const ALIGNMENT: i64 = 16;
/// Kernels that are tried.
const MOST_ENGINES: usize = 8;

/// Value of an attribute, of the type that the library expects under this number.
trait Attribute: Copy {
    /// `cudnnBackendAttributeType_t`.
    const TYPE: c_int;
}

macro_rules! attributes {
    ($($(#[$doc:meta])* $name:ident($of:ty) = $number:literal;)*) => {
        $($(#[$doc])* #[derive(Clone, Copy, PartialEq)] #[repr(transparent)] pub(super) struct $name($of);
        impl Attribute for $name { const TYPE: c_int = $number; })*
    };
}

attributes! {
    /// A handle of the library.
    OfHandle(Object) = 0;
    DataType(c_int) = 1;
    HeuristicMode(c_int) = 8;
    Address(u64) = 6;
    Mode(c_int) = 14;
    /// Another description.
    Part(Object) = 15;
    Reduction(c_int) = 18;
}

impl Attribute for bool {
    const TYPE: c_int = 2;
}

impl Attribute for i64 {
    const TYPE: c_int = 3;
}

impl Descriptor {
    fn part(library: &Cudnn, kind: c_int) -> Result<Self, CudnnError> {
        let mut object = null_mut();
        // SAFETY: the pointer is valid for one object.
        library.checked("cudnnBackendCreateDescriptor", unsafe {
            (library.functions.backend_create)(kind, &raw mut object)
        })?;
        Ok(Self { object, destroy: library.functions.backend_destroy })
    }

    fn set<T: Attribute>(&self, library: &Cudnn, name: c_int, values: &[T]) -> Result<(), CudnnError> {
        // SAFETY: the object lives, and the pointer is valid for so many values of the type.
        library.checked("cudnnBackendSetAttribute", unsafe {
            (library.functions.backend_set)(
                self.object,
                name,
                T::TYPE,
                values.len().cast_signed() as i64,
                values.as_ptr().cast::<c_void>(),
            )
        })
    }

    /// Reads up to so many values, and returns their number.
    fn get<T: Attribute>(&self, library: &Cudnn, name: c_int, values: &mut [T]) -> Result<usize, CudnnError> {
        let mut count = 0;
        // SAFETY: the object lives, and the pointers are valid for so many values of the type, and for one number.
        library.checked("cudnnBackendGetAttribute", unsafe {
            (library.functions.backend_get)(
                self.object,
                name,
                T::TYPE,
                values.len().cast_signed() as i64,
                &raw mut count,
                values.as_mut_ptr().cast::<c_void>(),
            )
        })?;
        Ok(usize::try_from(count).unwrap_or(0).min(values.len()))
    }

    fn finalize(&self, library: &Cudnn) -> Result<(), CudnnError> {
        // SAFETY: the object lives.
        library.checked("cudnnBackendFinalize", unsafe { (library.functions.backend_finalize)(self.object) })
    }
}

/// Shape or strides.
pub(super) type Four = [i64; 4];

/// A tensor of a graph.
#[derive(Clone, Copy)]
pub(super) struct Tensor {
    part: Part,
    pub(super) shape: Four,
    pub(super) strides: Four,
}

/// Place of a tensor's numbers.
#[derive(Clone, Copy)]
pub(super) enum Place {
    /// Memory of the device, given by this number at each launch.
    Memory(i64),
    /// Registers of a kernel.
    Kernel,
    /// One number of the host's memory, given by this number at each launch.
    Host(i64),
}

/// A graph that is described.
pub(super) struct Graph {
    handle: &'static Handle,
    kept: Vec<Descriptor>,
    operations: Vec<Part>,
    next: i64,
}

/// Numbers of tensors within kernels follow this one.
const FIRST_WITHIN: i64 = 100;

impl Graph {
    pub(super) fn new(handle: &'static Handle) -> Self {
        Self { handle, kept: Vec::new(), operations: Vec::new(), next: FIRST_WITHIN }
    }

    pub(super) fn tensor(
        &mut self,
        place: Place,
        data_type: c_int,
        shape: Four,
        strides: Four,
    ) -> Result<Tensor, CudnnError> {
        let library = self.handle.library;
        let tensor = Descriptor::part(library, TENSOR)?;
        let id = match place {
            Place::Memory(id) | Place::Host(id) => id,
            Place::Kernel => {
                self.next += 1;
                self.next
            }
        };
        tensor.set(library, TENSOR_DATA_TYPE, &[DataType(data_type)])?;
        tensor.set(library, TENSOR_SHAPE, &shape)?;
        tensor.set(library, TENSOR_STRIDES, &strides)?;
        tensor.set(library, TENSOR_ID, &[id])?;
        tensor.set(library, TENSOR_ALIGNMENT, &[ALIGNMENT])?;
        match place {
            Place::Memory(_) => {}
            Place::Kernel => tensor.set(library, TENSOR_IS_VIRTUAL, &[true])?,
            Place::Host(_) => tensor.set(library, TENSOR_IS_BY_VALUE, &[true])?,
        }
        let part = self.keep(tensor)?;
        Ok(Tensor { part, shape, strides })
    }

    /// Numbers within a kernel, in f32 and without gaps.
    pub(super) fn within(&mut self, shape: Four) -> Result<Tensor, CudnnError> {
        self.within_as(FLOAT, shape)
    }

    pub(super) fn within_as(&mut self, data_type: c_int, shape: Four) -> Result<Tensor, CudnnError> {
        self.tensor(Place::Kernel, data_type, shape, without_gaps(shape))
    }

    pub(super) fn scalar(&mut self, id: i64) -> Result<Tensor, CudnnError> {
        self.tensor(Place::Host(id), FLOAT, [1; 4], [1; 4])
    }

    fn keep(&mut self, part: Descriptor) -> Result<Part, CudnnError> {
        part.finalize(self.handle.library)?;
        let object = Part(part.object);
        self.kept.push(part);
        Ok(object)
    }

    fn operate(&mut self, kind: c_int, parts: &[(c_int, Part)]) -> Result<(), CudnnError> {
        let operation = Descriptor::part(self.handle.library, kind)?;
        for (name, part) in parts {
            operation.set(self.handle.library, *name, &[*part])?;
        }
        let operation = self.keep(operation)?;
        self.operations.push(operation);
        Ok(())
    }

    pub(super) fn multiply(&mut self, left: Tensor, right: Tensor, output: Tensor) -> Result<(), CudnnError> {
        let matmul = Descriptor::part(self.handle.library, MATMUL)?;
        matmul.set(self.handle.library, MATMUL_COMPUTE_TYPE, &[DataType(FLOAT)])?;
        let matmul = self.keep(matmul)?;
        let tensors =
            [(MATMUL_A, left.part), (MATMUL_B, right.part), (MATMUL_C, output.part), (MATMUL_FUNCTION, matmul)];
        self.operate(OPERATION_MATMUL, &tensors)
    }

    /// A function of each number, and of the second tensor's and the third one's if the function has so many.
    fn pointwise(
        &mut self,
        (mode, precision, axis): (Mode, c_int, Option<i64>),
        inputs: &[Tensor],
        output: Tensor,
    ) -> Result<(), CudnnError> {
        let function = Descriptor::part(self.handle.library, POINTWISE)?;
        function.set(self.handle.library, POINTWISE_MODE, &[mode])?;
        function.set(self.handle.library, POINTWISE_PRECISION, &[DataType(precision)])?;
        if let Some(axis) = axis {
            function.set(self.handle.library, POINTWISE_AXIS, &[axis])?;
        }
        let function = self.keep(function)?;
        let inputs = [POINTWISE_X, POINTWISE_B, POINTWISE_T].into_iter().zip(inputs.iter().map(|tensor| tensor.part));
        let parts: Vec<_> =
            [(POINTWISE_FUNCTION, function)].into_iter().chain(inputs).chain([(POINTWISE_Y, output.part)]).collect();
        self.operate(OPERATION_POINTWISE, &parts)
    }

    pub(super) fn compute(&mut self, mode: Mode, inputs: &[Tensor], output: Tensor) -> Result<(), CudnnError> {
        self.pointwise((mode, FLOAT, None), inputs, output)
    }

    /// As [`compute`](Self::compute), with a result in f32 of the first tensor's shape.
    pub(super) fn computed(&mut self, mode: Mode, inputs: &[Tensor]) -> Result<Tensor, CudnnError> {
        let output = self.within(inputs[0].shape)?;
        self.compute(mode, inputs, output)?;
        Ok(output)
    }

    /// The numbers whose column is not behind their row, and the other tensor's elsewhere.
    pub(super) fn lower_triangle(&mut self, input: Tensor, other: Tensor) -> Result<Tensor, CudnnError> {
        let [rows, columns, is_lower] = [INT32, INT32, BOOLEAN].map(|of| self.within_as(of, input.shape));
        let (rows, columns, is_lower) = (rows?, columns?, is_lower?);
        self.pointwise((GEN_INDEX, FLOAT, Some(2)), &[input], rows)?;
        self.pointwise((GEN_INDEX, FLOAT, Some(3)), &[input], columns)?;
        self.pointwise((CMP_GE, BOOLEAN, None), &[rows, columns], is_lower)?;
        self.computed(BINARY_SELECT, &[input, other, is_lower])
    }

    pub(super) fn reduce(&mut self, by: Reduction, input: Tensor, output: Tensor) -> Result<(), CudnnError> {
        let reduction = Descriptor::part(self.handle.library, REDUCTION)?;
        reduction.set(self.handle.library, REDUCTION_COMPUTE_TYPE, &[DataType(FLOAT)])?;
        reduction.set(self.handle.library, REDUCTION_OPERATOR, &[by])?;
        let reduction = self.keep(reduction)?;
        let parts = [(REDUCTION_FUNCTION, reduction), (REDUCTION_X, input.part), (REDUCTION_Y, output.part)];
        self.operate(OPERATION_REDUCTION, &parts)
    }

    /// The input with the output's shape and strides.
    pub(super) fn reshape(&mut self, input: Tensor, output: Tensor) -> Result<(), CudnnError> {
        self.operate(OPERATION_RESHAPE, &[(RESHAPE_X, input.part), (RESHAPE_Y, output.part)])
    }

    /// Chooses the kernels that the library predicts to be the fastest.
    pub(super) fn plan(mut self) -> Result<Executable, CudnnError> {
        let library = self.handle.library;
        let handle = self.handle.lock();
        let of_handle = [OfHandle(handle.0)];
        let graph = Descriptor::part(library, OPERATION_GRAPH)?;
        graph.set(library, GRAPH_OPERATIONS, &self.operations)?;
        graph.set(library, GRAPH_HANDLE, &of_handle)?;
        let graph_part = self.keep(graph)?;
        let heuristic = Descriptor::part(library, HEURISTIC)?;
        heuristic.set(library, HEURISTIC_GRAPH, &[graph_part])?;
        heuristic.set(library, HEURISTIC_MODE, &[BY_PREDICTED_TIME])?;
        heuristic.finalize(library)?;
        let engines: Vec<_> =
            (0..MOST_ENGINES).map(|_| Descriptor::part(library, ENGINE_CONFIG)).collect::<Result<_, _>>()?;
        let mut parts: Vec<_> = engines.iter().map(|engine| Part(engine.object)).collect();
        let found = heuristic.get(library, HEURISTIC_RESULTS, &mut parts)?;
        let mut reasons = Vec::new();
        for (number, engine) in engines.into_iter().take(found).enumerate() {
            match planned(library, of_handle, &engine) {
                Ok((plan, workspace_bytes)) => {
                    drop(handle);
                    self.kept.extend([heuristic, engine]);
                    return Ok(Executable { plan, _kept: self.kept, workspace_bytes });
                }
                Err(error) => reasons.push(format!("{number} {error}")),
            }
        }
        Err(CudnnError::NoAlgorithm(format!("a graph has {found} engines ({})", reasons.join(", "))))
    }
}

fn planned(library: &Cudnn, of_handle: [OfHandle; 1], engine: &Descriptor) -> Result<(Descriptor, usize), CudnnError> {
    let plan = Descriptor::part(library, EXECUTION_PLAN)?;
    plan.set(library, PLAN_HANDLE, &of_handle)?;
    plan.set(library, PLAN_ENGINE_CONFIG, &[Part(engine.object)])?;
    plan.finalize(library)?;
    let mut bytes = [0_i64];
    plan.get(library, PLAN_WORKSPACE_BYTES, &mut bytes)?;
    let bytes = usize::try_from(bytes[0]).unwrap_or(usize::MAX);
    if bytes > MOST_WORKSPACE {
        return Err(CudnnError::NoAlgorithm(format!("needs {bytes} bytes")));
    }
    Ok((plan, bytes))
}

/// Strides of a shape without gaps.
pub(super) fn without_gaps([_, b, c, d]: Four) -> Four {
    [b * c * d, c * d, d, 1]
}

/// A planned graph.
#[derive(Debug)]
pub(super) struct Executable {
    plan: Descriptor,
    _kept: Vec<Descriptor>,
    pub(super) workspace_bytes: usize,
}

impl Executable {
    /// Launches the graph on the handle's stream, with an address for each tensor's number.
    ///
    /// # Safety
    ///
    /// The addresses are those of the graph's tensors, with a workspace of so many bytes.
    pub(super) unsafe fn launch(
        &self,
        library: &Cudnn,
        handle: &Pointer,
        tensors: &[(i64, u64)],
        workspace: u64,
    ) -> Result<(), CudnnError> {
        let (ids, addresses): (Vec<_>, Vec<_>) = tensors.iter().map(|(id, address)| (*id, Address(*address))).unzip();
        let pack = Descriptor::part(library, VARIANT_PACK)?;
        pack.set(library, PACK_IDS, &ids)?;
        pack.set(library, PACK_POINTERS, &addresses)?;
        pack.set(library, PACK_WORKSPACE, &[Address(workspace)])?;
        pack.finalize(library)?;
        // SAFETY: the objects live, and the addresses are the caller's promise.
        library.checked("cudnnBackendExecute", unsafe {
            (library.functions.backend_execute)(handle.0, self.plan.object, pack.object)
        })
    }
}
