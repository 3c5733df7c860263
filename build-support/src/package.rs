//! The package whose build script runs: cargo's variables and directives, the manifest, and watched files.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use gpu_tuned_core::regular_file;
use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_project::file::{self, ReadError};
use gpu_tuned_project::workspace::{self, MANIFEST, PackageMetadata, dependency_name};
use toml::{Table, Value};

use crate::BuildError;

/// The package whose build script runs.
pub(crate) struct Package {
    /// Its name.
    pub(crate) name: String,
    /// The name that it gives this crate.
    pub(crate) build: String,
    /// The folder of its `Cargo.toml`.
    pub(crate) root: PathBuf,
    /// The build script's output folder.
    pub(crate) out: PathBuf,
    /// Its enabled features, as they are spelled.
    pub(crate) enabled: BTreeSet<String>,
    /// Its features, each with the features that it enables.
    pub(crate) features: BTreeMap<String, Vec<String>>,
    /// The file that the metadata name in place of `gpu-tuned.toml`.
    pub(crate) config_file: Option<PathBuf>,
}

impl Package {
    pub(crate) fn read(environment: &impl Environment) -> Result<Self, BuildError> {
        let root = folder(environment, "CARGO_MANIFEST_DIR")?;
        let out = folder(environment, "OUT_DIR")?;
        // CARGO_FEATURE_* loses the spelling: `-` becomes `_`.
        let enabled = environment.variable("CARGO_CFG_FEATURE").unwrap_or_default();
        let enabled = enabled.into_string().map_err(|_| BuildError::NotUnicode { variable: "CARGO_CFG_FEATURE" })?;
        let enabled = enabled.split(',').filter(|feature| !feature.is_empty()).map(str::to_owned).collect();
        let path = root.join(MANIFEST);
        let text =
            regular_file::read_text(&path, regular_file::LARGEST).map_err(|cause| BuildError::Read { path, cause })?;
        let source = Source { file: MANIFEST, text: &text };
        let refused = |mistakes| BuildError::File { text: text.clone(), mistakes };
        let manifest: Table = toml::from_str(&text).map_err(|error| refused(vec![source.toml_error(&error)]))?;
        let PackageMetadata { config_file } = PackageMetadata::parse(source).map_err(refused)?;
        let name = manifest.get("package").and_then(|package| package.get("name")?.as_str()).unwrap_or_default();
        let build = dependency_name(&root, BUILD).unwrap_or_else(|| BUILD.to_owned());
        Ok(Self { name: name.to_owned(), build, root, out, enabled, features: features(&manifest), config_file })
    }

    /// Reads a file that is named from the package's root; `None` if there is no such file. `remedy` is the advice for a
    /// file that is not UTF-8.
    pub(crate) fn file<T>(
        &self,
        path: &Path,
        remedy: &str,
        parse: impl FnOnce(Source<'_>) -> Result<T, Vec<FileError>>,
    ) -> Result<Option<T>, BuildError> {
        file::read(&self.root, path, remedy, parse).map_err(|error| match error {
            ReadError::Io { cause, .. } => BuildError::Read { path: path.to_owned(), cause },
            ReadError::Mistakes { text, mistakes } => BuildError::File { text, mistakes },
        })
    }
}

const BUILD: &str = "gpu-tuned-build";

fn features(manifest: &Table) -> BTreeMap<String, Vec<String>> {
    let features = manifest.get("features").and_then(Value::as_table).into_iter().flatten();
    let enables = |value: &Value| {
        let names = value.as_array().into_iter().flatten().filter_map(Value::as_str);
        names.map(str::to_owned).collect()
    };
    features.map(|(feature, value)| (feature.clone(), enables(value))).collect()
}

/// The variable that overrides the features.
pub(crate) const TARGET: &str = "GPU_TUNED_TARGET";
/// The variable that prints the resolved table.
pub(crate) const PRINT: &str = "GPU_TUNED_PRINT";

/// The environment of a build script, or a test's replacement.
pub trait Environment {
    /// The value of a variable, if it is set.
    fn variable(&self, name: &str) -> Option<OsString>;
}

/// The environment of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Process;

impl Environment for Process {
    fn variable(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }
}

/// Returns a folder that cargo passes to every build script.
pub(crate) fn folder(environment: &impl Environment, name: &'static str) -> Result<PathBuf, BuildError> {
    environment.variable(name).map(PathBuf::from).ok_or(BuildError::OutsideCargo { variable: name })
}

/// Returns a user's variable; empty counts as unset. Cargo runs the script again when the variable changes.
pub(crate) fn setting(
    environment: &impl Environment,
    name: &'static str,
    directives: &mut Directives<impl Write>,
) -> Result<Option<String>, BuildError> {
    directives.rerun_if_env_changed(name)?;
    let Some(value) = environment.variable(name).filter(|value| !value.is_empty()) else { return Ok(None) };
    value.into_string().map(Some).map_err(|_| BuildError::NotUnicode { variable: name })
}

/// The directives for cargo, one a line.
pub(crate) struct Directives<W> {
    out: W,
}

impl<W: Write> Directives<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out }
    }

    pub(crate) fn rustc_env(&mut self, name: &str, path: &Path) -> Result<(), BuildError> {
        let path = one_line(path)?;
        self.line(&format!("rustc-env={name}={path}"))
    }

    pub(crate) fn rerun_if_changed(&mut self, path: &Path) -> Result<(), BuildError> {
        let path = one_line(path)?;
        self.line(&format!("rerun-if-changed={path}"))
    }

    pub(crate) fn rerun_if_env_changed(&mut self, name: &str) -> Result<(), BuildError> {
        self.line(&format!("rerun-if-env-changed={name}"))
    }

    pub(crate) fn warning(&mut self, message: &str) -> Result<(), BuildError> {
        // A second line would not be part of the warning, and could be read as a directive.
        self.line(&format!("warning={}", message.lines().collect::<Vec<_>>().join(" ")))
    }

    fn line(&mut self, directive: &str) -> Result<(), BuildError> {
        writeln!(self.out, "cargo::{directive}").map_err(|cause| BuildError::Stdout { cause })
    }
}

