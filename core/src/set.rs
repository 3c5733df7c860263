//! Fixed settings as words: `batch_size=64,num_workers=4`.

use core::fmt;
use core::str::FromStr;

use thiserror::Error;

use crate::{Pins, Precision, Setting, SettingKind, SettingValue, suggest};

/// Why words fix no settings.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SetError {
    /// A word without a value.
    #[error("`{word}` has no value: write it as {word}=VALUE; values are separated by commas")]
    NoValue {
        /// The word.
        word: String,
    },
    /// No setting is called so.
    #[error("there is no setting `{name}`{hint}; there are {}", Setting::ALL.map(Setting::name).join(", "))]
    Unknown {
        /// The word.
        name: String,
        /// What may have been meant.
        hint: String,
    },
    /// The setting has no such value.
    #[error("{setting} cannot be `{value}`: {expected}")]
    Value {
        /// The setting.
        setting: Setting,
        /// The word.
        value: String,
        /// What would do.
        expected: String,
    },
    /// The setting is given more than once.
    #[error("{setting} is given twice: keep one of them")]
    Twice {
        /// The setting.
        setting: Setting,
    },
}

impl Pins {
    /// The value that a setting is fixed to.
    pub fn get(&self, setting: Setting) -> Option<SettingValue> {
        match setting {
            Setting::BatchSize => self.batch_size.map(SettingValue::Count),
            Setting::GradientAccumulation => self.gradient_accumulation.map(SettingValue::Count),
            Setting::Precision => self.precision.map(SettingValue::Precision),
            Setting::AllowTf32 => self.allow_tf32.map(SettingValue::Flag),
            Setting::GradientCheckpointing => self.gradient_checkpointing.map(SettingValue::Flag),
            Setting::PrefetchDepth => self.prefetch_depth.map(SettingValue::Count),
            Setting::NumWorkers => self.num_workers.map(SettingValue::Count),
            Setting::EvalBatchSize => self.eval_batch_size.map(SettingValue::Count),
        }
    }

    /// These, and where they fix nothing, others. A step is cut by one of the two alone: where these say how, the others
    /// do not.
    #[must_use]
    pub fn or(&self, others: &Self) -> Self {
        let cuts = self.batch_size.is_some() || self.gradient_accumulation.is_some();
        Self {
            batch_size: self.batch_size.or(others.batch_size.filter(|_| !cuts)),
            gradient_accumulation: self.gradient_accumulation.or(others.gradient_accumulation.filter(|_| !cuts)),
            precision: self.precision.or(others.precision),
            allow_tf32: self.allow_tf32.or(others.allow_tf32),
            gradient_checkpointing: self.gradient_checkpointing.or(others.gradient_checkpointing),
            prefetch_depth: self.prefetch_depth.or(others.prefetch_depth),
            num_workers: self.num_workers.or(others.num_workers),
            eval_batch_size: self.eval_batch_size.or(others.eval_batch_size),
        }
    }

    fn fix(&mut self, setting: Setting, value: SettingValue) {
        match (setting, value) {
            (Setting::BatchSize, SettingValue::Count(count)) => self.batch_size = Some(count),
            (Setting::GradientAccumulation, SettingValue::Count(count)) => self.gradient_accumulation = Some(count),
            (Setting::Precision, SettingValue::Precision(precision)) => self.precision = Some(precision),
            (Setting::AllowTf32, SettingValue::Flag(flag)) => self.allow_tf32 = Some(flag),
            (Setting::GradientCheckpointing, SettingValue::Flag(flag)) => self.gradient_checkpointing = Some(flag),
            (Setting::PrefetchDepth, SettingValue::Count(count)) => self.prefetch_depth = Some(count),
            (Setting::NumWorkers, SettingValue::Count(count)) => self.num_workers = Some(count),
            (Setting::EvalBatchSize, SettingValue::Count(count)) => self.eval_batch_size = Some(count),
            _ => unreachable!("BUG: a value is read by the kind of its setting"),
        }
    }
}

