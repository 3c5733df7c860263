//! Files that cannot be planned, and files that are no training config.

use std::fs;

use crate::api::{self, Reading};
use crate::assert_all;
use crate::table::{Options, Table, path};

/// The error, or that there is none.
fn refusal(folder: &str, file: &str, model: Option<&str>, options: &Options) -> Option<String> {
    match api::read(&path(folder, file), model, options) {
        Ok(Reading { model: Ok(_), .. }) => None,
        Ok(Reading { model: Err(error), .. }) | Err(error) => Some(error.to_string()),
    }
}

#[test]
fn what_cannot_be_planned_is_refused_with_its_key_and_line() {
    let mut failures = Vec::new();
    let table = Table::read();
    for refused in &table.refused {
        let place = refused.line.map(|line| format!("{}:{line}:", refused.file.rsplit('/').next().unwrap_or_default()));
        let wanted: Vec<_> = refused.names.iter().cloned().chain(place).collect();
        let found = refusal("configs", &refused.file, refused.model.as_deref(), &refused.options);
        let found = found.unwrap_or_else(|| format!("planned, although {}", refused.why));
        if !wanted.iter().all(|part| found.contains(part.as_str())) {
            failures.push([refused.file.clone(), "refused with".to_owned(), wanted.join(" "), found]);
        }
    }
    assert_all("refusals", table.refused.len(), &failures);
}

/// The files that are no training config, each with its refusal.
fn no_configs() -> Vec<(String, Option<String>)> {
    let all = fs::read_dir(path("no_configs", "")).expect("a folder");
    let mut all: Vec<_> =
        all.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name")).collect();
    all.sort();
    all.into_iter().map(|file| (file.clone(), refusal("no_configs", &file, None, &Options::default()))).collect()
}

#[test]
fn refusals_of_files_without_a_training_are_those_of_the_snapshot() {
    let folder = path("no_configs", "").to_string_lossy().into_owned();
    let line = |(file, found): (String, Option<String>)| {
        let found = found.unwrap_or_else(|| "planned".to_owned()).replace(&folder, "");
        format!("{file}: {}\n", found.lines().next().unwrap_or_default())
    };
    insta::assert_snapshot!("no_configs", no_configs().into_iter().map(line).collect::<String>());
}
