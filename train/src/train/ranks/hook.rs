//! Gradients of parameters in the middle of a backward pass.

use std::fmt::{self, Debug, Formatter};
use std::sync::{Arc, Mutex, PoisonError};

use burn::module::{Module, ModuleMapper, Param, ParamId};
use burn::tensor::{Device, Tensor};
use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, Shape, TensorMetadata};
#[cfg(feature = "cuda")]
use burn_dispatch::backends::Cube;
use burn_dispatch::backends::autodiff::checkpoint::base::Checkpointer;
use burn_dispatch::backends::autodiff::checkpoint::strategy::NoCheckpointing;
use burn_dispatch::backends::autodiff::grads::Gradients;
use burn_dispatch::backends::autodiff::ops::{Backward, Ops, OpsKind};
use burn_dispatch::backends::{Autodiff, Flex};
use burn_dispatch::{BackendTensor, DispatchAutodiffContext, DispatchTensor, DispatchTensorKind as Kind};

use crate::shape::with_autodiff_of;

/// Receives the gradient of a parameter, whole and flat.
pub(super) type Receive = Arc<dyn Fn(ParamId, Tensor<1>) + Send + Sync>;

/// Depth in the graph from one parameter to the next: more than the operations that a layer needs in a row.
///
/// Autodiff runs the backward steps of a graph from the deepest to the least deep. A hook on a parameter would be among the last.
/// An untracked tensor of some depth, its anchor, puts it behind the steps of the later parameters only. Where a model uses its
/// parameters in another order, some gradients arrive later, never too early.
const DEPTH: usize = 32;

/// Untracked tensors, each [`DEPTH`] deeper in the graph than the one before: one for each parameter of a model.
#[derive(Clone, Debug, Default)]
pub(super) struct Anchors(Arc<Mutex<Vec<DispatchTensor>>>);

impl Anchors {
    /// The model with a hook on each trained parameter. A backward pass through it hands each gradient to `receive` in place of
    /// keeping it, as soon as it is whole.
    pub(super) fn hooked<M: Module>(&self, model: &M, receive: &Receive) -> M {
        let mut anchors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        model.clone().map(&mut Hooking { anchors: &mut anchors, hooked: 0, receive })
    }
}

struct Hooking<'h> {
    anchors: &'h mut Vec<DispatchTensor>,
    /// Parameters before the next one.
    hooked: usize,
    receive: &'h Receive,
}

impl Hooking<'_> {
    /// The anchor of the next parameter, which is on a device with autodiff.
    fn next(&mut self, device: &Device) -> DispatchTensor {
        if self.hooked == self.anchors.len() {
            let first = || {
                let zero = Tensor::<1>::zeros([1], &device.clone().without_autodiff());
                with_autodiff_of(zero, device).into_dispatch()
            };
            let last = self.anchors.last().cloned().unwrap_or_else(first);
            self.anchors.push((0..DEPTH).fold(last, |anchor, _| deeper(anchor)));
        }
        self.hooked += 1;
        self.anchors[self.hooked - 1].clone()
    }
}

impl ModuleMapper for Hooking<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if !param.is_require_grad() {
            return param;
        }
        let state = State { id: param.id, receive: Arc::clone(self.receive) };
        param.map(|value| {
            let anchor = self.next(&value.device());
            Tensor::from_dispatch(hooked(value.into_dispatch(), anchor, state))
        })
    }
}

/// A backend whose tensors are dispatched.
trait Dispatched: Backend {
    fn kind(tensor: BackendTensor<Self>) -> Kind;
}

impl Dispatched for Flex {
    fn kind(tensor: BackendTensor<Self>) -> Kind {
        Kind::Flex(tensor)
    }
}

#[cfg(feature = "cuda")]
impl Dispatched for Cube {
    fn kind(tensor: BackendTensor<Self>) -> Kind {
        Kind::Cube(tensor)
    }
}

#[derive(Clone)]
struct State {
    id: ParamId,
    receive: Receive,
}

impl Debug for State {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("State").field(&self.id).finish()
    }
}

/// The tensor itself. Its gradient goes to the receiver, and no further.
#[derive(Debug)]
struct Hook;

impl<B: Dispatched> Backward<B, 2> for Hook {
    type State = State;

    fn backward(self, ops: Ops<State, 2>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = gradients.consume::<B>(&ops.node);
        let elements = gradient.shape().num_elements();
        let flat = BackendTensor::Float(B::float_reshape(gradient, Shape::new([elements])));
        let flat = DispatchTensor { kind: B::kind(flat), autodiff: DispatchAutodiffContext::Disabled };
        (ops.state.receive)(ops.state.id, Tensor::from_dispatch(flat));
    }
}

/// The tensor itself, one deeper in the graph.
#[derive(Debug)]
struct Deeper;

impl<B: Backend> Backward<B, 1> for Deeper {
    type State = ();

    fn backward(self, _: Ops<(), 1>, _: &mut Gradients, _: &mut Checkpointer) {
        unreachable!("BUG: anchors are not tracked")
    }
}

/// Applies an operation of two tensors with autodiff on one backend; the first tensor, if they have none.
macro_rules! on_backend {
    ($first:expr, $second:expr, |$left:ident, $right:ident| $operation:expr) => {{
        let (first, second): (DispatchTensor, DispatchTensor) = ($first, $second);
        let autodiff = first.autodiff;
        let inner = |kind: &Kind| match kind {
            Kind::Autodiff(inner) => (**inner).clone(),
            other => other.clone(),
        };
        let kind = match (inner(&first.kind), inner(&second.kind)) {
            (Kind::Flex(BackendTensor::Autodiff($left)), Kind::Flex(BackendTensor::Autodiff($right))) => {
                Flex::kind(BackendTensor::Autodiff($operation))
            }
            #[cfg(feature = "cuda")]
            (Kind::Cube(BackendTensor::Autodiff($left)), Kind::Cube(BackendTensor::Autodiff($right))) => {
                Cube::kind(BackendTensor::Autodiff($operation))
            }
            _ => return first,
        };
        DispatchTensor { kind: Kind::Autodiff(Box::new(kind)), autodiff }
    }};
}

fn hooked(tensor: DispatchTensor, anchor: DispatchTensor, state: State) -> DispatchTensor {
    on_backend!(tensor, anchor, |tensor, anchor| with_hook(tensor, &anchor, state))
}

fn with_hook<B: Dispatched>(
    tensor: FloatTensor<Autodiff<B>>,
    anchor: &FloatTensor<Autodiff<B>>,
    state: State,
) -> FloatTensor<Autodiff<B>> {
    let nodes = [tensor.node(), anchor.node()];
    match Backward::<B, 2>::prepare::<NoCheckpointing>(Hook, nodes).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish(state, tensor.into_primitive()),
        OpsKind::UnTracked(prep) => prep.finish(tensor.into_primitive()),
    }
}

fn deeper(tensor: DispatchTensor) -> DispatchTensor {
    on_backend!(tensor.clone(), tensor, |tensor, _same| one_deeper(tensor))
}

fn one_deeper<B: Backend>(tensor: FloatTensor<Autodiff<B>>) -> FloatTensor<Autodiff<B>> {
    let nodes = [tensor.node()];
    Backward::<B, 1>::prepare::<NoCheckpointing>(Deeper, nodes).compute_bound().stateless(tensor.into_primitive())
}
