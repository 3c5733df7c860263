//! Layouts of matrices in the memory of a tensor.

/// Matrices in memory: rows at equal distances, or the transposes of such matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matrices {
    /// Numbers from one row to the next (of the transpose, if transposed).
    pub leading: usize,
    /// The columns are contiguous, not the rows.
    pub transposed: bool,
    /// Numbers from one matrix to the next; 0 if all are one.
    pub batch_stride: usize,
}

impl Matrices {
    /// Layout of the matrices in the last two dimensions; all others are batches.
    ///
    /// `None` where the strides are not those of matrices at equal distances: a copy is needed.
    ///
    /// ```
    /// use gpu_tuned_kernels::matrix::Matrices;
    ///
    /// let rows = Matrices { leading: 4, transposed: false, batch_stride: 12 };
    /// assert_eq!(Matrices::batched(&[2, 3, 4], &[12, 4, 1]), Some(rows));
    /// // Heads beside each other are no batch that follows the samples.
    /// assert_eq!(Matrices::batched(&[2, 8, 5, 4], &[160, 4, 32, 1]), None);
    /// ```
    pub fn batched(shape: &[usize], strides: &[usize]) -> Option<Self> {
        let batches = shape.len().checked_sub(2)?;
        let (_, batch_stride) = merged(&shape[..batches], &strides[..batches])?;
        let matrix = Self::one([shape[batches], shape[batches + 1]], [strides[batches], strides[batches + 1]])?;
        Some(Self { batch_stride, ..matrix })
    }

    /// Layout of one matrix whose rows are all dimensions but the last.
    ///
    /// `None` where these dimensions cannot be read as one: a copy is needed.
    pub fn flat(shape: &[usize], strides: &[usize]) -> Option<Self> {
        let last = shape.len().checked_sub(1)?;
        let (rows, stride) = merged(&shape[..last], &strides[..last])?;
        Self::one([rows, shape[last]], [stride, strides[last]])
    }

    fn one([rows, columns]: [usize; 2], [of_row, of_column]: [usize; 2]) -> Option<Self> {
        let fits = |outer: usize, count: usize, inner: usize, length: usize| {
            (inner == 1 || length <= 1) && (outer >= length || count <= 1)
        };
        let matrix = |leading: usize, transposed| Self { leading, transposed, batch_stride: 0 };
        if fits(of_row, rows, of_column, columns) {
            Some(matrix(if rows <= 1 { columns } else { of_row }, false))
        } else if fits(of_column, columns, of_row, rows) {
            Some(matrix(if columns <= 1 { rows } else { of_column }, true))
        } else {
            None
        }
    }

    /// The transposes, in the same memory.
    #[must_use]
    pub fn transpose(self) -> Self {
        Self { transposed: !self.transposed, ..self }
    }

    /// Numbers from the first to the last of so many matrices; `usize::MAX` if they are more.
    pub fn span(&self, rows: usize, columns: usize, batches: usize) -> usize {
        if [rows, columns, batches].contains(&0) {
            return 0;
        }
        let (outer, inner) = if self.transposed { (columns, rows) } else { (rows, columns) };
        let of_batches = (batches - 1).saturating_mul(self.batch_stride);
        let of_rows = (outer - 1).saturating_mul(self.leading);
        of_batches.saturating_add(of_rows).saturating_add(inner)
    }
}

/// The dimensions read as one: its length and its stride. `None` where no single stride visits them in order.
fn merged(shape: &[usize], strides: &[usize]) -> Option<(usize, usize)> {
    let (mut length, mut stride) = (1, 0);
    for (&size, &next) in shape.iter().zip(strides).rev().filter(|(size, _)| **size != 1) {
        if length == 1 {
            (length, stride) = (size, next);
        } else if next == length * stride {
            length *= size;
        } else {
            return None;
        }
    }
    Some((length, stride))
}

#[cfg(test)]
mod tests;
