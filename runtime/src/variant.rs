//! Precisions as variants of a user's enum. Code that `#[gpu_tuned]` generates uses this module.
//!
//! A macro sees no variants, so the generated code names all usual ones. A name without a variant resolves to a constant
//! of [`Names`], of type [`NoVariantForPrecision`].

/// A name without a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoVariantForPrecision;

/// A variant, or [`NoVariantForPrecision`].
pub struct Candidate<T>(pub T);

/// Defines [`Names`], and the macro that lists the variants of a precision.
macro_rules! names {
    ($d:tt $($precision:ident: $($name:ident)+;)+) => {
        /// Usual names of variants. A variant of the same name takes precedence.
        pub trait Names {
            $($(
                #[allow(missing_docs, non_upper_case_globals, reason = "these are names of variants")]
                const $name: NoVariantForPrecision = NoVariantForPrecision;
            )+)+
        }

        impl<T> Names for T {}

        /// Passes the names of a precision to the macro `then`.
        #[doc(hidden)]
        #[macro_export]
        macro_rules! __precision_names {
            $(($d then:ident $d arguments:tt $precision) => { $crate::$d then! { $d arguments $($name)+ } };)+
        }

        #[cfg(test)]
        const NAMES: &[(gpu_tuned_core::Precision, &[&str])] =
            &[$((gpu_tuned_core::Precision::$precision, &[$(stringify!($name)),+])),+];
    };
}

names! { $
    F32: F32 Fp32 FP32 Float32 Full;
    MixedBf16: MixedBf16 Bf16Mixed AmpBf16 Bf16 BF16 BFloat16 Bfloat16;
    MixedF16: MixedF16 MixedFp16 F16Mixed Fp16Mixed AmpF16 AmpFp16 F16 Fp16 FP16 Float16 Half;
    Bf16Params: Bf16Params Bf16True PureBf16;
}

impl Candidate<NoVariantForPrecision> {
    /// Returns the other candidate.
    #[must_use]
    pub fn __gpu_tuned_or<U>(self, other: Candidate<U>) -> Candidate<U> {
        other
    }

    /// Returns `None`.
    #[must_use]
    pub fn __gpu_tuned_found<T>(self) -> Option<T> {
        None
    }
}

/// Methods of a candidate with a variant. Those of a missing one take precedence.
pub trait Or<T>: Sized {
    /// Returns this candidate.
    #[must_use]
    fn __gpu_tuned_or<U>(self, other: Candidate<U>) -> Self;

    /// Returns the variant.
    fn __gpu_tuned_found(self) -> Option<T>;
}

impl<T> Or<T> for Candidate<T> {
    fn __gpu_tuned_or<U>(self, _: Candidate<U>) -> Self {
        self
    }

    fn __gpu_tuned_found(self) -> Option<T> {
        Some(self.0)
    }
}

/// The first variant of the type `held` with a name of a precision. Only the plan of a build has pure bf16 here: without a
/// variant, that build does not compile.
#[doc(hidden)]
#[macro_export]
macro_rules! __precision_variant {
    ($held:ty, Bf16Params) => {
        $crate::variant::pure_bf16::<$held, _>($crate::__precision_names! { __candidate [$held] Bf16Params })
    };
    ($held:ty, $precision:ident) => {
        match $crate::__found_variant!($held, $precision) {
            ::std::option::Option::Some(__variant) => __variant,
            // `__require_precisions` reports a missing variant once.
            ::std::option::Option::None => ::std::unreachable!(),
        }
    };
}

/// The first variant of the type `held` with a name of a precision; `None` without one.
#[doc(hidden)]
#[macro_export]
macro_rules! __found_variant {
    ($held:ty, $precision:ident) => {{
        use $crate::variant::Or as _;
        let __candidate = $crate::__precision_names! { __candidate [$held] $precision };
        let __variant: ::std::option::Option<$held> = __candidate.__gpu_tuned_found();
        __variant
    }};
}

/// A variant for pure bf16.
#[diagnostic::on_unimplemented(
    message = "`{Held}` needs a variant for pure bf16, the precision of this build",
    label = "the variant is missing, or has an unusual name",
    note = "usual names are `Bf16Params`, `Bf16True` and `PureBf16`",
    note = "`gpu_tuned::Precision` has it; a `String` field needs none"
)]
pub trait PureBf16<Held> {
    /// Returns the variant.
    fn variant(self) -> Held;
}

