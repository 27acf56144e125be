//! Headers by the rules of the specification (haproxy's `proxy-protocol.txt`), each also byte by
//! byte.

mod support;

use std::net::SocketAddr;

use support::{CRC, SIGNATURE, UNIX_PATH, v2};
use watm_proxy_protocol::{Addresses, Header, LONGEST, Parsed, Protocol, Refused, Rules, parse};

/// The outcome for `bytes` and something behind them, which must be left alone; it does not depend
/// on how the bytes arrive.
fn outcome(bytes: &[u8], rules: &Rules) -> Result<Option<String>, Refused> {
    let whole = parse(bytes, rules);
    for length in 0..bytes.len() {
        match (parse(&bytes[..length], rules), whole) {
            (Ok(Parsed::Incomplete), _) => {}
            (Ok(early), Ok(late)) => assert_eq!(early, late, "after {length} bytes"),
            (Err(_), Err(_)) => {}
            (early, late) => panic!("{early:?} after {length} bytes, {late:?} at the end"),
        }
    }
    let mut more = bytes.to_vec();
    more.extend(b"\r\nwhat follows");
    match (whole, parse(&more, rules)) {
        (Ok(Parsed::Incomplete), _) => Ok(None),
        (Ok(Parsed::Complete(length, header)), Ok(again)) => {
            assert_eq!(length, bytes.len());
            assert_eq!(again, Parsed::Complete(length, header));
            Ok(Some(text(header)))
        }
        (Err(refused), again) => {
            assert!(again.is_err());
            Err(refused)
        }
        (whole, again) => panic!("{whole:?}, and with more behind it {again:?}"),
    }
}

fn text(header: Header<'_>) -> String {
    match header {
        Header::Local => "local".to_owned(),
        Header::Proxied(proxied) => {
            let datagram = match proxied.protocol {
                Protocol::Stream => "",
                Protocol::Datagram => " datagram",
            };
            match proxied.addresses {
                Addresses::Inet {
                    source,
                    destination,
                } => format!("{source} {destination}{datagram}"),
                Addresses::Unix {
                    source,
                    destination,
                } => format!(
                    "{} {}{datagram}",
                    String::from_utf8_lossy(source),
                    String::from_utf8_lossy(destination)
                ),
            }
        }
    }
}

fn taken(bytes: &[u8], expected: &str) {
    let said = outcome(bytes, &Rules::default());
    assert_eq!(
        said,
        Ok(Some(expected.to_owned())),
        "{}",
        bytes.escape_ascii()
    );
}

fn refused(bytes: &[u8], why: Refused) {
    let said = outcome(bytes, &Rules::default());
    assert_eq!(said, Err(why), "{}", bytes.escape_ascii());
}

#[test]
fn lines_of_version_1() {
    for (line, expected) in [
        (
            "TCP4 192.0.2.1 198.51.100.2 56324 443",
            "192.0.2.1:56324 198.51.100.2:443",
        ),
        (
            "TCP4 0.0.0.0 255.255.255.255 0 65535",
            "0.0.0.0:0 255.255.255.255:65535",
        ),
        (
            "TCP4 255.255.255.255 255.255.255.255 65535 65535",
            "255.255.255.255:65535 255.255.255.255:65535",
        ),
        ("TCP6 2001:db8::1 ::1 1 2", "[2001:db8::1]:1 [::1]:2"),
        ("TCP6 2001:DB8:0:0:0:0:0:1 :: 1 2", "[2001:db8::1]:1 [::]:2"),
        (
            "TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535",
            "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535 [ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
        ),
        ("UNKNOWN", "local"),
        ("UNKNOWN ", "local"),
        ("UNKNOWN whatever it is\t\x7f", "local"),
        (
            "UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535",
            "local",
        ),
    ] {
        taken(format!("PROXY {line}\r\n").as_bytes(), expected);
    }
}

