//! Resolves the GPU that the enabled features name.

fn main() {
    gpu_tuned_build::configure().emit();
}
