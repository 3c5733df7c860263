//! Keys whose meaning depends on the size of a micro-batch.

use super::cases::{json, refused_yaml};
use super::{MODEL, file, tuned};
use crate::{Config, Format};

/// Batch and accumulation, and the warnings, of the text behind the model's dimensions.
fn planned(text: &str) -> ((u64, u64), Vec<String>) {
    let (tuned, _) = tuned(Format::Yaml, &format!("{MODEL}{text}"), "h200", &[]).expect("a plan");
    let settings = &tuned.plan.as_ref().expect("it fits").settings;
    ((settings.batch_size, settings.gradient_accumulation), tuned.warnings)
}

#[test]
fn a_change_of_the_samples_that_a_key_counts_is_a_warning() {
    let lightning = "trainer:\n  max_epochs: 3\n  accelerator: gpu\n  accumulate_grad_batches: 16\n  limit_train_batches: 6400\n\
                     \u{20} val_check_interval: 0.5\n  overfit_batches: 0\ndata: {batch_size: 2}\n";
    let ((batch, steps), warnings) = planned(lightning);
    assert_eq!(batch * steps, 32);
    let same = 6400 * 2 / batch;
    assert_eq!(
        warnings,
        [format!(
            "`trainer.limit_train_batches` counts micro-batches, which have {batch} samples in place of 2: {same} have as many \
             samples as the 6400"
        )]
    );
    assert!(planned(&lightning.replace("size: 2", "size: 32").replace("es: 16", "es: 1")).1.is_empty());
    for text in [
        "dtype_policy: float32\nsteps_per_epoch: 1000\nbatch_size: 2\noptimizer: {gradient_accumulation_steps: 16}\n",
        "accum_grad: 16\nbatch_type: unsorted\nbatch_size: 2\nnum_iters_per_epoch: 1000\n",
        "train_dataloader: {batch_size: 2}\noptim_wrapper: {accumulative_counts: 16}\ntrain_cfg: {max_iters: 1000}\n",
    ] {
        let warnings = planned(text).1;
        assert!(warnings.iter().any(|it| it.ends_with("samples as the 1000")), "{text}: {warnings:?}");
    }
}

#[test]
fn a_learning_rate_that_follows_the_micro_batch_is_a_warning() {
    let text = |is_on: bool| {
        format!(
            "train_dataloader: {{batch_size: 2}}\noptim_wrapper: {{accumulative_counts: 16}}\n\
             auto_scale_lr: {{enable: {is_on}, base_batch_size: 4}}\n"
        )
    };
    let warnings = planned(&text(true)).1;
    assert!(
        warnings[0].starts_with("`auto_scale_lr.enable` scales the learning rate by the micro-batch"),
        "{warnings:?}"
    );
    assert!(planned(&text(false)).1.is_empty());
}

#[test]
fn devices_share_a_batch_that_is_split() {
    let text = "{\"output_dir\": \"out\", \"per_device_train_batch_size\": 8, \"gradient_accumulation_steps\": 64, \
                \"accelerator_config\": {\"split_batches\": true}, \"num_train_epochs\": 3, DIMS}";
    let (tuned, step, text) = json(text, "h200", &["--world-size", "4"]);
    assert_eq!((step.batch, step.accumulation, step.global), (2, 64, 512));
    let settings = &tuned.plan.expect("it fits").settings;
    assert!(text.contains(&format!("\"per_device_train_batch_size\": {}", settings.batch_size * 4)), "{text}");
}

