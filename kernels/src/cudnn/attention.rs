//! Fused attention: the products, the mask and the softmax in one kernel, which stores no scores.

use std::ffi::{c_int, c_void};

use super::graph::{
    ADD, DIV, EXP, Executable, FLOAT, Four, Graph, IDENTITY, LARGEST, LOG, MUL, Place, SUB, SUMS, Tensor, without_gaps,
};
use super::{CudnnError, Handle, MOST_WORKSPACE, data_type, within};
use crate::attention::{Attention, Strides};
use crate::cublaslt::Memory;

// Numbers of the tensors.
const QUERY: i64 = 1;
const KEY: i64 = 2;
const VALUE: i64 = 3;
const OUTPUT: i64 = 4;
const STATISTICS: i64 = 5;
const GRADIENT: i64 = 6;
const OF_QUERY: i64 = 7;
const OF_KEY: i64 = 8;
const OF_VALUE: i64 = 9;
/// Sums of the output times its gradient.
const SOFTMAX_SUMS: i64 = 10;
/// Sums of the query's gradient in f32.
const OF_QUERY_SUMS: i64 = 11;
const SCALE: i64 = 12;
const EXCLUDED: i64 = 13;
const ONE: i64 = 14;
const BIAS: i64 = 15;

static EXCLUDED_SCORE: f32 = f32::NEG_INFINITY;

/// Alignment of the parts of a workspace.
const ALIGNMENT: usize = 256;

/// Attention, or its gradients, with the kernels that compute it.
#[derive(Debug)]
pub struct AttentionPlan {
    handle: &'static Handle,
    attention: Attention,
    executable: Executable,
}

/// Memory of attention.
#[derive(Clone, Copy, Debug)]
pub struct Attended {
    /// With the strides of [`Attention::strides`], as key and value.
    pub query: Memory,
    /// As above.
    pub key: Memory,
    /// As above.
    pub value: Memory,
    /// [`Attention::bias_numbers`], unless there are none.
    pub bias: Option<Memory>,
    /// [`Attention::packed`].
    pub output: Memory,
    /// A number in f32 for each query, for the gradients.
    pub statistics: Memory,
    /// At least [`AttentionPlan::workspace_bytes`].
    pub workspace: Option<Memory>,
}

/// Memory of attention's gradients, which are [`Attention::packed`].
#[derive(Clone, Copy, Debug)]
pub struct AttendedGradients {
    /// What the forward pass read and wrote. The workspace is that of the gradients.
    pub forward: Attended,
    /// The gradient of the output, with the strides of [`Attention::strides`].
    pub gradient: Memory,
    /// The gradient of the query.
    pub of_query: Memory,
    /// The gradient of the key.
    pub of_key: Memory,
    /// The gradient of the value.
    pub of_value: Memory,
}

impl Handle {
    /// Describes attention.
    ///
    /// # Errors
    ///
    /// [`CudnnError::NoAlgorithm`] when the library computes no such attention in one kernel. [`CudnnError::Call`] when a call
    /// fails: the library cannot compute the attention if its status is that.
    pub fn plan_attention(&'static self, attention: Attention) -> Result<AttentionPlan, CudnnError> {
        self.check_attention(&attention)?;
        let mut graph = Graph::new(self);
        let it = Parts::new(&attention);
        let [query, key, value] = it.inputs(&mut graph)?;
        let output = it.memory(&mut graph, OUTPUT, 3, it.packed(3), false)?;
        let statistics = graph.tensor(Place::Memory(STATISTICS), FLOAT, it.row, without_gaps(it.row))?;
        let scale = graph.scalar(SCALE)?;
        let scores = it.scores(&mut graph, [query, key, scale])?;
        let scores = if attention.is_causal {
            let excluded = graph.scalar(EXCLUDED)?;
            graph.lower_triangle(scores, excluded)?
        } else {
            scores
        };
        let largest = graph.within(it.row)?;
        graph.reduce(LARGEST, scores, largest)?;
        let below = graph.computed(SUB, &[scores, largest])?;
        let exponentials = graph.computed(EXP, &[below])?;
        let sums = graph.within(it.row)?;
        graph.reduce(SUMS, exponentials, sums)?;
        let logarithms = graph.computed(LOG, &[sums])?;
        graph.compute(ADD, &[largest, logarithms], statistics)?;
        let weights = graph.within_as(it.data_type, it.scores)?;
        graph.compute(DIV, &[exponentials, sums], weights)?;
        graph.multiply(weights, value, output)?;
        Ok(AttentionPlan { handle: self, executable: graph.plan()?, attention })
    }

