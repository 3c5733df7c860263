use burn::tensor::Device;
use library::{TrainSettings, fit};

fn main() -> miette::Result<()> {
    let device = Device::flex();
    fit(&TrainSettings::default(), &device)
}
