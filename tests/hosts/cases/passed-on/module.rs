//! Passes datagrams to its own socket.

use watm_host_kit::sockets::Place;
use watm_host_kit::{
    ALL, Case, ConfigError, DatagramBatch, DatagramSocket, ErrorCode, IpSocketAddress,
    StartOptions, Wakeup, case, check, datagrams, done, entry, parse_address, received, refused,
    same,
};

const TOKEN: u64 = 1;

struct PassedOn {
    socket: DatagramSocket,
    stranger: IpSocketAddress,
    passed: bool,
}

impl PassedOn {
    fn pass(&mut self, remote: IpSocketAddress) {
        let batch = |bytes| DatagramBatch {
            payload: b"onetwo"[..bytes].to_vec(),
            datagrams: vec![entry(self.stranger, 3, None), entry(remote, 3, None)],
        };
        let invalid = Err(ErrorCode::InvalidArgument);
        let (of_one, short) = (batch(6), batch(5));
        same(
            "a pass to no socket",
            &self.socket.pass(1, &of_one),
            &invalid,
        );
        same("wrong lengths", &self.socket.pass(0, &short), &invalid);
        same("a pass", &self.socket.pass(0, &of_one), &Ok(()));
        self.passed = true;
    }
}

impl Case for PassedOn {
    fn start(options: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let stranger = parse_address(&options.config)?;
        let socket = DatagramSocket::open("listen", TOKEN).map_err(refused)?;
        let alone = Place {
            number: 0,
            count: 1,
        };
        same("the place", &socket.place(), &alone);
        let passed = socket.passed(ALL, ALL);
        same("datagrams passed at the start", &passed.datagrams.len(), &0);
        Ok(PassedOn {
            socket,
            stranger,
            passed: false,
        })
    }

    fn process(&mut self, _: u64, ready: &[u64]) -> Wakeup {
        let arrived = received(&self.socket);
        if let (true, Some((remote, _))) = (!self.passed, arrived.first()) {
            self.pass(*remote);
            return Wakeup::OnReady;
        }
        let passed = datagrams(&self.socket.passed(ALL, ALL));
        if let Some((remote, datagram)) = passed.first() {
            same("the token", &ready, &&[TOKEN][..]);
            let alone = passed.len() == 1 && arrived.is_empty();
            check(alone, "what was passed is one datagram");
            let batch = DatagramBatch {
                payload: datagram.clone(),
                datagrams: vec![entry(*remote, datagram.len(), None)],
            };
            let _ = self.socket.send(&batch);
            done();
        }
        Wakeup::OnReady
    }
}

case!(PassedOn);
