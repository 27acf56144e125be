//! 23, datagrams: a module sends to addresses that it has heard from, to those that the application
//! dials, and to those that its seal, its grant and the application's patterns allow.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use watm_runtime::seal::Capabilities;
use watm_runtime::{Module, Reach, Server, SwapOptions};

use super::{held_to, needs};
use watm_test_support::{
    Client, LOCALHOST, PATIENCE, builder, counter, guest, records, serve, wait_restarted,
    wait_until,
};

/// The module's results for a batch that was sent, and for one that was refused, with the one after
/// it.
const SENT: &str = "Ok(1) Ok(0)";
const DENIED: &str = "Err(ErrorCode::AccessDenied) Ok(0)";

/// A socket that the module knows nothing of.
struct Stranger(UdpSocket);

impl Stranger {
    fn new() -> Stranger {
        Stranger::at(Ipv4Addr::LOCALHOST.into())
    }

    fn at(ip: IpAddr) -> Stranger {
        let socket = UdpSocket::bind((ip, 0)).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Stranger(socket)
    }

    fn address(&self) -> SocketAddr {
        self.0.local_addr().expect("bound")
    }

    fn receive(&self) -> String {
        let mut buffer = [0; 100];
        let (length, _) = self.0.recv_from(&mut buffer).expect("a datagram");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    /// Asks the module. Returns the first datagram: an answer, unless something came before.
    fn asks(&self, server: &Server) -> String {
        let to = server.local_addr("listen").expect("granted");
        self.0.send_to(b"!ping", to).expect("sent");
        self.receive()
    }
}

/// Returns the module's result of sending to this address.
fn sends(server: &Server, to: impl ToString) -> String {
    Client::new(server).ask(&format!("!send {} unasked", to.to_string()))
}

fn reaching(patterns: &[&str]) -> Reach {
    patterns.iter().fold(Reach::none(), |reach, pattern| {
        reach.allow(pattern).expect("a pattern")
    })
}

fn with_seal(name: &str, connect: &[&str]) -> Module {
    let connect = connect.iter().map(|text| text.parse().expect("a pattern"));
    let capabilities = Capabilities {
        connect: connect.collect(),
        instances: 2,
        ..needs()
    };
    held_to(name, capabilities)
}

fn start(module: &Module, name: &str, patterns: &[&str]) -> Server {
    let server = Server::builder(module).name(name).udp("listen", LOCALHOST);
    server.reach(reaching(patterns)).start().expect("starts")
}

#[test]
fn a_23_a_module_that_only_listens_sends_to_nobody_it_has_not_heard_from() {
    const NAME: &str = "listens-only";
    records(NAME);
    let sealed = with_seal("listens-only", &[]);
    for (count, (module, patterns)) in [
        (&guest(), &[][..]),
        (&guest(), &["tcp://*"]),
        (&sealed, &[]),
        (&sealed, &["*"]),
        (&with_seal("connects", &["tcp://*:*"]), &["*"]),
    ]
    .into_iter()
    .enumerate()
    {
        let server = start(module, NAME, patterns);
        let stranger = Stranger::new();
        assert_eq!(sends(&server, stranger.address()), DENIED, "{count}");
        assert_eq!(counter(&server, "host.dropped.send_denied"), 1);
        // Nothing came before the answer, and further datagrams may follow to the asking address.
        assert_eq!(stranger.asks(&server), "pong", "{count}");
        assert_eq!(sends(&server, stranger.address()), SENT, "{count}");
        assert_eq!(stranger.receive(), "unasked");
        let said = records(NAME);
        let advice = format!(
            "the pattern \"udp://{}\" would allow it",
            stranger.address()
        );
        assert!(
            said.iter().any(|record| record.text.contains(&advice)),
            "{said:?}"
        );
    }
}

#[test]
fn a_23_datagrams_go_where_seal_and_patterns_let_them() {
    let stranger = Stranger::new();
    let to = stranger.address();
    let exactly = format!("udp://{to}");
    let elsewhere = format!("udp://127.0.0.1:{}", to.port() ^ 1);
    let open = with_seal("datagrams-open", &["udp://*:*"]);
    let narrow = with_seal("datagrams-narrow", &[&exactly]);
    let other = with_seal("datagrams-other", &[&elsewhere]);
    for (module, patterns, expected) in [
        (&guest(), &["udp://*"][..], SENT),
        (&guest(), &[&exactly], SENT),
        (&guest(), &[&elsewhere], DENIED),
        (&open, &[], SENT),
        (&open, &["tcp://*"], SENT),
        (&open, &[&elsewhere], SENT),
        (&narrow, &[], SENT),
        (&other, &["*"], DENIED),
    ] {
        let server = start(module, "patterns", patterns);
        let answer = sends(&server, to);
        assert_eq!(answer, expected, "{:?} {patterns:?}", module.may_have());
        if expected == SENT {
            assert_eq!(stranger.receive(), "unasked");
        }
        assert_eq!(stranger.asks(&server), "pong");
    }
    // The application may allow less than the seal.
    for (pattern, expected) in [(&exactly, SENT), (&elsewhere, DENIED)] {
        let server = Server::builder(&open).udp("listen", LOCALHOST);
        let server = server.reach(reaching(&[pattern]).with_datagrams());
        assert_eq!(sends(&server.start().expect("starts"), to), expected);
    }
}

#[test]
fn what_is_denied_in_a_batch_takes_nothing_else_with_it() {
    let server = serve("batch");
    let (one, two, stranger) = (Stranger::new(), Stranger::new(), Stranger::new());
    assert_eq!(one.asks(&server), "pong");
    assert_eq!(two.asks(&server), "pong");
    let [one_at, two_at, at] = [&one, &two, &stranger].map(Stranger::address);
    let to = format!("{at},{one_at},{at},{at},{two_at},{one_at}");
    assert_eq!(sends(&server, to), DENIED);
    assert_eq!(counter(&server, "host.dropped.send_denied"), 3);
    for receiver in [&one, &two, &one] {
        assert_eq!(receiver.receive(), "unasked");
    }
    assert_eq!(stranger.asks(&server), "pong");
}

#[test]
fn whom_one_instance_has_heard_from_the_next_one_may_answer() {
    let server = start(&with_seal("handed-over", &[]), "handed over", &[]);
    let (peer, stranger) = (Stranger::new(), Stranger::new());
    assert_eq!(peer.asks(&server), "pong");
    let swap = SwapOptions {
        probation: Duration::ZERO,
        ..SwapOptions::default()
    };
    let next = with_seal("handed-over-next", &[]);
    assert_eq!(server.swap(&next, swap).expect("swapped"), 1);
    assert_eq!(sends(&server, peer.address()), SENT);
    assert_eq!(peer.receive(), "unasked");
    assert_eq!(sends(&server, stranger.address()), DENIED);
    // The same holds after a failure.
    Client::new(&server).send(b"!trap");
    wait_until("it runs again", || counter(&server, "host.restarts") == 1);
    wait_restarted(&server, 1);
    assert_eq!(sends(&server, peer.address()), SENT);
    assert_eq!(peer.receive(), "unasked");
    assert_eq!(sends(&server, stranger.address()), DENIED);
}

#[test]
fn an_address_of_ipv4_is_the_same_in_both_its_forms() {
    let mapped = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) => SocketAddr::from((ip.to_ipv6_mapped(), address.port())),
        IpAddr::V6(_) => address,
    };
    let both: SocketAddr = (Ipv6Addr::UNSPECIFIED, 0).into();
    for listen in [LOCALHOST, both] {
        let server = Server::builder(&guest()).udp("listen", listen);
        let server = server.start().expect("starts");
        let port = server.local_addr("listen").expect("granted").port();
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (peer, stranger) = (Stranger::new(), Stranger::new());
        for (who, command, expected) in [
            (&peer, "!ping".to_owned(), "pong"),
            (&peer, format!("!send {} x", mapped(peer.address())), SENT),
            (
                &peer,
                format!("!send {} x", mapped(stranger.address())),
                DENIED,
            ),
        ] {
            who.0.send_to(command.as_bytes(), here).expect("sent");
            let answer = match who.receive() {
                unasked if unasked == "x" => who.receive(),
                answer => answer,
            };
            assert_eq!(answer, expected, "{listen} {command}");
        }
    }
}

