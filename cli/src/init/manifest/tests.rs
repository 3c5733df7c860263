use std::path::Path;

use super::next_to;

#[test]
fn a_folder_beside_another_is_named_as_that_is() {
    for (folder, beside) in [
        ("../runtime", "../build-support"),
        ("../runtime/", "../build-support"),
        ("runtime", "build-support"),
        ("/x/runtime", "/x/build-support"),
        ("..", "../../build-support"),
        (".", "./../build-support"),
    ] {
        assert_eq!(next_to(Path::new(folder), "build-support"), Path::new(beside), "{folder}");
    }
}
