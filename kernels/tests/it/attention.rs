//! Attention of random sizes beside Burn's on the CPU.

use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Bool, Device, Tensor};
use fake_cudnn::{Behaviour, Fake};
use gpu_tuned_kernels::attention::{Attention, Strides};
use gpu_tuned_kernels::cublaslt::Element;
use gpu_tuned_kernels::cudnn::{Attended, AttendedGradients, AttentionPlan, Cudnn, CudnnError};
use gpu_tuned_kernels::product::attention;
use proptest::prelude::*;

use crate::convolutions::{Opened, internal_error};
use crate::memory::{Buffer, UNTOUCHED};
use crate::recurrent::{are_close, host, tensor};

/// Sizes of attention, and its numbers.
#[derive(Clone, Debug)]
struct Case {
    attention: Attention,
    seed: usize,
}

fn cases() -> impl Strategy<Value = Case> {
    let sizes = (1_usize..4, 1_usize..4, 2_usize..7, 1_usize..7, 1_usize..3, 1_usize..3);
    (sizes, any::<bool>(), 0_usize..3, 0_usize..4, 0_usize..1000).prop_map(
        |((batch, heads, queries, keys, inner, values), is_causal, biases, gap, seed)| {
            let (inner, values) = (8 * inner, 8 * values);
            // Layouts with heads behind rows, heads before rows, and gaps.
            let layout = |rows: usize, numbers: usize| -> Strides {
                match gap {
                    0 => Attention::packed(heads, rows, numbers),
                    1 => [heads * rows * numbers, rows * numbers, numbers],
                    _ => [heads * rows * (numbers + 8 * gap), numbers + 8 * gap, heads * (numbers + 8 * gap)],
                }
            };
            let strides = [layout(queries, inner), layout(keys, inner), layout(keys, values), layout(queries, values)];
            let biases = [0, 1, batch][biases];
            let element = Element::Bf16;
            let attention =
                Attention { element, batch, heads, queries, keys, inner, values, is_causal, biases, strides };
            Case { attention, seed }
        },
    )
}

/// Output, and gradients of query, key and value.
type Results = [Vec<f32>; 4];

impl Case {
    /// Query, key, value and the output's gradient: `[batch, rows, heads, numbers]`.
    fn tensors(&self, device: &Device) -> [Tensor<4>; 4] {
        let Attention { batch, heads, .. } = self.attention;
        let sizes = self.attention.sizes();
        [0, 1, 2, 3].map(|which: usize| {
            let [rows, numbers] = sizes[which];
            tensor(self.seed + which, [batch, rows, heads, numbers], device)
        })
    }

    fn bias(&self, device: &Device) -> Option<Tensor<3>> {
        let Attention { biases, queries, keys, .. } = self.attention;
        (biases > 0).then(|| tensor(self.seed + 4, [biases, queries, keys], device))
    }

    fn by(&self, run: impl Fn([Tensor<4>; 3], Option<Tensor<3>>) -> Tensor<4>) -> Results {
        let device = Device::flex().autodiff();
        let [query, key, value, factor] = self.tensors(&device);
        let leaves = [query, key, value].map(Tensor::require_grad);
        let output = run(leaves.clone(), self.bias(&device));
        let gradients = (output.clone() * factor).sum().backward();
        let [of_query, of_key, of_value] = leaves.map(|leaf| host(leaf.grad(&gradients).expect("it is trained")));
        [host(output.inner()), of_query, of_key, of_value]
    }

    fn by_burn(&self) -> Results {
        let Attention { batch, heads, queries, keys, is_causal, .. } = self.attention;
        self.by(|tensors, bias| {
            let [query, key, value] = tensors.map(|tensor| tensor.swap_dims(1, 2));
            let scores = [batch, heads, queries, keys];
            let mask = Tensor::<2, Bool>::tril_mask([queries, keys], 0, &query.device());
            let mask = is_causal.then(|| mask.unsqueeze::<4>().expand(scores));
            let bias = bias.map(|bias| bias.unsqueeze_dim::<4>(1).expand(scores));
            let options = AttentionModuleOptions::default();
            burn::tensor::module::attention(query, key, value, mask, bias, options).swap_dims(1, 2)
        })
    }
}

/// Buffers of all tensors.
struct Buffers {
    attention: Attention,
    /// Query, key, value and the output's gradient.
    read: [Buffer; 4],
    bias: Buffer,
    output: Buffer,
    statistics: Buffer,
    of: [Buffer; 3],
    workspace: Buffer,
    workspace_bytes: usize,
}

fn span(attention: &Attention, which: usize) -> usize {
    let Attention { batch, heads, strides, .. } = attention;
    let ([rows, numbers], [by_batch, by_head, by_row]) = (attention.sizes()[which], strides[which]);
    (batch - 1) * by_batch + (heads - 1) * by_head + (rows - 1) * by_row + numbers
}

