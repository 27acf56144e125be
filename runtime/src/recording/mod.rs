//! A module's life in a file.
//!
//! Written at the boundary of `wit/`: what the host told the module is kept whole, and what
//! the module did is kept as far as it takes to see whether another run does the same.
//!
//! # The format, version 2
//!
//! Eight bytes `watm-rec`, the version as two bytes, little-endian, and frames until the
//! end. A frame is the length of its body, the CRC-32 (IEEE) of its body, the CRC-32 of
//! these eight bytes, each in four bytes, little-endian, and the body. Bodies are in the
//! encoding of the crate `postcard` 1. The first is a [`Header`], each other one an
//! [`Event`], and after it
//!
//! - for [`Event::Import`] the arguments, a tuple as in `describe`, and the [`Outcome`];
//! - for [`Event::Returned`] the answer, in the type that `wit/` gives it.
//!
//! A call is an [`Event::Call`], the imports that the module made during it, and
//! [`Event::Returned`] or [`Event::Trapped`]. Payload that the module hands to the host, and
//! keys, are there as a [`Digest`].
//!
//! The host's ciphers are not in the file: a module that is told the same asks them the
//! same, and they answer by its key alone. Whether it was granted a key is. Signatures are, and
//! the keys that they were made with are not.
//!
//! A file that ends within a frame was cut short, and is good up to there.

mod describe;
mod format;
mod reader;
mod recorder;

pub(crate) use format::{Call, Digest, Event, Function, Header, Outcome, Socket, encode};
pub(crate) use reader::{End, Frame, Reader};
pub(crate) use recorder::Recorder;
