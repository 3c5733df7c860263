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
        let serialized = if self.is_new { self.current_entry().serialize() } else { not_logged() };
        self.formatted(text, serialized)
    }

    /// Entry of the epoch; empty without a value.
    pub(super) fn epoch_entry(&self, text: impl Fn(f64) -> String) -> SerializedEntry {
        match self.count {
            0 => missing("no value in this epoch"),
            _ => self.formatted(text, self.epoch_value().serialize()),
        }
    }

    fn formatted(&self, text: impl Fn(f64) -> String, serialized: String) -> SerializedEntry {
        SerializedEntry::new(format!("epoch {} - batch {}", text(self.mean()), text(self.current)), serialized)
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

/// Declares a metric with the numbers of a source, and implements Burn's metric traits for it. `seen` returns a value with its
/// step or sample number, or the reason why there is none; `text` formats a value.
macro_rules! numeric_metric {
    (
        $(#[$doc:meta])*
        $metric:ident($source:ty): $name:literal, $unit:expr, $description:literal,
        seen: $seen:expr,
        text: $text:expr
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $metric {
            source: $source,
            series: Series,
        }

        impl $metric {
            pub(super) fn new(source: $source) -> Self {
                Self { source, series: Series::default() }
            }

            fn text(&self) -> impl Fn(f64) -> String {
                let text: fn(&$source, f64) -> String = $text;
                move |value| text(&self.source, value)
            }
        }

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

            fn update(&mut self, (): &(), item: &MetricMetadata) -> Result<SerializedEntry, TensorReadError> {
                let seen: fn(&$source, &MetricMetadata) -> Result<(u64, f64), String> = $seen;
                let seen = seen(&self.source, item);
                self.series.take(seen.as_ref().ok().copied());
                Ok(match seen {
                    Ok(_) => self.series.entry(self.text()),
                    Err(reason) => missing(&reason),
                })
            }

            fn compute(&mut self) -> Result<SerializedEntry, TensorReadError> {
                Ok(self.series.epoch_entry(self.text()))
            }

            fn clear(&mut self) {
                self.series = Series::default();
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
