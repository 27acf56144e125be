//! What others may know of a program that runs modules.
//!
//! [`web`] answers by HTTP; what is said of [modules](module) and of their [peers] is the same
//! whichever command runs them. [`show`] asks such a program, for people.

pub(crate) mod capture;
pub(crate) mod check;
pub(crate) mod dialer;
pub(crate) mod metrics;
pub(crate) mod module;
pub(crate) mod peers;
pub(crate) mod show;
pub(crate) mod web;
