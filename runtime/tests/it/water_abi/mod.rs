//! The duties of a WATER host, row by row: arguments of exports, answers of imports, and WASI
//! preview 1. The guests are a few lines each, on top of `prelude.wat` of the test support.

mod config;
mod connect;
mod control;
mod descriptors;
mod exports;
mod memory;
mod poll;
mod streams;
mod system;
mod v0;
