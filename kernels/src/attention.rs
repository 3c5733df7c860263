//! Sizes of attention, and layouts of its tensors.

use crate::cublaslt::Element;

/// Versions of cuDNN before this one have known faults in fused attention.
pub const OLDEST_CUDNN: usize = 91_002;
/// Until this version, gradients need sequences of keys in whole tiles.
const LAST_WITH_WHOLE_TILES: usize = 91_500;
const TILE: usize = 128;
/// Numbers of a row that one load reads, and most numbers of a row on all devices.
const VECTOR: usize = 8;
const MOST_NUMBERS: usize = 128;

/// Attention of queries `[batch, heads, queries, inner]` to keys `[batch, heads, keys, inner]` and values
/// `[batch, heads, keys, values]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attention {
    /// Type of the tensors. Sums and the softmax are in f32.
    pub element: Element,
    /// Number of sequences.
    pub batch: usize,
    /// Heads of queries, keys and values.
    pub heads: usize,
    /// Length of a sequence of queries.
    pub queries: usize,
    /// Length of a sequence of keys and values.
    pub keys: usize,
    /// Numbers of a query and of a key.
    pub inner: usize,
    /// Numbers of a value.
    pub values: usize,
    /// A query has only the keys up to its own position.
    pub is_causal: bool,
    /// Biases `[queries, keys]` that are added to the scores: none, one for all sequences, or one for each. Rows are
    /// [`bias_row`](Self::bias_row) numbers apart.
    pub biases: usize,
    /// Layouts of query, key, value, and the gradient of the output.
    pub strides: [Strides; 4],
}

/// Numbers from one sequence, head and row to the next. The numbers of a row are contiguous.
pub type Strides = [usize; 3];

impl Attention {
    /// Bytes that one load reads, which begin at multiples of their number.
    pub const ALIGNMENT: usize = VECTOR * 2;

    /// Returns `true` if rows that are so many numbers apart can be loaded.
    pub const fn is_loaded(stride: usize) -> bool {
        stride > 0 && stride.is_multiple_of(VECTOR)
    }

    /// Strides of a tensor without gaps whose heads are behind its rows, as linear layers write them.
    pub fn packed(heads: usize, rows: usize, numbers: usize) -> Strides {
        [rows * heads * numbers, numbers, heads * numbers]
    }

    /// Numbers from a row of a bias to the next.
    pub fn bias_row(&self) -> usize {
        self.keys.next_multiple_of(VECTOR)
    }

    /// Numbers of all biases, with the gaps behind rows.
    pub fn bias_numbers(&self) -> usize {
        self.biases * self.queries * self.bias_row()
    }

    /// Rows and numbers of query, key, value and output.
    pub fn sizes(&self) -> [[usize; 2]; 4] {
        let Self { queries, keys, inner, values, .. } = *self;
        [[queries, inner], [keys, inner], [keys, values], [queries, values]]
    }

    /// Returns `true` if a version of cuDNN computes the attention and its gradients in one kernel each.
    pub fn is_supported(&self, cudnn: usize) -> bool {
        let Self { element, batch, heads, queries, keys, inner, values, .. } = *self;
        let has_rows = [inner, values].iter().all(|numbers| numbers % VECTOR == 0 && *numbers <= MOST_NUMBERS);
        let is_counted = |size: [usize; 2]| {
            let numbers = size.iter().try_fold(batch.checked_mul(heads)?, |all, next| all.checked_mul(*next))?;
            Some((1..=i32::MAX as usize).contains(&numbers))
        };
        let are_counted = self.sizes().into_iter().all(|size| is_counted(size) == Some(true));
        let has_strides = self.strides.iter().flatten().all(|stride| Self::is_loaded(*stride));
        let is_whole = keys % TILE == 0 || cudnn > LAST_WITH_WHOLE_TILES;
        let has_biases = [0, 1, batch].contains(&self.biases) && i32::try_from(self.bias_numbers()).is_ok();
        let is_16_bits = matches!(element, Element::F16 | Element::Bf16);
        // Attention of a single query was not tried.
        cudnn >= OLDEST_CUDNN
            && is_16_bits
            && has_rows
            && has_biases
            && are_counted
            && has_strides
            && is_whole
            && queries > 1
    }
}
