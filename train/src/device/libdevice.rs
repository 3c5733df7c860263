use std::path::{Path, PathBuf};

const DIRECTORY: &str = "nvvm/libdevice";
const FILE: &str = "libdevice.10.bc";

/// Finds libdevice as Burn's compiler will, or the files that it will have looked for.
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

    use super::{DIRECTORY, FILE, locate};

    struct Toolkit(PathBuf);

    impl Toolkit {
        fn new(name: &str, file: Option<&str>) -> Self {
            let root = std::env::temp_dir().join(format!("gpu-tuned-libdevice-{}-{name}", std::process::id()));
            fs::create_dir_all(root.join(DIRECTORY)).expect("a directory");
            if let Some(file) = file {
                fs::write(root.join(DIRECTORY).join(file), "").expect("a file");
            }
            Self(root)
        }

        fn file(&self) -> PathBuf {
            self.0.join(DIRECTORY).join(FILE)
        }
    }

    impl Drop for Toolkit {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).ok();
        }
    }

    #[test]
    fn the_first_root_that_has_the_directory_counts() {
        let empty = Toolkit::new("empty", None);
        let whole = Toolkit::new("whole", Some(FILE));
        let absent = Path::new("/nonexistent");
        assert_eq!(locate(None, &[absent, &whole.0, &empty.0]), Ok(whole.file()));
        assert_eq!(locate(None, &[&empty.0, &whole.0]), Err(vec![empty.file()]));
        assert_eq!(locate(None, &[absent]), Err(vec![absent.join(DIRECTORY).join(FILE)]));
    }

    #[test]
    fn cuda_path_excludes_every_other_place() {
        let whole = Toolkit::new("path-whole", Some(FILE));
        let other = Toolkit::new("path-other", Some("libdevice.9.bc"));
        assert_eq!(locate(Some(&whole.0), &[]), Ok(whole.file()));
        assert_eq!(locate(Some(&other.0), &[&whole.0]), Err(vec![other.file()]));
    }
}