#[test]
fn lines_that_are_no_version_1() {
    for (line, why) in [
        ("TCP4 192.0.2.1 198.51.100.2 56324\r\n", Refused::Fields),
        (
            "TCP4 192.0.2.1 198.51.100.2 56324 443 \r\n",
            Refused::Fields,
        ),
        (
            "TCP4 192.0.2.1 198.51.100.2 56324 443 5\r\n",
            Refused::Fields,
        ),
        (
            "TCP4  192.0.2.1 198.51.100.2 56324 443\r\n",
            Refused::Fields,
        ),
        (
            "TCP4 192.0.2.1  198.51.100.2 56324 443\r\n",
            Refused::Fields,
        ),
        (
            " TCP4 192.0.2.1 198.51.100.2 56324 443\r\n",
            Refused::Fields,
        ),
        (
            "TCP4\t192.0.2.1 198.51.100.2 56324 443\r\n",
            Refused::Fields,
        ),
        ("tcp4 192.0.2.1 198.51.100.2 56324 443\r\n", Refused::Fields),
        ("TCP5 192.0.2.1 198.51.100.2 56324 443\r\n", Refused::Fields),
        ("UDP4 192.0.2.1 198.51.100.2 56324 443\r\n", Refused::Fields),
        ("UNKNOWNS\r\n", Refused::Fields),
        ("unknown\r\n", Refused::Fields),
        ("\r\n", Refused::Fields),
        ("TCP4\r\n", Refused::Fields),
        ("TCP4 2001:db8::1 ::1 1 2\r\n", Refused::Address),
        ("TCP6 192.0.2.1 198.51.100.2 1 2\r\n", Refused::Address),
        ("TCP4 192.0.2.256 198.51.100.2 1 2\r\n", Refused::Address),
        ("TCP4 192.0.2.01 198.51.100.2 1 2\r\n", Refused::Address),
        ("TCP4 192.0.2 198.51.100.2 1 2\r\n", Refused::Address),
        ("TCP4 192.0.2.1. 198.51.100.2 1 2\r\n", Refused::Address),
        ("TCP4 0xc0.0.2.1 198.51.100.2 1 2\r\n", Refused::Address),
        ("TCP4 3221225985 198.51.100.2 1 2\r\n", Refused::Address),
        ("TCP4 192.0.2.1 localhost 1 2\r\n", Refused::Address),
        ("TCP6 fe80::1%eth0 ::1 1 2\r\n", Refused::Address),
        ("TCP6 [::1] ::1 1 2\r\n", Refused::Address),
        ("TCP6 1::2::3 ::1 1 2\r\n", Refused::Address),
        ("TCP6 ::12345 ::1 1 2\r\n", Refused::Address),
        ("TCP4 192.0.2.1 198.51.100.2 65536 2\r\n", Refused::Port),
        ("TCP4 192.0.2.1 198.51.100.2 01 2\r\n", Refused::Port),
        ("TCP4 192.0.2.1 198.51.100.2 00 2\r\n", Refused::Port),
        ("TCP4 192.0.2.1 198.51.100.2 +1 2\r\n", Refused::Port),
        ("TCP4 192.0.2.1 198.51.100.2 -1 2\r\n", Refused::Port),
        ("TCP4 192.0.2.1 198.51.100.2 1 \r\n", Refused::Port),
        ("TCP4 192.0.2.1 198.51.100.2 1 2a\r\n", Refused::Port),
        (
            "TCP4 192.0.2.1 198.51.100.2 1 4294967297\r\n",
            Refused::Port,
        ),
        ("TCP4 192.0.2.1 198.51.100.2 1 2\n", Refused::LineEnd),
        ("TCP4 192.0.2.1 198.51.100.2 1 2\r\r\n", Refused::LineEnd),
        ("TCP4 192.0.2.1 198.51.100.2 1 2\rX", Refused::LineEnd),
        ("TCP4 192.0.2.1\n198.51.100.2 1 2\r\n", Refused::LineEnd),
    ] {
        refused(format!("PROXY {line}").as_bytes(), why);
    }
    refused(b"PROXY TCP4 \xff\xfe 198.51.100.2 1 2\r\n", Refused::Fields);
}

