use fake_nvml::{SCENARIO_VARIABLE, library, scenario};

use crate::project::{Project, Ran};

#[test]
fn declared_targets_are_planned_and_misfits_told_with_the_cheapest_remedy() {
    insta::assert_snapshot!("plan_declared", Project::new("declared").run(&["plan"]).ended(1));
}

#[test]
fn measured_workloads_are_planned_by_what_was_measured() {
    insta::assert_snapshot!("plan_measured", Project::new("measured").run(&["plan"]).ended(0));
}

#[test]
fn graphs_that_gain_are_named_where_they_are_allowed_and_advised_elsewhere() {
    let project = Project::new("measured");
    let graphs = "[workload.lm.on.h200.mode.f32-graphs]\nmethod = \"executed\"\n
[workload.lm.on.h200.mode.f32-graphs.batch]
128 = { micro_step_ms = 100.0, optimizer_ms = 1.0, reserved_accumulating_bytes = 33_000_000_000, \
reserved_bytes = 33_000_000_000 }\n\n# end of";
    project.replace("gpu-tuned.lock", "# end of", graphs);
    let table = project.run(&["plan", "h200"]).ended(0);
    let arithmetic = project.run(&["explain", "h200"]).ended(0);
    assert!(!table.contains("with CUDA graphs"), "{table}");
    assert!(arithmetic.contains("note: CUDA graphs would run 1.5x as many samples"), "{arithmetic}");
    project.write("gpu-tuned.toml", "[goal]\nallow_cuda_graphs = true\n");
    let table = project.run(&["plan", "h200"]).ended(0);
    let arithmetic = project.run(&["explain", "h200"]).ended(0);
    assert!(table.contains("with CUDA graphs"), "{table}");
    assert!(!arithmetic.contains("would run"), "{arithmetic}");
}

#[test]
fn figures_of_another_burn_are_left_out_as_the_build_leaves_them_out() {
    let project = Project::new("measured");
    project.replace("Cargo.lock", "0.22.1", "0.23.0");
    let ran = project.run(&["plan", "h200"]);
    let note = "was measured on h200 with Burn 0.22.1, Cargo.lock has 0.23.0: its figures are left out, run";
    assert!(ran.stderr.contains(note), "{}", ran.stderr);
    let table = ran.ended(0);
    assert!(table.contains("costs from its dimensions") && table.contains("derived"), "{table}");
}

#[test]
fn all_profiles_are_planned_on_request() {
    let project = Project::new("declared");
    project.write("gpu-tuned.toml", "[workload.small.mlp]\nwidths = [784, 512, 10]\n[profile.mine]\nbase = \"l4\"\n");
    let ran = project.run(&["plan", "--all", "--json"]);
    let note = "note: left out, because Burn cannot train on them: k80, m40-24gb, m60\n";
    assert!(ran.stderr.starts_with(note), "{}", ran.stderr);
    let rows = ran.json(0);
    let targets: Vec<_> = rows["plans"].as_array().expect("rows").iter().map(|row| row["target"].as_str()).collect();
    assert_eq!(targets.len(), 169);
    assert!(!targets.contains(&Some("k80")), "Burn cannot train on it");
    assert!(targets.contains(&Some("mine")) && !targets.contains(&Some("generic")), "{targets:?}");
}

#[test]
fn a_gpu_that_burn_cannot_train_on_is_refused_with_the_reason() {
    let ran = Project::new("declared").run(&["plan", "k80", "--workload", "digits"]);
    let reason = "k80 cannot train: CUDA 13 has dropped compute capability 3.7 (Kepler),";
    assert!(ran.stdout.contains(reason), "{}", ran.stdout);
    ran.ended(1);
}

#[test]
fn json_has_the_plans_and_the_misfits() {
    let rows = Project::new("declared").run(&["plan", "--json", "gtx1080", "h200"]).json(1);
    let [digits, _, misfit, large] = rows["plans"].as_array().expect("rows").as_slice() else { panic!("{rows:#}") };
    assert_eq!((&digits["workload"], &digits["target"]), (&"digits".into(), &"gtx1080".into()));
    assert_eq!(digits["plan"]["schedule"]["global_batch"], 512);
    let remedies = misfit["misfit"]["remedies"].as_array().expect("remedies");
    assert_eq!(remedies.last().expect("a GPU")["larger_gpu"]["profile"], "rtx-pro-5000-bw-48gb");
    assert_eq!(large["plan"]["settings"]["batch_size"], 8);
}

