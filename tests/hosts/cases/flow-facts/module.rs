//! Offers a flow with every fact about it.

use watm_host_kit::{
    ByteStream, Case, ConfigError, Destination, FlowInfo, StartOptions, address, case, check, done,
    flows, refused,
};

struct FlowFacts {
    _stream: ByteStream,
}

impl Case for FlowFacts {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let info = FlowInfo {
            source: address(198, 51, 100, 7, 4321),
            destination: Destination::Name(("host.example".to_owned(), 443)),
            peer: Some("alice".to_owned()),
            underlay: Some((address(203, 0, 113, 9, 7), address(203, 0, 113, 1, 51820))),
            attributes: vec![("sni".to_owned(), "host.example".to_owned())],
        };
        let stream = flows::open_stream(&info, 1).map_err(refused)?;
        check(
            stream.remote_address() == Some(info.source),
            "the source is the remote address",
        );
        done();
        Ok(FlowFacts { _stream: stream })
    }
}

case!(FlowFacts);
