//! Devices for IP packets, which Linux calls TUN. `server::builder` takes them, and
//! `component::packets` gives them to the module.

#[cfg(any(target_os = "linux", target_os = "android"))]
mod device;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod elsewhere;
mod entry;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod header;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod port;

#[cfg(any(target_os = "linux", target_os = "android"))]
pub use device::PacketDevice;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub use elsewhere::{PacketDevice, PacketPort};
pub use entry::{Checksum, Offloads, PacketInfo};
#[cfg(any(target_os = "linux", target_os = "android"))]
pub use port::PacketPort;
