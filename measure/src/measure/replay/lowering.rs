//! Convolutions and optimizers, which CUDA runs otherwise than the CPU.
//!
//! Burn's CPU backend copies weight and input into rows of channels, and frees the copies: three zeroed allocations in
//! a row, of which the output alone stays. This pattern identifies convolutions.
//!
//! On CUDA, the output's rows are its channels, and rows are padded. The weight's gradient needs columns of a matrix
//! (`wgrad_im2col` in `burn-cubecl`), twice at a time, because merging padded dimensions copies. Where rows of columns
//! need no padding, autotune chooses kernels without columns, according to the pages of two models on an H200.
//!
//! Burn fuses optimizers on CUDA: all operations of a parameter become one kernel. It makes nothing that is not kept, and writes what is kept over its
//! inputs of the same size: gradients, and the parameter itself, unless its rows are padded.

use std::collections::{HashMap, HashSet, VecDeque};

use super::program::{Op, Phase, Program, Size, deaths, phases};

/// Copies for the gradient of a weight are freed within so many ops.
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

impl Weight {
    fn from_shape(shape: &[u64]) -> Option<Self> {
        let [outputs, inputs, kernel @ ..] = shape else { return None };
        (!kernel.is_empty()).then(|| Self { outputs: *outputs, inputs: *inputs, taps: kernel.iter().product() })
    }

    fn bytes(self) -> u64 {
        self.outputs * self.inputs * self.taps * 4
    }
}

/// Rewrites the convolutions of a model with parameters of these shapes.
pub(super) fn lower_convolutions(program: Program, shapes: &[Vec<u64>], value_bytes: u64) -> Program {
    let weights: Vec<_> = shapes.iter().filter_map(|shape| Weight::from_shape(shape)).collect();
    if weights.is_empty() {
        return program;
    }
    let is_value = |op: &&Op| op.allocated().or(op.freed()).is_none_or(|id| program.made[id].is_values());
    let ops: Vec<_> = program.ops.iter().filter(is_value).copied().collect();
    let mut lowering = Lowering {
        deaths: deaths(&ops),
        program,
        value_bytes,
        weights,
        made: Vec::new(),
        phase: Phase::Parameters,
        dropped: HashSet::new(),
        columns: HashMap::new(),
    };
    for place in 0..ops.len() {
        lowering.visit(&ops, place);
    }
    lowering.rewritten()
}

/// Places are those among the ops of values: memory of the host lies between them.
struct Lowering {
    program: Program,
    deaths: HashMap<usize, usize>,
    value_bytes: u64,
    weights: Vec<Weight>,
    /// Without a gradient yet.
    made: Vec<ConvOutput>,
    phase: Phase,
    dropped: HashSet<usize>,
    /// The input as a matrix with a row for each pixel of the output, by the gradient that needs it.
    columns: HashMap<usize, Size>,
}

impl Lowering {
    fn visit(&mut self, ops: &[Op], place: usize) {
        if let Op::Enter(phase) = ops[place] {
            self.phase = phase;
            if phase == Phase::Forward {
                self.made.clear();
            }
        }
        let Some(made) = self.convolution(ops, place) else { return };
        let [weight, _, output] = made;
        if self.phase == Phase::Backward && self.is_constant(output) {
            self.backward(ops, place, made);
        } else if self.is_constant(weight) {
            self.forward(made);
        }
    }

    /// A convolution that begins with three zeroed vectors at a place: copies of weight and input, freed one right after
    /// the other, and the output.
    fn convolution(&self, ops: &[Op], place: usize) -> Option<[usize; 3]> {
        let [Op::Allocate(weight), Op::Allocate(input), Op::Allocate(output), ..] = ops[place..] else { return None };
        let [weight_death, input_death] = [self.deaths.get(&weight)?, self.deaths.get(&input)?];
        let made = [weight, input, output];
        (made.into_iter().all(|id| self.is_zeros(id)) && input_death + 1 == *weight_death).then_some(made)
    }

    fn is_zeros(&self, id: usize) -> bool {
        self.program.made.get(id).is_some_and(|made| made.is_zeros())
    }

    fn is_constant(&self, id: usize) -> bool {
        self.program.sizes[id].is_constant()
    }

    fn forward(&mut self, [weight, input, output]: [usize; 3]) {
        let bytes = self.program.sizes[weight].bytes[0];
        let Some(shape) = self.weights.iter().copied().find(|weight| weight.bytes() == bytes) else { return };
        let pixels = self.program.sizes[output].bytes.map(|bytes| bytes / 4 / shape.outputs);
        self.made.push(ConvOutput { weight: shape, input: self.program.sizes[input].bytes, pixels });
        self.dropped.extend([weight, input]);
        self.program.sizes[output] = Size::rows(pixels, shape.outputs);
    }

    // The CPU convolves the input with the output's gradient.
    fn backward(&mut self, ops: &[Op], place: usize, [output_gradient, input, gradient]: [usize; 3]) {
        let bytes = self.program.sizes[gradient].bytes[0];
        let Some(found) = self.made.iter().rposition(|made| made.weight.bytes() == bytes) else { return };
        let ConvOutput { weight, input: input_bytes, pixels } = self.made.remove(found);
        let columns = Size::rows(pixels, weight.inputs * weight.taps);
        if columns.is_padded(self.value_bytes) {
            self.columns.insert(gradient, columns);
        }
        // Both operands are copied before, since their dimensions were swapped.
        let copies = ops[..place].iter().rev().map_while(Op::allocated).take(2);
        let dies_here = |id: &usize| {
            let death = self.deaths.get(id);
            death > self.deaths.get(&output_gradient) && death.is_some_and(|death| *death < place + FURTHEST)
        };
        let copies: Vec<_> = copies.take_while(dies_here).collect();
        self.input_gradient(ops, place - copies.len(), input_bytes, weight);
        self.dropped.extend(copies.into_iter().chain([output_gradient, input]));
    }

    /// Lays out the gradient for the input, which is made before a place, in rows.
    fn input_gradient(&mut self, ops: &[Op], end: usize, input: [u64; 2], weight: Weight) {
        let is_gradient = |id: &usize| self.is_zeros(*id) && self.program.sizes[*id].bytes == input;
        let near = &ops[end.saturating_sub(FURTHEST)..end];
        if let Some(gradient) = near.iter().rev().filter_map(Op::allocated).find(is_gradient) {
            self.program.sizes[gradient] = Size::rows(input.map(|bytes| bytes / 4 / weight.inputs), weight.inputs);
        }
    }

    fn rewritten(mut self) -> Program {
        let ops = std::mem::take(&mut self.program.ops);
        let mut rewritten = Vec::with_capacity(ops.len());
        for op in ops.into_iter().filter(|op| !op.is_of(&self.dropped)) {
            let Some(size) = op.allocated().and_then(|gradient| self.columns.remove(&gradient)) else {
                rewritten.push(op);
                continue;
            };
            let [columns, copy] = [(); 2].map(|()| self.program.add(size));
            rewritten.extend([Op::Allocate(columns), Op::Allocate(copy), Op::Free(columns), op, Op::Free(copy)]);
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
