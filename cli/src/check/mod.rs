//! t
use crate::{Answer, args::*, error::Error};
pub(crate) fn run(_c: &Common) -> Result<Answer, Error> {
    Err(Error::NoManifest)
}
