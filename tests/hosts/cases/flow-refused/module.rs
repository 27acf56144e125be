//! Offers flows to destinations that the application does not take.

use watm_host_kit::flows::Kind;
use watm_host_kit::{
    ByteStream, Case, ConfigError, Destination, ErrorCode, StartOptions, address, case, check,
    done, flows, info_to, refused, same,
};

struct FlowRefused {
    _stream: ByteStream,
}

impl Case for FlowRefused {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let (taken, other) = (address(192, 0, 2, 1, 80), address(192, 0, 2, 1, 81));
        for kind in [Kind::Bytes, Kind::Datagrams] {
            check(
                flows::accepts(kind, &Destination::Address(taken)),
                "the application takes port 80",
            );
            check(
                !flows::accepts(kind, &Destination::Address(other)),
                "the application does not take port 81",
            );
        }
        let denied = Some(ErrorCode::AccessDenied);
        same(
            "a stream",
            &flows::open_stream(&info_to(other), 2).err(),
            &denied,
        );
        same(
            "datagrams",
            &flows::open_datagrams(&info_to(other), 3).err(),
            &denied,
        );
        let stream = flows::open_stream(&info_to(taken), 1).map_err(refused)?;
        done();
        Ok(FlowRefused { _stream: stream })
    }
}

case!(FlowRefused);
