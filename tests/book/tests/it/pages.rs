use std::fs;
use std::path::{Path, PathBuf};

/// The README, from the folder of the book.
pub(crate) const README: &str = "../README.md";

/// Folder of the book.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// The README and the pages of the book by name, with their text.
pub(crate) fn pages() -> Vec<(String, String)> {
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(&path).unwrap()))
        .collect();
    pages.push((README.to_owned(), fs::read_to_string(folder().join(README)).unwrap()));
    pages.sort();
    pages
}
