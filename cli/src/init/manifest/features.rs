//! Features that name a GPU, and features that enable one of a dependency.

use gpu_tuned_core::profile::ProfileId;
use gpu_tuned_propose::toml_insert::{self, Order};
use toml_edit::{Array, Item, TableLike, Value};

use super::Manifest;
use crate::error::Error;

/// Tables of optional dependencies.
const TABLES: [&str; 2] = ["dependencies", "build-dependencies"];

impl Manifest {
    /// Declares GPUs.
    /// An optional dependency of the same name is an error.
    pub(in crate::init) fn declare(&mut self, targets: &[ProfileId]) -> Result<(), Error> {
        self.has_new_features = self.get(&["features"]).is_none();
        for target in targets {
            self.feature(target.as_str(), None)?;
        }
        if let Some(first) = targets.first().filter(|_| self.has_new_features) {
            self.comment(first.as_str(), "# The GPUs to build for.\n");
        }
        Ok(())
    }

    /// Declares `native` and `cuda`, which enable features of these dependencies. Returns notes on changed features.
    /// An optional dependency of the same name is an error.
    pub(in crate::init) fn pass_on(&mut self, [runtime, build]: [&str; 2]) -> Result<Vec<String>, Error> {
        let native = self.feature("native", Some(format!("{build}/native")))?;
        let cuda = self.feature("cuda", Some(format!("{runtime}/cuda")))?;
        if self.has_new_features {
            self.comment("native", "# The GPU in the build machine.\n");
            self.comment("cuda", "# Trains on a CUDA GPU.\n");
        }
        Ok(native.into_iter().chain(cuda).collect())
    }

    /// Declares a feature that enables another one. Returns a note on a changed feature.
    fn feature(&mut self, name: &str, enables: Option<String>) -> Result<Option<String>, Error> {
        if self.get(&["features", name]).is_none() {
            self.refuse_dependency(name)?;
            let list: Array = enables.iter().map(String::as_str).collect();
            let table = toml_insert::table(&mut self.document, "features", &["package"]);
            let order = if self.has_new_features { Order::Last } else { Order::Sorted };
            toml_insert::entry(table, name, Item::Value(Value::Array(list)), order);
            return Ok(None);
        }
        let Some(enables) = enables else { return Ok(None) };
        let list = self.document["features"].get_mut(name).and_then(Item::as_array_mut);
        let Some(list) = list else { return Ok(None) };
        let weak = enables.replace('/', "?/");
        if list.iter().filter_map(Value::as_str).any(|enabled| enabled == enables || enabled == weak) {
            return Ok(None);
        }
        toml_insert::in_list(list, &enables);
        Ok(Some(format!("the feature `{name}` exists, and now enables `{enables}`, too")))
    }

    fn comment(&mut self, name: &str, comment: &str) {
        let table = self.document.get_mut("features").and_then(Item::as_table_mut);
        if let Some(mut key) = table.and_then(|table| table.key_mut(name)) {
            key.leaf_decor_mut().set_prefix(comment);
        }
    }

    /// Refuses the name of an optional dependency, which is a feature.
    fn refuse_dependency(&self, name: &str) -> Result<(), Error> {
        let refuse = |keys: &[&str]| {
            let message = format!(
                "the optional dependency `{name}` has the name of a feature that is to be added; name it `dep:{name}` in \
                 the features that enable it"
            );
            Err(self.mistake(keys, message))
        };
        // A dependency with `dep:` is not a feature.
        let lists =
            self.table(&["features"]).into_iter().flat_map(TableLike::iter).filter_map(|(_, item)| item.as_array());
        let hidden = format!("dep:{name}");
        if lists.flatten().any(|value| value.as_str() == Some(&hidden)) {
            return Ok(());
        }
        let is_optional = |keys: &[&str]| self.get(keys).and_then(|item| item.get("optional")?.as_bool()) == Some(true);
        if let Some(table) = TABLES.into_iter().find(|table| is_optional(&[table, name])) {
            return refuse(&[table, name]);
        }
        for (target, _) in self.table(&["target"]).into_iter().flat_map(TableLike::iter) {
            if let Some(table) = TABLES.into_iter().find(|table| is_optional(&["target", target, table, name])) {
                return refuse(&["target", target, table, name]);
            }
        }
        Ok(())
    }
}