/// Returns the path as one line of UTF-8, as cargo reads directives.
fn one_line(path: &Path) -> Result<&str, BuildError> {
    let text = path.to_str().filter(|text| !text.contains(['\n', '\r']));
    text.ok_or_else(|| BuildError::Path { path: path.to_owned() })
}

/// Folder with a link to each missing file.
//
// Cargo treats a missing watched file as changed at every build. A missing file is therefore watched through a folder
// in `OUT_DIR` with a symbolic link to the file's path. Cargo ignores a broken link, and uses the later time of link and
// file once the file exists. Every run creates the links anew, so that a new file with an old time is noticed too.
const FOLDER: &str = "gpu-tuned.missing";

/// Watches files, present or missing, named from the package's root.
pub(crate) fn watch<W: Write>(
    package: &Package,
    files: &[&Path],
    directives: &mut Directives<W>,
) -> Result<(), BuildError> {
    let (present, missing): (Vec<_>, Vec<_>) = files.iter().partition(|file| package.root.join(file).exists());
    for file in present {
        directives.rerun_if_changed(file)?;
    }
    let folder = package.out.join(FOLDER);
    // Without links, a new file is not noticed, but the build goes on.
    if link(package, &missing, &folder).unwrap_or(false) { directives.rerun_if_changed(&folder) } else { Ok(()) }
}

/// Creates the folder of links. Returns false if there is nothing to link.
fn link(package: &Package, missing: &[&Path], folder: &Path) -> io::Result<bool> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    if missing.is_empty() || !LINKS {
        return Ok(false);
    }
    fs::create_dir(folder)?;
    for (number, file) in missing.iter().enumerate() {
        // A project that is moved takes the links along.
        let file = workspace::normalized(&package.root.join(file));
        symlink(workspace::relative(&file, folder), folder.join(number.to_string()))?;
    }
    // The folder must not look newer than this run. The manifest is watched anyway.
    let manifest = fs::metadata(package.root.join(MANIFEST))?;
    fs::File::open(folder)?.set_modified(manifest.modified()?)?;
    Ok(true)
}

// The build machine has the links.
const LINKS: bool = cfg!(unix);

#[cfg(unix)]
use std::os::unix::fs::symlink;

#[cfg(not(unix))]
fn symlink(_: impl AsRef<Path>, _: impl AsRef<Path>) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Directives;

    #[test]
    fn a_warning_stays_on_its_line() {
        let mut out = Vec::new();
        Directives::new(&mut out).warning("driver said:\ncargo::rustc-env=A=b").expect("a vector takes everything");
        assert_eq!(String::from_utf8_lossy(&out), "cargo::warning=driver said: cargo::rustc-env=A=b\n");
    }

    #[test]
    fn a_path_that_would_break_the_line_is_refused() {
        let mut out = Vec::new();
        assert!(Directives::new(&mut out).rerun_if_changed(Path::new("a\nb")).is_err());
        assert!(out.is_empty());
    }
}
