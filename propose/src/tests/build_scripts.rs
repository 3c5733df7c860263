//! Calls in build scripts.

use crate::build_script::with_call;

const CALL: &str = "gpu_tuned_build::configure().emit();";

#[test]
fn the_call_comes_first_and_all_else_stays() {
    for (before, after) in [
        ("fn main() {\n\tgo();\n}\n", "fn main() {\n\tCALL\n\tgo();\n}\n"),
        ("fn main() {}\n", "fn main() {\n    CALL\n}\n"),
        ("fn main() { go() }\n", "fn main() { CALL go() }\n"),
        ("fn main() { // first\n    go();\n}\n", "fn main() { // first\n    CALL\n    go();\n}\n"),
        ("// ä\r\nfn main() {\r\n    go();\r\n}\r\n", "// ä\r\nfn main() {\r\n    CALL\r\n    go();\r\n}\r\n"),
        ("\u{feff}#[allow(dead)]\nfn main() {\n}\n", "\u{feff}#[allow(dead)]\nfn main() {\n    CALL\n}\n"),
        (
            "fn main() -> Result<(), E> {\n    go()\n}\n// gpu_tuned_build\n",
            "fn main() -> Result<(), E> {\n    CALL\n    go()\n}\n// gpu_tuned_build\n",
        ),
    ] {
        assert_eq!(with_call("build.rs", before, CALL).as_ref(), Ok(&Some(after.replace("CALL", CALL))));
    }
    assert_eq!(with_call("build.rs", "fn main() { gpu_tuned_build::configure().emit() }", CALL), Ok(None));
}

#[test]
fn a_script_that_cannot_be_edited_safely_gets_a_reason() {
    for (before, why) in [
        ("fn main() {\n", "it could not be read"),
        ("include!(\"other.rs\");\n", "it has no `main`, or several"),
        ("#[tokio::main]\nasync fn main() {}\n", "its `main` is async"),
        ("#[cfg(unix)]\nfn main() {}\n", "its `main` has attributes"),
        ("#[cfg(unix)]\nfn main() {}\n#[cfg(windows)]\nfn main() {}\n", "it has no `main`, or several"),
        ("fn main() {\n    #![allow(dead)]\n}\n", "its `main` has attributes"),
        ("fn main() { gpu_tuned_build::configure(); }\n", "it names `gpu_tuned_build`, and calls no `emit`"),
        ("#!/usr/bin/env x\nfn main() {}\n", "it begins with a line for a shell"),
    ] {
        let said = with_call("build.rs", before, CALL).expect_err(before);
        assert!(said.starts_with(why), "{before}: {said}");
    }
}