#[test]
fn ranks_are_read_from_data_parallel_sizes_or_noted_where_they_are_open() {
    let megatron = "micro_batch_size: 2\nglobal_batch_size: 64\ntensor_model_parallel_size: 1\nlr: 1\n";
    let read = |text: &str| {
        let file = file(Format::Yaml, &format!("{MODEL}{text}"));
        let config = Config::read(&file.entries().expect("entries"), &file, &[]).expect("a config");
        (config.ranks, config.open_ranks().map(str::to_owned))
    };
    assert_eq!(read(&format!("{megatron}data_parallel_size: 4\n")), (Some(4), None));
    assert_eq!(read(megatron), (None, Some("global_batch_size".to_owned())));
    let composer = "device_train_microbatch_size: auto\nglobal_train_batch_size: 256\nmax_duration: 48ba\n";
    assert_eq!(read(composer), (None, Some("global_train_batch_size".to_owned())));
    let titan =
        "local_batch_size: 1\nglobal_batch_size: 64\ndata_parallel_replicate_degree: 2\ndata_parallel_shard_degree: ";
    assert_eq!(read(&format!("{titan}4\n")), (Some(8), None));
    assert_eq!(read(&format!("{titan}-1\n")), (Some(2), Some("data_parallel_shard_degree".to_owned())));
    assert_eq!(read("batch_size: 8\nlr: 1\n"), (None, None));
}

#[test]
fn of_merged_tables_the_last_word_is_proposed() {
    let text =
        "base: &base\n  batch_size: 8\n  accumulation_steps: 16\ntrain:\n  <<: *base\n  batch_size: 4\n  lr: 1e-3\n";
    let words = refused_yaml(text, &[]);
    assert!(words.contains("choose one: --at batch_size=train.batch_size"), "{words}");
}

#[test]
fn parts_that_the_model_would_lack_are_refused() {
    let model = "model: {type: transformer, n_layer: 12, d_model: 768, n_heads: 12, vocab_size: 30522, seq_len: 512}\n";
    for (more, what) in [("decoder_layers: 6\n", "decoder_layers = 6"), ("teacher: {n_layer: 24}\n", "teacher")] {
        let words = super::refused(Format::Yaml, &format!("{model}{more}batch_size: 8\nlr: 1\n"), &[]);
        assert!(words.contains(&format!("`{what}`")), "{words}");
    }
}

#[test]
fn losses_and_norms_over_samples_keep_their_micro_batch() {
    let resnet = |more: &str| {
        let text = format!(
            "model: {{type: resnet, image_size: 64, num_classes: 10, base_channels: 32, num_blocks: 4{more}}}\nbatch_size: 4\n\
             accum_steps: 16\nlr: 0.1\n"
        );
        tuned(Format::Yaml, &text, "h200", &[]).expect("a plan").0.plan.expect("it fits").settings.batch_size
    };
    for norm in ["", ", norm: batch", ", norm_cfg: {type: SyncBN}", ", norm_layer: BatchNorm2d"] {
        assert_eq!(resnet(norm), 4, "{norm}");
    }
    assert!(resnet(", batch_norm: false") > 4);
    for loss in ["loss: contrastive", "train: {loss: {type: InfoNCELoss}}", "criterion: MultipleNegativesRankingLoss"] {
        let ((batch, steps), warnings) = planned(&format!("{loss}\nbatch_size: 2\naccum_steps: 16\nlr: 1\n"));
        assert_eq!((batch, steps, warnings.len()), (2, 16, 0), "{loss}");
    }
    let ((batch, _), _) = planned("loss: cross_entropy\nbatch_size: 2\naccum_steps: 16\nlr: 1\n");
    assert!(batch > 2);
}

#[test]
fn preferences_and_rewards_are_not_plain_training() {
    let head = "output_dir: out\nnum_train_epochs: 1\nper_device_train_batch_size: 2\n";
    for key in ["loss_type: sigmoid", "max_completion_length: 512", "reward_funcs: [accuracy]", "use_vllm: true"] {
        let words = refused_yaml(&format!("{head}{key}\n"), &[]);
        assert!(words.contains("is not modelled"), "{key}: {words}");
    }
    for key in ["loss_type: nll", "loss_type: cross_entropy", "use_vllm: false"] {
        assert!(planned(&format!("{head}{key}\n")).0.0 >= 2);
    }
    let other = "model: {type: clip, d_model: 512, n_layer: 6, n_heads: 8, vocab_size: 49408, seq_len: 77}\nbatch_size: 8\nlr: 1\n";
    let refused = super::refused(Format::Yaml, other, &[]);
    assert!(refused.contains("`model.type = clip`"), "{refused}");
}
