/// Container types of an extra level that is entered and left at once, to mark the begin and end of fp32 modules.
/// Paths, records and parameter groups are those of a model without it.
pub(super) const ISLAND: [&str; 2] = ["InF32", "InF32 end"];

/// Position of a visitor or mapper in a model.
#[derive(Default)]
pub(crate) struct ModulePath {
    path: Vec<String>,
    /// Modules in f32 around it.
    islands: usize,
}

impl ModulePath {
    /// To be called from `enter_module`.
    pub(crate) fn enter(&mut self, name: &str, container: &str) {
        if container == ISLAND[0] {
            self.islands += 1;
        } else if container == ISLAND[1] {
            self.islands -= 1;
        } else {
            self.path.push(name.to_owned());
        }
    }

    /// To be called from `exit_module`.
    pub(crate) fn exit(&mut self, container: &str) {
        if !ISLAND.contains(&container) {
            self.path.pop();
        }
    }

    /// Returns true inside an [`InF32`](super::InF32).
    pub(super) fn is_f32(&self) -> bool {
        self.islands > 0
    }

    /// As records spell it.
    pub(crate) fn path(&self) -> String {
        self.path.join(".")
    }
}

/// The part of a `ModuleVisitor` or `ModuleMapper` that keeps its field `place`.
macro_rules! track_path {
    () => {
        fn enter_module(&mut self, name: &str, container_type: &str) {
            self.path.enter(name, container_type);
        }

        fn exit_module(&mut self, _: &str, container_type: &str) {
            self.path.exit(container_type);
        }
    };
}
pub(crate) use track_path;