#[test]
fn flags_go_before_what_the_files_ask_for() {
    let project = Project::new("declared");
    let args = ["plan", "h200", "--workload", "large", "--json", "--global-batch", "96", "--precision", "bf16_params"];
    let rows = project.run(&args).json(0);
    let plan = &rows["plans"][0]["plan"];
    assert_eq!(plan["settings"]["precision"], "bf16_params");
    assert_eq!(plan["schedule"]["global_batch"], 96);
    let more = ["--world-size", "4", "--headroom", "0"];
    let rows = project.run(&[&args[..], &more].concat()).json(0);
    assert_eq!(
        (&rows["plans"][0]["plan"]["schedule"]["world_size"], &rows["plans"][0]["plan"]["memory"]["headroom_bytes"]),
        (&4.into(), &0.into())
    );
    let said = project.run(&[&args[..], &["--world-size", "7"]].concat()).refused(2);
    assert_eq!(said, "error: large: a global batch of 96 cannot be shared by 7 ranks; 6 or 8 would do\n");
}

#[test]
fn a_loss_over_the_whole_batch_is_one_micro_batch_or_does_not_fit() {
    let project = Project::new("declared");
    let plan = |target, samples| {
        let args = ["plan", target, "--workload", "digits", "--json", "--whole-batch-loss", "--global-batch", samples];
        project.run(&args)
    };
    let rows = plan("h200", "4096").json(0);
    let settings = &rows["plans"][0]["plan"]["settings"];
    assert_eq!((&settings["batch_size"], &settings["gradient_accumulation"]), (&4096.into(), &1.into()));
    let rows = plan("gtx1080", "65536").json(1);
    let misfit = &rows["plans"][0]["misfit"];
    assert_eq!((&misfit["whole_batch"], &misfit["memory"]["batch"]), (&true.into(), &65_536.into()));
    assert_eq!(misfit["remedies"].as_array().expect("remedies").last(), Some(&"cache_embeddings".into()));
}

#[test]
fn the_goal_of_the_measured_program_goes_before_that_of_the_file() {
    let project = Project::new("measured");
    project.write("gpu-tuned.toml", "[goal]\nglobal_tokens = 65_536\nmemory_headroom = 0.5\n");
    let rows = project.run(&["plan", "h200", "--json"]).json(0);
    let plan = &rows["plans"][0]["plan"];
    assert_eq!(plan["schedule"]["global_batch"], 512);
    let memory = |item: &str| plan["memory"][format!("{item}_bytes")].as_u64().expect("bytes");
    assert_eq!(memory("headroom"), memory("available").div_ceil(2));
}

#[test]
fn a_precision_that_a_target_has_not_is_a_row_of_its_own() {
    let rows = Project::new("declared").run(&["plan", "--workload", "digits", "--json", "--precision", "bf16_params"]);
    let rows = rows.json(1);
    assert_eq!(rows["plans"][0]["unsupported"], "gtx1080 has no bf16 tensor cores for bf16_params; use f32");
    assert!(rows["plans"][1]["plan"].is_object());
}

#[test]
fn unknown_names_are_refused_with_what_was_meant() {
    let project = Project::new("declared");
    let said = project.run(&["plan", "rtx4900"]).refused(2);
    let help = "  help: `cargo gpu-tuned targets` lists all profiles\n";
    assert_eq!(said, format!("error: there is no profile `rtx4900`; did you mean `rtx4090`?\n{help}"));
    for args in [
        &["plan"][..],
        &["explain", "--workload", "digits"],
        &["report"],
        &["init", "--dry-run", "--target"],
        &["check"],
        &["measure"],
    ] {
        let said = project.run(&[args, &["voodoo2"]].concat()).refused(2);
        let outside = "gpu-tuned plans for NVIDIA GPUs: on a machine with this one, `cargo gpu-tuned targets --here --toml` prints its profile";
        assert_eq!(said, format!("error: there is no profile `voodoo2`; {outside}\n{help}"), "{args:?}");
    }
    let said = project.run(&["plan", "--workload", "digit"]).refused(2);
    assert_eq!(
        said,
        "error: there is no workload `digit`; did you mean `digits`?\n  help: name one of them: digits, large\n"
    );
}

