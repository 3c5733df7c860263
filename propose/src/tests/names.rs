use std::path::Path;

use crate::diff::display_name;

#[test]
fn files_are_named_from_the_workspace_on() {
    let name = |path: &str| display_name(Path::new(path), Path::new("/home/me/net"));
    assert_eq!(name("/home/me/net/src/lib.rs"), "src/lib.rs");
    assert_eq!(name("/home/me/shared/src/lib.rs"), "../shared/src/lib.rs");
    assert_eq!(name("src/lib.rs"), "src/lib.rs");
}
