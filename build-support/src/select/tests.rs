use super::is_gpu_name;

#[test]
fn only_names_of_gpus_read_like_one() {
    for gpu in ["rtx4095", "gtx-970", "RTX_5090", "h300", "a10g", "l40s", "v100", "gb300", "a100-80gb"] {
        assert!(is_gpu_name(gpu), "{gpu}");
    }
    for other in ["default", "h264", "h2", "v1", "v10", "a11y", "b64", "t5", "l2", "cuda", "std", "native"] {
        assert!(!is_gpu_name(other), "{other}");
    }
}
