//! Uses a handle that the host has not given to it.

use watm_host_kit::{
    ByteStream, Case, ConfigError, StartOptions, Wakeup, case, check, flows, info, refused,
};

struct ForeignHandle {
    stream: ByteStream,
}

#[cfg_attr(
    feature = "interface-0-1",
    link(wasm_import_module = "watm:transport/sockets@0.1.2")
)]
#[cfg_attr(
    not(feature = "interface-0-1"),
    link(wasm_import_module = "watm:transport/sockets@0.2.0")
)]
unsafe extern "C" {
    #[link_name = "[method]byte-stream.connected"]
    fn connected(handle: i32);
}

impl Case for ForeignHandle {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let stream = flows::open_stream(&info(), 1).map_err(refused)?;
        stream.connected();
        Ok(ForeignHandle { stream })
    }

    fn process(&mut self, _: u64, ready: &[u64]) -> Wakeup {
        if ready.contains(&1)
            && let Ok(Some(data)) = self.stream.read(16)
            && data == b"forge"
        {
            // SAFETY: the call takes a number and touches no memory. The number is the point of the case.
            unsafe { connected(12_345) };
            check(false, "the call with a foreign handle returned");
            let _ = self.stream.write(b"alive");
        }
        Wakeup::OnReady
    }
}

case!(ForeignHandle);
