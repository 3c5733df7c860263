//! Everything is in `tests/` and `cases/`.
