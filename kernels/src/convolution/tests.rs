use proptest::prelude::*;

use super::*;

/// Index in memory of every number, in the order of the tensor's indices.
fn places(layout: &Layout) -> Vec<usize> {
    let mut places = vec![0];
    for (&size, &stride) in layout.shape.iter().zip(&layout.strides) {
        places = places.iter().flat_map(|place| (0..size).map(move |index| place + index * stride)).collect();
    }
    places
}

fn formats() -> impl Strategy<Value = Format> {
    prop_oneof![Just(Format::ChannelsFirst), Just(Format::ChannelsLast)]
}

proptest! {
    #[test]
    fn packed_tensors_fill_their_memory(shape in proptest::collection::vec(1_usize..4, 3..6), format in formats()) {
        let layout = Layout::packed(&shape, format);
        let mut places = places(&layout);
        prop_assert_eq!(layout.span(), places.len());
        let order = format.order(shape.len());
        prop_assert!(order.windows(2).all(|pair| layout.strides[pair[0]] >= layout.strides[pair[1]]));
        places.sort_unstable();
        prop_assert_eq!(places, (0..layout.span()).collect::<Vec<_>>());
        prop_assert_eq!(Layout::new(&shape, &layout.strides, format), Some(layout));
    }

    /// Layouts that need no copy have all numbers at places of their own, and the same places as before.
    #[test]
    fn layouts_keep_the_places_of_numbers(
        shape in proptest::collection::vec(1_usize..4, 4..5),
        strides in proptest::collection::vec(0_usize..40, 4..5),
        format in formats(),
    ) {
        if let Some(layout) = Layout::new(&shape, &strides, format) {
            let mut of_layout = places(&layout);
            prop_assert_eq!(&of_layout, &places(&Layout { shape, strides }));
            prop_assert_eq!(of_layout.iter().max().map(|last| last + 1), Some(layout.span()));
            of_layout.sort_unstable();
            prop_assert!(of_layout.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }

    /// Positions are counted one by one.
    #[test]
    fn output_sizes_count_the_positions(
        input in 1_usize..12, kernel in 1_usize..5, stride in 1_usize..4, padding in 0_usize..4, dilation in 1_usize..4,
    ) {
        let window = Window { stride: vec![stride], padding: vec![padding], dilation: vec![dilation], groups: 1 };
        let padded = input + 2 * padding;
        let positions = (0..padded).step_by(stride).filter(|first| first + dilation * (kernel - 1) < padded).count();
        let sizes = window.output_sizes(&[input], &[kernel]);
        prop_assert_eq!(&sizes, &(positions > 0).then(|| vec![positions]));
        // A transposed convolution has an input of this size, up to numbers that no position reached.
        if let Some(sizes) = sizes {
            let unreached = (padded - dilation * (kernel - 1) - 1) % stride;
            prop_assert_eq!(window.transposed_sizes(&sizes, &[kernel], &[unreached]), Some(vec![input]));
        }
    }
}

#[test]
fn padded_rows_and_channels_are_no_copy() {
    // Rows of 5 padded to 8.
    let rows = Layout::new(&[2, 3, 4, 5], &[96, 32, 8, 1], Format::ChannelsFirst).expect("no copy");
    assert_eq!(rows.span(), 96 + 64 + 24 + 5);
    // Rows of one number, padded to 8.
    let numbers = Layout::new(&[2, 3, 4, 1], &[96, 32, 8, 1], Format::ChannelsFirst).expect("no copy");
    assert_eq!(numbers.span(), 96 + 64 + 24 + 1);
    // A repeated sample, a transposed image, and every second column.
    for strides in [[0, 20, 5, 1], [60, 20, 1, 4], [120, 40, 10, 2]] {
        assert_eq!(Layout::new(&[2, 3, 4, 5], &strides, Format::ChannelsFirst), None, "{strides:?}");
        assert_eq!(Layout::new(&[2, 3, 4, 5], &strides, Format::ChannelsLast), None, "{strides:?}");
    }
}

#[test]
fn one_channel_has_both_orders() {
    for format in Format::ALL {
        let layout = Layout::new(&[2, 1, 4, 5], &[20, 7, 5, 1], format).expect("no copy");
        assert_eq!(layout, Layout::packed(&[2, 1, 4, 5], format));
    }
}

fn convolution() -> Convolution {
    Convolution {
        element: Element::F32 { tf32: false },
        input: Layout::packed(&[2, 6, 5, 7], Format::ChannelsFirst),
        weight: vec![4, 3, 3, 1],
        format: Format::ChannelsFirst,
        output: Layout::packed(&[2, 4, 3, 4], Format::ChannelsFirst),
        window: Window { stride: vec![1, 2], padding: vec![0, 0], dilation: vec![1, 1], groups: 2 },
    }
}

#[test]
fn shapes_that_are_no_convolution_are_refused() {
    assert!(convolution().is_valid());
    let with = |change: fn(&mut Convolution)| {
        let mut convolution = convolution();
        change(&mut convolution);
        convolution.is_valid()
    };
    assert!(!with(|it| it.window.groups = 0));
    assert!(!with(|it| it.window.groups = 3));
    assert!(!with(|it| it.window.stride = vec![1]));
    assert!(!with(|it| it.window.stride = vec![0, 1]));
    assert!(!with(|it| it.weight[1] = 6));
    assert!(!with(|it| it.weight[2] = 0));
    assert!(!with(|it| it.input.shape[0] = 1));
    assert!(!with(|it| it.output.shape[3] = 3));
    assert!(!with(|it| it.output.strides[0] = usize::MAX));
    assert!(!with(|it| it.input.shape[0] = 0));
    assert!(!with(|it| it.input.strides[0] = 1 << 31));
}
