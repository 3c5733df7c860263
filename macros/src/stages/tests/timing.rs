//! The time of an expansion.

use std::time::Instant;

use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_project::config::ConfigFile;
use gpu_tuned_project::resolved::{Resolved, Selected};
use quote::quote;

use super::run;
use gpu_tuned_attribute::Table;

/// The time of one expansion in the profile that the test is built in, which for the attribute itself is that of build
/// scripts: `cargo test -p gpu-tuned-macros -- --ignored --nocapture`.
#[test]
#[ignore = "prints times, which say nothing on a busy machine"]
fn time_of_one_expansion() {
    let few =
        &["gtx1080", "rtx3060", "rtx3090", "rtx4090", "rtx5090", "t4", "l4", "l40s", "a10g", "a40", "h200", "b200"];
    let all: Vec<&str> = ProfileTable::builtin_ids().filter(|id| *id != "generic").collect();
    for declared in [&few[..], &all] {
        let ids = declared.iter().map(|id| id.parse().expect("a profile id")).collect();
        let selected = Selected::Targets(vec!["h200".parse().expect("a profile id")]);
        let resolved = Resolved::new(selected, ids, &ConfigFile::default(), ProfileTable::builtin());
        let text = resolved.to_toml();
        for global_batch in [quote!(), quote!(, global_batch = 512)] {
            let attribute = quote!(transformer(seq = 256, vocab = 8192, layers = 6, d_model = 512) #global_batch);
            let item = quote!(
                #[derive(Debug)]
                struct Config {
                    #[tuned]
                    batch_size: usize,
                }
            );
            let start = Instant::now();
            let table = Table::Resolved(Box::new(Resolved::from_toml(&text).expect("a table")));
            let read = start.elapsed();
            let expansion = run(attribute.clone(), &item, table).to_string();
            println!(
                "{} targets, {attribute}: {read:?} to read {} KiB, {:?} in all, {} bytes",
                declared.len(),
                text.len() / 1024,
                start.elapsed(),
                expansion.len()
            );
        }
    }
}
