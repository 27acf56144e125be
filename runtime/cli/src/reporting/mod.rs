//! Status and metrics of programs that run modules.
//!
//! [`web`] answers by HTTP. The pages describe [modules](module) and their [peers] in the same way
//! for every command. The command `status` asks such
//! a program and prints for people.

pub(crate) mod capture;
pub(crate) mod check;
pub(crate) mod dialer;
pub(crate) mod metrics;
pub(crate) mod module;
pub(crate) mod peers;
pub(crate) mod web;