#[test]
fn a_line_has_at_most_107_bytes() {
    let longest = format!("PROXY UNKNOWN {}\r\n", "x".repeat(91));
    assert_eq!(longest.len(), 107);
    taken(longest.as_bytes(), "local");
    refused(
        format!("PROXY UNKNOWN {}\r\n", "x".repeat(92)).as_bytes(),
        Refused::TooLong,
    );
    refused(
        format!("PROXY UNKNOWN {}", "x".repeat(93)).as_bytes(),
        Refused::TooLong,
    );
    let mixed = "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255";
    let line = format!("PROXY TCP6 {mixed} ffff:ffff:ffff:ffff:ffff:ffff:255.255.25.5 1 2\r\n");
    assert_eq!(line.len(), 105);
    refused(line.as_bytes(), Refused::TooLong);
}

#[test]
fn what_is_not_yet_a_header_is_incomplete() {
    for bytes in [
        &b""[..],
        b"P",
        b"PROXY",
        b"PROXY ",
        b"PROXY TCP4 192.0.2.1 198.51.100.2 1 2\r",
        b"\r",
        b"\r\n\r\n\0\r\nQUI",
        SIGNATURE,
        &[SIGNATURE, &[0x21, 0x11, 0, 12]].concat(),
        &[SIGNATURE, &[0x20]].concat(),
    ] {
        assert_eq!(
            outcome(bytes, &Rules::default()),
            Ok(None),
            "{}",
            bytes.escape_ascii()
        );
    }
}

#[test]
fn what_begins_otherwise_is_refused_at_once() {
    for bytes in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"proxy TCP4",
        b"PROXY\t",
        b" PROXY ",
        b"\r\n\r\n\0\r\nQUIT\r",
        b"\r\n\r\n\r\n",
        b"\n",
        b"\x16\x03\x01",
        b"PRI * HTTP/2.0",
    ] {
        refused(bytes, Refused::NotProxy);
    }
}

#[test]
fn headers_of_version_2() {
    let v4 = [192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 0x04, 0x01, 0xbb];
    taken(&v2(0x21, 0x11, &v4), "192.0.2.1:56324 198.51.100.2:443");
    taken(
        &v2(0x21, 0x12, &v4),
        "192.0.2.1:56324 198.51.100.2:443 datagram",
    );
    let mut v6 = [0; 36];
    v6[..2].copy_from_slice(&[0x20, 0x01]);
    v6[15] = 1;
    v6[31] = 2;
    v6[33] = 7;
    v6[35] = 8;
    taken(&v2(0x21, 0x21, &v6), "[2001::1]:7 [::2]:8");
    let mut unix = [0; 2 * UNIX_PATH];
    unix[..5].copy_from_slice(b"/here");
    unix[UNIX_PATH..][..6].copy_from_slice(b"/there");
    taken(&v2(0x21, 0x31, &unix), "/here /there");
    taken(
        &v2(0x21, 0x31, &[b'x'; 2 * UNIX_PATH]),
        &format!("{0} {0}", "x".repeat(UNIX_PATH)),
    );
    // The rest of LOCAL has no meaning.
    for family in [0x00, 0x11, 0x21, 0x31, 0xff] {
        for rest in [&b""[..], &v4, b"\x03"] {
            taken(&v2(0x20, family, rest), "local");
        }
    }
}

