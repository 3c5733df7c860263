//! What `#[gpu_tuned]` implements for a config, and what its code uses.

use core::fmt::Debug;

use gpu_tuned_core::workload::WorkloadSpec;
use gpu_tuned_core::{Bytes, Goal, Pins, Setting, Settings};
use gpu_tuned_project::resolved::{Resolved, ResolvedError};

/// A training config whose settings were planned at compile time. Implemented by [`#[gpu_tuned]`](crate::gpu_tuned).
pub trait Tuned {
    /// Constants of the build.
    const BUILT: Built;

    /// True if a field has the precision as a switch for 16-bit mixed precision.
    const HAS_AMP_SWITCH: bool = false;

    /// Goal of the build: its attribute over `gpu-tuned.toml` over the defaults.
    fn goal() -> Goal;

    /// Goal of the build with the current values of the config's fields: the global batch, if a field has it.
    fn asked(&self) -> Goal {
        Self::goal()
    }

    /// Cost model of a training step with the current values of the config's fields.
    fn workload(&self) -> WorkloadSpec;

    /// The values of the tuned fields; `None` for the settings that the struct has no field for.
    fn tuned(&self) -> Pins;

    /// Setting and name of a tuned field whose value is none of the setting's, such as a text that names no precision.
    fn unreadable(&self) -> Option<(Setting, &'static str)> {
        None
    }

    /// Name and value of a field with a negative count.
    fn negative(&self) -> Option<(&'static str, i64)> {
        None
    }

    /// Name and `Debug` text of each field with equal values on all ranks. Fields without `Debug` are left out.
    #[doc(hidden)]
    fn compared(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Writes planned values into the tuned fields.
    fn apply(&mut self, settings: &Settings);
}

#[cfg(test)]
impl Built {
    /// A generic build without a table.
    pub(crate) const GENERIC: Self = Self {
        config: "Config",
        workload: None,
        target: "generic",
        targets: &[],
        misfits: &[],
        settings: Settings::DEFAULT,
        global_batch: 8,
        memory: Bytes(0),
        table: None,
    };
}

/// The constants of a build.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Built {
    /// The config struct.
    pub config: &'static str,
    /// The workload's name in `gpu-tuned.toml`, where the attribute names it.
    pub workload: Option<&'static str>,
    /// Targets of the build as text: `rtx4090`, `h200 + rtx4090`, `generic`.
    pub target: &'static str,
    /// The profiles selected by features, sorted; empty for `generic` and `native`.
    pub targets: &'static [&'static str],
    /// Selected profiles that the settings do not apply to: the workload does not fit them, or not with these settings.
    pub misfits: &'static [&'static str],
    /// The planned values.
    pub settings: Settings,
    /// Samples in one optimizer step over all ranks. A fallback keeps it.
    pub global_batch: u64,
    /// Memory that training is predicted to take on the target.
    pub memory: Bytes,
    /// The part of the build script's table that a program needs: the selection and its profiles; `None` without a build
    /// script.
    pub table: Option<&'static str>,
}

impl Built {
    /// Returns the [`table`](Self::table), parsed once in a process.
    pub(crate) fn resolved(&self) -> Result<Option<&'static Resolved>, ResolvedError> {
        self.table.map(Resolved::embedded).transpose()
    }
}

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

/// A type of fields in nested configs that counts can be read from.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no integer, which `#[tuned(dims(…))]` needs for a count",
    label = "no integer",
    note = "name a field with an integer, or give the dimension in the attribute of the struct"
)]
pub trait Count: Copy {
    /// Returns the value as `as u64` does: negative values are beyond `i64`.
    fn count(self) -> u64;
}

/// Returns the value of a count's field in a nested config.
pub fn count<T: Count>(value: T) -> u64 {
    value.count()
}

macro_rules! counts {
    ($($integer:ident)+) => {
        $(impl Count for $integer {
            #[allow(clippy::cast_lossless, reason = "one line for all types: some have no `From`")]
            fn count(self) -> u64 {
                self as u64
            }
        })+
    };
}

counts! { u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize }

/// Config field. Its own method exists where its type has `Debug`, and takes precedence over [`WithoutText`].
pub struct Field<'f, T: ?Sized>(pub &'f T);

impl<T: Debug + ?Sized> Field<'_, T> {
    /// Returns the `Debug` text.
    pub fn __gpu_tuned_text(&self) -> Option<String> {
        Some(format!("{:?}", self.0))
    }
}

/// Config fields of types without `Debug`.
pub trait WithoutText {
    /// Returns `None`.
    fn __gpu_tuned_text(&self) -> Option<String> {
        None
    }
}

impl<T: ?Sized> WithoutText for Field<'_, T> {}

/// Returns the fields with a text.
pub fn with_text(fields: &[(&'static str, Option<String>)]) -> Vec<(&'static str, String)> {
    fields.iter().filter_map(|(name, text)| Some((*name, text.clone()?))).collect()
}

/// Name and `Debug` text of each of these fields that has one.
#[doc(hidden)]
#[macro_export]
macro_rules! __compared {
    ($config:expr, $($(#[$cfg:meta])* $field:ident),*) => {{
        use $crate::__private::WithoutText as _;
        $crate::__private::with_text(&[
            $($(#[$cfg])* (::std::stringify!($field), $crate::__private::Field(&$config.$field).__gpu_tuned_text())),*
        ])
    }};
}
