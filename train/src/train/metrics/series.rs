//! Numbers of which there is one now and then, and their mean over an epoch.

use burn::train::metric::{NumericEntry, SerializedEntry};

/// A metric with one number for each step, or each look, however many items of Burn's loop it is asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Series {
    /// Step or sample of the last value, in this epoch.
    last: Option<u64>,
    current: f64,
    /// True if the last item had a new value.
    is_new: bool,
    sum: f64,
    count: usize,
}

impl Series {
    /// Adds a value with its step or sample number. A repeated number is the same value. A value that is not finite is
    /// logged, and left out of the mean.
    pub(super) fn take(&mut self, seen: Option<(u64, f64)>) {
        self.is_new = seen.is_some_and(|(number, _)| self.last != Some(number));
        let Some((number, value)) = seen.filter(|_| self.is_new) else { return };
        (self.last, self.current) = (Some(number), value);
        if value.is_finite() {
            self.sum += value;
            self.count += 1;
        }
    }

    /// Entry of the last item. A repeated value is not logged.
    pub(super) fn entry(&self, text: impl Fn(f64) -> String) -> SerializedEntry {
        let formatted = format!("epoch {} - batch {}", text(self.mean()), text(self.current));
        let serialized = if self.is_new { self.current_entry().serialize() } else { not_logged() };
        SerializedEntry::new(formatted, serialized)
    }

    /// Entry of the epoch; empty without a value.
    pub(super) fn epoch_entry(&self, text: impl Fn(f64) -> String) -> SerializedEntry {
        if self.count == 0 {
            return missing("no value in this epoch");
        }
        let formatted = format!("epoch {} - batch {}", text(self.mean()), text(self.current));
        SerializedEntry::new(formatted, self.epoch_value().serialize())
    }

    /// Plotted value of the last item.
    pub(super) fn value(&self) -> Option<NumericEntry> {
        (self.is_new && self.current.is_finite()).then(|| self.current_entry())
    }

    /// The mean so far.
    pub(super) fn running_value(&self) -> Option<NumericEntry> {
        (self.count > 0).then(|| NumericEntry::Aggregated { aggregated_value: self.mean(), count: self.count })
    }

    /// The mean of the epoch; not a number where there was none.
    pub(super) fn epoch_value(&self) -> NumericEntry {
        NumericEntry::Final(self.mean())
    }

    /// Begins another epoch.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn current_entry(&self) -> NumericEntry {
        NumericEntry::Aggregated { aggregated_value: self.current, count: usize::from(self.current.is_finite()) }
    }

    fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }
}

/// Shown in place of a value, and not logged.
pub(super) fn missing(reason: &str) -> SerializedEntry {
    SerializedEntry::new(format!("not available: {reason}"), not_logged())
}

/// Marks an entry that Burn's loggers skip.
pub(super) fn not_logged() -> String {
    SerializedEntry::NOT_AVAILABLE.to_owned()
}

/// Implements Burn's metric traits for a type with a field `series` and two functions: `seen`, which returns the value
/// or the reason why there is none, and `text`.
macro_rules! numeric_metric {
    ($metric:ty, $name:literal, $unit:expr, $description:literal) => {
        impl Metric for $metric {
            type Input = ();

            fn name(&self) -> MetricName {
                std::sync::Arc::new($name.to_owned())
            }

            fn description(&self) -> Option<String> {
                Some($description.to_owned())
            }

            fn attributes(&self) -> MetricAttributes {
                let unit: Option<&str> = $unit;
                NumericAttributes { unit: unit.map(str::to_owned), higher_is_better: false }.into()
            }

            fn update(&mut self, (): &(), of: &MetricMetadata) -> Result<SerializedEntry, TensorReadError> {
                Ok(match self.seen(of) {
                    Ok(seen) => {
                        self.series.take(Some(seen));
                        self.series.entry(|value| self.text(value))
                    }
                    Err(reason) => {
                        self.series.take(None);
                        missing(&reason)
                    }
                })
            }

            fn compute(&mut self) -> Result<SerializedEntry, TensorReadError> {
                Ok(self.series.epoch_entry(|value| self.text(value)))
            }

            fn clear(&mut self) {
                self.series.clear();
            }
        }

        impl Numeric for $metric {
            fn value(&self) -> Option<NumericEntry> {
                self.series.value()
            }

            fn running_value(&self) -> Option<NumericEntry> {
                self.series.running_value()
            }

            fn final_value(&self) -> NumericEntry {
                self.series.epoch_value()
            }
        }
    };
}
pub(super) use numeric_metric;
