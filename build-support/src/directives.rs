use std::io::Write;
use std::path::Path;

use crate::BuildError;

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
