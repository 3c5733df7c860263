//! The programs of the package.

use cargo_metadata::TargetKind;

use super::Project;
use crate::error::Error;

impl Project {
    /// Refuses a package without a default program: cargo runs the only binary, or `default-run`.
    pub(crate) fn has_one_program(&self) -> Result<(), Error> {
        let (binaries, examples) = (self.names_of(&TargetKind::Bin), self.names_of(&TargetKind::Example));
        let package = || self.package().name.to_string();
        match binaries.as_slice() {
            [_] => Ok(()),
            _ if self.package().default_run.is_some() => Ok(()),
            [] if examples.is_empty() => Err(Error::NoProgram { package: package() }),
            [] => Err(Error::ExamplesOnly { package: package(), names: examples }),
            _ => Err(Error::SeveralPrograms { package: package(), names: binaries }),
        }
    }

    fn names_of(&self, kind: &TargetKind) -> Vec<String> {
        let targets = self.package().targets.iter().filter(|target| target.kind.contains(kind));
        targets.map(|target| target.name.clone()).collect()
    }
}