    /// Describes the gradients of attention.
    ///
    /// # Errors
    ///
    /// As [`plan_attention`](Self::plan_attention).
    pub fn plan_attention_gradients(&'static self, attention: Attention) -> Result<AttentionPlan, CudnnError> {
        self.check_attention(&attention)?;
        let mut graph = Graph::new(self);
        let it = Parts::new(&attention);
        let [query, key, _] = it.inputs(&mut graph)?;
        let value = it.memory(&mut graph, VALUE, 2, it.strides(2), true)?;
        let output = it.memory(&mut graph, OUTPUT, 3, it.packed(3), false)?;
        let gradient = it.memory(&mut graph, GRADIENT, 3, it.strides(3), false)?;
        let of_query = it.memory(&mut graph, OF_QUERY, 0, it.packed(0), false)?;
        let of_key = it.memory(&mut graph, OF_KEY, 1, it.packed(1), false)?;
        let of_value = it.memory(&mut graph, OF_VALUE, 2, it.packed(2), false)?;
        let statistics = graph.tensor(Place::Memory(STATISTICS), FLOAT, it.row, without_gaps(it.row))?;
        // The sums of the output times its gradient.
        let products = graph.computed(MUL, &[gradient, output])?;
        let sums = graph.within(it.row)?;
        graph.reduce(SUMS, products, sums)?;
        let softmax_sums = graph.tensor(Place::Memory(SOFTMAX_SUMS), FLOAT, it.row, without_gaps(it.row))?;
        let one = graph.scalar(ONE)?;
        graph.compute(MUL, &[sums, one], softmax_sums)?;
        // The weights again, and the gradient of the value.
        let scale = graph.scalar(SCALE)?;
        let scores = it.scores(&mut graph, [query, key, scale])?;
        let below = graph.computed(SUB, &[scores, statistics])?;
        let below = if attention.is_causal {
            let excluded = graph.scalar(EXCLUDED)?;
            graph.lower_triangle(below, excluded)?
        } else {
            below
        };
        let weights = graph.computed(EXP, &[below])?;
        let transposed = it.transposed(&mut graph, weights)?;
        graph.multiply(transposed, gradient, of_value)?;
        // The gradients of the scores and of the key.
        let of_weights = graph.within(it.scores)?;
        graph.multiply(gradient, value, of_weights)?;
        let less = graph.computed(SUB, &[of_weights, softmax_sums])?;
        let of_softmax = graph.computed(MUL, &[less, weights])?;
        let of_scores = graph.computed(MUL, &[of_softmax, scale])?;
        let transposed = it.transposed(&mut graph, of_scores)?;
        graph.multiply(transposed, query, of_key)?;
        // The gradient of the query.
        let [batch, heads, inner, keys] = key.shape;
        let [by_batch, by_head, by_number, by_row] = key.strides;
        let rows = [batch, heads, keys, inner];
        let keys = graph.tensor(Place::Kernel, FLOAT, rows, [by_batch, by_head, by_row, by_number])?;
        graph.reshape(key, keys)?;
        let all = of_query.shape;
        let of_query_sums = graph.tensor(Place::Memory(OF_QUERY_SUMS), FLOAT, all, without_gaps(all))?;
        graph.multiply(of_scores, keys, of_query_sums)?;
        graph.compute(IDENTITY, &[of_query_sums], of_query)?;
        let mut executable = graph.plan()?;
        executable.workspace_bytes = places(&attention, executable.workspace_bytes)[2];
        if executable.workspace_bytes > MOST_WORKSPACE {
            return Err(CudnnError::NoAlgorithm(format!("needs {} bytes", executable.workspace_bytes)));
        }
        Ok(AttentionPlan { handle: self, executable, attention })
    }

    fn check_attention(&self, attention: &Attention) -> Result<(), CudnnError> {
        let version = self.library.version();
        let is_supported = attention.is_supported(version);
        let reason = || CudnnError::NoAlgorithm(format!("version {version} computes no such attention"));
        is_supported.then_some(()).ok_or_else(reason)
    }
}

/// Places in the workspace of gradients: sums of the softmax, sums of the query's gradient, and the end.
fn places(attention: &Attention, of_library: usize) -> [usize; 3] {
    let rows = attention.batch * attention.heads * attention.queries;
    let sums = of_library.next_multiple_of(ALIGNMENT);
    let of_query = sums + (rows * size_of::<f32>()).next_multiple_of(ALIGNMENT);
    [sums, of_query, of_query + rows * attention.inner * size_of::<f32>()]
}

