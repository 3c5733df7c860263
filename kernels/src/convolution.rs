//! Sizes of convolutions, and layouts of their tensors in memory.

use crate::cublaslt::Element;

/// Movement of a kernel over an input, one number for each of its sizes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Numbers of the input from one position to the next.
    pub stride: Vec<usize>,
    /// Zeros before and behind the input.
    pub padding: Vec<usize>,
    /// Numbers of the input from one number of the kernel to the next.
    pub dilation: Vec<usize>,
    /// Parts of the channels that are convolved apart.
    pub groups: usize,
}

impl Window {
    /// Sizes of the output. `None` where the kernel exceeds the padded input, or the ranks differ.
    ///
    /// ```
    /// use gpu_tuned_kernels::convolution::Window;
    ///
    /// let window = Window { stride: vec![2, 1], padding: vec![1, 0], dilation: vec![1, 3], groups: 1 };
    /// assert_eq!(window.output_sizes(&[7, 9], &[3, 3]), Some(vec![4, 3]));
    /// assert_eq!(window.output_sizes(&[7, 6], &[3, 3]), None);
    /// ```
    pub fn output_sizes(&self, input: &[usize], kernel: &[usize]) -> Option<Vec<usize>> {
        self.each(input, kernel, |dimension, size, kernel| {
            let rest = (size + 2 * self.padding[dimension]).checked_sub(self.reach(dimension, kernel))?;
            rest.checked_div(self.stride[dimension]).map(|steps| steps + 1)
        })
    }

    /// Sizes of the output of a transposed convolution, with numbers added behind.
    pub fn transposed_sizes(&self, input: &[usize], kernel: &[usize], added: &[usize]) -> Option<Vec<usize>> {
        self.each(input, kernel, |dimension, size, kernel| {
            let steps = size.checked_sub(1)? * self.stride[dimension];
            let reach = self.reach(dimension, kernel) + added.get(dimension)?;
            (steps + reach).checked_sub(2 * self.padding[dimension])
        })
    }

    fn each(
        &self,
        input: &[usize],
        kernel: &[usize],
        size: impl Fn(usize, usize, usize) -> Option<usize>,
    ) -> Option<Vec<usize>> {
        let ranks = [kernel.len(), self.stride.len(), self.padding.len(), self.dilation.len()];
        if ranks != [input.len(); 4] || kernel.contains(&0) {
            return None;
        }
        input
            .iter()
            .zip(kernel)
            .enumerate()
            .map(|(dimension, (input, kernel))| size(dimension, *input, *kernel))
            .collect()
    }

    /// Numbers of the input from the first to the last number of a dilated kernel.
    fn reach(&self, dimension: usize, kernel: usize) -> usize {
        self.dilation[dimension] * (kernel - 1) + 1
    }

    /// The same movement with another size of 1 before the others.
    #[must_use]
    pub fn with_row(mut self) -> Self {
        self.stride.insert(0, 1);
        self.padding.insert(0, 0);
        self.dilation.insert(0, 1);
        self
    }
}

/// Order of a tensor's numbers in memory. Shapes are `[batch, channels, sizes…]` in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Rows of one channel are contiguous.
    ChannelsFirst,
    /// The channels of one position are contiguous.
    ChannelsLast,
}

impl Format {
    /// Both.
    pub const ALL: [Self; 2] = [Self::ChannelsFirst, Self::ChannelsLast];

    /// Dimensions of a tensor, outermost in memory first.
    pub fn order(self, rank: usize) -> Vec<usize> {
        match self {
            Self::ChannelsFirst => (0..rank).collect(),
            Self::ChannelsLast => {
                (0..rank).filter(|dimension| *dimension != 1).chain((rank > 1).then_some(1)).collect()
            }
        }
    }
}

/// A tensor `[batch, channels, sizes…]` in memory, whose numbers do not overlap.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Numbers in each dimension.
    pub shape: Vec<usize>,
    /// Numbers in memory from one index to the next, in each dimension.
    pub strides: Vec<usize>,
}

impl Layout {
    /// A tensor without gaps.
    pub fn packed(shape: &[usize], format: Format) -> Self {
        let mut strides = vec![0; shape.len()];
        let mut next = 1;
        for dimension in format.order(shape.len()).into_iter().rev() {
            strides[dimension] = next;
            next *= shape[dimension];
        }
        Self { shape: shape.to_vec(), strides }
    }

    /// The layout of a tensor that has this order in memory, with gaps behind rows, positions, channels or samples.
    ///
    /// `None` for another order, and where numbers are repeated: a copy is needed.
    ///
    /// ```
    /// use gpu_tuned_kernels::convolution::{Format, Layout};
    ///
    /// // Channels of each position, padded from 3 to 4.
    /// let layout = Layout::new(&[2, 3, 5, 7], &[140, 1, 28, 4], Format::ChannelsLast).expect("no copy");
    /// assert_eq!(layout.span(), 279);
    /// assert_eq!(Layout::new(&[2, 3, 5, 7], &[140, 1, 28, 4], Format::ChannelsFirst), None);
    /// ```
    pub fn new(shape: &[usize], strides: &[usize], format: Format) -> Option<Self> {
        let mut layout = Self { shape: shape.to_vec(), strides: strides.to_vec() };
        let mut next = 1;
        for (distance, dimension) in format.order(shape.len()).into_iter().rev().enumerate() {
            let (size, stride) = (shape[dimension], &mut layout.strides[dimension]);
            if size == 1 {
                // Any stride is right. This one does not hide the order from a library.
                *stride = next;
            } else if *stride < next || (distance == 0 && *stride != 1) {
                return None;
            }
            next = stride.saturating_mul(size);
        }
        Some(layout)
    }

    /// Numbers from the first to the last; `usize::MAX` if they are more.
    pub fn span(&self) -> usize {
        if self.shape.contains(&0) {
            return 0;
        }
        let last = self.shape.iter().zip(&self.strides).map(|(size, stride)| (size - 1).saturating_mul(*stride));
        last.fold(1, usize::saturating_add)
    }
}

/// A convolution of an input with a kernel, or of one of its gradients.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Convolution {
    /// Type of all numbers. Sums are in f32.
    pub element: Element,
    /// `[batch, channels, rows, columns]`.
    pub input: Layout,
    /// `[channels of the output, channels / groups, rows of the kernel, columns]`, without gaps.
    pub weight: Vec<usize>,
    /// Order of the weight in memory.
    pub format: Format,
    /// `[batch, channels of the output, rows, columns]`.
    pub output: Layout,
    /// Movement of the kernel.
    pub window: Window,
}

impl Convolution {
    /// Returns `true` if the shapes are those of a 2D convolution, and `i32` counts all numbers.
    pub fn is_valid(&self) -> bool {
        let (input, weight, output) = (&self.input.shape, &self.weight, &self.output.shape);
        let (groups, rank) = (self.window.groups, input.len());
        let is_counted = |size: usize| (1..=i32::MAX as usize).contains(&size);
        let fits = |layout: &Layout| layout.strides.len() == layout.shape.len() && is_counted(layout.span());
        rank == 4
            && [weight.len(), output.len()] == [rank; 2]
            && fits(&self.input)
            && fits(&self.output)
            && is_counted(weight.iter().fold(1, |product: usize, size| product.saturating_mul(*size)))
            && input[0] == output[0]
            && groups > 0
            && weight[0] == output[1]
            && weight[0].is_multiple_of(groups)
            && weight[1].checked_mul(groups) == Some(input[1])
            && self.window.output_sizes(&input[2..], &weight[2..]).as_deref() == Some(&output[2..])
    }
}

#[cfg(test)]
mod tests;
