//! Stream transports behind a host: accepted connections, offered flows, and the handling of
//! clients that break the rules.

mod support;

use std::time::Duration;

use support::host::{LOCAL, REMOTE, SimHost};
use support::{Asking, AskingTransport, Copy, Framed, FramedTransport, Random};
use watm_core::{
    ByteStream, ConfigError, Destination, ErrorCode, FlowInfo, Host, Level, StartOptions,
    Transport, Wakeup,
};
use watm_stream::{Streams, Symmetric};

type Plain = Streams<Symmetric<Copy>>;
type WithGreeting = Streams<FramedTransport>;
type WithAnswer = Streams<AskingTransport>;

fn counter(transport: &impl Transport, name: &str) -> u64 {
    let status = transport.status(Default::default());
    let found = status.counters.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no counter {name}")).1
}

/// The application's end of a stream, as a host passes it to `dial`.
fn application_stream(host: &mut SimHost) -> Box<dyn ByteStream> {
    let info = FlowInfo {
        source: REMOTE.parse().unwrap(),
        destination: Destination::Address(LOCAL.parse().unwrap()),
        peer: None,
        underlay: None,
        attributes: Vec::new(),
    };
    // The token of the first connection's application.
    host.application.open_stream(&info, 3).unwrap()
}

#[test]
fn an_accepted_connection_is_a_flow() {
    let mut host = SimHost::new();
    let mut plain: Plain = host.start("");
    host.arrive(b"hello");
    assert_eq!(host.run(&mut plain), Wakeup::OnReady);
    let flow = host.application.streams()[0].clone();
    let info = flow.info();
    assert_eq!(info.source, REMOTE.parse().unwrap());
    assert_eq!(
        info.destination,
        Destination::Address(LOCAL.parse().unwrap())
    );
    assert_eq!(
        info.underlay,
        Some((REMOTE.parse().unwrap(), LOCAL.parse().unwrap()))
    );
    assert_eq!(flow.read(), b"hello");

    flow.write(b"and you");
    host.run(&mut plain);
    assert_eq!(host.connections()[0].read(), b"and you");
    assert_eq!(plain.status(Default::default()).flows, 1);

    // One direction ends, and then the other.
    flow.close();
    host.run(&mut plain);
    assert!(host.connections()[0].ended() && !flow.ended());
    host.connections()[0].write(b"bye");
    host.connections()[0].close();
    host.run(&mut plain);
    assert_eq!(flow.read(), b"bye");
    assert!(flow.ended() && flow.gone() && flow.reset().is_none());
    assert!(host.connections()[0].gone() && host.connections()[0].reset().is_none());
    assert_eq!(plain.status(Default::default()).flows, 0);
    assert_eq!(counter(&plain, "streams.completed"), 1);
}

#[test]
fn an_application_that_stalls_stops_its_connection_alone() {
    let mut host = SimHost::new();
    host.application.room = Some(1000);
    let mut plain: Plain = host.start("");
    let data = Random(3).bytes(1 << 20);
    host.arrive(&data);
    host.arrive(b"another");
    host.run(&mut plain);
    let [stalled, other] = [0, 1].map(|number| host.application.streams()[number].clone());
    assert_eq!(other.read(), b"another");
    assert!(host.connections()[0].unsent() >= data.len() - (64 << 10) - 1000);

    let mut received = Vec::new();
    while received.len() < data.len() {
        let part = stalled.read();
        assert!(!part.is_empty() && part.len() <= 1000);
        received.extend(part);
        host.run(&mut plain);
    }
    assert_eq!(received, data);
}

#[test]
fn a_reset_is_passed_on() {
    let mut host = SimHost::new();
    let mut plain: Plain = host.start("");
    host.arrive(b"one");
    host.arrive(b"two");
    host.run(&mut plain);
    host.connections()[0].abort();
    host.application.streams()[1].abort();
    host.run(&mut plain);
    assert_eq!(
        host.application.streams()[0].reset(),
        Some(ErrorCode::ConnectionReset)
    );
    assert_eq!(
        host.connections()[1].reset(),
        Some(ErrorCode::ConnectionReset)
    );
    assert_eq!(counter(&plain, "streams.failed"), 2);
}

