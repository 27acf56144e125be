//! A stand-in for the crate `managed`: the part of it that smoltcp uses, and
//! [`Elastic`] memory for smoltcp's rings.
//!
//! smoltcp keeps the bytes of a TCP socket in ring buffers over a [`ManagedSlice`], whose size
//! never changes. Ten thousand idle connections would hold two full buffers each. A ring over an
//! [`Elastic`] holds nothing until it is written to, releases its memory when it is empty, and
//! grows while it is in use.
//!
//! Version 0.8.1 satisfies the `managed = "0.8"` of smoltcp, and `[patch.crates-io]` substitutes
//! it.

mod elastic;
mod pool;
mod slice;

pub use elastic::{Elastic, Handle};
pub use pool::{Lender, Pool};
pub use slice::{Loan, ManagedSlice};

/// A map over managed memory. smoltcp imports the name and does not use it.
#[derive(Debug)]
pub enum ManagedMap {}
