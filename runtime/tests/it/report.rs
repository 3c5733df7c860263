//! The report of a session, as a program prints it.

use gpu_tuned::Options;

use crate::played::machine_in_fixed_host;

// The config of the README.
config! {
    LmConfig {
        #[tuned(dim = layers, default = 6)] n_layers: usize,
        #[tuned] batch_size: usize,
        #[tuned] gradient_accumulation: usize,
    },
    transformer(d_model = 512, vocab = 8192, seq = 256), global_batch = 512, target = "rtx4090"
}

#[test]
fn the_report_of_a_session_is_as_in_the_picture() {
    let options = Options::default().machine(machine_in_fixed_host("rtx4090"));
    let decision = options.decide(&LmConfig::default()).unwrap();
    insta::assert_snapshot!("session_report", decision.to_string());
}
