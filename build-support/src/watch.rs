//! Files that make cargo run the build script again.
//!
//! Cargo treats a missing watched file as changed at every build. A missing file is therefore watched through a folder
//! in `OUT_DIR` with a symbolic link to the file's path. Cargo ignores a broken link, and uses the later time of link and
//! file once the file exists. Every run creates the links anew, so that a new file with an old time is noticed too.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use gpu_tuned_project::workspace::MANIFEST;

use crate::BuildError;
use crate::directives::Directives;
use crate::package::Package;

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
        symlink(package.root.join(file), folder.join(number.to_string()))?;
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