impl Buffers {
    fn new(case: &Case, plans: &[AttentionPlan; 2]) -> Self {
        let attention = case.attention.clone();
        let Attention { batch, heads, queries, keys, .. } = attention;
        let device = Device::flex();
        let mut which = 0;
        let read = case.tensors(&device).map(|tensor| {
            let mut buffer = Buffer::new(Element::Bf16, 0, span(&attention, which));
            let [by_batch, by_head, by_row] = attention.strides[which];
            let [_, rows, _, count] = tensor.dims();
            for (at, number) in host(tensor).into_iter().enumerate() {
                let (column, head, row) = (at % count, at / count % heads, at / count / heads % rows);
                let sequence = at / count / heads / rows;
                buffer.set(sequence * by_batch + head * by_head + row * by_row + column, number);
            }
            which += 1;
            buffer
        });
        let mut bias = Buffer::new(Element::Bf16, 0, attention.bias_numbers());
        for (at, number) in case.bias(&device).map(host).into_iter().flatten().enumerate() {
            bias.set(at / keys * attention.bias_row() + at % keys, number);
        }
        let workspace_bytes = plans[0].workspace_bytes().max(plans[1].workspace_bytes());
        let count = |which: usize| batch * heads * attention.sizes()[which].iter().product::<usize>();
        Self {
            read,
            bias,
            output: Buffer::new(Element::Bf16, 0, count(3)),
            statistics: Buffer::new(Element::F32 { tf32: false }, 0, batch * heads * queries),
            of: [0, 1, 2].map(|which| Buffer::new(Element::Bf16, 0, count(which))),
            workspace: Buffer::of_bytes(workspace_bytes),
            workspace_bytes,
            attention,
        }
    }

    fn count(&self, which: usize) -> usize {
        self.attention.batch * self.attention.heads * self.attention.sizes()[which].iter().product::<usize>()
    }

    fn memory(&mut self) -> AttendedGradients {
        let spans = [0, 1, 2, 3].map(|which| span(&self.attention, which));
        let counts = [0, 1, 2, 3].map(|which| self.count(which));
        let Attention { batch, heads, queries, .. } = self.attention;
        let bias = self.attention.bias_numbers();
        AttendedGradients {
            forward: Attended {
                query: self.read[0].memory(spans[0]),
                key: self.read[1].memory(spans[1]),
                value: self.read[2].memory(spans[2]),
                bias: (bias > 0).then(|| self.bias.memory(bias)),
                output: self.output.memory(counts[3]),
                statistics: self.statistics.memory(batch * heads * queries),
                workspace: Some(self.workspace.memory(self.workspace_bytes / 2)),
            },
            gradient: self.read[3].memory(spans[3]),
            of_query: self.of[0].memory(counts[0]),
            of_key: self.of[1].memory(counts[1]),
            of_value: self.of[2].memory(counts[2]),
        }
    }

    fn results(&self) -> Results {
        let of = |buffer: &Buffer, count: usize| (0..count).map(|at| buffer.get(at)).collect();
        let [of_query, of_key, of_value] = [0, 1, 2].map(|which| of(&self.of[which], self.count(which)));
        [of(&self.output, self.count(3)), of_query, of_key, of_value]
    }
}

const STREAM: *mut std::ffi::c_void = std::ptr::null_mut();

fn plans(opened: &Opened, attention: &Attention) -> Result<[AttentionPlan; 2], CudnnError> {
    let forward = opened.handle.plan_attention(attention.clone())?;
    Ok([forward, opened.handle.plan_attention_gradients(attention.clone())?])
}

fn launched(plans: &[AttentionPlan; 2], memory: AttendedGradients, inner: usize) -> Result<(), CudnnError> {
    let scale = 1.0 / (inner as f32).sqrt();
    // SAFETY: the memory is the host's, which the fake computes on, and lives.
    unsafe {
        plans[0].launch(memory.forward, scale, STREAM)?;
        plans[1].launch_gradients(memory, scale, STREAM)
    }
}

