//! Batches that are cut into micro-batches and brought to devices.

use std::ops::Range;

use burn::tensor::{DType, Device, Tensor};
use gpu_tuned::MicroBatch;

use crate::network::{Batch, Samples};

impl MicroBatch for Samples {
    fn len(&self) -> usize {
        match self {
            Self::Tokens(tokens) => tokens.len(),
            Self::Images(images) => images.len(),
            Self::Sequences(sequences) => sequences.len(),
        }
    }

    fn narrow(&self, samples: Range<usize>) -> Self {
        match self {
            Self::Tokens(tokens) => Self::Tokens(tokens.narrow(samples)),
            Self::Images(images) => Self::Images(images.narrow(samples)),
            Self::Sequences(sequences) => Self::Sequences(sequences.narrow(samples)),
        }
    }

    fn on_device(self, device: &Device) -> Self {
        match self {
            Self::Tokens(tokens) => Self::Tokens(tokens.on_device(device)),
            Self::Images(images) => Self::Images(images.on_device(device)),
            Self::Sequences(sequences) => Self::Sequences(sequences.on_device(device)),
        }
    }

    fn has_arrived(&self) -> bool {
        match self {
            Self::Tokens(tokens) => tokens.has_arrived(),
            Self::Images(images) => images.has_arrived(),
            Self::Sequences(sequences) => sequences.has_arrived(),
        }
    }

    fn bytes(&self, device: &Device) -> usize {
        match self {
            Self::Tokens(tokens) => tokens.bytes(device),
            Self::Images(images) => images.bytes(device),
            Self::Sequences(sequences) => sequences.bytes(device),
        }
    }

    fn store(self, kept: Option<Self>) -> Option<Self> {
        match (self, kept) {
            (Self::Tokens(tokens), Some(Self::Tokens(kept))) => tokens.store(Some(kept)).map(Self::Tokens),
            (Self::Images(images), Some(Self::Images(kept))) => images.store(Some(kept)).map(Self::Images),
            (Self::Sequences(rows), Some(Self::Sequences(kept))) => rows.store(Some(kept)).map(Self::Sequences),
            (Self::Tokens(tokens), None) => tokens.store(None).map(Self::Tokens),
            (Self::Images(images), None) => images.store(None).map(Self::Images),
            (Self::Sequences(rows), None) => rows.store(None).map(Self::Sequences),
            _ => None,
        }
    }
}

impl Batch {
    /// Targets of a sample.
    fn targets_each(&self) -> usize {
        self.targets.len().checked_div(self.samples.len()).unwrap_or(1)
    }

    /// The batch on a device without autodiff, with real numbers of this type instead of the device's default.
    #[must_use]
    pub fn in_float(self, device: &Device, float: DType) -> Self {
        let samples = match self.samples {
            Samples::Tokens(tokens) => Samples::Tokens(tokens.on_device(device)),
            Samples::Images(images) => Samples::Images(converted(images, device, float)),
            Samples::Sequences(sequences) => Samples::Sequences(converted(sequences, device, float)),
        };
        Self { samples, targets: self.targets.on_device(device) }
    }
}

fn converted<const D: usize>(tensor: Tensor<D>, device: &Device, float: DType) -> Tensor<D> {
    Tensor::from_data(tensor.into_data().convert_dtype(float), (device, float))
}

impl MicroBatch for Batch {
    fn len(&self) -> usize {
        self.samples.len()
    }

    fn narrow(&self, samples: Range<usize>) -> Self {
        let each = self.targets_each();
        let targets = MicroBatch::narrow(&self.targets, samples.start * each..samples.end * each);
        Self { samples: self.samples.narrow(samples), targets }
    }

    fn on_device(self, device: &Device) -> Self {
        Self { samples: self.samples.on_device(device), targets: self.targets.on_device(device) }
    }

    fn has_arrived(&self) -> bool {
        self.samples.has_arrived() && self.targets.has_arrived()
    }

    fn bytes(&self, device: &Device) -> usize {
        self.samples.bytes(device) + self.targets.bytes(device)
    }

    fn store(self, kept: Option<Self>) -> Option<Self> {
        let (samples, targets) = kept.map(|kept| (kept.samples, kept.targets)).unzip();
        Some(Self { samples: self.samples.store(samples)?, targets: self.targets.store(targets)? })
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Int, Tensor};
    use gpu_tuned::MicroBatch;

    use super::{Batch, Samples};

    #[test]
    fn a_sample_keeps_its_targets() {
        let device = Device::flex();
        let tokens = Tensor::<1, Int>::arange(0..12, &device).reshape([4, 3]);
        let batch = Batch { samples: Samples::Tokens(tokens), targets: Tensor::arange(100..112, &device) };
        assert_eq!(batch.len(), 4);
        let Batch { samples: Samples::Tokens(tokens), targets } = batch.narrow(1..3) else { panic!("tokens") };
        assert_eq!(tokens.into_data().iter::<i64>().collect::<Vec<_>>(), (3..9).collect::<Vec<_>>());
        assert_eq!(targets.into_data().iter::<i64>().collect::<Vec<_>>(), (103..109).collect::<Vec<_>>());
    }
}
