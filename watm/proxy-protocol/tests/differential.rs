//! Comparison with `ppp`, the parser closest to the specification, where it agrees with it.

mod support;

use std::net::SocketAddr;

use ppp::{PartialResult, v1, v2};
use support::{Random, choose};
use watm_proxy_protocol::{Addresses, Header, Parsed, Protocol, Rules, parse};

/// The result of both parsers, in common terms.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Incomplete,
    Refused,
    Local,
    Inet(SocketAddr, SocketAddr, bool),
    Unix,
}

fn ours(bytes: &[u8]) -> Said {
    let rules = Rules {
        unspecified_is_local: true,
        ..Rules::default()
    };
    match parse(bytes, &rules) {
        Ok(Parsed::Incomplete) => Said::Incomplete,
        Err(_) => Said::Refused,
        Ok(Parsed::Complete(_, Header::Local)) => Said::Local,
        Ok(Parsed::Complete(_, Header::Proxied(proxied))) => match proxied.addresses {
            Addresses::Inet {
                source,
                destination,
            } => Said::Inet(source, destination, proxied.protocol == Protocol::Datagram),
            Addresses::Unix { .. } => Said::Unix,
        },
    }
}

fn theirs_v1(bytes: &[u8]) -> Said {
    let parsed = v1::Header::try_from(bytes);
    match parsed {
        Ok(header) => match header.addresses {
            v1::Addresses::Unknown => Said::Local,
            v1::Addresses::Tcp4(a) => Said::Inet(
                (a.source_address, a.source_port).into(),
                (a.destination_address, a.destination_port).into(),
                false,
            ),
            v1::Addresses::Tcp6(a) => Said::Inet(
                (a.source_address, a.source_port).into(),
                (a.destination_address, a.destination_port).into(),
                false,
            ),
        },
        Err(_) if parsed.is_incomplete() => Said::Incomplete,
        Err(_) => Said::Refused,
    }
}

fn theirs_v2(bytes: &[u8]) -> Said {
    let parsed = v2::Header::try_from(bytes);
    match &parsed {
        Ok(header) => {
            let datagram = header.protocol == v2::Protocol::Datagram;
            match header.addresses {
                _ if header.command == v2::Command::Local => Said::Local,
                _ if header.tlvs().any(|tlv| tlv.is_err()) => Said::Refused,
                _ if header.protocol == v2::Protocol::Unspecified => Said::Local,
                v2::Addresses::Unspecified => Said::Local,
                v2::Addresses::IPv4(a) => Said::Inet(
                    (a.source_address, a.source_port).into(),
                    (a.destination_address, a.destination_port).into(),
                    datagram,
                ),
                v2::Addresses::IPv6(a) => Said::Inet(
                    (a.source_address, a.source_port).into(),
                    (a.destination_address, a.destination_port).into(),
                    datagram,
                ),
                v2::Addresses::Unix(_) => Said::Unix,
            }
        }
        Err(_) if parsed.is_incomplete() => Said::Incomplete,
        Err(_) => Said::Refused,
    }
}

/// Returns true if one waits for more of a header that the other already refuses.
fn undecided(ours: &Said, theirs: &Said) -> bool {
    let both = [ours, theirs];
    both.contains(&&Said::Incomplete) && both.contains(&&Said::Refused)
}

#[test]
fn lines_mean_the_same() {
    let mut random = Random(1);
    // The rest of UNKNOWN must be ignored, and `ppp` does not.
    let families = ["TCP4", "TCP4", "TCP6", "TCP", "tcp4", ""];
    let addresses = [
        "192.0.2.1",
        "255.255.255.255",
        "1.2.3",
        "256.1.1.1",
        "01.2.3.4",
        "::1",
        "2001:db8::1",
        "1::2::3",
        ":",
        "::ffff:1.2.3.4",
        "",
    ];
    let ports = ["0", "1", "65535", "65536", "01", "", "x"];
    let ends = ["\r\n", "\r\n", "\n", "\r", ""];
    let spaces = [" ", " ", " ", " ", "  ", "\t"];
    for _ in 0..50_000 {
        let mut line = "PROXY".to_owned();
        let fields = [
            choose(&mut random, &families),
            choose(&mut random, &addresses),
            choose(&mut random, &addresses),
            choose(&mut random, &ports),
            choose(&mut random, &ports),
        ];
        for field in &fields[..choose(&mut random, &[5, 5, 5, 5, 4, 3, 1])] {
            line += choose(&mut random, &spaces);
            line += field;
        }
        line += choose(&mut random, &ends);
        let (ours, theirs) = (ours(line.as_bytes()), theirs_v1(line.as_bytes()));
        if undecided(&ours, &theirs) {
            continue;
        }
        assert_eq!(ours, theirs, "{line:?}");
    }
}

#[test]
fn headers_mean_the_same() {
    let mut random = Random(2);
    let mut seen = [0; 3];
    for _ in 0..50_000 {
        let family = choose(
            &mut random,
            &[0x11, 0x11, 0x21, 0x12, 0x31, 0x01, 0x13, 0x41],
        );
        let needed = match family >> 4 {
            1 => 12,
            2 => 36,
            3 => 216,
            _ => 0,
        };
        let mut rest: Vec<u8> = (0..needed).map(|_| random.next() as u8).collect();
        for _ in 0..random.below(3) {
            // Types whose sizes and number only this parser checks are left out.
            let length = random.below(20);
            rest.extend([
                choose(&mut random, &[0x01, 0x04, 0x30, 0xe1]),
                0,
                length as u8,
            ]);
            rest.extend((0..length).map(|_| random.next() as u8));
        }
        if random.below(4) == 0 {
            rest.truncate(random.below(rest.len() + 1));
        }
        let command = choose(&mut random, &[0x21, 0x21, 0x21, 0x22, 0x11]);
        let mut header = support::v2(command, family, &rest);
        if random.below(4) == 0 {
            header.truncate(random.below(header.len() + 1));
        }
        let (ours, theirs) = (ours(&header), theirs_v2(&header));
        let place = match ours {
            Said::Incomplete => 0,
            Said::Refused => 1,
            _ => 2,
        };
        seen[place] += 1;
        if undecided(&ours, &theirs) {
            continue;
        }
        assert_eq!(ours, theirs, "{}", header.escape_ascii());
    }
    assert!(seen.iter().all(|count| *count > 5000), "{seen:?}");
}

#[test]
fn nothing_makes_it_panic() {
    let mut random = Random(3);
    for _ in 0..200_000 {
        let length = random.below(200);
        let mut bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        let start: &[u8] = choose(
            &mut random,
            &[b"PROXY ", b"PROXY TCP4 ", support::SIGNATURE],
        );
        let known = start.len().min(bytes.len());
        bytes[..known].copy_from_slice(&start[..known]);
        if bytes.len() > 16 && random.below(2) == 0 {
            bytes[12] = 0x21;
            bytes[14] = 0;
        }
        let _ = ours(&bytes);
    }
}
