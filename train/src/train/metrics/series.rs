//! Numbers of which there is one now and then, and their mean over an epoch.

use burn::train::metric::{NumericEntry, SerializedEntry};

/// A metric with one number for each step, or each look, however many items of Burn's loop it is asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Series {
    /// That which the last number belongs to, within this epoch.
    last: Option<u64>,
    current: f64,
    /// Whether the last item brought a number that was not there before.
    is_new: bool,
    sum: f64,
    count: usize,
}

impl Series {
    /// Takes a number, and what it belongs to; one that belongs to the same as the last is the same number. Numbers that
    /// are not finite are told, and left out of the mean.
    pub(super) fn take(&mut self, seen: Option<(u64, f64)>) {
        self.is_new = seen.is_some_and(|(number, _)| self.last != Some(number));
        let Some((number, value)) = seen.filter(|_| self.is_new) else { return };
        (self.last, self.current) = (Some(number), value);
        if value.is_finite() {
            self.sum += value;
            self.count += 1;
        }
    }

    /// What is shown and logged of the last item: nothing is logged that was logged before.
    pub(super) fn entry(&self, text: impl Fn(f64) -> String) -> SerializedEntry {
        let formatted = format!("epoch {} - batch {}", text(self.mean()), text(self.current));
        let serialized = if self.is_new { self.current_entry().serialize() } else { not_logged() };
        SerializedEntry::new(formatted, serialized)
    }

    /// What is shown and logged of the epoch; nothing where it had no number.
    pub(super) fn epoch_entry(&self, text: impl Fn(f64) -> String) -> SerializedEntry {
        if self.count == 0 {
            return missing("no value in this epoch");
        }
        let formatted = format!("epoch {} - batch {}", text(self.mean()), text(self.current));
        SerializedEntry::new(formatted, self.epoch_value().serialize())
    }

    /// What is plotted of the last item.
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

/// What Burn's loggers pass over.
pub(super) fn not_logged() -> String {
    SerializedEntry::NOT_AVAILABLE.to_owned()
}

/// Makes a metric of Burn's of a type with a field `series`, and with functions `seen`, which says what there is to show
/// or why there is nothing, and `text`.
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
