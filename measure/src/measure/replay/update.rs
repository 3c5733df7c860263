//! Optimizers, whose kernels Burn fuses on CUDA.
//!
//! All operations of a parameter become one kernel. It makes nothing that is not kept, and writes what is kept over its
//! inputs of the same size: gradients, and the parameter itself, unless its rows are padded.

use std::collections::{HashMap, HashSet, VecDeque};

use super::program::{Op, Phase, Program, Size, phases};

/// Rewrites all phases in which gradients are added up or parameters change.
pub(super) fn lower(mut program: Program, value_bytes: u64) -> Program {
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
                freed.entry(sizes[id].bytes()).or_default().push_back(id);
            }
        }
        let mut taken = HashSet::new();
        for id in lasting.iter().filter_map(|op| op.allocated()) {
            if let Some(over) = freed.get_mut(&sizes[id].bytes()).and_then(VecDeque::pop_front) {
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
