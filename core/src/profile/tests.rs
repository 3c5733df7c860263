use super::describe_source;

#[test]
fn a_code_is_explained_alone_and_beside_another() {
    assert!(describe_source("okm").is_some_and(|words| words.starts_with("NVIDIA/open-gpu-kernel-modules, README")));
    assert_eq!(describe_source("github-a10"), describe_source("github-pro6000"));
    assert_eq!(
        describe_source("least"),
        Some("the least figure among the boards that have at least 8 GiB and 200 GB/s")
    );
    for stranger in ["", "code", "---", "ok", "github"] {
        assert_eq!(describe_source(stranger), None, "{stranger}");
    }
}
