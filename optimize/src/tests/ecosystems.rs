//! Keys of ecosystems that a hand-written config means otherwise, or that no plan covers.

use super::cases::yaml;
use super::{MODEL, refused};
use crate::{ConfigText, Format};

/// The error for the text behind the model's dimensions.
fn error(text: &str) -> String {
    refused(Format::Yaml, &format!("{MODEL}{text}"), &[])
}

#[test]
fn settings_that_share_a_value_can_both_change() {
    let text = "batch_size: &bs 8\nlr: 1\ngradient_accumulation_steps: 4\neval_batch_size: *bs\nbuffer: *bs\n";
    let tuned = yaml(text, "h200", &[]);
    assert_eq!(tuned, "batch_size: &bs 32\nlr: 1\ngradient_accumulation_steps: 1\neval_batch_size: 64\nbuffer: 8\n");
}

#[test]
fn values_that_stay_are_not_rewritten() {
    let text = "batch_size: 8\nlr: 1\nbf16: auto\nfp16:\n";
    assert_eq!(yaml(text, "h200", &["--precision", "f32"]), text);
}

#[cfg(unix)]
#[test]
fn only_regular_files_of_a_bounded_size_are_read() {
    let folder = std::env::temp_dir().join(format!("gpu-tuned-optimize-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let read = |name: &str| ConfigText::read(&folder.join(name)).expect_err("not read").to_string();
    std::os::unix::fs::symlink("/dev/zero", folder.join("zero.yaml")).expect("a link");
    let socket = std::os::unix::net::UnixListener::bind(folder.join("socket.yaml")).expect("a socket");
    let large = std::fs::File::create(folder.join("large.yaml")).expect("a file");
    large.set_len((64 << 20) + 1).expect("a size");
    let found = ["zero.yaml", "socket.yaml", "large.yaml"].map(read);
    drop(socket);
    std::fs::remove_dir_all(&folder).expect("the folder goes");
    assert!(found[0].ends_with("it is no regular file") && found[1].ends_with("it is no regular file"), "{found:?}");
    assert!(found[2].contains("64 MiB"), "{found:?}");
}

#[test]
fn numbers_that_readers_disagree_about_are_refused() {
    assert_eq!(
        error("batch_size: 010\nlr: 1\n"),
        "config:2:13: `batch_size`: expected a whole number from 1 to 2^30, found 010, which is octal in YAML 1.1"
    );
}
