use std::path::{Path, PathBuf};

const DIRECTORY: &str = "nvvm/libdevice";
const FILE: &str = "libdevice.10.bc";

/// Finds libdevice as Burn's compiler does. The error lists the paths that the compiler tries.
///
/// `CUDA_PATH` excludes every other place; without it, the first root with the directory is the only one that counts.
pub(super) fn locate(cuda_path: Option<&Path>, roots: &[&Path]) -> Result<PathBuf, Vec<PathBuf>> {
    let file = |root: &Path| root.join(DIRECTORY).join(FILE);
    let root = cuda_path.or_else(|| roots.iter().copied().find(|root| root.join(DIRECTORY).is_dir()));
    match root.map(file) {
        Some(path) if path.is_file() => Ok(path),
        Some(path) => Err(vec![path]),
        None => Err(roots.iter().map(|root| file(root)).collect()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use tempfile::TempDir;

    use super::{DIRECTORY, FILE, locate};

    fn toolkit(file: Option<&str>) -> TempDir {
        let root = tempfile::tempdir().expect("a temporary folder");
        let directory = root.path().join(DIRECTORY);
        fs::create_dir_all(&directory).expect("a directory");
        if let Some(file) = file {
            fs::write(directory.join(file), "").expect("a file");
        }
        root
    }

    fn file(root: &Path) -> PathBuf {
        root.join(DIRECTORY).join(FILE)
    }

    #[test]
    fn the_first_root_that_has_the_directory_counts() {
        let (empty, whole) = (toolkit(None), toolkit(Some(FILE)));
        let (empty, whole, absent) = (empty.path(), whole.path(), Path::new("/nonexistent"));
        assert_eq!(locate(None, &[absent, whole, empty]), Ok(file(whole)));
        assert_eq!(locate(None, &[empty, whole]), Err(vec![file(empty)]));
        assert_eq!(locate(None, &[absent]), Err(vec![file(absent)]));
    }

    #[test]
    fn cuda_path_excludes_every_other_place() {
        let (whole, other) = (toolkit(Some(FILE)), toolkit(Some("libdevice.9.bc")));
        let (whole, other) = (whole.path(), other.path());
        assert_eq!(locate(Some(whole), &[]), Ok(file(whole)));
        assert_eq!(locate(Some(other), &[whole]), Err(vec![file(other)]));
    }
}
