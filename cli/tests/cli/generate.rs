//! Files for other programs.

use std::process::{Command, Stdio};

use crate::project::Project;

#[test]
fn completions_are_made_for_every_shell() {
    let project = Project::new("bare");
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let text = project.run(&["generate", "completions", shell]).ended(0);
        assert!(text.contains("cargo-gpu-tuned") && text.contains("optimize"), "{shell}: {text}");
        assert!(text.contains("global-batch"), "{shell}");
    }
    let file = project.path("completions.bash");
    let said = project.run(&["generate", "completions", "bash", "-o", "completions.bash"]).ended(0);
    assert_eq!(said, "wrote `completions.bash`\n");
    let said = project.run(&["generate", "completions", "zsh", "-o", "new/.zfunc/_cargo-gpu-tuned"]).ended(0);
    assert_eq!(said, "wrote `new/.zfunc/_cargo-gpu-tuned`\n");
    assert!(project.read("new/.zfunc/_cargo-gpu-tuned").starts_with("#compdef cargo-gpu-tuned"));
    let script = "source \"$0\"; COMP_WORDS=(cargo-gpu-tuned pl); COMP_CWORD=1; _cargo__gpu__tuned cargo-gpu-tuned pl '' \
                  && echo \"${COMPREPLY[@]}\"";
    let Ok(bash) = Command::new("bash").args(["-c", script]).arg(&file).stderr(Stdio::inherit()).output() else {
        return eprintln!("skipped: there is no bash to complete with");
    };
    assert_eq!(String::from_utf8_lossy(&bash.stdout), "plan\n");
}

#[test]
fn every_command_has_a_man_page() {
    let project = Project::new("bare");
    let answer = project.run(&["generate", "man", "-o", "man/man1", "--json"]).json(0);
    let files: Vec<_> = answer["files"].as_array().expect("files").iter().filter_map(|file| file.as_str()).collect();
    let command = cargo_gpu_tuned::command();
    assert!(!project.path("man/man1/cargo-gpu-tuned-help-plan.1").exists());
    for name in command.get_subcommands().map(clap::Command::get_name).filter(|name| *name != "help") {
        let file = format!("man/man1/cargo-gpu-tuned-{name}.1");
        assert!(files.contains(&file.as_str()), "{files:?}");
        let page = project.read(&file);
        assert!(page.contains(".SH SYNOPSIS") && page.contains("Exit codes"), "{page}");
    }
    assert!(files.contains(&"man/man1/cargo-gpu-tuned.1"));
    let refused = project.run(&["generate", "man", "-o", "Cargo.toml"]).refused(2);
    assert!(refused.starts_with("error: cannot write `Cargo.toml`: "), "{refused}");
    let refused = project.run(&["generate", "man", "zsh"]).refused(2);
    assert_eq!(
        refused,
        "error: a shell is for completions\n  help: leave `zsh` out, or name a file or folder with -o\n"
    );
}

#[test]
fn the_schema_has_the_keys_of_the_file() {
    let project = Project::new("bare");
    let text = project.run(&["generate", "schema"]).ended(0);
    let schema: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let headroom = &schema["properties"]["goal"]["properties"]["memory_headroom"];
    assert!(headroom["description"].as_str().is_some_and(|text| text.starts_with("memory headroom")), "{headroom:#}");
    project.run(&["generate", "schema", "-o", "gpu-tuned.schema.json"]).ended(0);
    assert_eq!(project.read("gpu-tuned.schema.json"), text);
    let refused = project.run(&["generate", "schema", "--json"]).refused(2);
    assert!(refused.contains("both go to standard output"), "{refused}");
}

#[test]
fn files_of_another_kind_are_not_overwritten() {
    let project = Project::new("bare");
    let page = "cargo-gpu-tuned.1";
    project.write(page, "notes\n");
    for what in [&["schema", "-o", page][..], &["completions", "bash", "-o", page], &["man"]] {
        let said = project.run(&[&["generate"], what].concat()).refused(2);
        assert!(said.contains("cargo-gpu-tuned.1` exists and is not what this command writes"), "{said}");
    }
    assert_eq!(project.read(page), "notes\n");
}

/// Files that begin as texts of other programs do, such as a profile of a shell.
#[test]
fn files_that_begin_alike_are_not_overwritten() {
    let project = Project::new("bare");
    let schema = "{\n  \"$schema\": \"http://json-schema.org/draft-07/schema#\",\n  \"type\": \"object\"\n}\n";
    for (args, before) in [
        (&["schema"][..], schema),
        (&["schema"], "{\"kind\":\"run\",\"at\":1.0}\n"),
        (&["completions", "powershell"], "\nusing namespace System.Management.Automation\nSet-Alias g git\n"),
        (&["completions", "elvish"], "\nuse builtin;\nset edit:prompt = { }\n"),
        (&["completions", "zsh"], "#compdef cargo\n"),
        (&["completions", "fish"], "# Mine.\n"),
    ] {
        project.write("mine", before);
        let said = project.run(&[&["generate"], args, &["-o", "mine"]].concat()).refused(2);
        assert!(said.contains("`mine` exists and is not what this command writes"), "{args:?}: {said}");
        assert_eq!(project.read("mine"), before);
        for _ in 0..2 {
            project.run(&[&["generate"], args, &["-o", "ours"]].concat()).ended(0);
        }
        std::fs::remove_file(project.path("ours")).expect("it was written");
    }
    for _ in 0..2 {
        project.run(&["generate", "man"]).ended(0);
    }
    let said = project.run(&["generate", "man", "-o", "-"]).refused(2);
    assert!(said.contains("a folder of this name is `./-`") && !project.path("-").exists(), "{said}");
}

#[test]
fn options_of_packages_are_listed_where_they_are_taken() {
    let project = Project::new("bare");
    for (command, is_listed) in [("plan", true), ("serve", true), ("trace", false), ("launch", false)] {
        let help = project.run(&[command, "--help"]).ended(0);
        assert_eq!(help.contains("--manifest-path"), is_listed, "{command}");
        let page = format!("man/cargo-gpu-tuned-{command}.1");
        project.run(&["generate", "man", "-o", "man"]).ended(0);
        assert_eq!(project.read(&page).contains("manifest\\-path"), is_listed, "{page}");
    }
    let said = project.run(&["trace", "-p", "bare", "run.jsonl"]).refused(2);
    assert!(said.contains("`trace` reads no package: leave out --package and --manifest-path"), "{said}");
}
