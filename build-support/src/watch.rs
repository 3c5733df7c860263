//! Which files make cargo run the build script again.
//!
//! Cargo takes a watched file that does not exist for a changed one, at every build. So a missing file is watched
//! through a folder in `OUT_DIR` with a symbolic link to where the file would be: cargo looks through the folder,
//! passes over a link that leads nowhere, and takes the later time of link and file once it leads somewhere. Links are
//! made afresh by every run, so that they are younger than what cargo compares with, and a file with an old time is
//! noticed too.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use gpu_tuned_project::workspace::MANIFEST;

use crate::BuildError;
use crate::directives::Directives;
use crate::package::Package;

const FOLDER: &str = "gpu-tuned.missing";

/// Watches files, named from the package's root, whether or not they exist.
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
    // A file system without links costs the notice of a new file, never the build.
    if link(package, &missing, &folder).unwrap_or(false) { directives.rerun_if_changed(&folder) } else { Ok(()) }
}

/// Makes the folder of links, if there is anything to link; says whether there is.
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
    // The folder itself must not look younger than this run. The manifest is watched anyway.
    let manifest = fs::metadata(package.root.join(MANIFEST))?;
    fs::File::open(folder)?.set_modified(manifest.modified()?)?;
    Ok(true)
}

// This asks about the machine that builds, which is where the links are.
const LINKS: bool = cfg!(unix);

#[cfg(unix)]
use std::os::unix::fs::symlink;

#[cfg(not(unix))]
fn symlink(_: impl AsRef<Path>, _: impl AsRef<Path>) -> io::Result<()> {
    Ok(())
}
