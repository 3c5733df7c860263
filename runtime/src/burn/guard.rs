use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `step` and turns a panic of it into the panic's message.
///
/// The panic hook stays as it is: it belongs to the whole process, so a hook that is silent for the time of this call
/// would also silence, or be undone by, other threads. The user sees the hook's line and gets the typed error.
pub(crate) fn catching<T>(step: impl FnOnce() -> T) -> Result<T, String> {
    // What `step` half-built is dropped here or belongs to Burn, which locks its own state.
    catch_unwind(AssertUnwindSafe(step)).map_err(|payload| message(payload.as_ref()))
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied().map(str::to_owned);
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::catching;

    #[test]
    fn a_panic_becomes_its_message() {
        assert_eq!(catching(|| 1), Ok(1));
        assert_eq!(catching(|| panic!("lost")), Err::<(), _>("lost".to_owned()));
        assert_eq!(catching(|| panic!("lost {}", 7)), Err::<(), _>("lost 7".to_owned()));
    }
}
