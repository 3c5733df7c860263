//! JSON documents: all have a version, and figures have names with units.

use serde_json::Value;

use crate::project::{Project, Ran};
use crate::recorded_run::Recorded;

/// Ends of names that are units, or what is counted.
const UNITS: &str = "_bits _bytes _cores _gb_s _gen _j _mhz _mib _ms _mw _per_s _per_step _per_sample _percent _ratio _s _samples _share \
    _steps _tflops _threads _w";

/// Names that are units, shares or ratios.
const WITH_UNIT: &str =
    "bytes flops memory_headroom reached samples_per_s_interval seconds share speedup tflops throughput_tolerance";

/// Names of counts, of numbers in an order, and of versions.
const COUNTS: &str = "accumulation accumulations batch batch_size batches columns compute_instance copies copies_checkpointed cores count \
    cuda_cores dims entries eval_batch_size events expected format found from frozen global global_batch gpu_instance \
    gradient_accumulation index inner kernels largest line lines micro_batch micro_batches micro_steps num_workers number mig_slices nvlink_gpus \
    other_processes packed parameters pcie_lanes planes prefetch prefetch_depth ranks recordings repeats rows \
    rows_per_sample schema_version sm_count steps to tokens widths words workers world_size";

/// Values of a prediction, whose key `quantity` has the unit.
const OF_QUANTITY: &str = "got now then";

fn has_unit(name: &str) -> bool {
    UNITS.split_whitespace().any(|unit| name.ends_with(unit))
}

/// Paths of numbers whose name has no unit.
fn without_unit(key: &str, path: &str, value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Number(_) => {
            let mut known = [WITH_UNIT, COUNTS, OF_QUANTITY].into_iter().flat_map(str::split_whitespace);
            let is_known = has_unit(key) || known.any(|name| name == key);
            found.extend((!is_known).then(|| path.to_owned()));
        }
        Value::Array(items) => items.iter().for_each(|item| without_unit(key, path, item, found)),
        // Dimensions have the names that users give them in files.
        Value::Object(_) if key == "model" => {}
        Value::Object(entries) => {
            for (name, value) in entries {
                // The name of a whole table of figures may have the unit.
                let inner = if has_unit(key) { key } else { name };
                without_unit(inner, &format!("{path}.{name}"), value, found);
            }
        }
        _ => {}
    }
}

fn check(command: &str, ran: Ran, code: i32) {
    let document = ran.json(code);
    assert_eq!(document["schema_version"], 1, "{command}");
    assert_eq!(document["command"], command);
    assert!(document["notes"].is_array(), "{command}: {document:#}");
    let mut found = Vec::new();
    without_unit("", command, &document, &mut found);
    found.sort_unstable();
    found.dedup();
    assert!(found.is_empty(), "{command}: no unit in {found:#?}");
}

#[test]
fn every_document_has_a_version_and_units() {
    let measured = Project::new("measured");
    let declared = Project::new("declared");
    let json = |project: &Project, args: &[&str]| project.run(&[&args[..1], &["--json"], &args[1..]].concat());
    check("plan", json(&measured, &["plan", "--here"]), 0);
    check("plan", json(&measured, &["plan", "h200", "rtx4090", "--price", "h200=3", "--precision", "auto"]), 0);
    check("plan", json(&declared, &["plan"]), 1);
    check("explain", json(&measured, &["explain", "h200"]), 0);
    check("explain", json(&declared, &["explain", "rtx4090", "--workload", "large"]), 1);
    // The GPU is refused, as it is for people.
    check("explain", json(&measured, &["explain", "t4", "--precision", "mixed_bf16"]), 1);
    for command in ["plan", "explain"] {
        let args = [command, "--json", "--gpu", "0", "--model", "mlp(widths = [784, 10])", "--global-batch", "64"];
        let refused = || declared.on("k80", &args);
        let document = refused().json(1);
        assert_eq!(
            document["error"].as_str().expect("a message").split(':').next(),
            Some("GPU 0 (Tesla K80) cannot train")
        );
        assert_eq!(document["help"], "--here plans for a GPU that a program takes");
        check(command, refused(), 1);
    }
    check("check", json(&measured, &["check"]), 0);
    check("targets", json(&measured, &["targets"]), 0);
    check("init", json(&declared, &["init", "--dry-run", "--force"]), 0);
    check("report", json(&measured, &["report"]), 0);
    for (machine, code) in [("h200-mig-beside-whole", 0), ("two-gpus", 0), ("nonsense", 0)] {
        check("targets --here", declared.on(machine, &["targets", "--here", "--json"]), code);
    }
}

#[test]
fn documents_on_recordings_have_a_version_and_units() {
    let project = Project::new("bare");
    Recorded::waiting(0.4).write("run.jsonl", &project);
    let json = |args: &[&str]| project.run(&[args, &["--json"]].concat());
    check("diagnose", json(&["diagnose", "run.jsonl", "--before", "run.jsonl"]), 1);
    check("trace", json(&["trace", "run.jsonl"]), 0);
    check("export", json(&["export", "run.jsonl", "--csv", "-o", "steps.csv"]), 0);
    let lines = json(&["monitor", "--replay", "run.jsonl"]).ended(0);
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    assert!(lines.filter(|line| line["schema_version"] == 1 && line["kind"].is_string()).count() > 100);
}

#[test]
fn documents_on_programs_have_a_version_and_units() {
    let project = Project::new("measuring").beside("runtime").beside("measured");
    let json = |args: &[&str]| project.run(&[&args[..1], &["--json"], &args[1..]].concat());
    check("measure", json(&["measure", "--", "write", "../measured/gpu-tuned.lock"]), 0);
    check("warm", json(&["warm", "--", "warm"]), 0);
    check("bench", json(&["bench", "--batch", "8", "--", "bench"]), 0);
}

#[test]
fn configs_have_documents_with_a_version_and_units() {
    let project = Project::new("configs");
    for args in [&["patches.json", "h200"][..], &["series.toml", "h200", "rtx4090"]] {
        let ran = project.run(&[&["optimize", "--json", "--dry-run"], args].concat());
        check("optimize", ran, 0);
    }
}
