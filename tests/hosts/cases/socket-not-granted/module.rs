//! Takes sockets that the host has not granted.

use watm_host_kit::packets::PacketDevice;
use watm_host_kit::{
    Case, ConfigError, DatagramSocket, ErrorCode, Listener, StartOptions, case, done, same,
};

struct NotGranted;

impl Case for NotGranted {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let denied = Some(ErrorCode::AccessDenied);
        for label in ["other", "", "listen "] {
            same(label, &DatagramSocket::open(label, 1).err(), &denied);
            same(label, &Listener::open(label, 1).err(), &denied);
        }
        // The label of a datagram socket is not that of a listener, nor of a device.
        same("a listener", &Listener::open("listen", 1).err(), &denied);
        same("a device", &PacketDevice::open("listen", 1).err(), &denied);
        done();
        Ok(NotGranted)
    }
}

case!(NotGranted);
