use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

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

/// Runs `step` as [`catching`] does, on a new thread.
///
/// # Errors
///
/// As those of [`catching`]; also where the system starts no thread.
pub fn catching_on_thread<T: Send>(step: impl FnOnce() -> T + Send) -> Result<T, String> {
    thread::scope(|scope| {
        let started = thread::Builder::new().spawn_scoped(scope, || catching(step));
        let started = started.map_err(|error| format!("no thread could be started ({error})"))?;
        started.join().unwrap_or_else(|_| Err("its thread ended".to_owned()))
    })
}

/// Message of a panic, if it is text.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::{catching, catching_on_thread};

    #[test]
    fn a_panic_becomes_its_message() {
        assert_eq!(catching(|| 1), Ok(1));
        assert_eq!(catching(|| panic!("lost")), Err::<(), _>("lost".to_owned()));
        assert_eq!(catching(|| panic!("lost {}", 7)), Err::<(), _>("lost 7".to_owned()));
    }

    #[test]
    fn a_thread_returns_its_value_or_the_message_of_its_panic() {
        let caller = thread::current().id();
        assert_eq!(catching_on_thread(|| thread::current().id() == caller), Ok(false));
        assert_eq!(catching_on_thread(|| panic!("lost")), Err::<(), _>("lost".to_owned()));
    }
}
