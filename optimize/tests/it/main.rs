//! Training configs of many frameworks, read and tuned: `tests/configs.toml` has the expected values.

mod acceptance;
mod api;
mod counts;
mod found;
mod public;
mod refusals;
mod table;
mod tuned;

/// Expectations that were checked.
#[derive(Default)]
struct Checks {
    checked: usize,
    failures: Vec<[String; 4]>,
}

impl Checks {
    fn add(&mut self, file: &str, [name, wanted]: [&str; 2], found: String, is_right: bool) {
        self.checked += 1;
        if !is_right {
            self.failures.push([file.to_owned(), name.to_owned(), wanted.to_owned(), found]);
        }
    }

    fn end(&self, what: &str) {
        assert_all(what, self.checked, &self.failures);
    }
}

/// Fails with all rows, each a file, an expectation, the expected value and the one that was found.
fn assert_all(what: &str, checked: usize, failures: &[[String; 4]]) {
    let mut text = String::new();
    let folder = format!("{}/tests/", env!("CARGO_MANIFEST_DIR"));
    for [file, expectation, expected, found] in failures {
        let found = found.replace(&folder, "");
        let found: String = found.lines().map(str::trim).collect::<Vec<_>>().join(" ").chars().take(150).collect();
        text.push_str(&format!("{file:36} {expectation:24} {expected:26} {found}\n"));
    }
    assert!(failures.is_empty(), "{what}: {} of {checked} expectations fail\n{text}", failures.len());
}
