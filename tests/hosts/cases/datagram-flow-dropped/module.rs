//! Answers a datagram of the application, and drops the flow.

use watm_host_kit::{
    Case, ConfigError, DatagramFlow, Datagrams, StartOptions, Wakeup, case, done, flows, info,
    refused, same,
};

struct DatagramFlowDropped {
    flow: Option<DatagramFlow>,
}

impl Case for DatagramFlowDropped {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let flow = flows::open_datagrams(&info(), 1).map_err(refused)?;
        Ok(DatagramFlowDropped { flow: Some(flow) })
    }

    fn process(&mut self, _: u64, ready: &[u64]) -> Wakeup {
        if ready.contains(&1)
            && let Some(flow) = self.flow.take()
        {
            match flow.receive(16, 1 << 16) {
                Ok(Some(datagrams)) if !datagrams.lengths.is_empty() => {
                    let farewell = Datagrams {
                        payload: b"goodbye".to_vec(),
                        lengths: vec![4, 3],
                    };
                    same("the farewell", &flow.send(&farewell), &Ok(2));
                    drop(flow);
                    done();
                }
                _ => self.flow = Some(flow),
            }
        }
        Wakeup::OnReady
    }
}

case!(DatagramFlowDropped);