/// Sizes of the graphs' tensors.
struct Parts<'a> {
    attention: &'a Attention,
    data_type: c_int,
    row: Four,
    scores: Four,
}

impl<'a> Parts<'a> {
    fn new(attention: &'a Attention) -> Self {
        let Attention { element, batch, heads, queries, keys, .. } = *attention;
        let [batch, heads, queries, keys] = [batch, heads, queries, keys].map(|size| size.cast_signed() as i64);
        let (row, scores) = ([batch, heads, queries, 1], [batch, heads, queries, keys]);
        Self { attention, data_type: data_type(element), row, scores }
    }

    fn strides(&self, which: usize) -> Strides {
        self.attention.strides[which]
    }

    fn packed(&self, which: usize) -> Strides {
        let [rows, numbers] = self.attention.sizes()[which];
        Attention::packed(self.attention.heads, rows, numbers)
    }

    /// A tensor in memory whose size is that of query, key, value or output.
    fn memory(
        &self,
        graph: &mut Graph,
        id: i64,
        which: usize,
        strides: Strides,
        is_transposed: bool,
    ) -> Result<Tensor, CudnnError> {
        let [rows, numbers] = self.attention.sizes()[which].map(|size| size.cast_signed() as i64);
        let [by_batch, by_head, by_row] = strides.map(|stride| stride.cast_signed() as i64);
        let [batch, heads, ..] = self.row;
        let (shape, strides) = if is_transposed {
            ([batch, heads, numbers, rows], [by_batch, by_head, 1, by_row])
        } else {
            ([batch, heads, rows, numbers], [by_batch, by_head, by_row, 1])
        };
        graph.tensor(Place::Memory(id), self.data_type, shape, strides)
    }

    /// Query, transposed key, and value.
    fn inputs(&self, graph: &mut Graph) -> Result<[Tensor; 3], CudnnError> {
        Ok([
            self.memory(graph, QUERY, 0, self.strides(0), false)?,
            self.memory(graph, KEY, 1, self.strides(1), true)?,
            self.memory(graph, VALUE, 2, self.strides(2), false)?,
        ])
    }

    fn scores(&self, graph: &mut Graph, [query, key, scale]: [Tensor; 3]) -> Result<Tensor, CudnnError> {
        let products = graph.within(self.scores)?;
        graph.multiply(query, key, products)?;
        let scores = graph.computed(MUL, &[products, scale])?;
        if self.attention.biases == 0 {
            return Ok(scores);
        }
        let [_, _, queries, keys] = self.scores;
        let [biases, row] = [self.attention.biases, self.attention.bias_row()].map(|size| size.cast_signed() as i64);
        let strides = [queries * row, queries * row, row, 1];
        let bias = graph.tensor(Place::Memory(BIAS), self.data_type, [biases, 1, queries, keys], strides)?;
        graph.computed(ADD, &[scores, bias])
    }

    /// Scores as the left factor of a product over the queries.
    fn transposed(&self, graph: &mut Graph, scores: Tensor) -> Result<Tensor, CudnnError> {
        let [batch, heads, queries, keys] = self.scores;
        let strides = [heads * queries * keys, queries * keys, 1, keys];
        let transposed = graph.tensor(Place::Kernel, self.data_type, [batch, heads, keys, queries], strides)?;
        graph.reshape(scores, transposed)?;
        Ok(transposed)
    }
}

impl AttentionPlan {
    /// The attention.
    pub fn attention(&self) -> &Attention {
        &self.attention
    }

    /// Bytes of scratch memory of one launch.
    pub fn workspace_bytes(&self) -> usize {
        self.executable.workspace_bytes
    }

    /// Checks that memory has a tensor with the size of query, key, value or output.
    fn check(&self, memory: Memory, which: usize, strides: Strides) -> Result<(), CudnnError> {
        let [rows, numbers] = self.attention.sizes()[which];
        let sizes = [self.attention.batch, self.attention.heads, rows];
        let last: usize = sizes.iter().zip(strides).map(|(size, stride)| (size - 1) * stride).sum();
        within(memory, (last + numbers) * self.attention.element.bytes())
    }

