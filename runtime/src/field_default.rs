//! Defaults of a user's own fields, in code that `#[gpu_tuned]` generates.

/// A type with a default. The error for another type names the remedy in the attribute.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no default, which `#[gpu_tuned]` needs for this field",
    label = "no default",
    note = "write `#[tuned(default = …)]` above the field",
    note = "or implement `Default` for `{Self}`"
)]
pub trait FieldDefault {
    /// Returns the type's default.
    fn field_default() -> Self;
}

#[diagnostic::do_not_recommend]
impl<T: Default> FieldDefault for T {
    fn field_default() -> Self {
        T::default()
    }
}