#[test]
fn a_refused_flow_resets_its_connection() {
    let mut host = SimHost::new();
    host.application.refuse = Some(ErrorCode::LimitReached);
    let mut plain: Plain = host.start("");
    host.arrive(b"");
    host.run(&mut plain);
    assert_eq!(host.connections()[0].reset(), Some(ErrorCode::LimitReached));
    assert!(host.connections()[0].gone());

    host.application.refuse = None;
    host.arrive(b"again");
    host.run(&mut plain);
    assert_eq!(host.application.streams()[0].read(), b"again");
    assert_eq!(counter(&plain, "streams.refused"), 1);
}

#[test]
fn a_request_is_answered_once_its_flow_is_taken_or_refused() {
    let mut host = SimHost::new();
    let mut transport: WithAnswer = host.start("");
    host.arrive(b"fhello");
    host.run(&mut transport);
    let flow = host.application.streams()[0].clone();
    flow.write(b"and you");
    host.run(&mut transport);
    assert_eq!(host.connections()[0].read(), b"+and you");
    assert_eq!(flow.read(), b"hello");

    host.application.refuse = Some(ErrorCode::AccessDenied);
    host.arrive(b"f");
    host.run(&mut transport);
    let refused = host.connections()[1].clone();
    assert_eq!(refused.read(), b"-");
    // The answer would be lost with a reset.
    assert!(refused.finished() && refused.reset().is_none() && refused.gone());
}

#[test]
fn a_connection_without_a_flow_stays_until_its_other_end_closes_it() {
    let mut host = SimHost::new();
    let mut transport: WithAnswer = host.start("");
    host.arrive(b"c");
    host.arrive(b"c");
    host.run(&mut transport);
    host.advance(Duration::from_secs(3600));
    let [one, other] = host.connections().try_into().ok().expect("two");
    one.write(&[b'x'; 200_000]);
    assert_eq!(host.run(&mut transport), Wakeup::OnReady);
    assert!(host.application.streams().is_empty() && !one.gone());
    assert_eq!(transport.status(Default::default()).flows, 0);
    one.close();
    host.run(&mut transport);
    assert!(one.gone() && one.finished() && !other.gone());
    transport.end_controls();
    assert!(other.gone() && other.ended());
}

#[test]
fn a_dial_that_waits_is_told_the_answer() {
    for (answer, connected) in [(&b"+hello"[..], true), (b"-", false)] {
        let mut host = SimHost::new();
        let mut transport: WithAnswer = host.start("");
        let application = application_stream(&mut host);
        let to = "192.0.2.9:80".parse().unwrap();
        transport.dial(Some(&to), application, &mut host).unwrap();
        let end = host.application.streams()[0].clone();
        end.write(b"early");
        host.run(&mut transport);
        let network = host.connections()[0].clone();
        assert!(end.is_connecting());
        assert_eq!(network.read(), b"f");
        network.write(answer);
        host.run(&mut transport);
        assert_eq!(end.is_connected(), connected);
        match connected {
            true => assert_eq!(
                (network.read(), end.read()),
                (b"early".to_vec(), b"hello".to_vec())
            ),
            false => assert_eq!(end.reset(), Some(ErrorCode::ConnectionRefused)),
        }
    }
}

#[test]
fn an_answer_has_its_time() {
    let mut host = SimHost::new();
    let mut transport: WithAnswer = host.start("");
    let application = application_stream(&mut host);
    let to = "192.0.2.9:80".parse().unwrap();
    transport.dial(Some(&to), application, &mut host).unwrap();
    let codec = Asking::default();
    let control = transport.dial_control(&to, codec, &mut host).unwrap();
    host.run(&mut transport);
    host.advance(Duration::from_secs(61));
    host.run(&mut transport);
    assert_eq!(
        host.application.streams()[0].reset(),
        Some(ErrorCode::Timeout)
    );
    assert!(host.connections().iter().all(|one| one.gone()));
    assert_eq!(counter(&transport, "streams.handshake_timeouts"), 2);
    // It has ended already.
    transport.end(control);
}

#[test]
fn the_flow_is_offered_after_the_handshake_with_what_that_told() {
    let mut host = SimHost::new();
    let mut transport: WithGreeting = host.start("");
    host.arrive(b"hello ann");
    host.run(&mut transport);
    assert!(host.application.streams().is_empty());
    assert_eq!(host.connections()[0].read(), b"hello me\n");

    host.connections()[0].write(b"a\n\x00\x02hi");
    host.run(&mut transport);
    let flow = host.application.streams()[0].clone();
    assert_eq!(flow.info().peer.as_deref(), Some("anna"));
    assert_eq!(flow.read(), b"hi");
}

