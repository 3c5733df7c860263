//! Workloads of `gpu-tuned.toml`.

use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_core::source::Source;
use gpu_tuned_project::config::ConfigFile;
use gpu_tuned_project::lock::Lock;
use gpu_tuned_project::resolved::{Resolved, Selected};

use super::{LOCK, config, formatted, run};
use gpu_tuned_attribute::Table;

/// The table of a package that has the workload of `LOCK` under two names, and measured it twice: under one of them as faster
/// with larger micro-batches.
fn renamed() -> Table {
    let described = |name: &str| {
        format!("[workload.{name}.described.transformer]\nlayers = 6\nd_model = 512\nvocab = 8192\nseq = 256\n")
    };
    let (_, lm) = LOCK.split_once('\n').expect("lines");
    let newer = lm.replace("workload.lm", "workload.newer").replace("micro_step_ms = 270.0", "micro_step_ms = 200.0");
    let text = [LOCK, &described("lm"), &newer, &described("newer"), Lock::END].concat();
    let lock = Lock::parse(Source { file: Lock::NAME, text: &text }).expect("the lock is valid");
    let text = (described("lm") + &described("newer")).replace("described.", "");
    let file = ConfigFile::parse(Source { file: "gpu-tuned.toml", text: &text }).expect("the file is valid");
    let selected = Selected::Targets(vec!["h200".parse().expect("a profile id")]);
    let resolved = Resolved::new(selected, Vec::new(), &file, ProfileTable::builtin());
    Table::Resolved(Box::new(resolved.with_measured(lock)))
}

#[test]
fn a_named_workload_is_planned_by_what_was_measured_under_its_name() {
    for (name, batch_size) in [("lm", 32), ("newer", 256)] {
        let attribute = quote!(workload = #name, global_batch = 512);
        let expansion = formatted(run(attribute, &config(&quote!()), renamed()));
        assert!(expansion.contains(&format!("batch_size: {batch_size},")), "{name}: {expansion}");
        assert!(expansion.contains(&format!("workload: ::std::option::Option::Some(\"{name}\")")), "{expansion}");
    }
}