/// What a setting's value is read as.
fn value(setting: Setting, text: &str) -> Result<SettingValue, SetError> {
    let wrong = |expected: String| SetError::Value { setting, value: text.to_owned(), expected };
    match setting.kind() {
        SettingKind::Count => {
            // No workers and nothing ahead are settings; no samples are none.
            let least = u64::from(!matches!(setting, Setting::NumWorkers | Setting::PrefetchDepth));
            let count = text.parse::<u64>().ok().filter(|count| *count >= least);
            let commas = if text.contains('=') { "; settings are separated by commas" } else { "" };
            let expected = || wrong(format!("expected a whole number from {least}{commas}"));
            count.map(SettingValue::Count).ok_or_else(expected)
        }
        SettingKind::Flag => {
            text.parse().map(SettingValue::Flag).map_err(|_| wrong("expected true or false".to_owned()))
        }
        SettingKind::Precision => {
            let names = Precision::ALL.map(Precision::name);
            let expected = || format!("expected {}{}", names.join(", "), suggest(text, names));
            text.parse().map(SettingValue::Precision).map_err(|_| wrong(expected()))
        }
    }
}

impl FromStr for Pins {
    type Err = SetError;

    fn from_str(text: &str) -> Result<Self, SetError> {
        let mut pins = Self::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let Some((name, text)) = word.split_once('=') else {
                return Err(SetError::NoValue { word: word.to_owned() });
            };
            let (name, text) = (name.trim(), text.trim());
            let unknown =
                || SetError::Unknown { name: name.to_owned(), hint: suggest(name, Setting::ALL.map(Setting::name)) };
            let setting = Setting::named(name).ok_or_else(unknown)?;
            if pins.has(setting) {
                return Err(SetError::Twice { setting });
            }
            pins.fix(setting, value(setting, text)?);
        }
        Ok(pins)
    }
}

/// As they are read: `batch_size=64,num_workers=4`.
impl fmt::Display for Pins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fixed = Setting::ALL.into_iter().filter_map(|setting| Some((setting, self.get(setting)?)));
        let words: Vec<_> = fixed.map(|(setting, value)| format!("{setting}={value}")).collect();
        f.write_str(&words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::{Pins, Precision};

    #[test]
    fn settings_are_read_and_written_alike() {
        let text = "batch_size=64,gradient_accumulation=2,precision=mixed_bf16,allow_tf32=false,\
                    gradient_checkpointing=true,prefetch_depth=0,num_workers=4,eval_batch_size=128";
        let pins: Pins = text.parse().unwrap();
        assert_eq!((pins.batch_size, pins.precision), (Some(64), Some(Precision::MixedBf16)));
        assert_eq!(pins.to_string(), text);
        assert_eq!(" num_workers = 4 , ".parse::<Pins>().unwrap().to_string(), "num_workers=4");
        assert_eq!("".parse::<Pins>().unwrap(), Pins::default());
    }

    #[test]
    fn a_slip_is_told_with_what_would_do() {
        for (text, said) in [
            ("batch_size", "`batch_size` has no value: write it as batch_size=VALUE; values are separated by commas"),
            (
                "batch_sise=4",
                "there is no setting `batch_sise`; did you mean `batch_size`?; there are batch_size, \
                 gradient_accumulation, precision, allow_tf32, gradient_checkpointing, prefetch_depth, num_workers, \
                 eval_batch_size",
            ),
            ("batch_size=0", "batch_size cannot be `0`: expected a whole number from 1"),
            (
                "batch_size=64 num_workers=2",
                "batch_size cannot be `64 num_workers=2`: expected a whole number from 1; settings are separated by commas",
            ),
            ("num_workers=-1", "num_workers cannot be `-1`: expected a whole number from 0"),
            ("allow_tf32=on", "allow_tf32 cannot be `on`: expected true or false"),
            (
                "precision=mixed_bf1",
                "precision cannot be `mixed_bf1`: expected f32, mixed_bf16, mixed_f16, bf16_params; did you mean \
                 `mixed_bf16`?",
            ),
            ("num_workers=1,num_workers=2", "num_workers is given twice: keep one of them"),
        ] {
            assert_eq!(text.parse::<Pins>().unwrap_err().to_string(), said, "{text}");
        }
    }

    #[test]
    fn a_step_is_cut_by_one_of_the_two_alone() {
        let config: Pins = "gradient_accumulation=4,num_workers=1".parse().unwrap();
        let set: Pins = "batch_size=16".parse().unwrap();
        assert_eq!(set.or(&config).to_string(), "batch_size=16,num_workers=1");
        assert_eq!(Pins::default().or(&config), config);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[a-z_=,0-9 -]{0,40}") {
            if let Ok(pins) = text.parse::<Pins>() {
                prop_assert_eq!(pins.to_string().parse::<Pins>(), Ok(pins));
            }
        }
    }
}
