use super::*;

#[test]
fn devices_are_known_by_their_names() {
    let found = |text: &str| is_device(&syn::parse_str(text).expect("an expression"));
    assert!(
        ["device", "train_device.clone()", "strategy.main_device().clone()", "Device::cuda(0)"].into_iter().all(found)
    );
    assert!(!["model", "tensor.clone()", "pool.device(1)"].into_iter().any(found));
}

#[test]
fn the_loop_of_older_releases_is_burn_s_own() {
    let found =
        |call: &str| training_loops(&[Source::of_text("src/main.rs", &format!("fn train() {{ {call}; }}"))]).len();
    assert_eq!(found("LearnerBuilder::new(folder).devices(all).build(model, optimizer, 1e-3)"), 1);
    assert_eq!(found("burn::train::SupervisedTraining::new(folder, train, valid)"), 1);
    assert_eq!(found("Learner::new(model, optimizer, 1e-3)"), 0);
}

#[test]
fn an_error_is_returned_only_where_it_becomes_the_function_s_error() {
    for (text, expected) in [
        ("fn f() {}", PANIC),
        ("fn f() -> anyhow::Result<()> {}", "?"),
        ("use anyhow::{Context, Result};\nfn f() -> Result<()> {}", "?"),
        ("use anyhow::Result as Res;\nfn f() -> Result<()> {}", PANIC),
        ("fn f() -> Result<()> {}", PANIC),
        ("fn f() -> std::io::Result<()> {}", PANIC),
        ("fn f() -> miette::Result<()> {}", PANIC),
        ("use miette::Result;\nfn f() -> Result<()> {}", PANIC),
        ("use color_eyre::eyre::Result;\nfn f() -> Result<()> {}", "?"),
        ("fn f() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {}", "?"),
        ("fn f() -> Result<(), Box<dyn Display>> {}", PANIC),
        ("fn f() -> Result<(), anyhow::Error> {}", "?"),
        ("fn f() -> Result<(), String> {}", ".map_err(|error| error.to_string())?"),
        ("fn f() -> Result<(), MyError> {}", PANIC),
        ("fn f() -> Option<()> {}", PANIC),
    ] {
        let file = syn::parse_file(text).expect("Rust");
        let found = file.items.iter().find_map(|item| match item {
            Item::Fn(function) => Some(error_handling(&function.sig.output, &file)),
            _ => None,
        });
        assert_eq!(found, Some(expected), "{text}");
    }
}
