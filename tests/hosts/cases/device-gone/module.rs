//! Receives from a device that the user deletes.

use watm_host_kit::packets::PacketDevice;
use watm_host_kit::{
    Case, ConfigError, ErrorCode, StartOptions, Wakeup, case, done, refused, same,
};

struct DeviceGone {
    device: PacketDevice,
}

impl Case for DeviceGone {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let device = PacketDevice::open("tun", 1).map_err(refused)?;
        Ok(DeviceGone { device })
    }

    fn process(&mut self, _: u64, ready: &[u64]) -> Wakeup {
        if !ready.contains(&1) || watm_host_kit::is_done() {
            return Wakeup::OnReady;
        }
        loop {
            match self.device.receive(64, 1 << 16) {
                Ok(batch) if batch.packets.is_empty() => return Wakeup::OnReady,
                Ok(_) => {}
                Err(code) => {
                    same("the error", &code, &ErrorCode::ConnectionAborted);
                    done();
                    return Wakeup::OnReady;
                }
            }
        }
    }
}

case!(DeviceGone);
