//! What a package with a build script is told.

use std::path::Path;
use std::process::{Command, ExitCode};

use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_core::source::Source;
use gpu_tuned_project::config::ConfigFile;
use gpu_tuned_project::resolved::{Resolved, Selected};

const CONFIG: &str = include_str!("../cases/with_table/gpu-tuned.toml");

fn main() -> ExitCode {
    if std::env::var_os(Resolved::VARIABLE).is_some() {
        trybuild::TestCases::new().compile_fail("cases/with_table/*.rs");
        return ExitCode::SUCCESS;
    }
    let table = Path::new(env!("CARGO_TARGET_TMPDIR")).join("table.toml");
    std::fs::write(&table, resolved().to_toml()).expect("the target directory is writable");
    // A variable of this process cannot be set safely; one of a child can.
    let again = Command::new(std::env::current_exe().expect("the test knows its own path"))
        .env(Resolved::VARIABLE, &table)
        .status()
        .expect("the test can run itself");
    if again.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn resolved() -> Resolved {
    let file = ConfigFile::parse(Source { file: "gpu-tuned.toml", text: CONFIG }).expect("the file is valid");
    let id = |id: &str| id.parse().expect("a profile id");
    let declared = ["gtx1080", "rtx4090", "h200"].map(id);
    let selected = Selected::Targets(["gtx1080", "rtx4090"].map(id).to_vec());
    Resolved::new(selected, declared.to_vec(), &file, ProfileTable::builtin())
}
