//! Kernels of a training step: Burn's own, or those of NVIDIA's libraries.

use core::str::FromStr;

use crate::ParseError;
use crate::dims::choices;
use crate::sparse::Sparse;

choices! {
    /// Kernels that the modules of `gpu_tuned::nn` compute with.
    #[derive(Default, PartialOrd, Ord, Hash)]
    pub enum Kernels: "kernels", "Kernels" {
        /// Burn's own.
        #[default]
        Burn = "burn",
        /// cuBLASLt for matrix products, and one kernel each for norms and losses.
        Library = "library",
    }
}

impl Kernels {
    /// Returns true for kernels of NVIDIA's libraries.
    pub const fn is_library(self) -> bool {
        matches!(self, Self::Library)
    }

    /// Kernels of a switch for the library.
    #[doc(hidden)]
    #[must_use]
    pub const fn switched(is_on: bool) -> Self {
        if is_on { Self::Library } else { Self::Burn }
    }
}

/// Files leave out Burn's kernels.
impl Sparse for Kernels {
    fn is_absent(&self) -> bool {
        !self.is_library()
    }
}

impl FromStr for Kernels {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|kernels| kernels.name() == text);
        named.ok_or_else(|| ParseError(format!("`{text}` names no kernels: expected burn or library")))
    }
}

#[cfg(test)]
mod tests {
    use super::Kernels;

    #[test]
    fn kernels_are_read_by_their_names() {
        for kernels in Kernels::ALL {
            assert_eq!(kernels.to_string().parse(), Ok(kernels));
            assert_eq!(Kernels::switched(kernels.is_library()), kernels);
        }
        let message = "`cublas` names no kernels: expected burn or library";
        assert_eq!("cublas".parse::<Kernels>().unwrap_err().to_string(), message);
    }
}
