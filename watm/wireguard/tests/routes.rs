//! The choice of the peer for a connection, and the sources that a peer may use.

mod support;

use std::net::{IpAddr, SocketAddr};

use support::inner::packets;
use support::{Client, Outer, Pair, Sim, peer_config, public_text, server_config};
use watm_core::{ErrorCode, Level};

/// The output of `tests/data/exclude.py`: allowed networks, excluded ones, and the rest.
const EXCLUDED: &str = include_str!("data/exclude.txt");

/// A client with these `[Peer]` sections, none of which has an Endpoint.
fn client(peers: &str) -> Pair {
    let interface = "Address = 10.0.0.1/32, fd00::1/128\n";
    Pair::new(
        &server_config(&(interface.to_owned() + peers)),
        "[Interface]\nPrivateKey = AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n",
        Outer::Datagrams,
    )
}

/// The key of the peer that a connection to this address would use.
fn peer_for(pair: &mut Pair, address: IpAddr) -> Option<String> {
    let to = SocketAddr::new(address, 80).to_string();
    let error = pair.dial(Some(&to)).err().expect("nobody has an Endpoint");
    if error == ErrorCode::AccessDenied {
        let (level, why) = pair.client.host.logs.pop().expect("it is told");
        assert_eq!(level, Level::Warn);
        let none = format!("{to} is refused: {address} is not in the AllowedIPs of any [Peer]");
        assert!(why.starts_with(&none), "{why}");
        return None;
    }
    let error = error.to_string();
    let rest = error.strip_prefix("[Peer] ").expect(&error);
    Some(rest.split(' ').next().expect("a key").to_owned())
}

/// The first and the last address, as numbers.
fn range(network: &str) -> (u128, u128) {
    let (address, prefix) = network.split_once('/').expect("a prefix");
    let prefix: u32 = prefix.parse().unwrap();
    let (number, bits) = match address.parse().unwrap() {
        IpAddr::V4(address) => (u128::from(u32::from(address)), 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    };
    let size = 1u128
        .checked_shl(bits - prefix)
        .map_or(u128::MAX, |size| size - 1);
    (number & !size, number | size)
}

fn address(number: u128, is_ipv4: bool) -> Option<IpAddr> {
    match is_ipv4 {
        true => u32::try_from(number)
            .ok()
            .map(|number| IpAddr::V4(number.into())),
        false => Some(IpAddr::V6(number.into())),
    }
}

#[test]
fn what_is_disallowed_is_taken_away_as_python_does_it() {
    let mut looked_at = 0;
    for line in EXCLUDED.lines() {
        let parts: Vec<_> = line.split('|').collect();
        let [allowed, taken, rest] = parts[..] else {
            panic!("three parts: {line}");
        };
        let is_ipv4 = !allowed.contains(':');
        let mut pair = client(&peer_config(
            1,
            &format!("AllowedIPs = {allowed}\nDisallowedIPs = {taken}"),
        ));
        let rest: Vec<_> = rest.split_terminator(',').map(range).collect();
        // The result changes only at these addresses.
        let networks = [allowed, taken].join(",");
        let edges = networks
            .split(',')
            .filter(|network| !network.is_empty())
            .map(range)
            .chain(rest.iter().copied())
            .flat_map(|(first, last)| [first.wrapping_sub(1), first, last, last.wrapping_add(1)])
            .filter_map(|number| Some((number, address(number, is_ipv4)?)));
        for (number, address) in edges.collect::<Vec<_>>() {
            let expected = rest
                .iter()
                .any(|(first, last)| (first..=last).contains(&&number));
            let found = peer_for(&mut pair, address).is_some();
            assert_eq!(found, expected, "{address} of {line}");
            looked_at += 1;
        }
    }
    assert!(looked_at > 1000);
}

#[test]
fn the_longest_prefix_of_several_peers_is_taken() {
    let peers = [
        peer_config(
            1,
            "AllowedIPs = 0.0.0.0/0\nDisallowedIPs = 10.7.0.0/16, 192.168.0.0/16",
        ),
        peer_config(2, "AllowedIPs = 8.0.0.0/6, fd00::/8"),
        peer_config(3, "AllowedIPs = 10.7.1.0/24, fd00:1::/32"),
        peer_config(
            4,
            "AllowedIPs = 10.7.0.0/16, 10.7.1.7\nDisallowedIPs = 10.7.2.0/24",
        ),
    ];
    let mut pair = client(&peers.concat());
    for (address, number) in [
        ("1.1.1.1", Some(1)),
        // A complement of the first peer's exclusion would have 8.0.0.0/7.
        ("8.8.8.8", Some(2)),
        ("10.7.1.1", Some(3)),
        ("10.7.1.7", Some(4)),
        ("10.7.9.9", Some(4)),
        // The first and the last exclude it, the second does not.
        ("10.7.2.1", Some(2)),
        ("192.168.3.4", None),
        ("fd00:1::9", Some(3)),
        ("fd00:2::9", Some(2)),
        ("2001:db8::1", None),
    ] {
        let found = peer_for(&mut pair, address.parse().unwrap());
        assert_eq!(found, number.map(public_text), "{address}");
    }
}

#[test]
fn a_packet_from_an_excluded_source_is_dropped() {
    let mut sim = Sim::new(&server_config(&peer_config(
        1,
        "AllowedIPs = 10.0.0.0/8\nDisallowedIPs = 10.66.0.0/16",
    )));
    sim.add_client(Client::new(1));
    for (source, comes) in [("10.1.0.1:5", true), ("10.66.0.1:5", false)] {
        let before = sim.host.app.flows().len();
        let to = "192.168.0.1:9".parse().unwrap();
        sim.send(0, &packets::udp(source.parse().unwrap(), to, b"x"));
        sim.settle();
        assert_eq!(sim.host.app.flows().len() > before, comes, "{source}");
    }
    assert_eq!(sim.counter("wireguard.dropped.source_not_allowed"), 1);
}