#[test]
fn a_handshake_has_its_time() {
    let mut host = SimHost::new();
    let mut transport: WithGreeting = host.start("");
    host.arrive(b"hello too slo");
    host.arrive(b"hello you\n");
    let wakeup = host.run(&mut transport);
    let Wakeup::At(due) = wakeup else {
        panic!("{wakeup:?}");
    };
    assert_eq!(due - host.now(), Duration::from_secs(10));

    host.advance(Duration::from_secs(9));
    host.run(&mut transport);
    assert!(!host.connections()[0].gone());
    host.advance(Duration::from_secs(1));
    assert_eq!(host.run(&mut transport), Wakeup::OnReady);
    // The end is the same as that of other servers for connections that are too slow.
    let late = host.connections()[0].clone();
    assert!(late.gone() && late.ended() && late.reset().is_none());
    assert!(!host.connections()[1].gone());
    assert_eq!(counter(&transport, "streams.handshake_timeouts"), 1);
}

/// The number of these connections that are still open.
fn open(host: &SimHost, numbers: std::ops::Range<usize>) -> usize {
    let connections = host.connections();
    numbers.filter(|&at| !connections[at].gone()).count()
}

#[test]
fn silent_strangers_keep_nobody_out() {
    let mut host = SimHost::new();
    let mut transport: WithGreeting = host.start("");
    for port in 1..=1500 {
        host.arrive_from(&format!("203.0.113.1:{port}"), b"hel");
    }
    host.arrive_from("198.51.100.7:1", b"hello another\n");
    host.arrive_from("203.0.113.1:2000", b"hello neighbour\n");
    host.run(&mut transport);
    // No time has passed.
    let peers: Vec<_> = host.application.streams().iter().collect();
    let peers: Vec<_> = peers.iter().map(|flow| flow.info().peer.clone()).collect();
    assert_eq!(
        peers,
        [Some("another".to_owned()), Some("neighbour".to_owned())]
    );
    assert_eq!((host.waiting(), open(&host, 0..1500)), (0, 1022));
    // The oldest are closed, with a regular end.
    assert_eq!(open(&host, 0..476), 0);
    assert!(host.connections()[0].ended() && host.connections()[0].reset().is_none());
    assert_eq!(counter(&transport, "streams.handshakes_displaced"), 478);
    host.advance(Duration::from_secs(10));
    host.run(&mut transport);
    assert_eq!((open(&host, 0..1500), open(&host, 1500..1502)), (0, 2));
}

#[test]
fn a_client_displaces_its_own_connections_and_not_those_of_others() {
    let mut host = SimHost::new();
    let mut transport: WithGreeting = host.start("");
    for number in 0..20 {
        host.arrive_from(&format!("192.0.2.{number}:9"), b"hello slow");
        // One client, by the first 64 bits of its addresses.
        host.arrive_from(&format!("[2001:db8::{number}]:9"), b"hello slow");
    }
    for number in 0..5000 {
        let address = format!("[2001:db8:1:2:{:x}::1]:{}", number % 200, 1 + number);
        host.arrive_from(&address, b"");
    }
    host.run(&mut transport);
    assert_eq!((open(&host, 0..40), open(&host, 40..5040)), (40, 984));
    for connection in &host.connections()[..40] {
        connection.write(b" but sure\n");
    }
    host.run(&mut transport);
    assert_eq!(host.application.streams().len(), 40);
}

#[test]
fn of_clients_with_as_many_connections_the_oldest_makes_way() {
    let mut host = SimHost::new();
    let mut transport: WithGreeting = host.start("");
    for number in 0..1030 {
        host.arrive_from(&format!("10.0.{}.{}:9", number / 250, number % 250), b"");
    }
    host.run(&mut transport);
    assert_eq!((open(&host, 0..6), open(&host, 6..1030)), (0, 1024));
}

#[test]
fn an_end_in_the_handshake_is_answered_by_an_end() {
    let mut host = SimHost::new();
    let mut transport: WithGreeting = host.start("");
    host.arrive(b"hello");
    host.run(&mut transport);
    host.connections()[0].close();
    host.run(&mut transport);
    let connection = host.connections()[0].clone();
    assert!(connection.gone() && connection.ended() && connection.reset().is_none());
    assert_eq!(counter(&transport, "streams.failed"), 1);
}

