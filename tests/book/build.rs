//! As the book says.

fn main() {
    gpu_tuned_build::configure().emit();
}
