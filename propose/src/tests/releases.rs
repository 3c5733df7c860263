//! The release of Burn.

use crate::release::REQUIRED;

#[test]
fn the_required_release_is_that_of_the_workspace() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");
    let manifest: toml::Table = std::fs::read_to_string(manifest).expect("the manifest").parse().expect("TOML");
    let burn = manifest["workspace"]["dependencies"]["burn"]["version"].as_str().expect("a release");
    assert_eq!(burn, REQUIRED.to_string());
}
