//! Dimensions in a field's own struct.

use gpu_tuned_core::SettingKind;
use proc_macro2::TokenStream;

use super::fields::{Fields, check_is_there, literal};
use super::{NestedDim, Role, values};
use crate::mistakes::Mistakes;
use crate::model::{Argument, Field, Nested, Value};

impl<'m> Fields<'_, 'm> {
    /// Checks a field with `dims(…)`. `other` is a second role in the same attribute, which is a mistake.
    pub(super) fn nested(
        &mut self,
        field: &'m Field,
        dims: &'m Argument,
        other: Option<&Argument>,
        default: Option<&Argument>,
        mistakes: &mut Mistakes,
    ) -> Role {
        let before = mistakes.len();
        if let Some(other) = other {
            mistakes
                .at(other, format!("a field with `dims` has dimensions inside, and is no {} itself", what(other)))
                .help(format!("leave out `{}` or `dims`", other.key));
        }
        check_is_there(field, mistakes);
        let list = if let Value::Nested(list) = &dims.value {
            list.as_slice()
        } else {
            mistakes
                .at(dims, "`dims` takes the dimensions in this field, each with its default")
                .help("write `dims(layers: n_layers = …, d_model = …)`");
            &[]
        };
        let dims = list.iter().filter_map(|nested| self.nested_dimension(nested, mistakes)).collect();
        // Missing defaults were reported above.
        if mistakes.len() > before || list.is_empty() {
            self.dims.mark_faulty();
        }
        let default = default.and_then(|default| match self.untouched(default, mistakes) {
            Role::Untouched(default) => default,
            _ => None,
        });
        Role::Nested { dims, default }
    }

    fn nested_dimension(&mut self, nested: &'m Nested, mistakes: &mut Mistakes) -> Option<NestedDim> {
        let argument = &nested.argument;
        let (dim, kind) = self.known(&argument.name(), &argument.key, argument, mistakes)?;
        let value = if matches!(argument.value, Value::Absent) {
            mistakes
                .at(&argument.key, "a dimension needs a default: the build plans with it")
                .help("the attribute cannot see those of another struct: write the value of most runs behind `=`");
            None
        } else {
            values::dim(&dim.kind, argument, mistakes)
        };
        self.dims.add(dim, &argument.key, argument, value.clone(), mistakes);
        let default = value.as_ref().map_or_else(TokenStream::new, literal);
        Some(NestedDim { name: dim.name, path: nested.path.clone(), is_flag: kind == SettingKind::Flag, default })
    }
}

fn what(argument: &Argument) -> &'static str {
    if argument.key == "setting" { "setting" } else { "dimension" }
}
