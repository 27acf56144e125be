//! Receives datagrams of the application, and the end of its flow.

use watm_host_kit::{
    Case, ConfigError, DatagramFlow, Datagrams, ErrorCode, StartOptions, Wakeup, case, done, flows,
    info, refused, same,
};

struct DatagramFlowClosed {
    flow: DatagramFlow,
    received: Vec<u8>,
}

impl Case for DatagramFlowClosed {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let flow = flows::open_datagrams(&info(), 1).map_err(refused)?;
        let waiting = flow
            .receive(16, 1 << 16)
            .map(|found| found.map(|datagrams| datagrams.lengths));
        same("the first receive", &waiting, &Ok(Some(Vec::new())));
        Ok(DatagramFlowClosed {
            flow,
            received: Vec::new(),
        })
    }

    fn process(&mut self, _: u64, ready: &[u64]) -> Wakeup {
        if !ready.contains(&1) || watm_host_kit::is_done() {
            return Wakeup::OnReady;
        }
        match self.flow.receive(16, 1 << 16) {
            Ok(Some(datagrams)) => {
                self.received.extend(datagrams.payload);
                Wakeup::OnReady
            }
            end => {
                same("the end", &end.map(|_| ()), &Ok(()));
                same(
                    "the datagrams before it",
                    &self.received.as_slice(),
                    &b"onetwo".as_slice(),
                );
                let late = Datagrams {
                    payload: b"late".to_vec(),
                    lengths: vec![4],
                };
                same(
                    "a datagram after it",
                    &self.flow.send(&late),
                    &Err(ErrorCode::ConnectionAborted),
                );
                done();
                Wakeup::OnReady
            }
        }
    }
}

case!(DatagramFlowClosed);