#[test]
fn a_listener_without_descriptors_is_left_alone_for_a_while() {
    let mut host = SimHost::new();
    let mut plain: Plain = host.start("");
    host.fail_next_accept(ErrorCode::LimitReached);
    host.arrive(b"patient");
    assert!(matches!(host.run(&mut plain), Wakeup::At(_)));
    assert_eq!((host.connections().len(), host.accepts()), (0, 1));
    host.advance(Duration::from_millis(100));
    host.run(&mut plain);
    assert_eq!(host.application.streams()[0].read(), b"patient");
    assert_eq!(host.logs, ["cannot accept: limit reached"]);
}

#[test]
fn what_is_dialled_is_carried() {
    let mut host = SimHost::new();
    host.listens = false;
    let mut plain: Plain = host.start("");
    let destination = Destination::Name("example.com".to_owned(), 80);
    let stream = application_stream(&mut host);
    let token = plain.dial(Some(&destination), stream, &mut host).unwrap();
    assert_eq!(token, 3);
    assert_eq!(host.connected, Some(vec![destination]));
    // The network takes nothing before it is connected.
    host.connections()[0].set_room(0);
    let application = host.application.streams()[0].clone();
    application.write(b"GET /");
    host.run(&mut plain);
    assert_eq!(host.connections()[0].waiting(), 0);

    host.connections()[0].set_room(usize::MAX);
    host.connections()[0].read();
    host.run(&mut plain);
    assert_eq!(host.connections()[0].read(), b"GET /");
    host.connections()[0].write(b"200");
    host.connections()[0].close();
    application.close();
    host.run(&mut plain);
    assert_eq!(application.read(), b"200");
    assert!(application.gone() && application.reset().is_none());
    assert_eq!(counter(&plain, "streams.dialled"), 1);
}

#[test]
fn a_dial_that_fails_later_resets_the_stream() {
    let mut host = SimHost::new();
    let mut plain: Plain = host.start("");
    let destination = Destination::Address("192.0.2.9:80".parse().unwrap());
    let stream = application_stream(&mut host);
    plain.dial(Some(&destination), stream, &mut host).unwrap();
    host.connections()[0].abort();
    host.run(&mut plain);
    let application = host.application.streams()[0].clone();
    assert_eq!(application.reset(), Some(ErrorCode::ConnectionReset));
}

#[test]
fn without_a_destination_the_configuration_says_where_to() {
    let mut host = SimHost::new();
    let mut plain: Plain = host.start("remote = \"example.com:443\"");
    let stream = application_stream(&mut host);
    plain.dial(None, stream, &mut host).unwrap();
    let expected = Destination::Name("example.com".to_owned(), 443);
    assert_eq!(host.connected, Some(vec![expected]));

    plain.reconfigure(b"", &mut host).unwrap();
    let stream = application_stream(&mut host);
    assert!(plain.dial(None, stream, &mut host).is_err());
    host.connected = None;
    let destination = Destination::Address("192.0.2.9:80".parse().unwrap());
    let stream = application_stream(&mut host);
    assert_eq!(
        plain.dial(Some(&destination), stream, &mut host),
        Err(ErrorCode::AccessDenied)
    );
}

#[test]
fn a_configuration_that_is_not_understood_is_refused() {
    let mut host = SimHost::new();
    let options = StartOptions {
        config: b"remote = \"example.com\"".to_vec(),
        log_level: Level::Info,
        generation: 0,
        predecessor: None,
    };
    assert!(matches!(
        Plain::start(options, &mut host),
        Err(ConfigError::Field(field, _)) if field == "remote"
    ));
    let mut plain: Plain = host.start("");
    assert!(plain.reconfigure(b"colour = \"red\"", &mut host).is_err());
}

#[test]
fn many_connections_take_turns() {
    let mut host = SimHost::new();
    let mut transport: WithGreeting = host.start("");
    let mut random = Random(11);
    let data: Vec<_> = (0..100)
        .map(|_| {
            let size = random.below(300_000);
            random.bytes(size)
        })
        .collect();
    for data in &data {
        host.arrive(&Framed::stream("you", data));
    }
    host.run(&mut transport);
    for (data, flow) in data.iter().zip(host.application.streams()) {
        assert_eq!(&flow.read(), data);
    }
}
