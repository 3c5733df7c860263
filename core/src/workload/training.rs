//! Training methods, and the costs of a model under a training method.

use super::tensors::values as values_of;
use super::{Matrix, ModelCosts, ModelSpec, Optimizer, Parameters, Role, SampleCost, Tensors, Workload, WorkloadSpec};
use crate::Bytes;
use crate::dims::{choices, schema};
use crate::measured::Measured;

schema! {
    /// Training method: the optimizer, the trained parameters, adapters, and a teacher.
    pub struct Training {
        #[serde(skip_serializing_if = "is_default")]
        optimizer: Optimizer = Optimizer::default(), Choice(&Optimizer::CHOICES), "the optimizer (default adamw)";
        lora_rank?: u64, Count(1..=65_536), "rank of LoRA adapters; freezes everything else (default: none)";
        #[serde(skip_serializing_if = "Vec::is_empty")]
        lora_targets: Vec<Matrix> = Vec::new(), ChoiceList(&Matrix::MATRICES),
            "the matrices with adapters (default query and value)";
        #[serde(skip_serializing_if = "is_default")]
        frozen_parameters: u64 = 0, Count(0..=1 << 50), "parameters not trained, from the input on (default 0)";
        #[serde(skip_serializing_if = "is_default")]
        frozen_weights: WeightFormat = WeightFormat::default(), Choice(&WeightFormat::CHOICES),
            "format of frozen matrices (default full)";
        #[serde(skip_serializing_if = "is_default")]
        teacher: Teacher = Teacher::default(), Choice(&Teacher::CHOICES),
            "a frozen model evaluated in each step (default none)";
        teacher_parameters?: u64, Count(1..=1 << 50), "parameters of a teacher of another model";
        #[serde(skip_serializing_if = "is_default")]
        teacher_weights: WeightFormat = WeightFormat::default(), Choice(&WeightFormat::CHOICES),
            "format of the teacher's matrices (default full)";
        #[serde(skip_serializing_if = "is_default")]
        pruned: f64 = 0.0, Number(0.0..=0.95),
            "fraction of each inner matrix removed by structured pruning (default 0)";
        #[serde(skip_serializing_if = "is_default")]
        layer_scratch_bytes: u64 = 0, Count(0..=1 << 40), "temporary bytes of one layer, for each sample (default 0)";
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
        if let Some(target) = self.targets().into_iter().find(|target| !tensors.iter().any(|it| it.role == *target)) {
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

impl Training {
    /// Costs of one training step of the model with this training method. `spec` describes both.
    pub(super) fn apply(&self, costs: &ModelCosts, spec: WorkloadSpec) -> Workload {
        let all = values_of(&costs.tensors);
        let parameters = self.parameters(costs);
        let trained_share = (parameters.trained() as f64 / all.max(1) as f64).min(1.0);
        let teacher_share = self.teacher_parameters(all) as f64 / all.max(1) as f64;
        // Two operations a multiplication forward, four backward. Half of the backward ones compute gradients of
        // weights; frozen weights need none. A teacher runs forward only.
        let flops = costs.multiplications * (4.0 + 2.0 * trained_share + 2.0 * teacher_share);
        let answer = if self.teacher == Teacher::None { 0 } else { costs.result };
        let bytes = |values: u64| Bytes(values).times(4);
        let kept = costs.kept.saturating_sub(self.not_kept(costs));
        // Under checkpointing Burn keeps the outputs of frozen norms, like those of matrix products.
        let norms =
            costs.kept_for.iter().filter(|(roles, _)| self.lora_rank.is_some() && roles.contains(&Role::Vector));
        let norms = norms.fold(0_u64, |sum, (_, values)| sum.saturating_add(*values));
        let checkpointed = costs.kept_checkpointed.map(|kept| kept.saturating_add(norms));
        Workload {
            spec,
            parameters,
            optimizer: self.optimizer,
            sample: SampleCost {
                activations: bytes(kept.saturating_add(answer)),
                checkpointed_activations: checkpointed.map(|kept| bytes(kept.saturating_add(answer))),
                scratch: Bytes(self.layer_scratch_bytes),
                largest_tensor: costs.largest.map(bytes),
                logits: if costs.words > 0 { bytes(costs.result) } else { Bytes::ZERO },
                words: costs.words,
                input: costs.input,
                flops,
                tokens: costs.tokens,
                host_ms: self.host_ms_per_sample,
            },
            kernels: costs.kernels + (costs.kernels as f64 / 3.0 * teacher_share.min(1.0)) as u64,
            family: costs.family,
            batch_statistics: costs.batch_statistics,
            statistics_pixels: costs.statistics_pixels,
            dominant_product: costs.dominant_product,
            channels: costs.channels,
            provenance: costs.provenance,
            measured: Measured::default(),
        }
    }

    fn teacher_parameters(&self, model_parameters: u64) -> u64 {
        match self.teacher {
            Teacher::None => 0,
            Teacher::Copy => model_parameters,
            Teacher::Other => self.teacher_parameters.unwrap_or_default(),
        }
    }

    fn parameters(&self, costs: &ModelCosts) -> Parameters {
        let tensors: Vec<_> = costs.tensors.iter().map(|group| self.prune(*group)).collect();
        let largest = tensors.iter().map(Tensors::values_each).max().unwrap_or(0);
        let mut parameters =
            Parameters { frozen: costs.buffers, largest, copies: costs.copies, ..Parameters::default() };
        self.hold_teacher(&tensors, costs.buffers, &mut parameters);
        let mut to_freeze = if self.lora_rank.is_some() { u64::MAX } else { self.frozen_parameters };
        for group in tensors {
            let frozen_count = (to_freeze / group.values_each().max(1)).min(group.count);
            to_freeze -= frozen_count.saturating_mul(group.values_each()).min(to_freeze);
            self.freeze(Tensors { count: frozen_count, ..group }, &mut parameters);
            if frozen_count < group.count {
                parameters.trained.push(Tensors { count: group.count - frozen_count, ..group });
            }
        }
        parameters
    }

    /// Structured pruning removes whole rows.
    fn prune(&self, group: Tensors) -> Tensors {
        let left = |size: u64| ((size as f64 * (1.0 - self.pruned)).ceil() as u64).max(1);
        if group.role.is_hidden_matrix() { Tensors { rows: left(group.rows), ..group } } else { group }
    }

    /// Adds frozen tensors, packed if so configured, and their adapters.
    fn freeze(&self, group: Tensors, parameters: &mut Parameters) {
        if group.count == 0 {
            return;
        }
        let packed = self.frozen_weights.packed(group.values_each()).filter(|_| group.role.is_hidden_matrix());
        match packed {
            Some(bytes) => parameters.packed += bytes.times(group.count),
            None => parameters.frozen = parameters.frozen.saturating_add(group.values()),
        }
        // Burn merges base and adapter into a dense matrix in every forward pass, and unpacks packed weights. The
        // backward pass keeps the result. Counted in Burn 0.22.1: `tests/models/KEPT.md`.
        let mut keep_copies = |copies: u64, checkpointed: u64| {
            let values = |copies: u64| group.values().saturating_mul(copies);
            parameters.copies = parameters.copies.saturating_add(values(copies));
            parameters.copies_checkpointed = parameters.copies_checkpointed.saturating_add(values(checkpointed));
        };
        match self.lora_rank.filter(|_| self.adapts(group.role)) {
            Some(rank) => {
                keep_copies(1, 2);
                parameters.trained.push(Tensors { columns: rank, ..group });
                parameters.trained.push(Tensors { rows: rank, ..group });
            }
            None if packed.is_some() => keep_copies(1, 1),
            None => {}
        }
    }

    fn adapts(&self, role: Role) -> bool {
        self.targets().contains(&role)
    }

    /// Values that adapters save: those kept only for gradients of frozen weights.
    fn not_kept(&self, costs: &ModelCosts) -> u64 {
        if self.lora_rank.is_none() {
            return 0;
        }
        let spared = costs.kept_for.iter().filter(|(roles, _)| !roles.iter().any(|role| self.adapts(*role)));
        spared.fold(0, |sum, (_, values)| sum.saturating_add(*values))
    }

    fn hold_teacher(&self, tensors: &[Tensors], buffers: u64, parameters: &mut Parameters) {
        let add = |parameters: &mut Parameters, packable: u64, other: u64| {
            match self.teacher_weights.packed(packable) {
                Some(bytes) => parameters.packed += bytes,
                None => parameters.frozen = parameters.frozen.saturating_add(packable),
            }
            parameters.frozen = parameters.frozen.saturating_add(other);
        };
        match self.teacher {
            Teacher::None => {}
            Teacher::Copy => {
                add(parameters, 0, buffers);
                for group in tensors {
                    let (packable, other) =
                        if group.role.is_hidden_matrix() { (group.values(), 0) } else { (0, group.values()) };
                    add(parameters, packable, other);
                }
            }
            Teacher::Other => add(parameters, self.teacher_parameters.unwrap_or_default(), 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Mlp, Transformer};

    fn trained(model: impl Into<WorkloadSpec>, training: Training) -> crate::workload::Parameters {
        WorkloadSpec { training, ..model.into() }.workload().parameters
    }

    #[test]
    fn pruning_takes_its_share_of_the_matrices_within_the_network_only() {
        let halved = trained(Mlp { widths: vec![784, 512, 512, 10] }, Training { pruned: 0.5, ..Training::default() });
        // Of 784 x 512 + 512 x 512 half stay; the head, 512 x 10, and the biases are left whole.
        assert_eq!(halved.trained(), (392 + 256) * 512 + 512 * 10 + 512 + 512 + 10);
    }

    #[test]
    fn frozen_parameters_have_neither_gradients_nor_state_and_are_counted_from_the_input_on() {
        let model = || Transformer::new(12, 768, 50257, 1024);
        let embedding = 50257 * 768;
        let parameters = trained(model(), Training { frozen_parameters: embedding, ..Training::default() });
        assert_eq!((parameters.frozen, parameters.trained()), (embedding, 124_439_808 - embedding));
    }

    #[test]
    fn packed_values_have_bits_and_scales() {
        // A block of 32 values: 32 or 16 bytes, and a scale of 4.
        assert_eq!(WeightFormat::Q8.packed(64), Some(Bytes(72)));
        assert_eq!(WeightFormat::Q4.packed(64), Some(Bytes(40)));
        assert_eq!(WeightFormat::Full.packed(64), None);
    }

    #[test]
    fn adapters_are_as_many_as_peft_counts() {
        // `print_trainable_parameters()` of Llama-2-7B with LoraConfig(r=8) on q_proj and v_proj: 4,194,304.
        let model = Transformer { d_ff: Some(11008), gated: true, ..Transformer::new(32, 4096, 32000, 256) };
        assert_eq!(trained(model, Training { lora_rank: Some(8), ..Training::default() }).trained(), 4_194_304);
    }
}
