//! How the kernel chooses among the sockets of one address. Used by `watm-net` and `watm-policy`.

use serde_derive::{Deserialize, Serialize};

/// A kind of datagrams that name one of several sockets on one address: a claim of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub struct Steer {
    /// The first byte of such datagrams.
    #[serde(rename = "type")]
    pub kind: u8,
    /// The place of the byte that names the socket: its value modulo the number of sockets.
    pub byte: u16,
}

impl Steer {
    /// The most kinds of one module.
    pub const MOST: usize = 16;
    /// The last place of the byte: within the shortest packet that every path carries whole.
    pub const LAST_BYTE: u16 = 1231;
}
