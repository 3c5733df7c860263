//! The time of an expansion, and of a package that declares every GPU.

use std::time::{Duration, Instant};

use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_project::config::ConfigFile;
use gpu_tuned_project::resolved::{Resolved, Selected};

use super::{config, run};
use gpu_tuned_attribute::Table;

fn every_gpu() -> Vec<&'static str> {
    ProfileTable::builtin_ids().filter(|id| *id != "generic").collect()
}

/// Text of the table of a package that is built for an H200.
fn table(declared: &[&str]) -> String {
    let ids = declared.iter().map(|id| id.parse().expect("a profile id")).collect();
    let selected = Selected::Targets(vec!["h200".parse().expect("a profile id")]);
    Resolved::new(selected, ids, &ConfigFile::default(), ProfileTable::builtin()).to_toml()
}

fn read(text: &str) -> Table {
    Table::Resolved(Box::new(Resolved::from_toml(text).expect("a table")))
}

#[test]
fn declared_targets_are_counted_and_neither_read_nor_planned() {
    let attribute = quote!(mlp(widths = [4, 4]), global_batch = 64);
    for (declared, expected) in [(&["t4", "h200"][..], "2 declared targets"), (&every_gpu(), "200 declared targets")] {
        let text = table(declared);
        let profiles = Resolved::from_toml(&text).expect("a table").profile;
        assert_eq!(profiles.iter().map(|profile| profile.id.as_str()).collect::<Vec<_>>(), ["generic", "h200"]);
        let expansion = run(attribute.clone(), &config(&quote!()), read(&text)).to_string();
        assert!(expansion.contains(expected), "{expansion}");
    }
}

/// Both times are of one run, so that the load of the machine matters little.
#[test]
fn a_package_that_declares_every_gpu_expands_as_fast_as_with_one() {
    let expand = |text: &str| {
        let start = Instant::now();
        let expansion =
            run(quote!(mlp(widths = [4, 4]), global_batch = 64), &config(&quote!()), read(text)).to_string();
        assert!(expansion.contains("batch_size"), "{expansion}");
        start.elapsed()
    };
    let (one, all) = (table(&["h200"]), table(&every_gpu()));
    let (mut of_one, mut of_all) = (Duration::MAX, Duration::MAX);
    for _ in 0..30 {
        of_one = of_one.min(expand(&one));
        of_all = of_all.min(expand(&all));
    }
    assert!(of_all < 4 * of_one, "{of_all:?} with every GPU, {of_one:?} with one");
}

/// Prints the first and the shortest time of 20 expansions: `cargo test -p gpu-tuned-macros --lib -- --ignored --nocapture`.
/// In a program, the macro is built in the profile of build scripts.
#[test]
#[ignore = "prints times, which say nothing on a busy machine"]
fn time_of_one_expansion() {
    let few =
        &["gtx1080", "rtx3060", "rtx3090", "rtx4090", "rtx5090", "t4", "l4", "l40s", "a10g", "a40", "h200", "b200"];
    for declared in [&every_gpu()[..], few] {
        let text = table(declared);
        for global_batch in [quote!(), quote!(, global_batch = 512)] {
            let attribute = quote!(transformer(seq = 256, vocab = 8192, layers = 6, d_model = 512) #global_batch);
            let times = (0..20).map(|_| {
                let start = Instant::now();
                let table = read(&text);
                let reading = start.elapsed();
                let expansion = run(attribute.clone(), &config(&quote!()), table);
                (start.elapsed(), reading, expansion.to_string().len())
            });
            let times: Vec<_> = times.collect();
            let (min, reading, bytes) = times.iter().min().expect("20 of them");
            println!(
                "{} targets, {attribute}: {:?} at first, {min:?} at best, of which {reading:?} to read {} KiB; {bytes} bytes",
                declared.len(),
                times[0].0,
                text.len() / 1024,
            );
        }
    }
}
