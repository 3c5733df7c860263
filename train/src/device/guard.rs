use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `step` and turns a panic into an error with the panic's message.
///
/// The panic hook still prints: the hook belongs to the whole process, and other threads may replace it at any time.
///
/// # Errors
///
/// The panic's message, or a sentence where the panic has no text.
pub fn catching<T>(step: impl FnOnce() -> T) -> Result<T, String> {
    // Values that `step` leaves half-built are dropped here or belong to Burn, which locks its own state.
    catch_unwind(AssertUnwindSafe(step))
        .map_err(|payload| panic_message(payload.as_ref()).unwrap_or("a panic without a message").to_owned())
}

/// Message of a panic, if it is text.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
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
