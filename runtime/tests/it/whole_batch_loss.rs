//! Decisions for a loss over the whole batch: the step of the build, or an error.

use gpu_tuned::{Decision, Options, PlanError, StartError, Tuned};

use crate::launched::launched;
use crate::played::{machine, on};

// A contrastive loss over 256 samples.
config! {
    Contrastive { #[tuned] batch_size: usize, #[tuned] gradient_accumulation: usize },
    transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256),
    global_batch = 256, whole_batch_loss = true, target = "h100-sxm5-80gb"
}

// The build's micro-batch is the step.
config! {
    Unstated, transformer(layers = 12, d_model = 768, vocab = 50257, seq = 1024),
    whole_batch_loss = true, target = "h100-sxm5-80gb"
}

fn refused(decided: Result<Decision, StartError>) -> PlanError {
    match decided {
        Err(StartError::Plan(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn misfit(decided: Result<Decision, StartError>) -> (u64, String) {
    match refused(decided) {
        PlanError::DoesNotFit(misfit) => (misfit.memory.batch, misfit.to_string()),
        other => panic!("{other}"),
    }
}

#[test]
fn the_step_is_one_micro_batch_where_it_fits_and_is_refused_elsewhere() {
    assert_eq!((Contrastive::BUILT.settings.batch_size, Contrastive::BUILT.settings.gradient_accumulation), (256, 1));
    let built = on("eight-free-h100").decide(&Contrastive::default()).expect("it fits");
    assert_eq!(built.plan.schedule.micro_batches().collect::<Vec<_>>(), [256]);
    let (batch, text) = misfit(on("rtx4090").decide(&Contrastive::default()));
    assert!(batch == 256 && text.contains("whole_batch_loss: the step is not cut"), "{text}");
}

#[test]
fn without_a_global_batch_another_gpu_has_the_builds_step_or_is_refused() {
    let samples = Unstated::BUILT.global_batch;
    let built = on("eight-free-h100").decide(&Unstated::default()).expect("it fits");
    assert_eq!((built.plan.schedule.global_batch, built.plan.schedule.micro_batch), (samples, samples));
    assert_eq!(misfit(on("rtx4090").decide(&Unstated::default())).0, samples);
}

#[test]
fn a_smaller_micro_batch_of_the_user_and_several_ranks_are_mistakes() {
    for (config, key) in [
        (Contrastive { batch_size: 64, ..Contrastive::default() }, "batch_size = 64"),
        (Contrastive { gradient_accumulation: 4, ..Contrastive::default() }, "a step has 4 micro-batches"),
    ] {
        let error = refused(on("eight-free-h100").decide(&config)).to_string();
        assert!(error.starts_with(key), "{error}");
    }
    let decided = launched(2, |_, as_rank| {
        as_rank(Options::default().machine(machine("eight-free-h100"))).decide(&Contrastive::default())
    });
    let ranks = |decided: &Result<_, StartError>| match decided {
        Err(StartError::Plan(PlanError::Goal { message })) => message.starts_with("2 ranks share each step"),
        _ => false,
    };
    assert!(decided.iter().any(ranks), "{decided:?}");
}