#[test]
fn a_target_that_is_named_twice_is_planned_once() {
    let rows = Project::new("declared").run(&["plan", "--workload", "digits", "--json", "h200", "rtx4090", "h200"]);
    let rows = rows.json(0);
    let targets: Vec<_> = rows["plans"].as_array().expect("rows").iter().map(|row| &row["target"]).collect();
    assert_eq!(targets, ["h200", "rtx4090"]);
}

#[test]
fn a_package_without_targets_is_told_how_to_name_one() {
    let project = Project::new("bare");
    project.write("gpu-tuned.toml", "[workload.small.mlp]\nwidths = [784, 512, 10]\n");
    let said = project.run(&["plan"]).refused(2);
    assert!(said.starts_with("error: `bare` declares no GPU\n  help: name one, such as `h200`,"), "{said}");
    project.run(&["plan", "h200"]).ended(0);
}

#[test]
fn without_a_gpu_here_is_the_cpu_and_why() {
    let project = Project::new("declared");
    let ran = project.run(&["plan", "--here", "--workload", "digits"]);
    assert!(ran.stderr.starts_with("note: no NVIDIA management library found"), "{}", ran.stderr);
    assert!(ran.ended(0).contains("\n  CPU ("));
}

#[test]
fn a_model_with_batch_statistics_has_another_micro_batch_where_its_build_is_for_another_gpu() {
    let project = Project::new("bare");
    let toml = "[workload.net.convnet]\nimage = 32\nclasses = 10\nstages = [[64, 2]]\nbatch_statistics = true\n";
    project.write("gpu-tuned.toml", toml);
    let said = |args: &[&str]| project.run(args).stderr;
    for args in [&["plan", "--here"][..], &["explain", "--here"]] {
        assert!(said(args).contains("note: `net`: a model with statistics"), "{}", said(args));
    }
    assert!(!said(&["plan", "h200"]).contains("`net`"));
}

#[test]
fn here_is_the_gpu_that_the_driver_shows() {
    let project = Project::new("declared");
    let here = |args: &[&str]| {
        let mut command = project.command(&[&["plan", "--here", "--workload", "digits", "--json"], args].concat());
        command.env("GPU_TUNED_NVML_PATH", library()).env(SCENARIO_VARIABLE, scenario("rtx4090"));
        Ran::of(&mut command).json(0)
    };
    let rows = here(&[]);
    assert_eq!(rows["plans"][0]["target"], "NVIDIA GeForce RTX 4090");
    let memory = |rows: &serde_json::Value, item: &str| {
        rows["plans"][0]["plan"]["memory"][format!("{item}_bytes")].as_u64().expect("bytes")
    };
    // What neighbours take is known here, so that half of the 10% is left alone, as the runtime does.
    let available = memory(&rows, "available");
    assert_eq!(memory(&rows, "headroom"), (available as f64 * 0.05).ceil() as u64);
    assert_eq!(memory(&here(&["--headroom", "0.2"]), "headroom"), (available as f64 * 0.2).ceil() as u64);
}

#[test]
fn a_target_is_named_by_itself_or_by_an_option() {
    let project = Project::new("declared");
    for command in ["plan", "explain"] {
        let with = |args: &[&str]| project.run(&[&[command, "--workload", "digits"], args].concat()).ended(0);
        for args in [&["--target", "h200"][..], &["H200"], &["h200", "--target", "H200"], &["NVIDIA H200,"]] {
            assert_eq!(with(&["h200"]), with(args), "{command} {args:?}");
        }
        let said = project.run(&[command, "h200", "--target", "rtx4090", "--here"]).refused(2);
        assert!(said.contains("cannot be used with"), "{command}: {said}");
    }
    let several = |args: &[&str]| project.run(&[&["plan", "--workload", "digits"], args].concat()).ended(0);
    for args in [&["h200,rtx4090"][..], &["h200", "RTX", "4090"], &["--target", "h200", "--target", "RTX 4090"]] {
        assert_eq!(several(args), several(&["h200", "rtx4090"]), "{args:?}");
    }
    let said = project.run(&["explain", "--workload", "digits", "h200,rtx4090"]).refused(2);
    assert!(said.starts_with("error: one GPU can be explained at a time, and h200, rtx4090 are named"), "{said}");
    let said = project.run(&["plan", "--all", "--target", "h200"]).refused(2);
    assert!(said.contains("cannot be used with"), "{said}");
}

