use crate::project::{Project, Ran};

fn help(args: &[&str]) -> String {
    Project::new("bare").run(args).ended(0)
}

#[test]
fn the_command_says_what_it_does() {
    insta::assert_snapshot!("help", help(&["--help"]));
}

/// The text of each is in the book's reference, `docs/cli.md`, which is generated and kept current.
#[test]
fn every_command_has_an_example_and_says_how_it_ends() {
    let command = cargo_gpu_tuned::command();
    let names: Vec<_> = command.get_subcommands().map(clap::Command::get_name).filter(|name| *name != "help").collect();
    assert!(names.len() >= 8, "{names:?}");
    for name in names {
        let text = help(&[name, "--help"]);
        let example = format!("  cargo gpu-tuned {name}");
        assert!(text.contains("Example") && text.contains(&example), "{name}: {text}");
        assert!(text.contains("Exit codes:\n  0  "), "{name}: {text}");
    }
}

/// Checks for manual line breaks, which would break twice: a paragraph is one line, and lists are indented.
#[test]
fn paragraphs_are_broken_where_they_are_printed() {
    for command in cargo_gpu_tuned::command().get_subcommands() {
        let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let broken = text.lines().zip(text.lines().skip(1)).find(|(first, next)| {
            !first.is_empty() && !first.starts_with("  ") && !next.is_empty() && !next.starts_with("  ")
        });
        assert_eq!(broken, None, "{}", command.get_name());
    }
}

/// A command whose help gains or loses a code has another contract with scripts: this is where that is seen.
#[test]
fn each_command_lists_the_exit_codes_that_scripts_were_told_of() {
    let command = cargo_gpu_tuned::command();
    for name in command.get_subcommands().map(clap::Command::get_name).filter(|name| *name != "help") {
        let text = help(&[name, "--help"]);
        let (_, codes) = text.split_once("Exit codes:\n").expect("exit codes");
        let listed: String = codes.lines().filter_map(|line| line.strip_prefix("  ")?.chars().next()).collect();
        let expected = match name {
            "measure" | "warm" => "023",
            "launch" => "02N",
            "bench" | "optimize" => "0123",
            "diagnose" => "01234",
            "export" | "monitor" | "generate" | "serve" => "02",
            _ => "012",
        };
        assert_eq!(listed.replace(' ', ""), expected, "{name}: {codes}");
    }
}

#[test]
fn cargo_may_pass_on_the_name_that_it_was_called_by() {
    assert_eq!(help(&["gpu-tuned", "plan", "--help"]), help(&["plan", "--help"]));
}

#[test]
fn colours_are_for_terminals_and_for_those_who_ask() {
    let project = Project::new("declared");
    let plain = project.run(&["plan", "h200", "--workload", "digits"]).ended(0);
    assert!(!plain.contains('\x1b'), "{plain}");
    let coloured = project.run(&["plan", "h200", "--workload", "digits", "--color", "always"]).ended(0);
    assert!(coloured.contains('\x1b'), "{coloured}");
    let mut never = project.command(&["plan", "h200", "--workload", "digits", "--color", "never"]);
    assert_eq!(Ran::of(never.env("CLICOLOR_FORCE", "1")).ended(0), plain);
}
