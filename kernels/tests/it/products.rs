//! Products of random sizes and layouts beside a plain product.

#![allow(clippy::float_cmp, reason = "small whole numbers are exact")]

use gpu_tuned_kernels::cublaslt::{Element, Epilogue, Operands, Product};
use gpu_tuned_kernels::matrix::Matrices;
use proptest::prelude::*;

use crate::memory::{Buffer, Opened};

/// Layout of random matrices: transposed, padding of rows, gap between batches; all batches one.
type Shape = (bool, usize, usize, bool);

fn matrices((transposed, padding, gap, is_one): Shape, rows: usize, columns: usize) -> Matrices {
    let (outer, inner) = if transposed { (columns, rows) } else { (rows, columns) };
    let leading = inner + padding;
    Matrices { leading, transposed, batch_stride: if is_one { 0 } else { outer * leading + gap } }
}

/// Index in memory.
fn at(matrices: Matrices, batch: usize, row: usize, column: usize) -> usize {
    let (outer, inner) = if matrices.transposed { (column, row) } else { (row, column) };
    batch * matrices.batch_stride + outer * matrices.leading + inner
}

/// Small whole numbers, whose products and sums are exact in all types.
fn number(seed: usize, index: usize) -> f32 {
    ((index * 7 + seed * 5 + index / 3) % 7) as f32 - 3.0
}

fn filled(element: Element, offset: usize, seed: usize, length: usize) -> Buffer {
    let mut buffer = Buffer::new(element, offset, length);
    (0..length).for_each(|index| buffer.set(index, number(seed, index)));
    buffer
}

/// GELU by its tanh approximation, written with the logistic function.
fn gelu(number: f64) -> f64 {
    let doubled = (8.0 / std::f64::consts::PI).sqrt() * (number + 0.044_715 * number.powi(3));
    number / (1.0 + (-doubled).exp())
}

#[test]
fn gelu_has_published_values() {
    // PyTorch's `gelu` with `approximate="tanh"`, from the tests of Burn.
    for (number, published) in [(-1.0, -0.158_807_992_9), (0.5, 0.345_714_002_8), (2.0, 1.954_597_711_6)] {
        assert!((gelu(number) - published).abs() < 1e-7, "{number}");
    }
}

fn elements() -> impl Strategy<Value = Element> {
    prop_oneof![Just(Element::F32 { tf32: false }), Just(Element::F32 { tf32: true }), Just(Element::Bf16)]
}

fn products() -> impl Strategy<Value = Product> {
    let shape = || (any::<bool>(), 0_usize..4, 0_usize..5, any::<bool>());
    let sizes = (1_usize..8, 1_usize..8, 1_usize..8, 1_usize..4);
    let epilogues =
        prop::sample::select(vec![Epilogue::None, Epilogue::Bias, Epilogue::BiasGelu, Epilogue::ColumnSums]);
    (elements(), sizes, shape(), shape(), (0_usize..4, 0_usize..5), epilogues, any::<bool>()).prop_map(
        |(element, (rows, inner, columns, batches), left, right, (padding, gap), epilogue, accumulate)| Product {
            element,
            rows,
            inner,
            columns,
            batches: if matches!(epilogue, Epilogue::ColumnSums | Epilogue::BiasGelu) { 1 } else { batches },
            left: matrices(left, rows, inner),
            right: matrices(right, inner, columns),
            output: matrices(
                (false, if epilogue == Epilogue::BiasGelu { 8 - columns } else { padding }, gap, false),
                rows,
                columns,
            ),
            epilogue,
            accumulate,
        },
    )
}

/// Largest power of two that divides an address so many numbers behind an aligned one.
fn alignment(offset: usize, element: Element) -> u64 {
    let bytes = (offset * element.bytes()) as u64;
    if bytes == 0 { 256 } else { 1 << bytes.trailing_zeros() }
}

/// Buffers of a product, each filled with numbers.
struct Buffers {
    left: Buffer,
    right: Buffer,
    output: Buffer,
    vector: Buffer,
    pre_activation: Buffer,
    workspace: Buffer,
}

impl Buffers {
    fn new(product: &Product, offsets: [usize; 3], workspace_bytes: usize) -> Self {
        let Product { element, rows, inner, columns, batches, left, right, output, .. } = *product;
        Self {
            left: filled(element, offsets[0], 1, left.span(rows, inner, batches)),
            right: filled(element, offsets[1], 2, right.span(inner, columns, batches)),
            output: Buffer::new(element, offsets[2], output.span(rows, columns, batches)),
            vector: filled(element, offsets[2], 3, columns),
            pre_activation: Buffer::new(element, 0, output.span(rows, columns, batches)),
            workspace: Buffer::of_bytes(workspace_bytes),
        }
    }

    fn operands(&mut self, product: &Product, workspace_bytes: usize) -> Operands {
        let Product { rows, inner, columns, batches, left, right, output, .. } = *product;
        Operands {
            left: self.left.memory(left.span(rows, inner, batches)),
            right: self.right.memory(right.span(inner, columns, batches)),
            output: self.output.memory(output.span(rows, columns, batches)),
            vector: Some(self.vector.memory(columns)),
            pre_activation: Some(self.pre_activation.memory(output.span(rows, columns, batches))),
            workspace: Some(self.workspace.memory(workspace_bytes / 2)),
        }
    }
}

