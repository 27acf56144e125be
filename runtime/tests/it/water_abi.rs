//! What a host of WATER owes a module, row by row: what it exports is called with, what it
//! imports answers, and WASI preview 1. The guests are a few lines each, on what
//! `water_abi/prelude.wat` gives them.

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

pub mod guest;