#[test]
fn headers_that_are_no_version_2() {
    let v4 = [192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 0x04, 0x01, 0xbb];
    for command in [0x00, 0x11, 0x22, 0x2f, 0x31, 0xff] {
        refused(&v2(command, 0x11, &v4), Refused::Command);
    }
    for family in [0x13, 0x1f, 0x41, 0xf1] {
        refused(&v2(0x21, family, &v4), Refused::Family);
    }
    for (family, needed) in [(0x11, 12), (0x12, 12), (0x21, 36), (0x31, 216)] {
        for length in [0, 1, needed - 1] {
            refused(&v2(0x21, family, &vec![0; length]), Refused::TooShort);
        }
    }
    // Without a protocol no addresses are required.
    let unspecified = [0x00, 0x01, 0x02, 0x10, 0x20, 0x30];
    for family in unspecified {
        refused(&v2(0x21, family, b""), Refused::Unspecified);
    }
    refused(&v2(0x21, 0x10, &v4), Refused::Unspecified);
    let local = Rules {
        unspecified_is_local: true,
        ..Rules::default()
    };
    for family in unspecified {
        assert_eq!(
            outcome(&v2(0x21, family, b""), &local),
            Ok(Some("local".to_owned()))
        );
    }
}

#[test]
fn facts_fill_the_header_and_have_their_sizes() {
    let v4 = [192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 0x04, 0x01, 0xbb];
    let with = |facts: &[u8]| v2(0x21, 0x11, &[&v4[..], facts].concat());
    let expected = "192.0.2.1:56324 198.51.100.2:443";
    let filled = |kind: u8, length: usize| {
        [
            &[kind, (length >> 8) as u8, length as u8][..],
            &vec![b'a'; length],
        ]
        .concat()
    };
    for facts in [
        filled(0x01, 2),
        filled(0x02, 255),
        filled(0x04, 0),
        filled(0x04, 400),
        filled(0x05, 128),
        filled(0x30, 3),
        filled(0xe0, 10),
        [
            filled(0xe0, 1),
            filled(0xe0, 1),
            filled(0x04, 2),
            filled(0x04, 2),
        ]
        .concat(),
        [&[0x20, 0, 5, 1, 0, 0, 0, 0][..]].concat(),
        [&[0x20, 0, 12, 7, 0, 0, 0, 0, 0x21, 0, 4][..], b"v1.3"].concat(),
    ] {
        taken(&with(&facts), expected);
    }
    for (facts, why) in [
        (vec![0x04], Refused::TlvLength),
        (vec![0x04, 0], Refused::TlvLength),
        (vec![0x04, 0, 1], Refused::TlvLength),
        ([filled(0x04, 3), vec![0]].concat(), Refused::TlvLength),
        (filled(0x02, 256), Refused::TlvSize),
        (filled(0x05, 129), Refused::TlvSize),
        (filled(0x03, 3), Refused::TlvSize),
        (filled(0x03, 5), Refused::TlvSize),
        (filled(0x20, 4), Refused::TlvSize),
        (
            [filled(0x05, 1), filled(0x05, 1)].concat(),
            Refused::TlvTwice,
        ),
        (vec![0x20, 0, 7, 1, 0, 0, 0, 0, 0x21, 0], Refused::TlvLength),
        (
            vec![0x20, 0, 8, 1, 0, 0, 0, 0, 0x21, 0, 1],
            Refused::TlvLength,
        ),
    ] {
        refused(&with(&facts), why);
    }
}

#[test]
fn the_checksum_is_of_the_whole_header() {
    let v4 = [192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 0x04, 0x01, 0xbb];
    let facts = [
        &[0x01, 0, 2][..],
        b"h2",
        &[0x03, 0, 4, 0, 0, 0, 0, 0x04, 0, 1, 9],
    ]
    .concat();
    let mut header = v2(0x21, 0x11, &[&v4[..], &facts].concat());
    let at = 16 + 12 + 5 + 3;
    let checksum = CRC.checksum(&header);
    header[at..at + 4].copy_from_slice(&checksum.to_be_bytes());
    taken(&header, "192.0.2.1:56324 198.51.100.2:443");
    // Without its type byte there is no checksum.
    let kind = at - 3;
    for place in (16..header.len()).filter(|place| *place != kind) {
        let mut other = header.clone();
        other[place] ^= 1;
        assert!(outcome(&other, &Rules::default()).is_err(), "byte {place}");
    }
    let twice = [&[0x03, 0, 4, 0, 0, 0, 0][..], &[0x03, 0, 4, 0, 0, 0, 0]].concat();
    refused(
        &v2(0x21, 0x11, &[&v4[..], &twice].concat()),
        Refused::TlvTwice,
    );
}

