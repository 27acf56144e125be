//! Grants of sockets, and the status and client configurations that modules report.

use std::net::{SocketAddr, UdpSocket};

use watm_runtime::{Error, Limits, Network, Phase, Server};

use watm_test_support::{
    Client, LOCALHOST, assert_serves, builder, guest, run, serve, tcp_forward, wait_until,
};

#[test]
fn a_taken_port_is_named_with_its_label() {
    let first = serve("first");
    let taken = first.local_addr("listen").expect("granted");
    let error = Server::builder(&guest())
        .udp("listen", taken)
        .start()
        .err()
        .expect("refused");
    assert_eq!(
        error.to_string(),
        format!("udp {taken} (label \"listen\"): address already in use; pass another port")
    );
    assert_serves(&first);
}

#[test]
fn a_foreign_address_is_named() {
    let address: SocketAddr = "192.0.2.1:0".parse().expect("an address");
    let error = Server::builder(&guest()).udp("listen", address).start();
    let message = error.err().expect("refused").to_string();
    assert!(
        message.contains("no such address on this machine"),
        "{message}"
    );
}

#[test]
fn a_module_without_its_socket_says_so() {
    let error = Server::builder(&guest())
        .name("bare")
        .start()
        .err()
        .expect("refused");
    assert!(matches!(error, Error::Config { .. }), "{error:?}");
    assert!(error.to_string().contains("the socket `listen`"), "{error}");
}

#[test]
fn only_granted_labels_of_the_right_kind_open_and_once() {
    let server = builder("labels")
        .tcp("stream", LOCALHOST)
        .start()
        .expect("starts");
    let answer = Client::new(&server).ask("!open");
    let denied = "Some(ErrorCode::AccessDenied)";
    let taken = "Some(ErrorCode::InvalidState)";
    assert_eq!(
        answer,
        format!("{taken} {denied} {denied} {denied} {denied} None")
    );
}

#[test]
fn a_module_opens_no_device_that_it_was_not_given() {
    let answer = Client::new(&serve("no device")).ask("!open devices");
    let denied = "Some(ErrorCode::AccessDenied)";
    assert_eq!(answer, format!("{denied} {denied}"));
}

#[test]
fn a_datagram_socket_and_a_listener_may_have_the_same_label() {
    let server = builder("both")
        .tcp("listen", LOCALHOST)
        .start()
        .expect("starts");
    let answer = Client::new(&server).ask("!open");
    let denied = "Some(ErrorCode::AccessDenied)";
    let taken = "Some(ErrorCode::InvalidState)";
    assert_eq!(
        answer,
        format!("{taken} None {denied} {denied} {denied} {denied}")
    );
    let udp = server.local_addr_of(Network::Udp, "listen");
    assert_eq!(udp, server.local_addr("listen"));
    assert_ne!(udp, server.local_addr_of(Network::Tcp, "listen"));
    assert_eq!(server.local_addr_of(Network::Tcp, "other"), None);
}

#[test]
fn a_label_granted_twice_and_limits_of_zero_are_refused() {
    let error = builder("twice").udp("listen", LOCALHOST).start().err();
    assert!(
        error
            .expect("refused")
            .to_string()
            .contains("duplicate label")
    );
    let limits = Limits {
        flows: 0,
        ..Limits::default()
    };
    let error = builder("limits").limits(limits).start().err();
    assert!(error.expect("refused").to_string().contains("limits.flows"));
}

#[test]
fn a_refused_configuration_is_told_in_the_modules_words() {
    for (config, expected) in [
        (
            "syntax",
            "config: configuration refused: line 1: not a word",
        ),
        (
            "field",
            "config: configuration refused: port: must be a number",
        ),
    ] {
        let error = builder("config")
            .config(config)
            .start()
            .err()
            .expect("refused");
        assert!(matches!(error, Error::Config { .. }), "{error:?}");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn reconfigure_replaces_or_keeps_the_configuration() {
    let server = builder("reconfigure")
        .config("one")
        .start()
        .expect("starts");
    server.reconfigure("two").expect("accepted");
    let error = server.reconfigure("field").expect_err("refused");
    assert!(
        error.to_string().contains("port: must be a number"),
        "{error}"
    );
    let client = Client::new(&server);
    client.send(b"hello");
    let flow = run(server.accept()).expect("a flow");
    assert_eq!(
        flow.info().attributes,
        [("config".to_owned(), "two".to_owned())]
    );
}

#[test]
fn client_configs_get_the_public_address() {
    let server = serve("client configs");
    let configs = server
        .client_configs("vpn.example", 51820)
        .expect("answered");
    assert_eq!(configs[0].content, "vpn.example 51820");
    assert!(!format!("{configs:?}").contains("vpn.example 51820"));
    let error = server
        .client_configs("[2001:db8::1]", 51820)
        .expect_err("refused");
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
}

#[test]
fn status_has_the_modules_peers_and_both_kinds_of_counters() {
    let server = serve("status");
    assert_serves(&server);
    let status = server.status().expect("answered");
    assert_eq!(status.phase, Phase::Running);
    assert_eq!(status.generation, 0);
    assert_eq!(status.peers[0].name, "stranger");
    assert_eq!(
        status.peers[0].last_handshake,
        Some(std::time::Duration::from_millis(1500))
    );
    assert_eq!(
        status.peers[0].round_trip,
        Some(std::time::Duration::from_millis(40))
    );
    // No more than all of them, whatever a module claims.
    assert_eq!(status.peers[0].loss_permille, Some(1000));
    assert!(status.counters["received"] >= 1);
    assert!(status.counters["host.datagrams_received"] >= 1);
    assert!(status.counters["host.datagrams_sent"] >= 1);
    assert!(status.counters["host.guest_time_ns"] > 0);
    assert!(status.counters["host.memory_bytes"] > 0);
    assert_eq!(status.counters["host.restarts"], 0, "not the module's");
    let again = run(server.status_async()).expect("answered");
    assert!(again.counters["host.process_calls"] >= status.counters["host.process_calls"]);
}

#[test]
fn close_frees_the_port_and_ends_every_wait() {
    let server = serve("close");
    let address = server.local_addr("listen").expect("granted");
    let other = server.clone();
    let waiting = std::thread::spawn(move || run(other.accept()).is_none());
    server.close();
    server.close();
    run(server.wait_closed());
    assert!(waiting.join().expect("no panic"));
    UdpSocket::bind(address).expect("the port is free");
    assert_eq!(server.status().expect("kept").phase, Phase::Closed);
    assert!(matches!(server.reconfigure(""), Err(Error::Closed { .. })));
}

#[test]
fn dropping_the_last_handle_closes() {
    let server = serve("dropped");
    let address = server.local_addr("listen").expect("granted");
    let other = server.clone();
    drop(server);
    assert_serves(&other);
    drop(other);
    wait_until("the port is free", || UdpSocket::bind(address).is_ok());
}

#[test]
fn servers_of_one_module_do_not_share_anything() {
    let servers: Vec<Server> = (0..4).map(|_| serve("one of four")).collect();
    for server in &servers {
        assert_serves(server);
        let received = server.status().expect("answered").counters["received"];
        assert!((1..=5).contains(&received));
    }
    let forward = Server::builder(&tcp_forward())
        .tcp("listen", LOCALHOST)
        .start()
        .expect("another module starts");
    assert!(forward.local_addr("listen").is_some());
}
