//! Updates from every kind of source, and from servers that misbehave.

#![cfg_attr(test, allow(missing_docs, reason = "tests"))]

mod faults;
mod files;
mod folders;
mod registry;
mod resuming;
mod server;
mod sources;
mod support;
mod watching;