#[test]
fn the_longest_header_is_a_rule() {
    let filled = |length: usize| {
        let mut rest = vec![192, 0, 2, 1, 198, 51, 100, 2, 0, 1, 0, 2, 0x04, 0, 0];
        let value = length - 16 - rest.len();
        rest[13..15].copy_from_slice(&(value as u16).to_be_bytes());
        rest.resize(length - 16, 0);
        v2(0x21, 0x11, &rest)
    };
    let expected = "192.0.2.1:1 198.51.100.2:2";
    taken(&filled(LONGEST), expected);
    refused(&filled(LONGEST + 1), Refused::TooLong);
    let large = Rules {
        longest: 4096,
        ..Rules::default()
    };
    assert_eq!(
        outcome(&filled(4096), &large),
        Ok(Some(expected.to_owned()))
    );
    assert_eq!(outcome(&filled(4097), &large), Err(Refused::TooLong));
    // The length reveals it before all bytes have arrived.
    let huge = [SIGNATURE, &[0x21, 0x11, 0xff, 0xff]].concat();
    assert_eq!(parse(&huge, &large), Err(Refused::TooLong));
}

#[test]
fn versions_can_be_left_out() {
    let one = b"PROXY UNKNOWN\r\n";
    let two = v2(0x20, 0, b"");
    let only = |v1, v2| Rules {
        v1,
        v2,
        ..Rules::default()
    };
    assert_eq!(outcome(one, &only(false, true)), Err(Refused::NotProxy));
    assert_eq!(outcome(&two, &only(true, false)), Err(Refused::NotProxy));
    assert!(outcome(one, &only(true, false)).is_ok());
    assert!(outcome(&two, &only(false, true)).is_ok());
}

#[test]
fn what_is_written_is_read_again() {
    let v4: [SocketAddr; 2] = ["192.0.2.1:1", "198.51.100.2:65535"].map(|a| a.parse().unwrap());
    let v6: [SocketAddr; 2] = ["[2001:db8::1]:1", "[::1]:443"].map(|a| a.parse().unwrap());
    for (ends, expected) in [
        (Some((v4[0], v4[1])), "192.0.2.1:1 198.51.100.2:65535"),
        (Some((v6[0], v6[1])), "[2001:db8::1]:1 [::1]:443"),
        (Some((v4[0], v6[1])), "[::ffff:192.0.2.1]:1 [::1]:443"),
        (
            Some((v6[0], v4[1])),
            "[2001:db8::1]:1 [::ffff:198.51.100.2]:65535",
        ),
        (None, "local"),
    ] {
        taken(&watm_proxy_protocol::write_v1(ends), expected);
        taken(
            &watm_proxy_protocol::write_v2(Protocol::Stream, ends, &[]).unwrap(),
            expected,
        );
    }
    let fact = watm_proxy_protocol::Tlv {
        kind: 0x02,
        value: b"example.com",
    };
    let header =
        watm_proxy_protocol::write_v2(Protocol::Stream, Some((v4[0], v4[1])), &[fact]).unwrap();
    let Ok(Parsed::Complete(_, Header::Proxied(proxied))) = parse(&header, &Rules::default())
    else {
        panic!("refused");
    };
    assert_eq!(proxied.tlvs.value(0x02), Some(&b"example.com"[..]));
    let long = watm_proxy_protocol::Tlv {
        kind: 0x04,
        value: &[0; 65_536],
    };
    assert_eq!(
        watm_proxy_protocol::write_v2(Protocol::Stream, None, &[long]),
        None
    );
}
