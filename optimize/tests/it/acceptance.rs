//! Unmodified public configs of `tests/acceptance.txt`: their step and memory, or what is missing.

use std::path::PathBuf;

use crate::api::{self, Asked};
use crate::table::Options;

#[test]
#[ignore = "needs the configs that scripts/try-configs.sh fetches, in the folder PUBLIC_CONFIGS"]
fn public_configs_have_their_outcomes() {
    let folder = PathBuf::from(std::env::var_os("PUBLIC_CONFIGS").expect("PUBLIC_CONFIGS names a folder"));
    let (mut checks, mut planned, mut all) = (crate::Checks::default(), 0, 0);
    let mut repository = "";
    for line in include_str!("../acceptance.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(named) = line.strip_prefix('[') {
            repository = named.split(' ').next().expect("a repository");
            continue;
        }
        let parts: Vec<_> = line.split(" | ").collect();
        let [file, option, expected @ ..] = &parts[..] else { panic!("{line}") };
        all += 1;
        planned += usize::from(*option != "refused");
        let dims = option.strip_prefix("--dim ").and_then(|dim| dim.split_once('='));
        let dims = dims.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().collect();
        // The other options are not those of a table.
        if option.starts_with("--model-config") || option.starts_with("--assume") {
            continue;
        }
        let found = outcome(&folder.join(repository).join(file), &Options { dims, ..Options::default() });
        let is_right = match &found {
            Ok(found) => *option != "refused" && expected == found.as_slice(),
            // A reason in words stands for messages of several lines.
            Err(message) => {
                let is_reason = ["the model", "syntax"].contains(&expected[0]);
                *option == "refused" && (is_reason || message.contains(expected[0]))
            }
        };
        checks.add(file, ["outcome", &expected.join(" | ")], format!("{found:?}"), is_right);
    }
    checks.end("public configs");
    assert!(all >= 120 && planned * 10 >= all * 6, "{planned} of {all} are planned");
}

/// The step and the memory on an H200, or the refusal.
fn outcome(file: &std::path::Path, options: &Options) -> Result<[String; 2], String> {
    let reading = api::read(file, None, options).map_err(|error| error.to_string())?;
    let spec = reading.model.as_ref().map_err(ToString::to_string)?;
    let memory = reading.tune("h200", spec, Asked::default())?.memory;
    let step = reading.step;
    let memory = memory.map_or_else(|| "-".to_owned(), |bytes| format!("{:.1}", bytes.0 as f64 / f64::from(1 << 30)));
    Ok([format!("{} {} {}", step.batch, step.accumulation, step.ranks), memory])
}
