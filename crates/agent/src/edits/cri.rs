//! Container edits as bytes to append to a `CreateContainerRequest`.
