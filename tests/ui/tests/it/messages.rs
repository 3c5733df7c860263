//! Compile errors of `#[gpu_tuned]` and `#[derive(MicroBatch)]`.

use std::path::Path;

use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_core::source::Source;
use gpu_tuned_project::config::ConfigFile;
use gpu_tuned_project::resolved::{Resolved, Selected};

const CONFIG: &str = include_str!("../../cases/with_table/gpu-tuned.toml");

#[test]
fn mistakes_of_packages_without_a_build_script() {
    trybuild::TestCases::new().compile_fail("cases/without_table/*.rs");
}

#[test]
fn mistakes_of_batches() {
    trybuild::TestCases::new().compile_fail("cases/micro_batch/*.rs");
}

#[test]
fn the_stand_in_of_batches_has_the_notes_of_the_real_trait() {
    let notes = |source: &str| {
        let (_, notes) = source.split_once("#[diagnostic::on_unimplemented(").expect("the trait has notes");
        notes.split_once(")]\npub trait MicroBatch").expect("the trait follows").0.to_owned()
    };
    let [real, stand_in] = ["train/src/micro_batch.rs", "tests/ui/micro-batch/src/lib.rs"]
        .map(|file| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)));
    assert_eq!(notes(&real.expect("a file")), notes(&stand_in.expect("a file")));
}

#[test]
#[ignore = "started by the test below with a table"]
fn cases_with_table() {
    trybuild::TestCases::new().compile_fail("cases/with_table/*.rs");
}

#[test]
fn mistakes_of_packages_with_a_build_script() {
    let table = Path::new(env!("CARGO_TARGET_TMPDIR")).join("table.toml");
    std::fs::write(&table, resolved().to_toml()).expect("the target directory is writable");
    own_process::run(own_process::command(cases_with_table).env(Resolved::VARIABLE, &table));
}

fn resolved() -> Resolved {
    let file = ConfigFile::parse(Source { file: "gpu-tuned.toml", text: CONFIG }).expect("the file is valid");
    let id = |id: &str| id.parse().expect("a profile id");
    let declared = ["gtx1080", "rtx4090", "h200"].map(id);
    let selected = Selected::Targets(["gtx1080", "rtx4090"].map(id).to_vec());
    Resolved::new(selected, declared.to_vec(), &file, ProfileTable::builtin())
}
