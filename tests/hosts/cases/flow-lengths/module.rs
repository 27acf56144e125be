//! Sends datagrams to the application with lengths that do not add up.

use watm_host_kit::{
    Case, ConfigError, DatagramFlow, Datagrams, ErrorCode, StartOptions, case, done, flows, info,
    refused, same,
};

struct FlowLengths {
    _flow: DatagramFlow,
}

impl Case for FlowLengths {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let flow = flows::open_datagrams(&info(), 1).map_err(refused)?;
        let send = |payload: &[u8], lengths: &[u32]| {
            flow.send(&Datagrams {
                payload: payload.to_vec(),
                lengths: lengths.to_vec(),
            })
        };
        for lengths in [&[5][..], &[2, 1], &[u32::MAX, 5], &[]] {
            same(
                &format!("{lengths:?}"),
                &send(b"four", lengths),
                &Err(ErrorCode::InvalidArgument),
            );
        }
        same(
            "a datagram that is too long",
            &send(&[0; 70_000], &[70_000]),
            &Err(ErrorCode::DatagramTooLarge),
        );
        same("a good one", &send(b"four", &[4]), &Ok(1));
        done();
        Ok(FlowLengths { _flow: flow })
    }
}

case!(FlowLengths);
