//! The page of a small fixture.

use std::fs;
use std::path::Path;

use gpu_tuned_core::Precision;
use gpu_tuned_core::measured::Mode;

use super::subject::{MemorySource, Subject};
use super::{files, generated, memory};
use crate::figures::mib;
use crate::results::{Line, Results, lines, parsed};

const LOCK: &str = "\
format = 2

[workload.transformer]
parameters = 27_300_000
shape = \"9c1f\"

[workload.transformer.described.transformer]
d_model = 512
heads = 8
layers = 6
seq = 256
vocab = 8192

[workload.transformer.on.h200]
burn = \"0.22.1\"
context_bytes = 563_085_312 # 537 MiB
cubecl = \"0.11.3\"
device = \"NVIDIA H200\"
driver = \"580.95.05\"
kernels_bytes = 34_603_008 # 33 MiB
kind = \"gpu\"
memory_bytes = 150_754_820_096
sm_count = 132

[workload.transformer.on.h200.mode.f32]
method = \"executed\"

[workload.transformer.on.h200.mode.f32.batch]
8 = { micro_step_ms = 14.27, optimizer_ms = 1.0, reserved_bytes = 1_548_746_752 }
32 = { micro_step_ms = 38.22, optimizer_ms = 1.0, reserved_bytes = 4_968_153_088 }
256 = { micro_step_ms = 290.2, optimizer_ms = 1.0, reserved_bytes = 33_420_214_272 }

# end of gpu-tuned.lock
";

fn line(batch: u64, rest: &str) -> String {
    format!(
        "{{\"model\":\"transformer\",\"precision\":\"f32\",\"checkpointing\":false,\"accumulate\":1,\
         \"batch\":{batch},{rest}}}\n"
    )
}

/// Three repeats of three batches; 64 samples reserve 8833 MiB, and run with 9400 MiB free but not with 9000.
fn results() -> Results {
    let mut sweep = String::new();
    for (batch, rates) in [(16, [690, 700, 720]), (64, [832, 810, 835]), (128, [861, 859, 850])] {
        for rate in rates {
            sweep += &line(batch, &format!("\"way\":\"sweep\",\"samples_per_second\":{rate}"));
        }
    }
    let trace = line(64, "\"way\":\"trace\",\"queue\":0,\"reserved_bytes\":[2267213824,9262071808,8715956224]");
    let boundary = [
        line(64, "\"way\":\"boundary\",\"free_mib\":9400,\"ok\":true,\"samples_per_second\":830.0"),
        line(64, "\"way\":\"boundary\",\"free_mib\":12000,\"ok\":true,\"samples_per_second\":832.0"),
        line(64, "\"way\":\"boundary\",\"free_mib\":9000,\"ok\":false"),
    ];
    let confirmed = [
        line(16, "\"way\":\"confirmed\",\"free_mib\":8192,\"reserved_bytes\":[2684354560]"),
        line(64, "\"way\":\"confirmed\",\"free_mib\":9000,\"out_of_memory\":true,\"message\":\"none left\""),
    ];
    Results {
        lock: parsed(LOCK).expect("it is valid"),
        devices: [("transformer".to_owned(), "h200".to_owned())].into(),
        sweep: lines("sweep.jsonl", &sweep).expect("they are valid"),
        trace: lines("trace.jsonl", &trace).expect("it is valid"),
        pairs: Vec::new(),
        boundary: lines("boundary.jsonl", &boundary.concat()).expect("they are valid"),
        confirmed: lines("confirmed.jsonl", &confirmed.concat()).expect("they are valid"),
    }
}

fn page() -> String {
    page_of(&results())
}

fn page_of(results: &Results) -> String {
    let files = generated(results).expect("it can be generated");
    let (_, page) = files.into_iter().find(|(file, _)| file == "docs/proof.md").expect("there is a page");
    page
}

