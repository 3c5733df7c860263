//! The build script of the book.

fn main() {
    gpu_tuned_build::configure().emit();
}
