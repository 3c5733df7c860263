//! Convolutions and optimizers, which CUDA runs otherwise than the CPU.
//!
//! Burn's CPU backend copies weight and input into rows of channels, and frees the copies: three zeroed allocations in
//! a row, of which the output alone stays. This pattern identifies convolutions.
//!
//! On CUDA, the output's rows are its channels, and rows are padded. The input's gradient needs columns of a matrix
//! (`dgrad_im2col` in `burn-cubecl`). The weight's gradient needs them too (`wgrad_im2col`), twice at a time, because
//! merging padded dimensions copies. Autotune also chooses kernels without columns: for the weight's gradient where
//! rows of columns need no padding, according to the pages of two models on an H200.
//!
//! Burn fuses optimizers on CUDA: all operations of a parameter become one kernel. It makes nothing that is not kept, and writes what is kept over its
//! inputs of the same size: gradients, and the parameter itself, unless its rows are padded.

use std::collections::{HashMap, HashSet, VecDeque};

use super::program::{Op, Phase, Program, Recorded, Size, deaths, phases};

/// The gradient for the input is made at most so many ops before the gradient for the weight.
const FURTHEST: usize = 64;

/// A convolution's weight, as the model has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Weight {
    outputs: u64,
    inputs: u64,
    taps: u64,
}

/// A convolution that a forward pass made.
#[derive(Clone, Copy, Debug)]
struct ConvOutput {
    weight: Weight,
    /// Bytes of the input at the two micro-batches.
    input: [u64; 2],
    /// Pixels of the output at the two micro-batches, over all samples.
    pixels: [u64; 2],
}

/// The input as a matrix with a row for each pixel of the output.
#[derive(Clone, Copy, Debug)]
struct Columns {
    size: Size,
    is_copied: bool,
    /// Gradients of the weight, each over a part of the rows.
    partial: Option<Size>,
}

impl Weight {
    fn from_shape(shape: &[u64]) -> Option<Self> {
        let [outputs, inputs, kernel @ ..] = shape else { return None };
        (!kernel.is_empty()).then(|| Self { outputs: *outputs, inputs: *inputs, taps: kernel.iter().product() })
    }

    fn bytes(self) -> u64 {
        self.outputs * self.inputs * self.taps * 4
    }

    // With a stride, the CPU computes a gradient of more taps than exist, and uses a part of it.
    fn is_overhung_by(self, bytes: u64) -> bool {
        let of_tap = self.outputs * self.inputs * 4;
        of_tap > 0 && bytes.is_multiple_of(of_tap) && (self.taps + 1..=4 * self.taps).contains(&(bytes / of_tap))
    }
}

/// Rewrites the convolutions of a model with parameters of these shapes.
pub(super) fn lower_convolutions(program: Program, shapes: &[Vec<u64>], value_bytes: u64) -> Program {
    let weights: Vec<_> = shapes.iter().filter_map(|shape| Weight::from_shape(shape)).collect();
    if weights.is_empty() {
        return program;
    }
    let ops = program.ops.clone();
    let mut lowering = Lowering {
        deaths: deaths(&ops),
        program,
        value_bytes,
        unused: weights.clone(),
        weights,
        made: Vec::new(),
        phase: Phase::Parameters,
        dropped: HashSet::new(),
        columns: HashMap::new(),
    };
    for place in 0..ops.len() {
        lowering.visit(&ops, place);
    }
    lowering.rewritten(&ops)
}

struct Lowering {
    program: Program,
    deaths: HashMap<usize, usize>,
    value_bytes: u64,
    weights: Vec<Weight>,
    /// Not met yet in this forward pass.
    unused: Vec<Weight>,
    /// Without a gradient yet.
    made: Vec<ConvOutput>,
    phase: Phase,
    dropped: HashSet<usize>,
    /// Columns that are allocated before an output.
    columns: HashMap<usize, Columns>,
}

impl Lowering {
    fn visit(&mut self, ops: &[Op], place: usize) {
        if let Op::Enter(phase) = ops[place] {
            self.phase = phase;
            if phase == Phase::Forward {
                self.unused.clone_from(&self.weights);
                self.made.clear();
            }
        }
        let is_zeros = |id| self.is_zeros(id);
        let Some((_, made)) = Recorded::end_of_convolution(ops, place, is_zeros, &self.deaths) else { return };
        let [weight, _, output] = made;
        if self.phase == Phase::Backward && self.is_constant(output) {
            self.backward(ops, place, made);
        } else if self.is_constant(weight) {
            self.forward(made);
        }
    }

    fn is_zeros(&self, id: usize) -> bool {
        self.program.made.get(id).is_some_and(|made| made.is_zeros())
    }

    fn is_constant(&self, id: usize) -> bool {
        self.program.sizes[id].is_constant()
    }

    fn forward(&mut self, [weight, input, output]: [usize; 3]) {
        let bytes = self.program.sizes[weight].bytes[0];
        let [unused, any] =
            [&self.unused, &self.weights].map(|of| of.iter().position(|weight| weight.bytes() == bytes));
        let shape = match (unused, any) {
            (Some(index), _) => self.unused.remove(index),
            // A module that is applied again.
            (None, Some(index)) => self.weights[index],
            (None, None) => return,
        };
        let pixels = self.program.sizes[output].bytes.map(|bytes| bytes / 4 / shape.outputs);
        self.made.push(ConvOutput { weight: shape, input: self.program.sizes[input].bytes, pixels });
        self.dropped.extend([weight, input]);
        self.program.sizes[output] = Size::rows(pixels, shape.outputs);
    }