proptest! {
    #[test]
    fn both_passes_are_burns(case in cases()) {
        let opened = Opened::new();
        let plans = plans(&opened, &case.attention).expect("plans");
        let mut buffers = Buffers::new(&case, &plans);
        launched(&plans, buffers.memory(), case.attention.inner).expect("both passes");
        let names = ["output", "gradient of the query", "gradient of the key", "gradient of the value"];
        for ((found, expected), name) in buffers.results().iter().zip(case.by_burn()).zip(names) {
            prop_assert!(are_close(found, &expected, 2e-2), "{}: {:?} {:?}", name, found, expected);
        }
        drop(plans);
        let counts = opened.close();
        prop_assert_eq!((counts.alive, counts.mistakes), (0, 0));
    }

    #[test]
    fn the_operation_on_the_cpu_is_burns(case in cases()) {
        let found = case.by(|[query, key, value], bias| attention(query, key, value, bias, case.attention.is_causal));
        for (found, expected) in found.iter().zip(case.by_burn()) {
            prop_assert!(are_close(found, &expected, 1e-5), "{:?} {:?}", found, expected);
        }
    }

    #[test]
    fn a_buffer_that_is_too_small_leaves_all_memory_as_it_was(case in cases(), which in 0_usize..11) {
        let opened = Opened::new();
        let plans = plans(&opened, &case.attention).expect("plans");
        let mut buffers = Buffers::new(&case, &plans);
        let mut memory = buffers.memory();
        let it = &mut memory;
        let mut all = vec![
            &mut it.forward.query, &mut it.forward.key, &mut it.forward.value, &mut it.forward.output,
            &mut it.forward.statistics, it.forward.workspace.as_mut().expect("one"), &mut it.gradient, &mut it.of_query,
            &mut it.of_key, &mut it.of_value,
        ];
        all.extend(it.forward.bias.as_mut());
        let which = which % all.len();
        let needed = all[which].bytes;
        all[which].bytes -= 1;
        let too_small = Err(CudnnError::TooLarge { needed, found: needed - 1 });
        // SAFETY: as above.
        prop_assert_eq!(unsafe { plans[1].launch_gradients(memory, 1.0, STREAM) }, too_small);
        let [output, gradients @ ..] = buffers.results();
        prop_assert!(output.iter().chain(gradients.iter().flatten()).all(|number| *number == UNTOUCHED));
        drop(plans);
        prop_assert_eq!(opened.close().mistakes, 0);
    }
}

fn case() -> Case {
    let packed = |rows| Attention::packed(2, rows, 8);
    let strides = [packed(3), packed(4), packed(4), packed(3)];
    let (element, inner, values) = (Element::Bf16, 8, 8);
    let attention = Attention {
        element,
        batch: 2,
        heads: 2,
        queries: 3,
        keys: 4,
        inner,
        values,
        is_causal: true,
        biases: 2,
        strides,
    };
    Case { attention, seed: 1 }
}

#[test]
fn each_call_that_fails_is_named_and_leaks_nothing() {
    for call in [
        "cudnnBackendCreateDescriptor",
        "cudnnBackendSetAttribute",
        "cudnnBackendFinalize",
        "cudnnBackendGetAttribute",
        "cudnnSetStream",
        "cudnnBackendExecute",
    ] {
        let opened = Opened::new();
        opened.fake.behave(&Behaviour { fails: Some(call.to_owned()), ..Behaviour::default() });
        let failure = plans(&opened, &case().attention).and_then(|plans| {
            let mut buffers = Buffers::new(&case(), &plans);
            launched(&plans, buffers.memory(), 8)
        });
        assert_eq!(failure, Err(internal_error(call)));
        let counts = opened.close();
        assert_eq!((counts.alive, counts.mistakes), (0, 0), "{call}");
    }
}

#[test]
fn attention_that_the_library_does_not_compute_has_no_plan() {
    let opened = Opened::new();
    let refused = |attention: &Attention| {
        let planned = [
            opened.handle.plan_attention(attention.clone()),
            opened.handle.plan_attention_gradients(attention.clone()),
        ];
        for planned in planned {
            assert!(matches!(planned, Err(CudnnError::NoAlgorithm(_))), "{:?}", planned.err());
        }
    };
    let good = case().attention;
    opened.fake.behave(&Behaviour { has_algorithms: false, ..Behaviour::default() });
    refused(&good);
    opened.fake.behave(&Behaviour { version: 91_001, ..Behaviour::default() });
    refused(&good);
    // Keys that fill no tile.
    opened.fake.behave(&Behaviour { version: 91_500, ..Behaviour::default() });
    refused(&good);
    opened.fake.behave(&Behaviour::default());
    let mut strides = good.strides;
    strides[1][2] += 1;
    for wrong in [
        Attention { element: Element::F32 { tf32: true }, ..good.clone() },
        Attention { batch: 0, biases: 0, ..good.clone() },
        Attention { queries: 1, ..good.clone() },
        Attention { inner: 12, ..good.clone() },
        Attention { values: 136, ..good.clone() },
        Attention { keys: 1 << 28, ..good.clone() },
        Attention { biases: 3, ..good.clone() },
        Attention { strides, ..good.clone() },
    ] {
        refused(&wrong);
    }
    drop(plans(&opened, &good).expect("plans"));
    let counts = opened.close();
    assert_eq!((counts.alive, counts.mistakes), (0, 0));
}

#[test]
fn a_library_without_graphs_is_no_cudnn_9() {
    let fake = Fake::without("cudnnBackendExecute");
    let failure = Cudnn::load(&fake.path()).expect_err("a function is missing").to_string();
    assert!(failure.contains("cudnnBackendExecute"), "{failure}");
}
