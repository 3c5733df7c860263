//! The page, and the pictures in it.

use gpu_tuned_observe::recording::{GpuSample, HostSample, Record, Run, StepRecord, Value, Writer};

use crate::project::Project;

/// A run of 60 steps, a second each, on a GPU.
pub(crate) fn recorded(project: &Project) {
    let mut file = Writer::append(project.path("run.jsonl")).unwrap();
    let mut run = Run::new(1000.0, 42);
    run.workload = "<digits>".into();
    run.device.name = "NVIDIA H200".into();
    run.fallbacks = vec!["another GPU is there".to_owned()];
    file.write(&Record::Run(Box::new(run))).unwrap();
    for second in 0..60_u32 {
        let at = 1001.0 + f64::from(second);
        let mut gpu = GpuSample::new(at, 0);
        (gpu.utilisation_percent, gpu.memory_used_bytes) = (Some(80.0), Some(8 << 30));
        let mut step = StepRecord::new(at, u64::from(second) + 1);
        (step.samples, step.seconds, step.loss) = (512, 1.0, Some(1.0 / at));
        let mut host = HostSample::new(at);
        host.cpu_percent = Some(25.0);
        for record in [Record::Gpu(gpu), Record::Step(Box::new(step)), Record::Host(host)] {
            file.write(&record).unwrap();
        }
    }
    file.write(&Record::Value(Value::new(1061.0, "valid/loss", 0.5))).unwrap();
}

fn pictures(page: &str) -> Vec<String> {
    let svgs = page.split("<svg ").skip(1).filter_map(|rest| rest.split_once("</svg>"));
    svgs.map(|(svg, _)| format!("<svg {svg}</svg>")).collect()
}

#[test]
fn it_holds_plans_measurements_and_runs_and_needs_nothing_else() {
    let project = Project::new("measured");
    recorded(&project);
    let said = project.run(&["report", "h200", "--recording", "run.jsonl"]).ended(0);
    assert!(said.starts_with("wrote `gpu-tuned.report.html`: "), "{said}");
    let page = project.read("gpu-tuned.report.html");
    for expected in [
        ": plans</h2>",
        ": measurements</h2>",
        "Run: &lt;digits&gt; on NVIDIA H200 (run.jsonl)</h2>",
        "&lt;digits&gt; on NVIDIA H200",
        "another GPU is there",
        "60 steps of 30,720 samples in all since 1970-01-01 00:16 UTC, 512 samples/s, last loss 0.0009.",
        "<p>lm is planned for h200 with 128 x 4 samples a step: 863 samples/s, 19.4 GiB of ",
        "valid/loss",
        "<h3>Findings</h3>",
        "<span>utilisation, %</span></td><td class=\"number\" data-label=\"mean\"><span>80.00</span>",
        "<span>memory used, GiB</span></td><td class=\"number\" data-label=\"mean\"><span>8.00</span>",
    ] {
        assert!(page.contains(expected), "{expected} is not in {page}");
    }
    // Names of namespaces are no links.
    let links = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    assert!(!links.contains("http:") && !links.contains("https:") && !links.contains("<script"), "{links}");
    let pictures = pictures(&page);
    let titles: Vec<_> = pictures
        .iter()
        .map(|svg| {
            let tree = roxmltree::Document::parse(svg).unwrap_or_else(|error| panic!("{error}: {svg}"));
            tree.descendants().find(|node| node.has_tag_name("title")).unwrap().text().unwrap().to_owned()
        })
        .collect();
    let named = |word: &str| titles.iter().any(|title| title.starts_with(word));
    assert!(["samples/s over", "loss", "utilisation, %", "memory used, GiB", "host: CPU, %"].into_iter().all(named));
    assert!(titles.iter().any(|title| title.contains("samples per second by the memory needed")), "{titles:?}");
}

#[test]
fn a_recording_that_is_none_is_told_with_its_line_and_the_old_page_stays() {
    let project = Project::new("measured");
    project.write("gpu-tuned.report.html", "<!DOCTYPE html><!-- cargo gpu-tuned report -->old");
    project.write("run.jsonl", "{\"kind\":\"value\",\"at\":1.0,\"name\":\"a\",\"value\":1.0}\nnonsense\n");
    let said = project.run(&["report", "h200", "--recording", "run.jsonl"]).refused(2);
    assert!(
        said.starts_with("error: not a line of a recording: it is not JSON;") && said.contains("--> run.jsonl:2:"),
        "{said}"
    );
    assert_eq!(project.read("gpu-tuned.report.html"), "<!DOCTYPE html><!-- cargo gpu-tuned report -->old");
    let said = project.run(&["report", "h200", "--recording", "none.jsonl"]).refused(2);
    assert!(said.starts_with("error: cannot read `none.jsonl`"), "{said}");
}

