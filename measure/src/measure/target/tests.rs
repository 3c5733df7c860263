use gpu_tuned_core::{Kernels, Precision, Settings};

use super::other_settings;

#[test]
fn everything_that_is_compared_is_pinned_and_the_library_comes_first() {
    let others = |precision, kernels, all: &[Kernels], precisions: &[Precision]| {
        let settings = Settings { precision, kernels, ..Settings::DEFAULT };
        other_settings(&settings, all, precisions).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let (both, precisions) = ([Kernels::Library, Kernels::Burn], [Precision::F32, Precision::MixedBf16]);
    let all = [
        "precision=f32,kernels=library",
        "precision=mixed_bf16,kernels=library",
        "precision=f32,kernels=burn",
        "precision=mixed_bf16,kernels=burn",
    ];
    for (own, (kernels, precision)) in
        both.iter().flat_map(|kernels| precisions.map(|precision| (*kernels, precision))).enumerate()
    {
        let mut expected = all.to_vec();
        expected.remove(own);
        assert_eq!(others(precision, kernels, &both, &precisions), expected);
    }
    let (f32, burn) = (Precision::F32, Kernels::Burn);
    assert_eq!(others(f32, burn, &[burn], &precisions), ["precision=mixed_bf16"]);
    assert_eq!(others(f32, burn, &both, &[f32]), ["kernels=library"]);
    assert_eq!(others(f32, burn, &[burn], &[f32]), [""; 0]);
}