#[test]
fn groups_and_the_unspecified_address_have_to_be_named() {
    let server = builder("groups").reach(reaching(&["*"]));
    let server = server.start().expect("starts");
    let stranger = Stranger::new();
    let own = SocketAddr::from((Ipv4Addr::UNSPECIFIED, stranger.address().port()));
    for to in [
        own,
        SocketAddr::from(([239, 1, 2, 3], 9)),
        SocketAddr::from(([255, 255, 255, 255], 9)),
    ] {
        assert_eq!(sends(&server, to), DENIED, "{to}");
    }
    assert_eq!(stranger.asks(&server), "pong");
}

#[test]
fn a_name_that_was_looked_up_may_be_sent_to() {
    let stranger = Stranger::new();
    let port = stranger.address().port();
    let pattern = format!("udp://localhost:{port}");
    let server = builder("looked up").reach(reaching(&[&pattern]));
    let server = server.start().expect("starts");
    assert_eq!(sends(&server, stranger.address()), DENIED);
    let client = Client::new(&server);
    client.ask(&format!("!lookup localhost {port}"));
    wait_until("there is an answer", || {
        client.ask("!lookup ").starts_with("Ok(Some(")
    });
    assert_eq!(sends(&server, stranger.address()), SENT);
    assert_eq!(stranger.receive(), "unasked");
    // The address counts as the name's for patterns that match the name.
    let narrower = with_seal("looked-up-next", &["udp://example.org:*"]);
    let swap = SwapOptions {
        probation: Duration::ZERO,
        ..SwapOptions::default()
    };
    server.swap(&narrower, swap).expect("swapped");
    assert_eq!(sends(&server, stranger.address()), DENIED);
}

/// Runs on Linux only, which has all of 127.0.0.0/8 without configuration.
#[cfg(target_os = "linux")]
#[test]
fn a_flood_from_many_addresses_ends_no_exchange() {
    const SOURCES: u32 = 100_000;
    let server = serve("flooded");
    let to = server.local_addr("listen").expect("granted");
    let (peer, control) = (Stranger::new(), Client::new(&server));
    for _ in 0..2 {
        assert_eq!(peer.asks(&server), "pong");
        control.ask("!ping");
    }
    for number in 0..SOURCES {
        let ip = Ipv4Addr::from(0x7f01_0000 + number);
        let source = UdpSocket::bind((ip, 0)).expect("a socket");
        source.send_to(b"!ping", to).expect("sent");
        if number % 100 == 0 {
            // Not faster than the socket's buffer takes it.
            control.ask("!ping");
        }
    }
    let received = counter(&server, "host.datagrams_received");
    assert!(received > u64::from(SOURCES) / 10 * 9, "{received}");
    assert_eq!(sends(&server, peer.address()), SENT);
    assert_eq!(peer.receive(), "unasked");
}
