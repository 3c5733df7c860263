//! Tests of groups.

mod plain;