    // The CPU convolves the input with the output's gradient.
    fn backward(&mut self, ops: &[Op], place: usize, [output_gradient, input, gradient]: [usize; 3]) {
        let bytes = self.program.sizes[gradient].bytes[0];
        let exact = self.made.iter().rposition(|made| made.weight.bytes() == bytes);
        let found = exact.or_else(|| self.made.iter().rposition(|made| made.weight.is_overhung_by(bytes)));
        let Some(found) = found else { return };
        let ConvOutput { weight, input: input_bytes, pixels } = self.made.remove(found);
        let row = weight.inputs * weight.taps;
        let size = Size::rows(pixels, row);
        if size.is_padded(self.value_bytes) {
            let partial = Size::rows([weight.outputs; 2], row).in_pieces(pixels);
            self.columns.insert(place + 2, Columns { size, is_copied: true, partial: Some(partial) });
        }
        self.program.sizes[gradient] = Size::plain([weight.bytes(); 2]);
        // Both operands are copied before, since their dimensions were swapped.
        let copies = ops[..place].iter().rev().map_while(Op::allocated).take(2);
        let dies_here =
            |id: &usize| self.deaths.get(id) > self.deaths.get(&output_gradient) && self.is_brief(*id, place);
        let copies: Vec<_> = copies.take_while(dies_here).collect();
        let begin = place - copies.len();
        self.dropped.extend(copies.into_iter().chain([output_gradient, input]));
        self.input_gradient(ops, begin, input_bytes, weight, size);
    }

    fn is_brief(&self, id: usize, place: usize) -> bool {
        self.deaths.get(&id).is_some_and(|death| *death < place + FURTHEST)
    }

    fn input_gradient(&mut self, ops: &[Op], end: usize, input: [u64; 2], weight: Weight, columns: Size) {
        let is_gradient = |place: &usize| {
            ops[*place].allocated().is_some_and(|id| self.is_zeros(id) && self.program.sizes[id].bytes == input)
        };
        let Some(place) = (end.saturating_sub(FURTHEST)..end).rev().find(is_gradient) else { return };
        let between = ops[place + 1..end].iter().filter_map(Op::allocated);
        let scratch = between.filter(|id| self.deaths.get(id).is_some_and(|death| *death < end));
        self.dropped.extend(scratch);
        self.columns.insert(place, Columns { size: columns, is_copied: false, partial: None });
        if let Some(id) = ops[place].allocated() {
            self.program.sizes[id] = Size::rows(input.map(|bytes| bytes / 4 / weight.inputs), weight.inputs);
        }
    }

    fn rewritten(mut self, ops: &[Op]) -> Program {
        let mut rewritten = Vec::with_capacity(ops.len());
        for (place, op) in ops.iter().enumerate().filter(|(_, op)| !op.is_of(&self.dropped)) {
            let Some(Columns { size, is_copied, partial }) = self.columns.remove(&place) else {
                rewritten.push(*op);
                continue;
            };
            let mut columns = self.program.add(size);
            rewritten.push(Op::Allocate(columns));
            if is_copied {
                let copy = self.program.add(size);
                rewritten.extend([Op::Allocate(copy), Op::Free(columns)]);
                columns = copy;
            }
            let partial = partial.map(|partial| self.program.add(partial));
            rewritten.extend(partial.map(Op::Allocate));
            rewritten.push(*op);
            rewritten.extend(partial.map(Op::Free));
            rewritten.push(Op::Free(columns));
        }
        Program { ops: rewritten, ..self.program }
    }
}

/// Rewrites all phases in which gradients are added up or parameters change.
pub(super) fn lower_updates(mut program: Program, value_bytes: u64) -> Program {
    let ops = std::mem::take(&mut program.ops);
    let mut buffers = Buffers::default();
    for ops in phases(&ops) {
        if ops.first() == Some(&Op::Enter(Phase::Update)) {
            let updated = buffers.updated(ops, &program.sizes, value_bytes);
            program.ops.extend(updated);
        } else {
            program.ops.extend(ops.iter().map(|op| buffers.renamed(*op)));
        }
    }
    program
}

/// Allocations that took the buffer of another.
#[derive(Default)]
struct Buffers(HashMap<usize, usize>);

impl Buffers {
    fn updated(&mut self, ops: &[Op], sizes: &[Size], value_bytes: u64) -> Vec<Op> {
        let made: HashSet<_> = ops.iter().filter_map(Op::allocated).collect();
        let transient: HashSet<_> = ops.iter().filter_map(Op::freed).filter(|id| made.contains(id)).collect();
        let lasting: Vec<_> = ops.iter().filter(|op| !op.is_of(&transient)).collect();
        let mut freed: HashMap<[u64; 2], VecDeque<usize>> = HashMap::new();
        for id in lasting.iter().filter_map(|op| op.freed()) {
            if !sizes[id].is_padded(value_bytes) {
                freed.entry(sizes[id].bytes).or_default().push_back(id);
            }
        }
        let mut taken = HashSet::new();
        for id in lasting.iter().filter_map(|op| op.allocated()) {
            if let Some(over) = freed.get_mut(&sizes[id].bytes).and_then(VecDeque::pop_front) {
                self.0.insert(id, over);
                taken.extend([id, over]);
            }
        }
        lasting.into_iter().filter(|op| !op.is_of(&taken)).map(|op| self.renamed(*op)).collect()
    }

    fn renamed(&self, op: Op) -> Op {
        match op {
            Op::Free(mut id) => {
                while let Some(first) = self.0.get(&id) {
                    id = *first;
                }
                Op::Free(id)
            }
            _ => op,
        }
    }
}