#[test]
fn all_that_stands_in_the_way_of_a_workload_is_told() {
    let project = Project::new("declared");
    project.write("gpu-tuned.toml", "[workload.wide.mlp]\nwidths = [2, 66_000, 66_000, 3]\n");
    let said = project.run(&["plan", "rtx4090", "--workload", "wide"]).ended(1);
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("too much at batch") && words.contains("are allocated in one piece"), "{said}");
}

#[test]
fn energy_and_cost_follow_from_power_price_and_speed() {
    let project = Project::new("declared");
    let args = ["plan", "h200", "rtx4090", "--workload", "digits", "--price", "h200=3.6", "--json"];
    let rows = project.run(&args).json(0);
    let speed = rows["plans"][0]["plan"]["samples_per_s"].as_f64().expect("a speed");
    let near = |figure: &serde_json::Value, expected: f64| {
        let figure = figure.as_f64().expect("a figure");
        assert!((figure / expected - 1.0).abs() < 1e-9, "{figure}, not {expected}");
    };
    // A step has 512 samples, and the board takes 700 W.
    near(&rows["plans"][0]["wh_per_1000_steps"], 700.0 * 512_000.0 / speed / 3600.0);
    near(&rows["plans"][0]["usd_per_million_samples"], 3.6 * 1e6 / speed / 3600.0);
    assert!(rows["plans"][1].get("usd_per_million_samples").is_none(), "{rows:#}");
    let [low, high] =
        [0, 1].map(|end| rows["plans"][0]["plan"]["samples_per_s_interval"][end].as_f64().expect("a speed"));
    assert!(low < speed && speed < high, "{low} {speed} {high}");
}

#[test]
fn the_smallest_gpu_that_trains_a_workload_is_the_first_by_memory() {
    let project = Project::new("declared");
    let sorted = |args: &[&str]| {
        let rows = project.run(&[&["plan", "--all", "--workload", "large", "--json", "--sort"], args].concat()).json(1);
        let rows = rows["plans"].as_array().expect("rows").clone();
        let fitting = rows.iter().take_while(|row| row.get("plan").is_some()).count();
        assert!(rows[fitting..].iter().all(|row| row.get("misfit").is_some()), "misfits are last");
        rows
    };
    let rows = sorted(&["memory"]);
    let available = |row: &serde_json::Value| row["plan"]["memory"]["available_bytes"].as_u64();
    assert!(rows.iter().map_while(available).is_sorted());
    let speed = |row: &serde_json::Value| Some(-row["plan"]["samples_per_s"].as_f64()?);
    assert!(sorted(&["time"]).iter().map_while(speed).is_sorted_by(|a, b| a <= b));
    let rows = sorted(&["cost", "--price", "h200=3.5", "--price", "b200=5"]);
    let cost = |row: &serde_json::Value| row["usd_per_million_samples"].as_f64();
    assert_eq!(rows.iter().map_while(cost).count(), 2);
}

#[test]
fn prices_are_checked() {
    let project = Project::new("declared");
    for (args, message) in [
        (vec!["--price", "h200"], "expected GPU=USD_PER_HOUR"),
        (vec!["--price", "h2000=3"], "there is no profile `h2000`"),
        (vec!["--price", "h200=1e308"], "expected GPU=USD_PER_HOUR from 0 to 1000000"),
        (vec!["--price", "h200=3", "--price", "h200=4"], "--price names `h200` twice"),
        (vec!["--sort", "cost"], "--price"),
    ] {
        let error = project.run(&[vec!["plan", "h200"], args].concat()).refused(2);
        assert!(error.contains(message), "{error}");
    }
}
