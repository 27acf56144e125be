//! The stream transports of `watm/`, as they ship: `make modules` builds them.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use watm_runtime::{Destination, Error, ErrorCode, Module, Network, Reach, Server, ServerBuilder};

use watm_test_support::{
    LOCALHOST, PATIENCE, accept_stream, counter, drained, engine, read, repository, run, wait_until,
};

fn module(name: &str) -> Module {
    let folder = repository().join("watm/target/modules");
    let file = folder.join(format!("{name}.wasm"));
    let loaded = engine().load_file(&file);
    loaded.unwrap_or_else(|error| panic!("{error}; `make modules` builds it"))
}

fn builder(name: &str) -> ServerBuilder {
    Server::builder(&module(name)).name(name)
}

fn serve(name: &str) -> Server {
    builder(name)
        .tcp("listen", LOCALHOST)
        .start()
        .expect("starts")
}

fn connect(server: &Server) -> TcpStream {
    let address = server.local_addr("listen").expect("granted");
    let stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

fn listen() -> (TcpListener, Destination) {
    let listener = TcpListener::bind(LOCALHOST).expect("a port");
    let address = listener.local_addr().expect("bound");
    (listener, Destination::Address(address))
}

#[test]
fn plain_serves_its_listener() {
    let server = serve("plain");
    let mut client = connect(&server);
    let flow = run(accept_stream(&server));
    assert_eq!(flow.info().source, client.local_addr().expect("bound"));
    client.write_all(b"question").expect("written");
    client.shutdown(Shutdown::Write).expect("shut down");
    run(async {
        assert_eq!(read(&flow).await, Ok(b"question".to_vec()));
        assert_eq!(read(&flow).await, Ok(Vec::new()));
    });
    // The other direction continues.
    let answer: Vec<u8> = (0..3_000_000).map(|i: u32| (i / 9) as u8).collect();
    let copy = answer.clone();
    let reader = std::thread::spawn(move || {
        let mut received = Vec::new();
        client.read_to_end(&mut received).expect("a regular end");
        assert!(received == copy);
    });
    run(async {
        for part in answer.chunks(100_000) {
            flow.queue_write(part).expect("queued");
            drained(&flow).await.expect("taken");
        }
        flow.shutdown_write().expect("shut down");
    });
    reader.join().expect("no panic");
    drop(flow);
    wait_until("the flow is forgotten", || {
        counter(&server, "host.flows") == 0
    });
    assert_eq!(counter(&server, "streams.completed"), 1);
}

#[test]
fn reverse_is_seen_on_both_sides() {
    let server = serve("reverse");
    let (listener, destination) = listen();
    let outgoing = run(server.dial(Some(destination))).expect("dialled");
    let (mut peer, _) = listener.accept().expect("connected");
    let mut client = connect(&server);
    let incoming = run(accept_stream(&server));
    for (flow, socket) in [(&outgoing, &mut peer), (&incoming, &mut client)] {
        flow.queue_write(b"hello").expect("queued");
        let mut seen = [0; 5];
        socket.read_exact(&mut seen).expect("read");
        assert_eq!(&seen, b"olleh");
        socket.write_all(b"abc").expect("written");
        assert_eq!(run(read(flow)), Ok(b"cba".to_vec()));
    }
}

#[test]
fn a_dialer_needs_no_listener_and_passes_on_what_fails() {
    let server = builder("plain").start().expect("starts");
    let (listener, destination) = listen();
    let flow = run(server.dial(Some(destination.clone()))).expect("dialled");
    let (mut peer, _) = listener.accept().expect("connected");
    peer.write_all(b"x").expect("written");
    assert_eq!(run(read(&flow)), Ok(b"x".to_vec()));
    drop(listener);
    let refused = run(server.dial(Some(destination))).expect("begun");
    assert_eq!(run(read(&refused)), Err(ErrorCode::ConnectionRefused));
}

#[test]
fn the_configuration_says_where_to_and_the_reach_whether() {
    let (listener, destination) = listen();
    let port = listener.local_addr().expect("bound").port();
    for (remote, reach, allowed) in [
        (destination.to_string(), Reach::none(), false),
        (
            destination.to_string(),
            Reach::none().allow("127.0.0.0/8:1").expect("a pattern"),
            false,
        ),
        (
            destination.to_string(),
            Reach::none().allow("127.0.0.0/8").expect("a pattern"),
            true,
        ),
        (
            format!("localhost:{port}"),
            Reach::none().allow("localhost").expect("a pattern"),
            true,
        ),
        (
            format!("localhost:{port}"),
            Reach::none().allow("127.0.0.1").expect("a pattern"),
            true,
        ),
    ] {
        let server = builder("plain")
            .config(format!("remote = \"{remote}\""))
            .reach(reach)
            .start()
            .expect("starts");
        let dialled = run(server.dial(None));
        if allowed {
            let flow = dialled.expect("dialled");
            let (mut peer, _) = listener.accept().expect("connected");
            peer.write_all(b"here").expect("written");
            assert_eq!(run(read(&flow)), Ok(b"here".to_vec()));
        } else {
            let error = dialled.expect_err("refused");
            let expected = format!(
                "plain: not allowed to reach {remote}; the pattern \"{remote}\" would allow it"
            );
            assert_eq!(error.to_string(), expected);
        }
    }
    let server = builder("plain").start().expect("starts");
    let error = run(server.dial(None)).expect_err("refused");
    let words = "plain: no destination was given, and the configuration has none";
    assert_eq!(error.to_string(), words);
}

#[test]
fn a_name_of_which_no_address_may_be_reached_is_denied() {
    let server = builder("plain")
        .config("remote = \"localhost:9\"")
        .reach(Reach::none().allow("192.0.2.0/24").expect("a pattern"))
        .start()
        .expect("starts");
    let flow = run(server.dial(None)).expect("begun");
    assert_eq!(run(read(&flow)), Err(ErrorCode::AccessDenied));
}

#[test]
fn a_module_says_what_it_listens_on_and_is_given_nothing_else() {
    assert_eq!(module("plain").listens_on(), [Network::Tcp]);
    let both = [Network::Udp, Network::Tcp];
    assert_eq!(module("wireguard").listens_on(), both);
    assert_eq!(module("plain.watm1").listens_on(), [Network::Tcp]);
    let error = builder("plain").udp("listen", LOCALHOST).start();
    let error = error.err().expect("refused").to_string();
    let expected = "plain: does not open a udp socket; the one granted as \"listen\" must be tcp";
    assert_eq!(error, expected);
}

#[test]
fn what_is_wrong_in_a_configuration_is_said() {
    let error = builder("reverse").config("remotee = \"x:1\"").start();
    let error = error.err().expect("refused");
    assert!(matches!(error, Error::Config { .. }));
    assert_eq!(
        error.to_string(),
        "reverse: configuration refused: remotee: unknown field; expected one of remote"
    );
}
