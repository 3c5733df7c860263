use proptest::prelude::*;

use super::*;

/// Numbers of a tensor by their index, read through its strides.
fn read(shape: &[usize], strides: &[usize], memory: &[usize]) -> Vec<usize> {
    let mut offsets = vec![0];
    for (&size, &stride) in shape.iter().zip(strides) {
        offsets = offsets.iter().flat_map(|offset| (0..size).map(move |index| offset + index * stride)).collect();
    }
    offsets.into_iter().map(|offset| memory[offset]).collect()
}

/// The numbers as a library reads them.
fn read_matrices(matrices: Matrices, rows: usize, columns: usize, batches: usize, memory: &[usize]) -> Vec<usize> {
    let mut numbers = Vec::new();
    for batch in 0..batches {
        for row in 0..rows {
            for column in 0..columns {
                let (outer, inner) = if matrices.transposed { (column, row) } else { (row, column) };
                numbers.push(memory[batch * matrices.batch_stride + outer * matrices.leading + inner]);
            }
        }
    }
    numbers
}

/// Strides of a tensor whose dimensions lie in `order`, outermost first, with rows padded by `padding`.
fn strides(shape: &[usize], order: &[usize], padding: usize) -> Vec<usize> {
    let mut strides = vec![0; shape.len()];
    let mut next = 1;
    for (position, &dim) in order.iter().rev().enumerate() {
        strides[dim] = next;
        next *= shape[dim];
        if position == 0 {
            next += padding;
        }
    }
    strides
}

fn tensors() -> impl Strategy<Value = (Vec<usize>, Vec<usize>)> {
    (proptest::collection::vec(1_usize..5, 2..5), 0_usize..4).prop_flat_map(|(shape, padding)| {
        let order: Vec<usize> = (0..shape.len()).collect();
        (Just(shape), Just(order).prop_shuffle(), Just(padding))
            .prop_map(|(shape, order, padding)| (shape.clone(), strides(&shape, &order, padding)))
    })
}

proptest! {
    #[test]
    fn layouts_read_the_numbers_of_the_tensor((shape, strides) in tensors()) {
        let rank = shape.len();
        let memory: Vec<usize> = (0..5_usize.pow(4) * 2).collect();
        let numbers = read(&shape, &strides, &memory);
        let (rows, columns) = (shape[rank - 2], shape[rank - 1]);
        let batches = shape[..rank - 2].iter().product();
        if let Some(matrices) = Matrices::batched(&shape, &strides) {
            prop_assert_eq!(read_matrices(matrices, rows, columns, batches, &memory), &numbers[..]);
            let length = if matrices.transposed { rows } else { columns };
            prop_assert!(matrices.leading >= length);
        }
        if let Some(matrices) = Matrices::flat(&shape, &strides) {
            let read = read_matrices(matrices, rows * batches, columns, 1, &memory);
            prop_assert_eq!(&read, &numbers);
            let last = numbers.iter().max().expect("no dimension is empty");
            prop_assert_eq!(matrices.span(rows * batches, columns, 1), last + 1);
        }
    }

    #[test]
    fn contiguous_and_padded_rows_are_never_copied(shape in proptest::collection::vec(1_usize..5, 2..5), padding in 0_usize..4) {
        let order: Vec<usize> = (0..shape.len()).collect();
        let strides = strides(&shape, &order, padding);
        prop_assert!(Matrices::batched(&shape, &strides).is_some());
        prop_assert!(Matrices::flat(&shape, &strides).is_some());
    }
}

#[test]
fn repeated_matrices_have_stride_zero() {
    let matrices = Matrices::batched(&[3, 2, 4], &[0, 4, 1]).expect("no copy");
    assert_eq!(matrices, Matrices { leading: 4, transposed: false, batch_stride: 0 });
    assert_eq!(matrices.span(2, 4, 3), 8);
    // A repeated row has no distance to the next that a library reads.
    assert_eq!(Matrices::batched(&[2, 4], &[0, 1]), None);
}
