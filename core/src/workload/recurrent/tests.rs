use super::*;

#[test]
fn keras_mnist_perceptron_has_its_published_parameters() {
    // Published in the summary of keras-team/keras 2.x, examples/mnist_mlp.py.
    let model = Mlp { widths: vec![784, 512, 512, 10] };
    assert_eq!(model.parameters(), 669_706);
}
