//! Real sockets, which are bound for a module before it runs and kept across its restarts, and
//! everything else that differs between operating systems. Only this folder and
//! `private` of the seals know which system it is (`tests/structure` checks that).

mod admission;
mod bind;
mod changes;
mod descriptors;
mod doorbell;
mod inlet;
mod lingering;
mod options;
pub mod outgoing;
mod place;
mod share;
mod tcp;
mod tun;
mod udp;
mod upstream;
mod watched;

pub use admission::Admitted;
pub use admission::{Accepted, Admission};
pub(crate) use bind::NO_ADDRESS;
pub use bind::{BoundSocket, Grant, Protocol};
pub use changes::NetworkChanges;
pub use descriptors::{descriptors_of_module, instances_of_module};
pub use doorbell::Doorbell;
pub use inlet::{Inlet, poll_receive};
pub use lingering::linger;
pub use options::readable_bytes;
pub use place::{DatagramSocket, Place};
pub use share::{MOST_STEERED, share_address, share_datagram_address};
pub use tcp::{Connection, TcpPort};
pub use tun::{Checksum, Offloads, PacketDevice, PacketInfo, PacketPort};
pub use udp::{Entry, Sent, UdpPort};
pub(crate) use udp::{SendOutcome, Waiting};
pub use upstream::{
    BindTransparent, TransparentOptions, UpstreamStream, connect_upstream,
    connect_upstream_datagrams,
};