    fn check_forward(&self, memory: &Attended) -> Result<u64, CudnnError> {
        let it = &self.attention;
        let inputs = [memory.query, memory.key, memory.value];
        for (which, memory) in inputs.into_iter().enumerate() {
            self.check(memory, which, it.strides[which])?;
        }
        self.check(memory.output, 3, Attention::packed(it.heads, it.queries, it.values))?;
        let none = Memory { address: 0, bytes: 0 };
        within(memory.bias.unwrap_or(none), it.bias_numbers() * it.element.bytes())?;
        within(memory.statistics, it.batch * it.heads * it.queries * size_of::<f32>())?;
        let workspace = memory.workspace.unwrap_or(none);
        within(workspace, self.workspace_bytes())?;
        Ok(workspace.address)
    }

    /// Launches attention on a CUDA stream of the handle's device. `scale` multiplies the products of queries and keys.
    ///
    /// # Errors
    ///
    /// When a tensor exceeds its memory, or the library refuses the launch.
    ///
    /// # Safety
    ///
    /// As of [`Plan::launch`](super::Plan::launch). The plan is that of [`Handle::plan_attention`].
    pub unsafe fn launch(&self, memory: Attended, scale: f32, stream: *mut c_void) -> Result<(), CudnnError> {
        let workspace = self.check_forward(&memory)?;
        let tensors = self.addresses(&memory, &scale);
        // SAFETY: the caller's promise, and sizes are checked above.
        unsafe { self.execute(&tensors, workspace, stream) }
    }

    /// Launches the gradients of attention.
    ///
    /// # Errors
    ///
    /// As of [`launch`](Self::launch).
    ///
    /// # Safety
    ///
    /// As of [`Plan::launch`](super::Plan::launch). The plan is that of [`Handle::plan_attention_gradients`].
    pub unsafe fn launch_gradients(
        &self,
        memory: AttendedGradients,
        scale: f32,
        stream: *mut c_void,
    ) -> Result<(), CudnnError> {
        let AttendedGradients { forward, gradient, of_query, of_key, of_value } = memory;
        let workspace = self.check_forward(&forward)?;
        let it = &self.attention;
        self.check(gradient, 3, it.strides[3])?;
        for (which, memory) in [of_query, of_key, of_value].into_iter().enumerate() {
            let [rows, numbers] = it.sizes()[which];
            self.check(memory, which, Attention::packed(it.heads, rows, numbers))?;
        }
        let [_, _, end] = places(it, 0);
        let [sums, of_query_sums, _] = places(it, self.workspace_bytes() - end);
        let mut tensors = self.addresses(&forward, &scale);
        tensors.extend([
            (GRADIENT, gradient.address),
            (OF_QUERY, of_query.address),
            (OF_KEY, of_key.address),
            (OF_VALUE, of_value.address),
            (SOFTMAX_SUMS, workspace + sums as u64),
            (OF_QUERY_SUMS, workspace + of_query_sums as u64),
            (ONE, (&raw const super::ONE) as u64),
        ]);
        // SAFETY: the caller's promise, and sizes are checked above.
        unsafe { self.execute(&tensors, workspace, stream) }
    }

    /// # Safety
    ///
    /// As of [`Executable::launch`].
    unsafe fn execute(&self, tensors: &[(i64, u64)], workspace: u64, stream: *mut c_void) -> Result<(), CudnnError> {
        let library = self.handle.library;
        let handle = self.handle.lock();
        // SAFETY: the handle lives, and the stream is the caller's promise.
        library.checked("cudnnSetStream", unsafe { (library.functions.set_stream)(handle.0, stream) })?;
        // SAFETY: the caller's promise.
        unsafe { self.executable.launch(library, &handle, tensors, workspace) }
    }

    /// Addresses of both passes' tensors. Those of numbers are the host's, and are read before the launch returns.
    fn addresses(&self, memory: &Attended, scale: &f32) -> Vec<(i64, u64)> {
        let Attended { query, key, value, bias, output, statistics, .. } = memory;
        let mut addresses = vec![
            (QUERY, query.address),
            (KEY, key.address),
            (VALUE, value.address),
            (OUTPUT, output.address),
            (STATISTICS, statistics.address),
            (SCALE, std::ptr::from_ref(scale) as u64),
        ];
        if self.attention.is_causal {
            addresses.push((EXCLUDED, (&raw const EXCLUDED_SCORE) as u64));
        }
        if let Some(bias) = bias.filter(|_| self.attention.biases > 0) {
            addresses.push((BIAS, bias.address));
        }
        addresses
    }
}
