//! Datagrams: their clients, the way of the answers, and the life of flows.
//!
//! B1, B4, B9 and so on are bugs of other programs for this protocol.

mod support;

use std::time::Duration;

use support::datagrams::{DatagramHost, LOCAL};
use support::{datagram_header, v2};
use watm_core::{Destination, Transport, Wakeup};
use watm_proxy_protocol::{ProxyServer, parse_spp, write_spp};

const ANY: &str = "from = \"any\"";
const PROXY: &str = "10.0.0.9:1000";
const A: &str = "192.0.2.1:5000";
const B: &str = "192.0.2.2:6000";
const SITE: &str = "198.51.100.7:443";

fn started(config: &str) -> (DatagramHost, ProxyServer) {
    let mut host = DatagramHost::new();
    let server = host.start(config);
    (host, server)
}

fn said(client: &str, payload: &[u8]) -> Vec<u8> {
    [&datagram_header(client, SITE), payload].concat()
}

fn counter(server: &ProxyServer, host: &DatagramHost, name: &str) -> u64 {
    let status = server.status(watm_core::Host::now(host));
    let found = status.counters.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no counter {name}")).1
}

fn to(address: &str) -> Destination {
    Destination::Address(address.parse().unwrap())
}

#[test]
fn a_clients_datagrams_are_its_flow_and_answers_go_to_the_proxy() {
    for (client, site) in [(A, SITE), ("[2001:db8::7]:9", "[2001:db8::1]:443")] {
        let (mut host, mut server) = started(ANY);
        for payload in [&b"one"[..], b"", b"three"] {
            host.arrive(PROXY, &[&datagram_header(client, site), payload].concat());
        }
        host.run(&mut server);
        let [flow] = host.flows()[..] else {
            panic!("one flow")
        };
        let info = host.info(flow);
        assert_eq!(info.source, client.parse().unwrap());
        assert_eq!(info.destination, to(site));
        assert_eq!(
            info.underlay,
            Some((PROXY.parse().unwrap(), LOCAL.parse().unwrap()))
        );
        assert_eq!(host.read(flow), [&b"one"[..], b"", b"three"]);
        host.write(flow, b"answer");
        host.write(flow, b"");
        host.run(&mut server);
        let local = Some("10.0.0.1".parse().unwrap());
        let proxy = PROXY.parse().unwrap();
        assert_eq!(
            host.take_sent(),
            [(proxy, local, b"answer".to_vec()), (proxy, local, vec![])]
        );
        let status = server.status(watm_core::Host::now(&host));
        assert_eq!(status.flows, 1);
        assert_eq!(
            (status.peers[0].received_bytes, status.peers[0].sent_bytes),
            (8, 6)
        );
        assert_eq!(status.peers[0].name, info.source.ip().to_string());
    }
}

#[test]
fn b4_clients_behind_one_socket_of_a_proxy_are_told_apart() {
    let (mut host, mut server) = started(ANY);
    for (client, payload) in [(A, b"a1"), (B, b"b1"), (A, b"a2"), (B, b"b2")] {
        host.arrive(PROXY, &said(client, payload));
    }
    host.run(&mut server);
    let flows = host.flows();
    assert_eq!(flows.len(), 2);
    assert_eq!(host.info(flows[0]).source, A.parse().unwrap());
    assert_eq!(host.info(flows[1]).source, B.parse().unwrap());
    assert_eq!(host.read(flows[0]), [b"a1", b"a2"]);
    assert_eq!(host.read(flows[1]), [b"b1", b"b2"]);
}

#[test]
fn answers_go_to_the_address_of_the_proxy_that_was_heard_last() {
    let (mut host, mut server) = started(ANY);
    host.arrive(PROXY, &said(A, b"1"));
    host.arrive("10.0.0.9:2000", &said(A, b"2"));
    host.run(&mut server);
    let flows = host.flows();
    assert_eq!(flows.len(), 1, "the client is the same");
    host.write(flows[0], b"answer");
    host.run(&mut server);
    assert_eq!(host.take_sent()[0].0, "10.0.0.9:2000".parse().unwrap());
    // A client behind another proxy is another flow.
    host.arrive("10.0.0.8:1000", &said(A, b"3"));
    host.run(&mut server);
    assert_eq!(host.flows().len(), 2);
    // Another destination is another flow too.
    let other = [&datagram_header(A, "198.51.100.7:53")[..], b"4"].concat();
    host.arrive(PROXY, &other);
    host.run(&mut server);
    assert_eq!(host.flows().len(), 3);
}

