//! IP packets: parsing, reassembly and sending.

pub(crate) mod checksum;
mod extension;
mod packet;
mod reassembly;
mod send;

pub use packet::mark_congestion;
pub(crate) use packet::{Fault, Packet, Problem, is_host, upper_layer};
pub(crate) use reassembly::{Expired, Outcome, Reassembly};
pub(crate) use send::{
    LEAST_MTU_V6, Marks, Path, Sender, allow_fragments, header_len, set_length, write_header,
};

/// Protocol numbers (IANA) that this stack carries or answers.
pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
/// The fragment header of IPv6 (RFC 8200 section 4.5).
pub(crate) const FRAGMENT: u8 = 44;
pub(crate) const ICMPV6: u8 = 58;
/// The number for "no next header" (RFC 8200 section 4.7).
pub(crate) const NOTHING: u8 = 59;

/// The bytes of headers: of IPv4 and TCP without options, of IPv6 without extension headers, and of
/// UDP.
pub(crate) const V4_HEADER: usize = 20;
pub(crate) const V6_HEADER: usize = 40;
pub(crate) const TCP_HEADER: usize = 20;
pub(crate) const UDP_HEADER: usize = 8;