#[test]
fn json_says_where_it_is() {
    let project = Project::new("measured");
    let written = project.run(&["report", "h200", "-o", "page.html", "--json"]).json(0);
    let bytes = project.read("page.html").len();
    assert_eq!((&written["file"], &written["bytes"]), (&"page.html".into(), &bytes.into()));
    let said = project.run(&["report", "h200", "-o", "no/such/folder.html"]).refused(2);
    assert!(said.starts_with("error: cannot write `no/such/folder.html`"), "{said}");
}

#[test]
fn nothing_but_a_report_is_written_over() {
    let project = Project::new("measured");
    let manifest = project.read("Cargo.toml");
    let said = project.run(&["report", "h200", "-o", "Cargo.toml"]).refused(2);
    assert!(said.contains("exists and is not a report"), "{said}");
    assert_eq!(project.read("Cargo.toml"), manifest);
}

#[cfg(unix)]
#[test]
fn links_are_followed_permissions_kept_and_pipes_stay_pipes() {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};

    let project = Project::new("measured");
    assert!(project.run(&["report", "h200", "-o", "real.html"]).ended(0).starts_with("wrote"));
    let real = project.path("real.html");
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o600)).unwrap();
    symlink(&real, project.path("link.html")).unwrap();
    project.run(&["report", "h200", "rtx4090", "-o", "link.html"]).ended(0);
    assert!(std::fs::symlink_metadata(project.path("link.html")).unwrap().is_symlink());
    assert_eq!(std::fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(project.read("real.html").contains("rtx4090"));
    let pipe = project.path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reading = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read_to_string(pipe).unwrap()
    });
    project.run(&["report", "h200", "-o", "pipe"]).ended(0);
    assert!(reading.join().unwrap().starts_with("<!DOCTYPE html>"));
    assert!(std::fs::metadata(pipe).unwrap().file_type().is_fifo());
}

#[test]
fn a_recording_needs_no_package() {
    let project = Project::new("bare");
    recorded(&project);
    let of = |project: &Project, args: &[&str]| project.run(&[&["report", "--recording", "run.jsonl"], args].concat());
    // A package without plans.
    let ran = of(&project, &[]);
    assert_eq!(ran.stderr, "note: the page has no plans: `bare` has no workload\n");
    ran.ended(0);
    // One that has a mistake is not taken for none.
    project.write("Cargo.toml", "[package\n");
    let said = of(&project, &[]).refused(2);
    assert!(said.starts_with("error: ") && said.contains("Cargo.toml"), "{said}");
    std::fs::remove_file(project.path("Cargo.toml")).unwrap();
    let written = of(&project, &["--json"]).json(0);
    assert_eq!((&written["workloads"], &written["recordings"]), (&serde_json::json!([]), &1.into()));
    let page = project.read("gpu-tuned.report.html");
    assert!(
        page.contains("<title>training run: gpu-tuned report</title>") && page.contains("(run.jsonl)</h2>"),
        "{page}"
    );
    // Requested plans are shown, or the reason why there are none.
    for args in [&["h200"][..], &["--workload", "lm"], &["--global-batch", "8"], &["-p", "bare"]] {
        assert!(of(&project, args).refused(2).starts_with("error: no Cargo.toml"), "{args:?}");
    }
    assert!(project.run(&["report"]).refused(2).starts_with("error: no Cargo.toml"));
}

#[test]
fn a_time_behind_the_year_9999_is_shown_as_its_end() {
    let project = Project::new("measured");
    // Milliseconds in place of seconds.
    project.write("run.jsonl", "{\"kind\":\"step\",\"at\":1764273600000,\"step\":1,\"seconds\":0.5}\n");
    project.run(&["report", "h200", "--recording", "run.jsonl"]).ended(0);
    assert!(project.read("gpu-tuned.report.html").contains("since 9999-12-31 23:59 UTC"));
}

#[test]
fn a_report_on_several_ranks_has_the_exchange() {
    let project = Project::new("declared");
    for (ranks, is_there) in [("1", false), ("2", true)] {
        let page = format!("{ranks}.html");
        let model = ["--target", "h200", "--global-batch", "64", "--world-size", ranks, "-o", &page];
        let ran = project.run(&[&["report"], &model[..]].concat());
        let text = project.read(&page);
        assert_eq!(text.contains("of gradients over nvlink: "), is_there, "{ranks}: {}", ran.stderr);
    }
}
