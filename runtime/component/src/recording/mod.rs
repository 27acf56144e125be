//! A module's life in a file. `component::tape` writes it, and `replay` reads it.
//!
//! A recording is made at the boundary of `wit/`. It has everything that the host told the module,
//! and of the module's actions as much as is needed to see if another run does the same.
//!
//! # The format, version 2
//!
//! A file is the eight bytes `watm-rec`, the version as two bytes, little-endian, and frames until
//! the end. A frame is the length of its body, the CRC-32 (IEEE) of its body, the CRC-32 of these
//! eight bytes, each in four bytes, little-endian, and the body. Bodies have the encoding of the
//! crate `postcard` 1. The first body is a [`Header`], each other one an [`Event`], followed by
//!
//! - for [`Event::Import`] the arguments, a tuple as in `imports`, and the [`Outcome`];
//! - for [`Event::Returned`] the answer, in the type that `wit/` gives it.
//!
//! A call is an [`Event::Call`], the imports that the module made during it, and
//! [`Event::Returned`] or [`Event::Trapped`]. Payload that the module passes to the host, and keys,
//! are stored as a [`Digest`].
//!
//! The results of the host's ciphers are not in the file: a module with the same inputs makes the
//! same calls, and the results depend only on its key. The outcome of creating a key is in the
//! file. Signatures are too, but not the keys that they were made with.
//!
//! A file that ends within a frame was truncated, and is valid up to there.

mod describe;
mod format;
mod imports;
mod reader;
mod recorder;

pub use format::{Call, Digest, Event, Header, Outcome, Socket, encode};
pub use imports::{Asked, Function, Import, Recorded, import};
pub use reader::{End, Frame, Reader};
pub use recorder::Recorder;
