/// Table of the source codes.
const SOURCES: &str = include_str!("../../profiles/SOURCES.md");

/// Explains a source code, such as `okm`; `None` for an unlisted code.
pub fn describe_source(code: &str) -> Option<&'static str> {
    let rows = SOURCES.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |")?.split_once(" | "));
    let names = |codes: &str| codes.split(", ").any(|named| named.trim_matches('`') == code);
    rows.into_iter().find_map(|(codes, words)| names(codes).then_some(words))
}

/// Returns true for a source that a profile may name: a code of the table, or the address of a page.
pub(super) fn is_source(text: &str) -> bool {
    text.starts_with("https://") || text.starts_with("http://") || describe_source(text).is_some()
}

#[cfg(test)]
mod tests {
    use super::describe_source;

    #[test]
    fn a_code_is_explained_alone_and_beside_another() {
        assert!(
            describe_source("okm").is_some_and(|words| words.starts_with("NVIDIA/open-gpu-kernel-modules, README"))
        );
        assert_eq!(describe_source("github-a10"), describe_source("github-pro6000"));
        assert_eq!(
            describe_source("least"),
            Some("the least figure among the boards that have at least 8 GiB and 200 GB/s")
        );
        for stranger in ["", "code", "---", "ok", "github"] {
            assert_eq!(describe_source(stranger), None, "{stranger}");
        }
    }
}
