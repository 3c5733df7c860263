use crate::project::{Project, Ran};

fn help(args: &[&str]) -> String {
    Project::new("bare").run(args).ended(0)
}

#[test]
fn the_command_says_what_it_does() {
    insta::assert_snapshot!("help", help(&["--help"]));
}

#[test]
fn its_subcommands_say_what_they_do() {
    for name in ["init", "measure", "warm", "targets", "plan", "explain", "check"] {
        insta::assert_snapshot!(format!("help_{name}"), help(&[name, "--help"]));
    }
}

#[test]
fn cargo_may_pass_on_the_name_that_it_was_called_by() {
    assert_eq!(help(&["gpu-tuned", "plan", "--help"]), help(&["plan", "--help"]));
}

#[test]
fn bad_usage_is_refused_with_2() {
    let project = Project::new("declared");
    for args in [
        &[][..],
        &["plna"],
        &["explain"],
        &["plan", "--all", "h200"],
        &["plan", "--precision", "f8"],
        &["plan", "--color", "sometimes"],
        &["measure", "--bin", "a", "--example", "b"],
    ] {
        let said = project.run(args).refused(2);
        assert!(said.contains("Usage") || said.contains("error:"), "{args:?}: {said}");
    }
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
