//! Visits of the float parameters of a model.

/// Runs code for each float parameter of a model, of any rank `D`, with a state that the code changes. Returns the state.
///
/// `visit_floats!(model, STATE = INITIAL, TYPE, |param| CODE)`: the pattern binds references; references in the type have the
/// lifetime `'v`.
macro_rules! visit_floats {
    ($model:expr, $state:pat = $initial:expr, $type:ty, |$param:ident| $visit:expr) => {{
        struct Visitor<'v> {
            state: $type,
            lifetime: std::marker::PhantomData<&'v ()>,
        }
        impl burn::module::ModuleVisitor for Visitor<'_> {
            fn visit_float<const D: usize>(&mut self, $param: &burn::module::Param<burn::tensor::Tensor<D>>) {
                let $state = &mut self.state;
                $visit
            }
        }
        let mut visitor = Visitor { state: $initial, lifetime: std::marker::PhantomData };
        $model.visit(&mut visitor);
        visitor.state
    }};
}
pub(crate) use visit_floats;