#[diagnostic::do_not_recommend]
impl<T> PureBf16<T> for Candidate<T> {
    fn variant(self) -> T {
        self.0
    }
}

/// Returns the variant of a type for pure bf16.
pub fn pure_bf16<Held, V: PureBf16<Held>>(candidate: V) -> Held {
    candidate.variant()
}

/// The precision of a value of the type `held`; `None` for a variant without a usual name.
#[doc(hidden)]
#[macro_export]
macro_rules! __precision_of {
    ($held:ty, $value:expr) => {{
        let __held = ::std::mem::discriminant::<$held>(&$value);
        let __is = |__other: ::std::option::Option<$held>| match __other {
            ::std::option::Option::Some(__other) => ::std::mem::discriminant(&__other) == __held,
            ::std::option::Option::None => false,
        };
        if $crate::__precision_names! { __any_variant [$held, __is] F32 } {
            ::std::option::Option::Some($crate::Precision::F32)
        } else if $crate::__precision_names! { __any_variant [$held, __is] MixedBf16 } {
            ::std::option::Option::Some($crate::Precision::MixedBf16)
        } else if $crate::__precision_names! { __any_variant [$held, __is] MixedF16 } {
            ::std::option::Option::Some($crate::Precision::MixedF16)
        } else if $crate::__precision_names! { __any_variant [$held, __is] Bf16Params } {
            ::std::option::Option::Some($crate::Precision::Bf16Params)
        } else {
            ::std::option::Option::None
        }
    }};
}

#[doc(hidden)]
#[macro_export]
macro_rules! __any_variant {
    ([$held:ty, $is:ident] $($name:ident)+) => {{
        use $crate::variant::{Names as _, Or as _};
        $($is($crate::variant::Candidate(<$held>::$name).__gpu_tuned_found()))||+
    }};
}

/// Variants for the three precisions that a plan may choose.
#[diagnostic::on_unimplemented(
    message = "`{Held}` needs a variant for each of fp32, bf16 mixed and fp16 mixed precision",
    label = "a variant is missing, or has an unusual name",
    note = "usual names are `F32`, `Fp32`, `Bf16`, `MixedBf16`, `F16` and `MixedF16`",
    note = "`gpu_tuned::Precision` has all of them; a `String` field or `amp: bool` needs none"
)]
pub trait Variants<Held> {}

#[diagnostic::do_not_recommend]
impl<T> Variants<T> for (Candidate<T>, Candidate<T>, Candidate<T>) {}

/// Accepts the variants of a type.
pub fn require<Held, V: Variants<Held>>(_: &V) {}

/// Does not compile for a type without a variant for a precision that a plan may choose.
#[doc(hidden)]
#[macro_export]
macro_rules! __require_precisions {
    ($held:ty) => {{
        let _ = || {
            $crate::variant::require::<$held, _>(&(
                $crate::__precision_names! { __candidate [$held] F32 },
                $crate::__precision_names! { __candidate [$held] MixedBf16 },
                $crate::__precision_names! { __candidate [$held] MixedF16 },
            ))
        };
    }};
}

#[doc(hidden)]
#[macro_export]
macro_rules! __candidate {
    ([$held:ty] $first:ident $($name:ident)*) => {{
        use $crate::variant::{Names as _, Or as _};
        $crate::variant::Candidate(<$held>::$first) $(.__gpu_tuned_or($crate::variant::Candidate(<$held>::$name)))*
    }};
}

/// Writes a precision to a place of the type `held`. The place of a type without a variant for pure bf16 keeps its value:
/// only a user chooses that precision.
#[doc(hidden)]
#[macro_export]
macro_rules! __set_precision {
    ($held:ty, $place:expr, $precision:expr) => {
        match $precision {
            $crate::Precision::F32 => $place = $crate::__precision_variant!($held, F32),
            $crate::Precision::MixedBf16 => $place = $crate::__precision_variant!($held, MixedBf16),
            $crate::Precision::MixedF16 => $place = $crate::__precision_variant!($held, MixedF16),
            $crate::Precision::Bf16Params => {
                if let ::std::option::Option::Some(__variant) = $crate::__found_variant!($held, Bf16Params) {
                    $place = __variant;
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::Precision;

    use super::NAMES;

    #[test]
    fn a_variant_is_spelled_as_its_precision() {
        for (precision, names) in NAMES {
            for name in *names {
                assert_eq!(Precision::spelled(name), Some(*precision), "{name}");
            }
        }
    }
}