/// Returns the cells of the row that begins with `begin`.
fn row(page: &str, begin: &str) -> Vec<String> {
    let line = page.lines().find(|line| line.starts_with(begin)).expect("there is such a row");
    line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// Results with steps of 512 samples, confirmed with these micro-batches and MiB reserved by the pools.
fn in_steps_of_512(confirmed: &[(u64, u64)]) -> Results {
    let goal = "[workload.transformer.goal]\nglobal_batch = 512\n\n[workload.transformer.on.h200]\n";
    let lock = LOCK.replacen("[workload.transformer.on.h200]\n", goal, 1);
    let confirmed = confirmed.iter().map(|(batch, mib)| {
        let rest = format!("\"way\":\"confirmed\",\"free_mib\":8192,\"reserved_bytes\":[{}]", mib << 20);
        line(*batch, &rest).replace("\"accumulate\":1", &format!("\"accumulate\":{}", 512_u64.div_ceil(*batch)))
    });
    let confirmed: String = confirmed.collect();
    Results {
        lock: parsed(&lock).expect("it is valid"),
        confirmed: lines("confirmed.jsonl", &confirmed).expect("they are valid"),
        ..results()
    }
}

#[test]
fn held_out_batches_are_compared_with_interpolations() {
    // 4738 + 32 x (31872 - 4738) / 224 = 8614; 25% more are 10768, and three small pages 10792.
    let page = page();
    let wanted = ["f32", "64", "executed", "8833", "8614", "-2.48%", "10792"];
    assert_eq!(row(&page, "| f32 | 64 | executed"), wanted);
    // 1477 + 8 x (4738 - 1477) / 24 = 2564 where 2560 were confirmed.
    assert_eq!(row(&page, "| f32 | 16 | executed")[3..6], ["2560", "2564", "+0.16%"]);
    assert_eq!(row(&page, "| executed |"), ["executed", "2", "1.32%", "2.48%", "2.48%", "0"]);
}

#[test]
fn confirmed_batches_are_compared_with_the_lock() {
    let confirmed = |batch, mib: u64| {
        line(batch, &format!("\"way\":\"confirmed\",\"free_mib\":8192,\"reserved_bytes\":[{}]", mib << 20))
    };
    // The lock has 4738 MiB for 32 samples. With context and kernels that is 5308, nine tenths of 5898. The pools may use 5328
    // of these. The lock lacks 24 samples.
    let text: String =
        [(32, 4700), (32, 4768), (32, 5400), (24, 3700)].map(|(batch, mib)| confirmed(batch, mib)).concat();
    let page = page_of(&Results { confirmed: lines("confirmed.jsonl", &text).expect("they are valid"), ..results() });
    let wanted = ["[confirmed](#smaller-cards)", "3", "2", "+662", "+13.97%", "1"];
    assert_eq!(row(&page, "| [confirmed]"), wanted);
    assert_eq!(row(&page, "| transformer | f32 | 32 | 8192 | 4768")[4..], ["4768", "4738", "+30.0", "+0.63%"]);
    assert_eq!(row(&page, "| runs at measured micro-batches")[1..], ["2 of 3, by at most 662 MiB and +13.97%", "-"]);
    assert_eq!(row(&page, "| f32 | 24 | executed")[3..5], ["3700", "3651"]);
}

#[test]
fn dry_steps_are_compared_with_the_last_executed_step() {
    let traced = |way: &str, queue: u64, mib: u64| {
        line(64, &format!("\"way\":\"{way}\",\"queue\":{queue},\"reserved_bytes\":[{}]", mib << 20))
    };
    let text = [
        traced("trace", 0, 8000),
        traced("trace", 0, 8833),
        traced("dry_trace", 0, 8833),
        traced("trace", 2, 8900),
        traced("dry_trace", 2, 8870),
        traced("dry_trace", 1, 8850),
    ];
    let trace = lines("trace.jsonl", &text.concat()).expect("they are valid");
    let page = page_of(&Results { trace, confirmed: Vec::new(), ..results() });
    let note = "1 of 2 pairs of dry and executed steps reserved the same bytes. Executed steps reserved up to 30 MiB more, and up to 0 MiB less.";
    assert!(page.contains(note), "{page}");
    assert_eq!(row(&page, "| dry |")[1], "3");
    assert_eq!(row(&page, "| accumulating, or")[1], "3");
    assert!(self::page().contains("No step ran both dry and executed"));
}

#[test]
fn pages_from_opening_the_device_in_another_thread_are_excluded() {
    let traced = |pools: &str| {
        let rest = format!("\"way\":\"trace\",\"reserved_bytes\":[9262071808],\"pools\":[{pools}]");
        let trace = lines("trace.jsonl", &line(64, &rest)).expect("it is valid");
        row(&page_of(&Results { trace, confirmed: Vec::new(), ..results() }), "| f32 | 64 | executed")[3].clone()
    };
    let pool = |pages: u64, largest: u64| {
        format!("{{\"page_size\":8388608,\"pages\":{pages},\"pages_peak\":1,\"largest_alloc\":{largest}}}")
    };
    let own = pool(1, 40_960);
    assert_eq!(traced(&format!("{},{own}", pool(1, 512))), "8825");
    assert_eq!(traced(&format!("{},{own}", pool(0, 512))), "8833");
    assert_eq!(traced(&own), "8833");
}

#[test]
fn pairs_with_other_kernels_are_summarised_apart() {
    let text = line(64, "\"way\":\"trace\",\"reserved_bytes\":[12582912000]")
        + &line(64, "\"way\":\"dry_trace\",\"reserved_bytes\":[12582912000]");
    let pairs = lines("pairs.jsonl", &text).expect("they are valid");
    let page = page_of(&Results { pairs, ..results() });
    let before = self::page();
    for unchanged in ["| all |", "| executed |", "| runs at other sizes"] {
        assert_eq!(row(&page, unchanged), row(&before, unchanged));
    }
    assert_eq!(row(&before, "| the same, of [pairs]")[1], "-");
    assert!(row(&page, "| the same, of [pairs]")[1].starts_with("2 of 2, by at most "), "{page}");
    assert_eq!(row(&page, "| of [pairs]")[1], "2");
    assert!(page.contains("<summary>transformer, pairs: 2 runs</summary>"), "{page}");
    assert!(page.contains("All 1 pairs of dry and executed steps reserved the same bytes"), "{page}");
}

#[test]
fn the_bound_is_compared_with_the_boundary() {
    // 10791.86 + 537 + 33 = 11361.86, of which 9400 were enough.
    let range = "+20.87% to +26.24%";
    let wanted = ["transformer", "f32", "64", "9000", "9400", "830", "11362", range, "above the goal"];
    let page = page();
    let section = page.split("## The boundary").nth(1).expect("there is a section");
    assert_eq!(row(section, "| transformer | f32 |"), wanted);
    assert_eq!(row(&page, "| bound over the real")[1], "+20.87% to +26.24% (transformer)");
    assert_eq!(row(&page, "| the same, max |")[1], "+20.87% to +26.24% (transformer)");
}

#[test]
fn both_ends_of_the_bisection_decide_whether_the_bound_is_close() {
    let verdict = |failed, ran| {
        let tried = [(failed, false), (ran, true)];
        let tried = tried.map(|(free, ok)| line(64, &format!("\"way\":\"boundary\",\"free_mib\":{free},\"ok\":{ok}")));
        let boundary = lines("boundary.jsonl", &tried.concat()).expect("they are valid");
        let page = page_of(&Results { boundary, ..results() });
        let section = page.split("## The boundary").nth(1).expect("there is a section");
        row(section, "| transformer | f32 |").split_off(7)
    };
    assert_eq!(verdict(11100, 11200), ["+1.45% to +2.36%", "ok"]);
    assert_eq!(verdict(10950, 11000), ["+3.29% to +3.76%", "above the goal"]);
    assert_eq!(verdict(11000, 11050), ["+2.82% to +3.29%", "goal undecided"]);
    assert_eq!(verdict(11300, 11400), ["-0.33% to +0.55%", "within the bisection"]);
    assert_eq!(verdict(11400, 11500), ["-1.20% to -0.33%", "below the boundary"]);
}

#[test]
fn planned_settings_that_failed_are_counted() {
    let page = page();
    assert_eq!(row(&page, "| planned settings that failed")[1..], ["1 of 2", "0"]);
    let section = page.split("## Smaller cards").nth(1).expect("there is a section");
    assert_eq!(row(section, "| transformer | f32 | 8192")[3..], ["1 x 16", "2560", "ran"]);
    assert_eq!(row(section, "| transformer | f32 | 9000")[3..], ["1 x 64", "-", "failed"]);
}

#[test]
fn observed_memory_has_priority_over_the_lock() {
    let results = in_steps_of_512(&[(32, 4800), (32, 4790)]);
    let subjects = Subject::all(&results).expect("they are described");
    let mode = Mode::new(Precision::F32, false);
    let needed = |batch| subjects[0].memory_needed(mode, batch).expect("it can be planned");
    // With context and kernels: the maximum of both runs, the traced bytes and another set of gradients, and 4738 - 8 x 136 MiB
    // with such a set.
    let found = [32, 64, 16].map(needed).map(|(bytes, source)| (mib(bytes), source));
    let wanted = [("5370", MemorySource::Step), ("9507", MemorySource::MicroBatch), ("3238", MemorySource::Lock)];
    assert_eq!(found, wanted.map(|(bytes, source)| (bytes.to_owned(), source)));
}

#[test]
fn planned_settings_that_exceeded_the_memory_are_counted() {
    // 32 samples are planned up to 16 GiB. With context and kernels they reserve more than 8 GiB, but at most 12.
    let cell = |reserved| {
        row(&page_of(&in_steps_of_512(&[(32, reserved), (256, 31_872)])), "| planned settings that need more")[1]
            .clone()
    };
    assert_eq!(cell(7600), "0 of 6 (memory observed at 6)");
    assert_eq!(cell(7700), "1 of 6 (memory observed at 6)");
    let page = page_of(&in_steps_of_512(&[(64, 9000)]));
    let sources = "- predicted by the lock in 6 rows: transformer, f32, 8 GiB;";
    assert!(page.contains(sources), "{page}");
}

#[test]
fn other_choices_are_compared_with_the_best_that_fits() {
    let page = page();
    // 16 samples take 1477 + 8 x 136 + 570 = 3134 MiB, and 64 take 8833 + 570 = 9403.
    let small = row(&page, "| 8 GiB |");
    assert_eq!([&small[4], &small[7], &small[8]], ["16: 700", "16: 1.000", "64: out of memory"]);
    let middle = row(&page, "| 12 GiB |");
    assert_eq!((middle[4].as_str(), middle[8].as_str()), ("64: 832", "64: 1.000"));
    let large = row(&page, "| 80 GiB |");
    assert_eq!(large[4], "128: 859");
    assert_eq!(large[8], format!("64: {:.3}", 832.0 / 859.0));
    assert_eq!(row(&page, "| batch 64 |")[1..7], ["5", "0", "0", "0.981", "0.969 (transformer, f32, 24 GiB)", "1"]);
}

#[test]
fn modes_of_the_lock_that_were_not_swept_are_named() {
    let (_, mode) = LOCK.split_once("[workload.transformer.on.h200.mode.f32]").expect("it has a mode");
    let mode = format!("[workload.transformer.on.h200.mode.f32]{mode}").replace("mode.f32", "mode.f32-checkpointed");
    let lock = format!("{LOCK}\n{mode}");
    let note = "transformer: the sweep lacks `f32-checkpointed`";
    assert!(!page().contains(note));
    assert!(page_of(&Results { lock: parsed(&lock).expect("it is valid"), ..results() }).contains(note));
}

#[test]
fn the_figure_has_every_batch_and_its_interval() {
    let files = generated(&results()).expect("it can be generated");
    let (_, figure) = files.iter().find(|(file, _)| file == "docs/proof/transformer.svg").expect("there is a figure");
    for batch in ["batch 16: 700 samples/s, 3.06 GiB", "batch 64: 832 samples/s, 9.18 GiB", "batch 128: 859 samples/s"]
    {
        assert_eq!(figure.matches(batch).count(), 1, "{figure}");
    }
    assert_eq!(figure.matches("h6M").count(), 3, "{figure}");
    for card in ["8", "12", "16", "24", "80"] {
        assert!(figure.contains(&format!("text-anchor=\"middle\">{card}</text>")), "{card}");
    }
}

#[test]
fn the_same_results_make_the_same_files() {
    assert_eq!(
        generated(&results()).expect("it can be generated"),
        generated(&results()).expect("it can be generated")
    );
}

#[test]
fn nothing_is_generated_without_results() {
    assert_eq!(files(Path::new("no such folder")).expect("it may be missing"), []);
}

#[test]
fn each_device_has_a_folder_and_each_model_a_device() {
    let all = tempfile::tempdir().expect("a folder");
    let write = |device: &str, model: &str| {
        let folder = all.path().join(device);
        fs::create_dir_all(&folder).expect("it can be made");
        let lock = LOCK
            .replace("workload.transformer", &format!("workload.{model}"))
            .replace("on.h200", &format!("on.{device}"));
        fs::write(folder.join("gpu-tuned.lock"), lock).expect("it can be written");
        let trace = line(64, "\"way\":\"trace\",\"reserved_bytes\":[9262071808]").replace("transformer", model);
        fs::write(folder.join("trace.jsonl"), trace).expect("it can be written");
    };
    write("h200", "wide");
    write("h100-sxm5-80gb", "narrow");
    let results = Results::read(all.path()).expect("they are whole").expect("they are there");
    let subjects = Subject::all(&results).expect("they are described");
    let found: Vec<_> = subjects.iter().map(|subject| (subject.name, subject.device)).collect();
    assert_eq!(found, [("narrow", "h100-sxm5-80gb"), ("wide", "h200")]);
    assert_eq!(results.trace.len(), 2);
    write("h200", "narrow");
    let error = Results::read(all.path()).err().expect("a model that was measured twice").to_string();
    assert!(error.ends_with("gpu-tuned.lock: narrow is measured on h100-sxm5-80gb already"), "{error}");
    fs::rename(all.path().join("h100-sxm5-80gb"), all.path().join("a100")).expect("it can be renamed");
    let error = Results::read(all.path()).err().expect("a folder with another name").to_string();
    assert!(error.ends_with("narrow is not measured on a100, which the folder is named after"), "{error}");
}

#[test]
fn a_line_that_is_none_is_named() {
    let text = line(64, "\"way\":\"sweep\"") + "{\"model\":\"transformer\"\n";
    let error = lines::<Line>("sweep.jsonl", &text).expect_err("the second is cut short");
    assert_eq!(error.to_string(), "sweep.jsonl:2");
}

/// Checks the claims of the page with the real results.
#[test]
fn the_real_results_meet_the_claims() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/hardware/results");
    let results = Results::read(&folder).expect("it is whole").expect("it is there");
    let subjects = Subject::all(&results).expect("they are described");
    let bisected = memory::bisections(&subjects, &results.boundary).expect("they can be planned");
    assert!(bisected.len() >= 2);
    for run in &bisected {
        assert!(run.too_little.is_some_and(|failed| run.bound > failed), "a plan would ask for too little");
        let subject = subjects.iter().find(|subject| subject.name == run.model).expect("it was measured");
        let is_measured = subject.is_measured(run.run.mode, run.run.batch);
        assert!(!is_measured || run.is_close() != Some(false), "a plan would ask for too much");
    }
    let exceeded = memory::Comparison::new(&subjects, &results).expect("they can be planned").exceeded();
    assert!(exceeded.starts_with("0 of "), "{exceeded}");
    let at_points = memory::runs_at_measured(&subjects, &results).expect("they can be planned");
    assert_eq!(memory::exceeded_room(&at_points), format!("0 of {}", at_points.len()));
    assert!(results.confirmed.len() >= 8 && results.confirmed.iter().all(|line| line.reserved().is_some()));
}
