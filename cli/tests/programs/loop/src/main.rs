use burn::tensor::Device;

/// Looks at a model; the other binary trains it.
fn main() {
    let device = Device::flex();
    println!("{device:?}");
}
