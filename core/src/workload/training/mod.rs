mod apply;

use super::tensors::values as values_of;
use super::{Matrix, ModelSpec, Optimizer};
use crate::Bytes;
use crate::dims::{choices, schema};

schema! {
    /// Training method: the optimizer, the trained parameters, adapters, and a teacher.
    pub struct Training {
        /// The optimizer.
        #[serde(skip_serializing_if = "is_default")]
        optimizer: Optimizer = Optimizer::default(), Choice(&Optimizer::CHOICES), "the optimizer (default adamw)";
        /// Rank of LoRA adapters; everything but the adapters is frozen then.
        lora_rank?: u64, Count(1..=65_536), "rank of LoRA adapters; freezes everything else (default: none)";
        /// The matrices that have adapters.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        lora_targets: Vec<Matrix> = Vec::new(), ChoiceList(&Matrix::CHOICES),
            "the matrices with adapters (default query and value)";
        /// Parameters that are not trained, the first of the model; adapters freeze all.
        #[serde(skip_serializing_if = "is_default")]
        frozen_parameters: u64 = 0, Count(0..=1 << 50), "parameters not trained, from the input on (default 0)";
        /// The format of frozen matrices.
        #[serde(skip_serializing_if = "is_default")]
        frozen_weights: WeightFormat = WeightFormat::default(), Choice(&WeightFormat::CHOICES),
            "format of frozen matrices (default full)";
        /// A frozen model evaluated in each step.
        #[serde(skip_serializing_if = "is_default")]
        teacher: Teacher = Teacher::default(), Choice(&Teacher::CHOICES),
            "a frozen model evaluated in each step (default none)";
        /// Parameters of a teacher that is another model.
        teacher_parameters?: u64, Count(1..=1 << 50), "parameters of a teacher of another model";
        /// The format of the teacher's matrices.
        #[serde(skip_serializing_if = "is_default")]
        teacher_weights: WeightFormat = WeightFormat::default(), Choice(&WeightFormat::CHOICES),
            "format of the teacher's matrices (default full)";
        /// Fraction of the rows and heads of inner matrices removed by structured pruning, 0 to 1.
        #[serde(skip_serializing_if = "is_default")]
        pruned: f64 = 0.0, Number(0.0..=0.95),
            "fraction of each inner matrix removed by structured pruning (default 0)";
        /// Temporary bytes of one layer for each sample, beyond its inputs and results.
        #[serde(skip_serializing_if = "is_default")]
        layer_scratch_bytes: u64 = 0, Count(0..=1 << 40), "temporary bytes of one layer, for each sample (default 0)";
        /// Milliseconds that one host core takes to prepare a sample.
        host_ms_per_sample?: f64, Number(1e-6..=1e6), "milliseconds that one host core takes to prepare a sample";
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

choices! {
    /// Storage format of frozen weights.
    #[derive(Default)]
    pub enum WeightFormat: "weight format", "workload::WeightFormat" {
        /// As the trained ones.
        #[default]
        Full = "full",
        /// 8 bits a value, and a scale of 32 bits for each 32 of them.
        Q8 = "q8",
        /// 4 bits a value, and a scale of 32 bits for each 32 of them.
        Q4 = "q4",
    }
}

/// Values that share a scale.
const BLOCK: u64 = 32;

impl WeightFormat {
    /// Bytes of the packed values and their scales; `None` for the full format.
    pub fn packed(self, values: u64) -> Option<Bytes> {
        let bits = match self {
            Self::Full => return None,
            Self::Q8 => 8,
            Self::Q4 => 4,
        };
        // Values are packed into words of 32 bits.
        let words = values.div_ceil(32 / bits);
        Some(Bytes(words).times(4) + Bytes(values.div_ceil(BLOCK)).times(4))
    }
}

choices! {
    /// A frozen model evaluated in each step.
    #[derive(Default)]
    pub enum Teacher: "teacher", "workload::Teacher" {
        /// None.
        #[default]
        None = "none",
        /// A frozen copy of the model itself, such as the reference of DPO.
        Copy = "copy",
        /// Another model, with `teacher_parameters`.
        Other = "other",
    }
}

impl Training {
    /// Contradictions between keys or with the model, as `(name, message)`.
    pub(super) fn contradictions(&self, model: &ModelSpec) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let is_declared = matches!(model, ModelSpec::Declared(_));
        if is_declared && self.lora_rank.is_some() {
            found.push(("lora_rank", "adapters need a model given by its dimensions, such as transformer".to_owned()));
        }
        if self.lora_rank.is_none() && !self.lora_targets.is_empty() {
            found.push(("lora_targets", "lora_targets without lora_rank: give the rank of the adapters".to_owned()));
        }
        let freezes = self.lora_rank.is_some() || self.frozen_parameters > 0;
        if !freezes && self.frozen_weights != WeightFormat::Full {
            let message = "frozen_weights needs frozen parameters: give lora_rank or frozen_parameters as well";
            found.push(("frozen_weights", message.to_owned()));
        }
        if (self.teacher == Teacher::Other) != self.teacher_parameters.is_some() {
            let message = "teacher = \"other\" and teacher_parameters belong together";
            found.push((
                if self.teacher == Teacher::Other { "teacher" } else { "teacher_parameters" },
                message.to_owned(),
            ));
        }
        let tensors = model.tensors();
        let all = values_of(&tensors);
        if self.frozen_parameters >= all {
            found
                .push(("frozen_parameters", format!("frozen_parameters leaves nothing to train: the model has {all}")));
        }
        if let Some(target) =
            self.targets().into_iter().find(|target| !tensors.iter().any(|it| it.role == target.role()))
        {
            let message = format!("this model has no {target:?} matrix to adapt").to_lowercase();
            found.push((if self.lora_targets.is_empty() { "lora_rank" } else { "lora_targets" }, message));
        }
        found
    }

    /// The matrices with adapters; empty without a rank.
    fn targets(&self) -> Vec<Matrix> {
        match (self.lora_rank, self.lora_targets.as_slice()) {
            (None, _) => Vec::new(),
            (Some(_), []) => vec![Matrix::Query, Matrix::Value],
            (Some(_), given) => given.to_vec(),
        }
    }
}
