use thiserror::Error;

/// Parts of a batch that differ in length.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "parts of the batch differ in length: `batch.{field}` has {samples} elements, and `batch.{first}` has {expected}. \
     Give every part one element a sample: a padded tensor, or a `Vec` with a tensor for each sample. \
     In a struct, mark a field of the whole batch with `#[micro_batch(shared)]`"
)]
#[non_exhaustive]
pub struct UnequalParts {
    /// Path of the part, such as `boxes.labels`, or `1` in a tuple.
    pub field: String,
    /// Elements of the part along its first dimension.
    pub samples: usize,
    /// Path of the first part, which counts the samples.
    pub first: String,
    /// Elements of the first part.
    pub expected: usize,
}

impl UnequalParts {
    /// Compares the parts of a batch, for an implementation of `MicroBatch::check`. Each part has a name, a number of samples, and
    /// the result of its own check.
    ///
    /// # Errors
    ///
    /// The first part with unequal parts of its own, or with another number of samples than the first part.
    pub fn compare<'f>(parts: impl IntoIterator<Item = (&'f str, usize, Result<(), Self>)>) -> Result<(), Self> {
        let mut counted: Option<(&str, usize)> = None;
        for (field, samples, inner) in parts {
            inner.map_err(|parts| Self {
                field: format!("{field}.{}", parts.field),
                first: format!("{field}.{}", parts.first),
                ..parts
            })?;
            let (first, expected) = *counted.get_or_insert((field, samples));
            if samples != expected {
                return Err(Self { field: field.to_owned(), samples, first: first.to_owned(), expected });
            }
        }
        Ok(())
    }
}