#[test]
fn b1_b9_b10_what_is_no_header_of_a_datagram_is_refused_and_counted() {
    const V4: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 0x04, 0x01, 0xbb];
    let cases: &[(&[u8], &str)] = &[
        // This line has ended a process that could not parse it.
        (b"PROXY TCP4 192.0.2.1 198.51.100.2 5000 443\r", "not_proxy"),
        (
            b"PROXY TCP4 192.0.2.1 198.51.100.2 5000 443\r\nx",
            "not_proxy",
        ),
        (b"PROXY UNKNOWN\r\nx", "not_proxy"),
        (b"", "too_short"),
        (b"hello", "not_proxy"),
        // TCP4 in a datagram.
        (&v2(0x21, 0x11, &V4), "protocol"),
        (&v2(0x21, 0x32, &[0; 216]), "protocol"),
        (&v2(0x21, 0x12, &V4[..4]), "too_short"),
        // The header must be in this datagram, and not in the next.
        (&v2(0x21, 0x12, &V4)[..20], "too_short"),
        (&v2(0x22, 0x12, &V4), "command"),
        (&v2(0x21, 0x42, &V4), "family"),
        (&v2(0x21, 0x00, b""), "unspecified"),
        (
            &v2(0x21, 0x12, &[&V4[..], &[1, 0, 9]].concat()),
            "tlv_length",
        ),
        (
            &v2(0x21, 0x12, &[&V4[..], &[3, 0, 4, 1, 2, 3, 4]].concat()),
            "checksum",
        ),
    ];
    let (mut host, mut server) = started(ANY);
    for (datagram, reason) in cases {
        let name = format!("proxy.refused.{reason}");
        let before = counter(&server, &host, &name);
        host.arrive(PROXY, datagram);
        host.run(&mut server);
        assert_eq!(counter(&server, &host, &name), before + 1, "{datagram:?}");
    }
    assert!(host.flows().is_empty());
    host.arrive(PROXY, &said(A, b"works"));
    host.run(&mut server);
    assert_eq!(host.read(host.flows()[0]), [b"works"]);
}

#[test]
fn b8_local_is_the_senders_own_and_may_be_refused() {
    let with_address = v2(0x20, 0x12, &[192, 0, 2, 1, 198, 51, 100, 2, 0, 1, 0, 2]);
    for header in [v2(0x20, 0, b""), with_address] {
        let (mut host, mut server) = started(ANY);
        host.arrive(PROXY, &[&header[..], b"check"].concat());
        host.run(&mut server);
        let flow = host.flows()[0];
        assert_eq!(host.info(flow).source, PROXY.parse().unwrap());
        assert_eq!(host.info(flow).destination, to(LOCAL));
        assert_eq!(host.read(flow), [b"check"]);
        let (mut host, mut server) = started("from = \"any\"\nlocal = \"refuse\"");
        host.arrive(PROXY, &header);
        host.run(&mut server);
        assert!(host.flows().is_empty());
        assert_eq!(counter(&server, &host, "proxy.refused.local"), 1);
    }
    let (mut host, mut server) = started("from = \"any\"\nunspecified = \"local\"");
    host.arrive(PROXY, &v2(0x21, 0, b""));
    host.run(&mut server);
    assert_eq!(host.info(host.flows()[0]).source, PROXY.parse().unwrap());
}

