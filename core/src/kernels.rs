//! Kernels of a training step: Burn's own, or those of NVIDIA's libraries.

use core::fmt;
use core::str::FromStr;

use crate::ParseError;
use crate::dims::choices;
use crate::sparse::Sparse;
use crate::workload::Family;

choices! {
    /// Kernels that the modules of `gpu_tuned::nn` compute with.
    #[derive(Default, PartialOrd, Ord, Hash)]
    pub enum Kernels: "kernels", "Kernels" {
        /// Burn's own.
        #[default]
        Burn = "burn",
        /// cuBLASLt for matrix products, cuDNN for convolutions and recurrent layers, and one kernel each for norms and losses.
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

/// Speed of steps with the library's kernels over that of steps with Burn's, measured on an H200: the lowest and the highest
/// factor of the networks of a kind.
///
/// Displays as `2.6 to 3.4 times as fast on an H200 (transformers in f32, with CUDA graphs)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LibraryGain {
    /// Lowest factor.
    pub least: f64,
    /// Highest factor.
    pub most: f64,
    networks: &'static str,
}

impl LibraryGain {
    /// Gain for a kind of network; `None` for kinds without a measurement.
    ///
    /// Source: `docs/speed.md`, steps of 64 samples in f32 with TF32, with the library and CUDA graphs, and in Burn's plain loop.
    pub const fn of_family(family: Family) -> Option<Self> {
        let (least, most, networks) = match family {
            // A small vision transformer, and a GPT with 50,257 words.
            Family::Transformer => (8807.1 / 3395.8, 1738.6 / 510.7, "transformers"),
            // A ResNet-18 on images of 32 pixels, and eight convolutions of 96 channels.
            Family::Convnet => (5278.0 / 2217.0, 3999.1 / 862.7, "convolutional networks"),
            // Burn launches the kernels of each of its 60 steps.
            Family::Recurrent => (8959.1 / 167.6, 8959.1 / 167.6, "an LSTM of three layers"),
            Family::Other => return None,
        };
        Some(Self { least, most, networks })
    }
}

impl fmt::Display for LibraryGain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { least, most, networks } = *self;
        let least = if least < most { format!("{least:.1} to ") } else { String::new() };
        let most = if most < 10.0 { format!("{most:.1}") } else { format!("{most:.0}") };
        write!(f, "{least}{most} times as fast on an H200 ({networks} in f32, with CUDA graphs)")
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
