//! Annotated structs of a package, and models without a package.

use serde_json::Value;

use crate::project::{Project, Ran};

const DIMS: &str = "mlp(widths = [784, 512, 10])";

fn annotated(attribute: &str, name: &str) -> String {
    format!("#[gpu_tuned({attribute})]\n#[derive(Debug)]\npub struct {name} {{ #[tuned] pub batch_size: usize }}\n")
}

/// A package with a build script and this program.
fn package(program: &str) -> Project {
    let project = Project::new("bare");
    project.write("build.rs", "fn main() { gpu_tuned_build::configure().emit(); }\n");
    project.write("src/main.rs", &format!("{program}\nfn main() {{}}\n"));
    project
}

fn row(rows: &Value) -> (&str, &Value, &Value) {
    let [row] = rows["plans"].as_array().expect("rows").as_slice() else { panic!("{rows:#}") };
    (row["workload"].as_str().expect("a name"), &row["config"], &row["plan"]["schedule"]["global_batch"])
}

#[test]
fn the_attribute_goes_before_the_file_and_the_arguments_before_both() {
    let project = package(&annotated(&format!("{DIMS}, global_batch = 96"), "Config"));
    project.write("gpu-tuned.toml", "[goal]\nglobal_batch = 512\nmemory_headroom = 0.5\n");
    let rows = project.run(&["plan", "h200", "--json"]).json(0);
    assert_eq!(row(&rows), ("Config", &"Config".into(), &96.into()));
    let memory = |item: &str| rows["plans"][0]["plan"]["memory"][format!("{item}_bytes")].as_u64().expect("bytes");
    assert_eq!(memory("headroom"), memory("available").div_ceil(2));
    let rows = project.run(&["plan", "h200", "--json", "--global-batch", "48"]).json(0);
    assert_eq!(row(&rows).2, &48);
}

#[test]
fn the_file_of_the_metadata_is_read_and_named() {
    let project = package(&annotated("workload = \"rows\"", "Config"));
    let with = |line: &str| format!("{}\n[package.metadata.gpu-tuned]\n{line}\n", project.read("Cargo.toml"));
    let (named, misspelt) = (with("config-file = \"conf/my.toml\""), with("config_file = \"conf/my.toml\""));
    project.write("Cargo.toml", &named);
    std::fs::create_dir(project.path("conf")).expect("a folder");
    project.write("gpu-tuned.toml", "[workload.rows.mlp]\nwidths = [1]\n");
    project.write("conf/my.toml", "[workload.rows.mlp]\nwidths = [784, 512, 10]\n[goal]\nglobal_batch = 64\n");
    let rows = project.run(&["plan", "h200", "--json"]).json(0);
    assert_eq!(row(&rows), ("rows", &"Config".into(), &64.into()));
    project.write("conf/my.toml", "[workload.rows.mlp]\nwidth = [784, 512, 10]\n");
    let said = project.run(&["plan", "h200"]).refused(2);
    assert!(said.contains("--> conf/my.toml:2:1"), "{said}");
    std::fs::remove_file(project.path("conf/my.toml")).expect("it is there");
    assert!(project.run(&["plan", "h200"]).refused(2).contains("conf/my.toml"));
    project.write("Cargo.toml", &misspelt);
    let said = project.run(&["plan", "h200"]).refused(2);
    assert!(said.contains("unknown key `config_file`; did you mean `config-file`?"), "{said}");
}

#[test]
fn one_of_several_structs_is_named_by_its_name_or_path() {
    let program = format!(
        "mod a {{ {} }}\nmod b {{ {} }}\n{}",
        annotated(&format!("{DIMS}, global_batch = 1"), "Config"),
        annotated(&format!("{DIMS}, global_batch = 2"), "Config"),
        annotated(&format!("{DIMS}, global_batch = 3"), "Other"),
    );
    let project = package(&program);
    let planned = |args: &[&str]| project.run(&[&["plan", "h200", "--json"], args].concat());
    let rows = planned(&[]).json(0);
    let names: Vec<_> = rows["plans"].as_array().expect("rows").iter().map(|row| row["workload"].clone()).collect();
    assert_eq!(names, ["Other", "bare::a::Config", "bare::b::Config"]);
    assert_eq!(row(&planned(&["--struct", "Other"]).json(0)).2, &3);
    assert_eq!(row(&planned(&["--struct", "b::Config"]).json(0)).2, &2);
    assert_eq!(row(&planned(&["--workload", "bare::a::Config"]).json(0)).2, &1);
    let said = planned(&["--struct", "Config"]).refused(2);
    assert!(said.contains("help: name one with --struct: bare::a::Config, bare::b::Config"), "{said}");
    let said = planned(&["--struct", "Othr"]).refused(2);
    assert!(said.starts_with("error: there is no annotated struct `Othr`; did you mean `Other`?"), "{said}");
    let said = project.run(&["explain", "h200"]).refused(2);
    assert!(said.contains("name one with --workload or --struct: Other, bare::a::Config"), "{said}");
    assert!(project.run(&["explain", "h200", "--struct", "Other"]).ended(0).starts_with("Other on h200"));
}

