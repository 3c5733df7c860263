//! Write permissions of archives that are loaded automatically.

use std::io;
use std::path::Path;

use super::BUNDLE;

/// The reason why users other than this one and root could have written the file; `None` if they could not. An archive has
/// code for the GPU.
#[cfg(unix)]
pub(super) fn others_can_write(file: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;

    let user = rustix::process::geteuid().as_raw();
    // Whoever can write the folder can replace the file.
    [Some(file), file.parent()].into_iter().flatten().find_map(|path| match path.symlink_metadata() {
        Err(error) => Some(format!("{} cannot be examined: {error}", path.display())),
        Ok(found) if found.is_symlink() => Some(format!("{} is a symbolic link; {}", path.display(), remedy())),
        Ok(found) if found.uid() != user && found.uid() != 0 => {
            Some(format!("{} belongs to user id {}, not to this user; {}", path.display(), found.uid(), remedy()))
        }
        Ok(found) if found.mode() & OF_OTHERS != 0 => {
            Some(format!("others can write {} (mode {:o}); {}", path.display(), found.mode() & 0o7777, remedy()))
        }
        Ok(_) => None,
    })
}

/// Removes write permission of the group and of others, which some systems give by default.
///
/// # Errors
///
/// Errors of the system.
#[cfg(unix)]
pub(super) fn keep_others_out(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;

    let mode = std::fs::metadata(path)?.permissions().mode();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode & !OF_OTHERS))
}

#[cfg(not(unix))]
pub(super) fn keep_others_out(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Permission to write for the group and for all.
#[cfg(unix)]
const OF_OTHERS: u32 = 0o022;

#[cfg(not(unix))]
pub(super) fn others_can_write(_: &Path) -> Option<String> {
    Some(format!("its owner is unknown on this system; {}", remedy()))
}

/// Way to use such an archive.
fn remedy() -> String {
    format!("name it in {BUNDLE} to use it all the same")
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::{keep_others_out, others_can_write};

    #[test]
    fn only_files_of_this_user_in_folders_of_this_user_are_loaded_unasked() {
        let home = tempfile::tempdir().expect("a folder");
        let folder = home.path().join("gpu-tuned.warm");
        fs::create_dir(&folder).expect("a folder");
        let file = folder.join("one.bundle");
        fs::write(&file, "x").expect("it is written");
        let modes = |of_folder: u32, of_file: u32| {
            for (path, mode) in [(&folder, of_folder), (&file, of_file)] {
                fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the mode is set");
            }
            others_can_write(&file).unwrap_or_default()
        };
        assert_eq!(modes(0o755, 0o644), "");
        assert_eq!(modes(0o700, 0o600), "");
        for (of_folder, of_file) in [(0o775, 0o644), (0o1777, 0o644), (0o755, 0o664), (0o755, 0o646)] {
            assert!(modes(of_folder, of_file).starts_with("others can write "), "{of_folder:o} {of_file:o}");
        }
        modes(0o775, 0o666);
        [&folder, &file].into_iter().try_for_each(|path| keep_others_out(path)).expect("the modes are set");
        assert_eq!(others_can_write(&file), None);
        let link = folder.join("two.bundle");
        symlink(&file, &link).expect("a link");
        assert!(others_can_write(&link).expect("a reason").contains("is a symbolic link"));
    }
}
