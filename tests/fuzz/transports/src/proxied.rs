//! Datagrams for the PROXY protocol, from proxies and from strangers.

#[allow(dead_code)] // the transport's own tests use all of it
#[path = "../../../../watm/proxy-protocol/tests/support/datagrams.rs"]
mod host;

use std::time::Duration;

use host::DatagramHost;

/// Flows at once.
const FLOWS: usize = 3;

/// The senders of the datagrams; the last one is not a trusted proxy.
const PROXIES: [&str; 4] = [
    "10.0.0.9:1000",
    "10.0.0.9:2000",
    "[2001:db8::9]:1000",
    "192.0.2.66:1",
];

/// The first byte is the mode. Then each datagram has its length and where it comes from before it.
pub fn run(input: &[u8]) {
    let Some((mode, mut rest)) = input.split_first() else {
        return;
    };
    let mode = ["each", "first", "spp"][usize::from(*mode) % 3];
    let config = format!(
        "from = \"10.0.0.0/8, 2001:db8::/32\"\ndatagrams = \"{mode}\"\ndatagram-flows = \"{FLOWS}\"\n\
         datagram-idle = \"10\"\nunspecified = \"local\"\nlongest = \"4096\""
    );
    let mut host = DatagramHost::new();
    let mut server = host.start(&config);
    let mut arrived: Vec<&[u8]> = Vec::new();
    while let Some((&[length, from], tail)) = rest.split_first_chunk() {
        let (datagram, tail) = tail.split_at(usize::from(length).min(tail.len()));
        rest = tail;
        let from = usize::from(from) % PROXIES.len();
        host.arrive(PROXIES[from], datagram);
        if from < PROXIES.len() - 1 {
            arrived.push(datagram);
        }
        host.run(&mut server);
        let flows = host.flows();
        assert!(flows.len() <= FLOWS, "more flows than there may be");
        for flow in flows {
            for payload in host.read(flow) {
                let known = |datagram: &&[u8]| datagram.ends_with(&payload);
                assert!(arrived.iter().any(known), "nobody has sent this");
            }
            for (name, value) in host.info(flow).attributes {
                assert!(!value.chars().any(char::is_control), "{name}: {value:?}");
            }
            host.write(flow, b"answer");
        }
        host.run(&mut server);
        for (to, _, answer) in host.take_sent() {
            let believed = PROXIES[..PROXIES.len() - 1].iter();
            assert!(
                believed
                    .map(|proxy| proxy.parse())
                    .any(|proxy| proxy == Ok(to))
            );
            assert!(answer.ends_with(b"answer"));
        }
        host.advance(Duration::from_secs(1));
    }
    host.advance(Duration::from_secs(11));
    host.run(&mut server);
    assert!(host.flows().is_empty(), "a flow that is idle does not end");
}