#[test]
fn only_those_in_from_are_believed_and_another_list_holds_at_once() {
    let (mut host, mut server) = started("from = \"10.0.0.9\"");
    for from in ["10.0.0.8:1", "[2001:db8::1]:1"] {
        host.arrive(from, &said(A, b"x"));
    }
    host.arrive("[::ffff:10.0.0.9]:1", &said(A, b"mapped"));
    host.run(&mut server);
    assert_eq!(host.flows().len(), 1);
    assert_eq!(counter(&server, &host, "proxy.refused.source"), 2);
    server
        .reconfigure(b"from = \"10.0.0.8\"", &mut host)
        .unwrap();
    host.arrive("10.0.0.9:1", &said(A, b"no more"));
    host.arrive("10.0.0.8:1", &said(B, b"now"));
    host.run(&mut server);
    assert_eq!(counter(&server, &host, "proxy.refused.source"), 3);
    assert_eq!(host.read(host.flows()[1]), [b"now"]);
    // Without a list, no sender is trusted.
    let (mut host, mut server) = started("");
    host.arrive(PROXY, &said(A, b"x"));
    host.run(&mut server);
    assert!(host.flows().is_empty());
}

#[test]
fn a_flow_ends_when_nothing_came_or_went_for_its_time() {
    let (mut host, mut server) = started("from = \"any\"\ndatagram-idle = \"10\"");
    host.arrive(PROXY, &said(A, b"x"));
    host.run(&mut server);
    let flow = host.flows()[0];
    // Datagrams in either direction keep it.
    for step in 0..6 {
        host.advance(Duration::from_secs(9));
        match step % 2 {
            0 => host.write(flow, b"answer"),
            _ => host.arrive(PROXY, &said(A, b"x")),
        }
        assert!(matches!(host.run(&mut server), Wakeup::At(_)));
        assert_eq!(host.flows(), [flow]);
    }
    host.advance(Duration::from_secs(9));
    host.run(&mut server);
    assert_eq!(host.flows(), [flow], "10 % too early");
    host.advance(Duration::from_secs(2));
    assert_eq!(host.run(&mut server), Wakeup::OnReady);
    assert!(host.flows().is_empty(), "10 % too late");
    assert_eq!(counter(&server, &host, "proxy.datagrams.idle"), 1);
}

#[test]
fn of_too_many_flows_that_ends_which_was_idle_longest() {
    let (mut host, mut server) = started("from = \"any\"\ndatagram-flows = \"3\"");
    for number in 1..=3 {
        host.arrive(PROXY, &said(&format!("192.0.2.{number}:1"), b"x"));
        host.run(&mut server);
        host.advance(Duration::from_secs(2));
    }
    let flows = host.flows();
    host.arrive(PROXY, &said("192.0.2.1:1", b"again"));
    host.run(&mut server);
    host.arrive(PROXY, &said("192.0.2.4:1", b"x"));
    host.run(&mut server);
    assert_eq!(host.flows()[..2], [flows[0], flows[2]]);
    assert_eq!(counter(&server, &host, "proxy.datagrams.displaced"), 1);
    // A flood is bounded too.
    for number in 0..1000 {
        host.arrive(
            PROXY,
            &said(&format!("203.0.113.{}:{}", number % 250, 1 + number), b"x"),
        );
    }
    host.run(&mut server);
    assert_eq!(host.flows().len(), 3);
}

#[test]
fn a_flow_that_the_application_closes_or_refuses_is_opened_anew() {
    let (mut host, mut server) = started(ANY);
    host.refuse_flows(true);
    host.arrive(PROXY, &said(A, b"lost"));
    host.run(&mut server);
    assert_eq!(counter(&server, &host, "proxy.datagrams.not_taken"), 1);
    host.refuse_flows(false);
    host.arrive(PROXY, &said(A, b"1"));
    host.run(&mut server);
    let first = host.flows()[0];
    host.close(first);
    host.run(&mut server);
    assert!(host.flows().is_empty());
    host.arrive(PROXY, &said(A, b"2"));
    host.run(&mut server);
    let second = host.flows()[0];
    assert_ne!(first, second);
    assert_eq!(host.read(second), [b"2"]);
}

#[test]
fn what_the_application_does_not_read_is_lost_and_counted() {
    let (mut host, mut server) = started(ANY);
    host.arrive(PROXY, &said(A, b"1"));
    host.run(&mut server);
    host.set_most(host.flows()[0], 2);
    for _ in 0..5 {
        host.arrive(PROXY, &said(A, b"2"));
    }
    host.run(&mut server);
    assert_eq!(host.read(host.flows()[0]).len(), 2);
    assert_eq!(counter(&server, &host, "proxy.datagrams.overrun"), 4);
}

