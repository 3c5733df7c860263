#[cfg(not(feature = "cuda"))]
#[test]
fn a_program_without_cuda_has_no_tf32_to_switch_off() {
    use super::switch_tf32_off;
    use crate::burn::{OpenError, Place};
    assert!(matches!(switch_tf32_off(&Place::Only), Err(OpenError::WithoutCuda)));
}
