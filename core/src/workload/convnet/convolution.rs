use crate::workload::{Product, Tensors};

/// Shape of one convolution with its norm.
#[derive(Clone, Copy)]
pub(in crate::workload) struct Convolution {
    /// Input channels of each output: 1 if depthwise.
    pub inputs: u64,
    pub outputs: u64,
    pub kernel: u64,
    /// Pixels of the output.
    pub pixels: u64,
    /// Tensors kept of what follows: the norm's output where something reads it, and the activation's own. A shortcut has
    /// none, and a convolution without an activation has the norm's output or the block's sum.
    pub after: u64,
    pub bias: bool,
    /// True if each output has one input channel.
    pub depthwise: bool,
}

/// The norm after a convolution.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::workload) enum NormKind {
    /// `BatchNorm`, one operation.
    Batch,
    /// A norm composed of several operations, such as `GroupNorm`.
    Other,
    /// None.
    None,
}

impl Convolution {
    /// Kernels of a convolution with norm and activation, forward and backward. Not measured.
    pub(in crate::workload) const KERNELS: u64 = 40;

    pub(in crate::workload) fn tensors(self, norm: NormKind) -> impl Iterator<Item = Tensors> {
        let vectors = u64::from(self.bias) + if norm == NormKind::None { 0 } else { 2 };
        let kernels = Tensors::kernels(1, self.outputs, self.inputs, self.kernel);
        [kernels, Tensors::vectors(vectors, self.outputs)].into_iter().filter(|group| group.count > 0)
    }

    pub(in crate::workload) fn multiplications(self) -> f64 {
        (self.inputs * self.kernel * self.kernel) as f64 * (self.outputs * self.pixels) as f64
    }

    /// Harmonic mean of the output channels, weighted by multiplications. Those of a depthwise convolution are separate
    /// products of one channel each.
    pub(in crate::workload) fn mean_channels(all: &[Self]) -> Option<f64> {
        let of_all: f64 = all.iter().map(|convolution| convolution.multiplications()).sum();
        let channels = |convolution: &Self| if convolution.depthwise { 1.0 } else { convolution.outputs as f64 };
        let by_channels = |convolution: &Self| convolution.multiplications() / channels(convolution);
        (of_all > 0.0).then(|| of_all / all.iter().map(by_channels).sum::<f64>())
    }

    /// The matrix product of the convolution with most multiplications.
    pub(in crate::workload) fn dominant_product(all: &[Self]) -> Option<Product> {
        let heaviest = all.iter().max_by(|a, b| a.multiplications().total_cmp(&b.multiplications()))?;
        Some(heaviest.product())
    }

    /// Pixels of the smallest image that a `BatchNorm` sees.
    pub(in crate::workload) fn statistics_pixels(all: &[Self], norm: NormKind) -> Option<u64> {
        all.iter().map(|convolution| convolution.pixels).min().filter(|_| norm == NormKind::Batch)
    }

    pub(in crate::workload) const fn values(self) -> u64 {
        self.outputs * self.pixels
    }

    /// The equivalent matrix product.
    const fn product(self) -> Product {
        Product { rows_per_sample: self.pixels, inner: self.inputs * self.kernel * self.kernel, columns: self.outputs }
    }

    /// Values kept for the backward pass, counted in Burn 0.22.1 operation by operation: `tests/models/KEPT.md`.
    ///
    /// `BatchNorm` keeps the convolution's output, the norm's and the activation's. Other norms keep a centred and a
    /// normalized tensor instead of the convolution's output. Without a norm a shortcut keeps nothing: a sum reads its output.
    pub(in crate::workload) fn kept(self, norm: NormKind) -> u64 {
        match norm {
            NormKind::Batch => self.padded() + self.after * self.values(),
            NormKind::Other => (2 + self.after) * self.values(),
            NormKind::None if self.after == 0 => 0,
            NormKind::None => self.padded() + self.after.saturating_sub(1) * self.values(),
        }
    }

    /// Values kept under checkpointing: the outputs of convolutions and of `BatchNorm`.
    pub(in crate::workload) fn kept_checkpointed(self, norm: NormKind) -> u64 {
        self.padded() + if norm == NormKind::Batch { self.values() } else { 0 }
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