#[test]
fn a_network_that_takes_nothing_holds_the_application_back() {
    let (mut host, mut server) = started(ANY);
    host.arrive(PROXY, &said(A, b"1"));
    host.run(&mut server);
    let flow = host.flows()[0];
    host.set_room(Some(3));
    for number in 0..500u32 {
        host.write(flow, &number.to_be_bytes());
    }
    assert!(matches!(host.run(&mut server), Wakeup::At(_)));
    assert_eq!(host.take_sent().len(), 3);
    host.set_room(None);
    host.run(&mut server);
    let numbers = host
        .take_sent()
        .into_iter()
        .map(|(_, _, datagram)| datagram);
    let expected = (3..500u32).map(|number| number.to_be_bytes().to_vec());
    assert!(numbers.eq(expected), "in order, and all of them");
}

#[test]
fn the_first_datagram_of_an_address_speaks_for_all_that_follow() {
    let config = "from = \"any\"\ndatagrams = \"first\"\ndatagram-idle = \"10\"";
    let (mut host, mut server) = started(config);
    host.arrive(PROXY, b"too early");
    host.arrive(PROXY, &said(A, b"1"));
    host.arrive(PROXY, b"2");
    // A datagram that looks like a header is the client's own now.
    let forged = said(B, b"3");
    host.arrive(PROXY, &forged);
    host.run(&mut server);
    let flows = host.flows();
    assert_eq!(flows.len(), 1);
    assert_eq!(host.info(flows[0]).source, A.parse().unwrap());
    assert_eq!(host.read(flows[0]), [&b"1"[..], b"2", &forged]);
    assert_eq!(counter(&server, &host, "proxy.refused.not_proxy"), 1);
    // Another address of the proxy must name its client, which may be the same.
    host.arrive("10.0.0.9:2000", b"no header");
    host.arrive("10.0.0.9:2000", &said(A, b"4"));
    host.arrive("10.0.0.9:2000", b"5");
    host.run(&mut server);
    assert_eq!(host.flows(), flows);
    assert_eq!(host.read(flows[0]), [b"4", b"5"]);
    host.write(flows[0], b"answer");
    host.run(&mut server);
    assert_eq!(host.take_sent()[0].0, "10.0.0.9:2000".parse().unwrap());
    // Its first address still belongs to this client, and gets the next answer.
    host.arrive(PROXY, b"6");
    host.run(&mut server);
    assert_eq!(host.flows(), flows);
    assert_eq!(host.read(flows[0]), [b"6"]);
    host.write(flows[0], b"answer");
    host.run(&mut server);
    assert_eq!(host.take_sent()[0].0, PROXY.parse().unwrap());
    // A header is needed again after the idle time.
    host.advance(Duration::from_secs(11));
    host.arrive("10.0.0.9:2000", b"7");
    host.run(&mut server);
    assert!(host.flows().is_empty());
    assert_eq!(counter(&server, &host, "proxy.refused.not_proxy"), 3);
}

#[test]
fn an_address_that_was_silent_speaks_for_another_client() {
    let config = "from = \"any\"\ndatagrams = \"first\"\ndatagram-idle = \"10\"";
    let (mut host, mut server) = started(config);
    host.arrive(PROXY, &said(A, b"1"));
    host.arrive("10.0.0.9:2000", &said(A, b"2"));
    for _ in 0..3 {
        host.run(&mut server);
        host.advance(Duration::from_secs(5));
        host.arrive("10.0.0.9:2000", b"more");
    }
    // The flow lives by its other address.
    host.arrive(PROXY, &said(B, b"3"));
    host.run(&mut server);
    let flows = host.flows();
    assert_eq!(flows.len(), 2);
    assert_eq!(
        host.read(flows[0]),
        [&b"1"[..], b"2", b"more", b"more", b"more"]
    );
    assert_eq!(host.read(flows[1]), [b"3"]);
}