#[test]
fn a_struct_with_a_mistake_is_an_error_or_beside_others_a_note() {
    let broken = annotated(&format!("{DIMS}, globl_batch = 64"), "Broken");
    let project = package(&broken);
    for args in [&["plan", "h200"][..], &["plan", "h200", "--struct", "Broken"], &["report", "h200"]] {
        let said = project.run(args).refused(2);
        let start = "error: `#[gpu_tuned]` does not take `globl_batch`; did you mean `global_batch`?";
        assert!(said.starts_with(start) && said.contains("--> src/main.rs:1:"), "{said}");
    }
    let findings = project.run(&["check", "--json"]).json(2);
    assert!(findings["findings"][0]["message"].as_str().is_some_and(|it| it.contains("globl_batch")), "{findings:#}");
    let said = project.run(&["measure"]).refused(2);
    assert!(said.contains("globl_batch"), "nothing is built: {said}");
    let project = package(&(broken + &annotated(DIMS, "Config")));
    let ran = project.run(&["plan", "h200"]);
    assert!(ran.stderr.starts_with("note: `Broken` is not planned: src/main.rs:1:"), "{}", ran.stderr);
    assert!(ran.ended(0).starts_with("Config: "));
}

#[test]
fn a_struct_of_a_macro_is_an_error_that_names_the_options() {
    let text = annotated(DIMS, "$name");
    let project = package(&format!("macro_rules! make {{ ($name:ident) => {{ {text} }} }}\nmake!(Config);"));
    let said = project.run(&["plan", "h200"]).refused(2);
    let start = "error: src/main.rs:1: not read: a macro makes the annotated struct\n  help: give the model: --model ";
    assert!(said.starts_with(start) && said.contains("--workload"), "{said}");
    let args = ["plan", "h200", "--model", "mlp", "--dim", "widths=[784, 512, 10]"];
    assert!(project.run(&args).ended(0).starts_with("mlp: "));
}

#[test]
fn a_target_in_the_attribute_is_planned_without_a_build_script() {
    let project = Project::new("bare");
    let program = annotated(&format!("{DIMS}, target = \"rtx4090\""), "Config");
    project.write("src/main.rs", &format!("{program}fn main() {{}}\n"));
    let rows = project.run(&["plan", "--json"]).json(0);
    assert_eq!((&rows["plans"][0]["config"], &rows["plans"][0]["target"]), (&"Config".into(), &"rtx4090".into()));
}

#[test]
fn a_measured_struct_has_the_name_and_the_figures_of_its_measurements() {
    let project = Project::new("measured");
    project.write("build.rs", "fn main() { gpu_tuned_build::configure().emit(); }\n");
    let lock = project.read("gpu-tuned.lock");
    let described = lock.split("[workload.").find(|table| table.contains(".described.")).expect("a description");
    let (head, dims) = described.split_once("]\n").expect("a table");
    let (name, kind) = head.split_once(".described.").expect("a name");
    let dims: Vec<_> = dims.lines().take_while(|line| !line.is_empty()).collect();
    let attribute = format!("{kind}({}), global_batch = 64", dims.join(", "));
    project.write("src/main.rs", &format!("{}fn main() {{}}\n", annotated(&attribute, "Config")));
    let rows = project.run(&["plan", "h200", "--json"]).json(0);
    let of_config: Vec<_> =
        rows["plans"].as_array().expect("rows").iter().filter(|row| row["config"] == "Config").collect();
    assert_eq!((of_config.len(), &of_config[0]["workload"]), (1, &name.into()), "{rows:#}");
    assert_ne!(of_config[0]["plan"]["samples_per_s_provenance"], "derived", "{rows:#}");
    assert_eq!(of_config[0]["plan"]["schedule"]["global_batch"], 64);
}

/// The command in a folder without a package.
fn in_empty_folder(args: &[&str]) -> Ran {
    let project = Project::new("bare");
    std::fs::remove_file(project.path("Cargo.toml")).expect("it is there");
    project.run(args)
}

#[test]
fn a_model_is_planned_and_explained_without_a_package() {
    let dims = "--dim layers=6 --dim d_model=512 --dim vocab=8192 --dim seq=256 --dim optimizer=sgd --global-batch 512";
    let args = |command| [command, "--model", "transformer", "rtx4070"].into_iter().chain(dims.split(' ')).collect();
    let plan: Vec<_> = args("plan");
    let text = in_empty_folder(&plan).ended(0);
    assert!(text.starts_with("transformer: ") && text.contains("sgd, global batch 512"), "{text}");
    let explain: Vec<_> = args("explain");
    assert!(in_empty_folder(&explain).ended(0).starts_with("transformer on rtx4070: batch "));
}

#[test]
fn a_model_without_a_package_needs_a_named_gpu() {
    for command in ["plan", "explain"] {
        let said = in_empty_folder(&[command, "--model", "mlp", "--dim", "widths=[8,8]"]).refused(2);
        assert_eq!(
            said,
            "error: no GPU is named\n  help: name one, such as `h200`, or take --here for this machine's\n"
        );
    }
}

#[test]
fn a_model_with_a_slip_is_refused_with_what_would_do() {
    for (args, expected) in [
        ("--model transfromer", "error: --model: there is no model `transfromer`; did you mean `transformer`?"),
        ("--model mlp --dim width=8", "error: --model: unknown key `width`; did you mean `widths`?; mlp takes widths"),
        ("--model recurrent --dim hidden=64", "error: --model: recurrent needs inputs (features of one step, "),
        (
            "--model gru --dim hidden=64 layers=2",
            "\n  help: describe it as --model 'MODEL(NAME = VALUE, …)', or add --dim NAME=VALUE",
        ),
        ("--model mlp --dim widths", "expected NAME=VALUE, such as seq=512"),
        ("--dim widths=[8,8]", "--model <MODEL>"),
        ("--model mlp --dim widths=[8,8] --workload x", "cannot be used with"),
    ] {
        let args: Vec<_> = ["plan", "rtx4070"].into_iter().chain(args.split(' ')).collect();
        let said = in_empty_folder(&args).refused(2);
        assert!(said.contains(expected), "{args:?}: {said}");
    }
}
