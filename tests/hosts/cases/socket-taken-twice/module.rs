//! Takes one socket twice.

use watm_host_kit::{
    Case, ConfigError, DatagramSocket, ErrorCode, StartOptions, case, done, refused, same,
};

struct TakenTwice {
    _socket: DatagramSocket,
}

impl Case for TakenTwice {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let socket = DatagramSocket::open("listen", 1).map_err(refused)?;
        let second = DatagramSocket::open("listen", 2).err();
        same("the second open", &second, &Some(ErrorCode::InvalidState));
        done();
        Ok(TakenTwice { _socket: socket })
    }
}

case!(TakenTwice);