#[test]
fn an_address_of_a_proxys_is_one_clients_at_a_time_and_a_client_has_a_few() {
    let config = "from = \"any\"\ndatagrams = \"first\"\ndatagram-idle = \"10\"";
    let (mut host, mut server) = started(config);
    let ports: Vec<String> = (1..=9).map(|port| format!("10.0.0.9:{port}")).collect();
    for port in &ports {
        host.arrive(port, &said(A, b"first"));
    }
    // The first of nine is forgotten: it may belong to another client from now on.
    host.arrive(&ports[0], b"nobody's");
    host.arrive(&ports[0], &said(B, b"hello"));
    host.arrive(&ports[0], b"again");
    host.arrive(&ports[1], b"second");
    host.run(&mut server);
    assert_eq!(counter(&server, &host, "proxy.refused.not_proxy"), 1);
    let flows = host.flows();
    assert_eq!(flows.len(), 2);
    assert_eq!(host.read(flows[0]).last().unwrap(), b"second");
    assert_eq!(host.read(flows[1]), [b"hello", b"again"]);
    // The end of one client's flow leaves the other's address alone.
    host.close(flows[0]);
    host.run(&mut server);
    host.arrive(&ports[0], b"still");
    host.arrive(&ports[1], b"gone");
    host.run(&mut server);
    assert_eq!(host.read(flows[1]), [b"still"]);
    assert_eq!(counter(&server, &host, "proxy.refused.not_proxy"), 2);
}

#[test]
fn the_next_generation_knows_whose_datagrams_have_no_header() {
    let config = "from = \"any\"\ndatagrams = \"first\"";
    let (mut host, mut server) = started(config);
    host.arrive(PROXY, &said(A, b"1"));
    host.run(&mut server);
    let snapshot = server.snapshot(watm_core::Host::now(&host));
    let mut after = DatagramHost::new();
    let mut next = after.start_after(config, Some(snapshot));
    next.serving(1, &mut after);
    after.arrive(PROXY, b"2");
    after.arrive("10.0.0.9:3", b"nobody's");
    after.run(&mut next);
    let [flow] = after.flows()[..] else {
        panic!("one flow")
    };
    assert_eq!(after.info(flow).source, A.parse().unwrap());
    assert_eq!(after.info(flow).destination, to(SITE));
    assert_eq!(after.read(flow), [b"2"]);
    after.arrive(PROXY, b"3");
    after.run(&mut next);
    assert_eq!(after.read(flow), [b"3"]);
    // The predecessor ends with its flows.
    server.serving(1, &mut host);
    host.advance(Duration::from_secs(61));
    assert_eq!(host.run(&mut server), Wakeup::Finished);
    // Bytes that are no such snapshot are ignored.
    for snapshot in [
        &b"\xff"[..],
        b"proxy-protocol datagrams 1\nx y z\n1 2",
        b"proxy",
    ] {
        let mut after = DatagramHost::new();
        let mut next = after.start_after(config, Some(snapshot.to_vec()));
        next.serving(1, &mut after);
        after.arrive(PROXY, b"2");
        after.run(&mut next);
        assert!(after.flows().is_empty());
    }
}

#[test]
fn simple_proxy_protocol_goes_both_ways() {
    for (client, proxy) in [(A, SITE), ("[2001:db8::7]:9", "[2001:db8::1]:443")] {
        let (mut host, mut server) = started("from = \"any\"\ndatagrams = \"spp\"");
        let header = write_spp(client.parse().unwrap(), proxy.parse().unwrap());
        assert_eq!((header.len(), &header[..2]), (38, &b"\x56\xec"[..]));
        assert_eq!(
            parse_spp(&header),
            Ok((client.parse().unwrap(), proxy.parse().unwrap()))
        );
        host.arrive(PROXY, &[&header[..], b"question"].concat());
        host.run(&mut server);
        let flow = host.flows()[0];
        assert_eq!(host.info(flow).source, client.parse().unwrap());
        assert_eq!(host.info(flow).destination, to(proxy));
        assert_eq!(host.read(flow), [b"question"]);
        host.write(flow, b"answer");
        host.run(&mut server);
        assert_eq!(host.take_sent()[0].2, [&header[..], b"answer"].concat());
        for datagram in [&header[..37], b"\x56\xed", &said(client, b"x")] {
            host.arrive(PROXY, datagram);
        }
        host.run(&mut server);
        assert_eq!(host.flows(), [flow]);
        assert_eq!(counter(&server, &host, "proxy.refused.too_short"), 1);
        assert_eq!(counter(&server, &host, "proxy.refused.not_proxy"), 2);
    }
}