proptest! {
    #[test]
    fn products_are_those_of_the_definition(
        product in products(),
        offsets in [0_usize..5, 0_usize..5, 0_usize..5],
    ) {
        let Product { element, rows, inner, columns, batches, left, right, output, epilogue, accumulate } = product;
        let opened = Opened::new();
        let plan = opened.handle.plan(product, offsets.map(|offset| alignment(offset, element))).expect("a plan");
        prop_assert_eq!(plan.workspace_bytes(), fake_cublaslt::WORKSPACE_BYTES);
        let mut buffers = Buffers::new(&product, offsets, plan.workspace_bytes());
        let length = output.span(rows, columns, batches);
        for batch in 0..batches {
            for row in 0..rows {
                for column in 0..columns {
                    let place = at(output, batch, row, column);
                    buffers.output.set(place, number(4, place));
                }
            }
        }
        let operands = buffers.operands(&product, plan.workspace_bytes());
        // SAFETY: the memory is the host's, which the fake computes on, and lives.
        unsafe { plan.launch(operands, std::ptr::null_mut()) }.expect("a product");
        let mut written = 0;
        for batch in 0..batches {
            for row in 0..rows {
                for column in 0..columns {
                    let place = at(output, batch, row, column);
                    let terms = (0..inner).map(|inner| {
                        number(1, at(left, batch, row, inner)) * number(2, at(right, batch, inner, column))
                    });
                    let mut expected: f32 = terms.sum();
                    expected += if accumulate { number(4, place) } else { 0.0 };
                    expected += match epilogue {
                        Epilogue::None | Epilogue::ColumnSums => 0.0,
                        Epilogue::Bias | Epilogue::BiasGelu => number(3, column),
                    };
                    let found = buffers.output.get(place);
                    if epilogue == Epilogue::BiasGelu {
                        prop_assert_eq!(buffers.pre_activation.get(place), expected, "input of GELU");
                        let gelu = gelu(expected.into());
                        let limit = 1e-6 + gelu.abs() * if element == Element::Bf16 { 4e-3 } else { 1e-5 };
                        prop_assert!((f64::from(found) - gelu).abs() < limit, "{} for {}", found, gelu);
                    } else {
                        prop_assert_eq!(found, expected, "batch {}, row {}, column {}", batch, row, column);
                    }
                    written += 1;
                }
            }
        }
        prop_assert_eq!(buffers.output.touched(length).len(), written, "padding");
        for column in 0..columns {
            let expected = match epilogue {
                Epilogue::ColumnSums => (0..inner).map(|inner| number(2, at(right, 0, inner, column))).sum(),
                _ => number(3, column),
            };
            prop_assert_eq!(buffers.vector.get(column), expected, "vector, column {}", column);
        }
        drop(plan);
        let counts = opened.close();
        prop_assert_eq!((counts.alive, counts.mistakes), (0, 0), "{:?}", counts);
        // A handle, a description, three layouts and a preference.
        prop_assert_eq!(counts.created, 6);
    }

    #[test]
    fn a_buffer_that_is_too_small_leaves_all_memory_as_it_was(product in products(), which in 0_usize..6) {
        let opened = Opened::new();
        let plan = opened.handle.plan(product, [256; 3]).expect("a plan");
        let mut buffers = Buffers::new(&product, [0; 3], plan.workspace_bytes());
        let mut operands = buffers.operands(&product, plan.workspace_bytes());
        let [vector, workspace, pre_activation] =
            [&mut operands.vector, &mut operands.workspace, &mut operands.pre_activation]
                .map(|memory| memory.as_mut().expect("one"));
        let memory = [&mut operands.left, &mut operands.right, &mut operands.output, vector, workspace, pre_activation];
        let memory = memory.into_iter().nth(which).expect("six");
        let needed = memory.bytes;
        memory.bytes -= 1;
        // SAFETY: as above.
        let failure = unsafe { plan.launch(operands, std::ptr::null_mut()) }.err();
        let is_unused = which == 3 && product.epilogue == Epilogue::None
            || which == 5 && product.epilogue != Epilogue::BiasGelu;
        prop_assert_eq!(failure.is_none(), is_unused);
        if let Some(failure) = failure {
            let expected = gpu_tuned_kernels::cublaslt::CublasError::TooLarge { needed, found: needed - 1 };
            prop_assert_eq!(failure, expected);
            let length = product.output.span(product.rows, product.columns, product.batches);
            prop_assert!(buffers.output.touched(length).is_empty());
            prop_assert!((0..product.columns).all(|column| buffers.vector.get(column) == number(3, column)));
        }
        drop(plan);
        prop_assert_eq!(opened.close().mistakes, 0);
    }
}

#[test]
fn tf32_rounds_factors_to_10_bits_of_fraction() {
    let opened = Opened::new();
    let product = |tf32| {
        let matrices = Matrices { leading: 1, transposed: false, batch_stride: 0 };
        Product {
            element: Element::F32 { tf32 },
            rows: 1,
            inner: 1,
            columns: 1,
            batches: 1,
            left: matrices,
            right: matrices,
            output: matrices,
            epilogue: Epilogue::None,
            accumulate: false,
        }
    };
    let computed = |tf32| {
        let product = product(tf32);
        let plan = opened.handle.plan(product, [256; 3]).expect("a plan");
        let mut buffers = Buffers::new(&product, [0; 3], plan.workspace_bytes());
        buffers.left.set(0, 1.0 + 1.0 / 4096.0);
        buffers.right.set(0, 3.0);
        let operands = buffers.operands(&product, plan.workspace_bytes());
        // SAFETY: the memory is the host's, which the fake computes on, and lives.
        unsafe { plan.launch(operands, std::ptr::null_mut()) }.expect("a product");
        buffers.output.get(0)
    };
    assert_eq!(computed(true), 3.0);
    assert_eq!(computed(false), 3.0 + 3.0 / 4096.0);
    assert_eq!(opened.close().alive, 0);
}
