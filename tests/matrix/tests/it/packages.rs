//! Packages of strangers: other names, editions, lints and places. Each has the constants that its own files plan.

use feature_matrix::{Fixture, sources};

/// A package that only has the runtime: its name, the edition, lines of its manifest, and what its program begins with.
struct Package {
    name: &'static str,
    edition: &'static str,
    /// The runtime's name in the manifest.
    runtime: &'static str,
    dependencies: &'static str,
    begin: &'static str,
}

const PLAIN: Package = Package { name: "", edition: "2024", runtime: "gpu-tuned", dependencies: "", begin: "" };

const PACKAGES: &[Package] = &[
    Package { name: "edition-2015", edition: "2015", begin: "extern crate gpu_tuned;\n", ..PLAIN },
    Package { name: "edition-2018", edition: "2018", ..PLAIN },
    Package { name: "edition-2021", edition: "2021", ..PLAIN },
    Package { name: "renamed", runtime: "tune", ..PLAIN },
    Package { name: "renamed-2015", edition: "2015", runtime: "tune", begin: "extern crate tune;\n", ..PLAIN },
    // A crate of this name hides Rust's.
    Package { name: "with-core", dependencies: "core = { path = 'core' }\n", ..PLAIN },
    Package {
        name: "strict",
        begin: "//! Strict.\n#![forbid(unsafe_code)]\n#![deny(warnings, missing_docs, unused_crate_dependencies)]\n",
        ..PLAIN
    },
    Package {
        name: "without-prelude",
        begin: "#![no_implicit_prelude]\nuse ::gpu_tuned;\nuse ::std::clone::Clone;\nuse ::std::default::Default;\n\
                use ::std::fmt::Debug;\nuse ::std::prelude::v1::derive;\nuse ::std::println;\n",
        ..PLAIN
    },
];

fn alone(package: &Package) -> Fixture {
    let Package { name, edition, runtime, dependencies, begin } = package;
    let folder = sources::workspace().join("runtime");
    let dependency =
        format!("{runtime} = {{ package = 'gpu-tuned', path = '{}', default-features = false }}\n", folder.display());
    let manifest = sources::package(name, &format!("[dependencies]\n{dependency}{dependencies}"));
    let program = sources::program("target = \"h200\", ", sources::DIMENSIONS);
    let documented =
        program.replace("pub struct", "/// A config.\npub struct").replace("    pub ", "    /// A field.\n    pub ");
    Fixture::empty(env!("CARGO_TARGET_TMPDIR"), name)
        .with("Cargo.toml", &manifest.replace("\"2024\"", &format!("{edition:?}")))
        .with("core/Cargo.toml", "[package]\nname = \"core\"\nversion = \"0.0.0\"\nedition = \"2024\"\n")
        .with("core/src/lib.rs", "")
        .with(
            "src/main.rs",
            &format!("{begin}{}", documented.replace("gpu_tuned::", &format!("{}::", runtime.replace('-', "_")))),
        )
}

#[test]
fn packages_of_every_kind_have_the_planned_constants() {
    let expected = alone(&Package { name: "usual", ..PLAIN }).build(&[]).constants();
    assert_eq!(expected["target"], "h200");
    for package in PACKAGES {
        let build = alone(package).build(&[]);
        assert!(build.succeeded, "{}: {}", package.name, build.stderr);
        assert!(!build.stderr.contains("warning: "), "{}: {}", package.name, build.stderr);
        assert_eq!(build.constants(), expected, "{}", package.name);
    }
}

#[test]
fn the_first_build_script_changes_the_inputs() {
    let package = alone(&Package { name: "scripted", ..PLAIN });
    assert!(package.build(&[]).succeeded);
    assert!(package.inputs().contains("# env-dep:GPU_TUNED_TABLE\n"), "{}", package.inputs());
}

#[test]
fn a_dependency_that_is_no_member_has_its_own_file_only() {
    let runtime = sources::dependency("gpu-tuned", "runtime");
    let build = sources::dependency("gpu-tuned-build", "build-support");
    let manifest = format!(
        "[package]\nname = \"vendored-config\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\n{runtime}\n\
         [build-dependencies]\n{build}"
    );
    let own = format!("[dependencies]\n{runtime}vendored-config = {{ path = \"vendor/config\" }}\n");
    let consumer = sources::package("vendoring", &own);
    let package = Fixture::empty(env!("CARGO_TARGET_TMPDIR"), "vendoring")
        .with("Cargo.toml", &consumer.replace("members = []", "members = []\nexclude = [\"vendor\"]"))
        .with("gpu-tuned.toml", "[goal]\nworld_size = 512\n")
        .with("src/main.rs", &format!("use vendored_config::Config;\n{}", sources::PRINTING))
        .with("vendor/config/Cargo.toml", &manifest)
        .with("vendor/config/build.rs", sources::BUILD_SCRIPT)
        .with("vendor/config/src/lib.rs", &format!("{}\n", sources::tuned_struct("", sources::DIMENSIONS)));
    assert_ne!(package.build(&[]).constant("batch_size"), "1");
    // A member has the consumer's goal: 512 ranks with one sample each make up the global batch.
    package.write("Cargo.toml", &consumer);
    assert_eq!(package.build(&[]).constant("batch_size"), "1");
}
