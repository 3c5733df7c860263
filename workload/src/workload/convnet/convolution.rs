use crate::workload::{Product, Tensors};

/// Shape of one convolution with its norm.
#[derive(Clone, Copy)]
pub(in crate::workload) struct Convolution {
    pub inputs: u64,
    pub outputs: u64,
    pub kernel: u64,
    /// Pixels of the output.
    pub pixels: u64,
    /// True if an activation follows; a shortcut has none.
    pub activated: bool,
}

impl Convolution {
    /// Kernels of a convolution with norm and activation, forward and backward.
    pub(in crate::workload) const KERNELS: u64 = 40;

    pub(in crate::workload) fn tensors(self) -> [Tensors; 2] {
        [Tensors::kernels(1, self.outputs, self.inputs, self.kernel), Tensors::vectors(2, self.outputs)]
    }

    pub(in crate::workload) fn multiplications(self) -> f64 {
        (self.inputs * self.kernel * self.kernel) as f64 * (self.outputs * self.pixels) as f64
    }

    /// Harmonic mean of the output channels, weighted by multiplications.
    pub(in crate::workload) fn mean_channels(all: &[Self]) -> Option<f64> {
        let of_all: f64 = all.iter().map(|convolution| convolution.multiplications()).sum();
        let by_channels = |convolution: &Self| convolution.multiplications() / convolution.outputs as f64;
        (of_all > 0.0).then(|| of_all / all.iter().map(by_channels).sum::<f64>())
    }

    pub(in crate::workload) const fn values(self) -> u64 {
        self.outputs * self.pixels
    }

    /// The equivalent matrix product.
    pub(in crate::workload) const fn product(self) -> Product {
        Product { rows_per_sample: self.pixels, inner: self.inputs * self.kernel * self.kernel, columns: self.outputs }
    }

    /// Values kept for the backward pass, counted in Burn 0.22.1 operation by operation: `tests/models/KEPT.md`.
    ///
    /// `BatchNorm` keeps the convolution's output, the norm's and the activation's. Other norms keep a centred and a
    /// normalized tensor instead of the convolution's output.
    pub(in crate::workload) fn kept(self, batch_statistics: bool) -> u64 {
        let activation = if self.activated { 2 } else { 0 };
        if batch_statistics { self.padded() + activation * self.values() } else { (2 + activation) * self.values() }
    }

    /// Values kept under checkpointing: the outputs of convolutions and of `BatchNorm`.
    pub(in crate::workload) fn kept_checkpointed(self, batch_statistics: bool) -> u64 {
        self.padded() + if batch_statistics { self.values() } else { 0 }
    }

    /// Values of the output as CUDA allocates them. `CubeCL` 0.11.3 puts channels last and pads the bytes of a pixel.
    /// Below 512 bytes to a power of two of at least 16, else to a multiple of 512; a single channel is not padded.
    fn padded(self) -> u64 {
        let bytes = 4 * self.outputs;
        let row = if self.outputs == 1 {
            bytes
        } else if bytes < 512 {
            bytes.next_power_of_two().max(16)
        } else {
            bytes.next_multiple_of(512)
        };
        row / 4 * self.pixels
    }
}
