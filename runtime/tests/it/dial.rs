//! Streams that a module carries for the application, with TCP at the other end.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};

use watm_runtime::{
    DatagramFlow, Destination, Dialer, Error, ErrorCode, Mode, Recording, Server, StreamFlow,
};

use watm_test_support::{
    Client, LOCALHOST, PATIENCE, counter, directory, drained, guest, read, run, serve, tcp_forward,
    wait_until,
};

fn dialer() -> Server {
    Server::builder(&tcp_forward())
        .tcp("listen", LOCALHOST)
        .start()
        .expect("starts")
}

fn listen() -> (TcpListener, Destination) {
    let listener = TcpListener::bind(LOCALHOST).expect("a port");
    let address = listener.local_addr().expect("bound");
    (listener, Destination::Address(address))
}

/// Returns a flow, and the connection that was made for it.
fn pair(server: &Server) -> (StreamFlow, TcpStream) {
    let (listener, destination) = listen();
    let flow = run(server.dial(Some(destination.clone()))).expect("dialled");
    assert_eq!(flow.info().destination, destination);
    let (stream, _) = listener.accept().expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    (flow, stream)
}

#[test]
fn what_is_written_before_it_is_connected_arrives_too() {
    let server = dialer();
    let (listener, destination) = listen();
    let flow = run(server.dial(Some(destination))).expect("dialled");
    flow.queue_write(b"question").expect("queued");
    flow.shutdown_write().expect("shut down");
    let (mut peer, _) = listener.accept().expect("connected");
    let mut question = Vec::new();
    peer.read_to_end(&mut question).expect("a regular end");
    assert_eq!(question, b"question");
    peer.write_all(b"answer").expect("written");
    drop(peer);
    run(async {
        assert_eq!(read(&flow).await, Ok(b"answer".to_vec()));
        assert_eq!(read(&flow).await, Ok(Vec::new()));
    });
    drop(flow);
    wait_until("the flow is forgotten", || {
        counter(&server, "host.flows") == 0
    });
    assert_eq!(counter(&server, "host.flows_opened"), 1);
}

#[test]
fn a_name_is_looked_up() {
    let server = dialer();
    let (listener, _) = listen();
    let port = listener.local_addr().expect("bound").port();
    let name = Destination::Name("localhost".to_owned(), port);
    let flow = run(server.dial(Some(name))).expect("dialled");
    let (mut peer, _) = listener.accept().expect("connected");
    peer.write_all(b"found").expect("written");
    assert_eq!(run(read(&flow)), Ok(b"found".to_vec()));
}

#[test]
fn a_megabyte_goes_each_way() {
    let server = dialer();
    let (flow, mut peer) = pair(&server);
    let data: Vec<u8> = (0..1 << 20).map(|i: u32| (i / 7) as u8).collect();
    let copy = data.clone();
    let echo = std::thread::spawn(move || {
        let mut received = vec![0; copy.len()];
        peer.read_exact(&mut received).expect("all of it");
        assert!(received == copy);
        peer.write_all(&received).expect("written");
    });
    run(async {
        for part in data.chunks(50_000) {
            flow.queue_write(part).expect("queued");
            drained(&flow).await.expect("taken");
        }
        let mut received = Vec::new();
        while received.len() < data.len() {
            received.extend(read(&flow).await.expect("read"));
        }
        assert!(received == data);
    });
    echo.join().expect("no panic");
}

#[test]
fn a_connection_that_is_refused_resets_the_flow() {
    let server = dialer();
    let (listener, destination) = listen();
    drop(listener);
    let flow = run(server.dial(Some(destination))).expect("begun");
    assert_eq!(run(read(&flow)), Err(ErrorCode::ConnectionRefused));
}

#[test]
fn an_application_can_wait_for_the_connection() {
    let server = dialer();
    let (listener, destination) = listen();
    let flow = run(server.dial_connected(Some(destination.clone()))).expect("connected");
    let (mut peer, _) = listener.accept().expect("connected");
    peer.write_all(b"up").expect("written");
    assert_eq!(run(read(&flow)), Ok(b"up".to_vec()));
    drop(listener);
    let error = run(server.dial_connected(Some(destination))).expect_err("nobody listens");
    assert!(matches!(error, Error::Connect { .. }), "{error}");
}

#[test]
fn aborting_the_flow_resets_the_connection() {
    let server = dialer();
    let (flow, mut peer) = pair(&server);
    peer.write_all(b"up").expect("written");
    assert_eq!(run(read(&flow)), Ok(b"up".to_vec()));
    flow.abort(ErrorCode::ConnectionReset);
    let error = peer.read(&mut [0; 1]).expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_module_that_only_takes_connections_says_so() {
    let server = serve("no dialer");
    let (_listener, destination) = listen();
    let error = run(server.dial(Some(destination))).expect_err("refused");
    assert!(matches!(
        error,
        Error::Refused {
            code: ErrorCode::NotSupported,
            ..
        }
    ));
    assert_eq!(error.to_string(), "no dialer: not supported");
}

#[test]
fn a_module_goes_where_its_caller_wants_and_nowhere_else() {
    let server = serve("curious");
    assert_eq!(
        Client::new(&server).ask("!connect"),
        "Some(ErrorCode::AccessDenied)"
    );
    let error = run(dialer().dial(None)).expect_err("refused");
    assert!(error.to_string().ends_with("invalid argument"), "{error}");
}

/// Starts a server that answers each datagram with its reverse.
fn mirror() -> (Destination, std::thread::JoinHandle<()>) {
    let socket = UdpSocket::bind(LOCALHOST).expect("a port");
    let address = socket.local_addr().expect("bound");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let answer = std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        loop {
            let (len, from) = socket.recv_from(&mut buffer).expect("a question");
            if len == 0 {
                return;
            }
            buffer[..len].reverse();
            socket.send_to(&buffer[..len], from).expect("sent");
        }
    });
    (Destination::Address(address), answer)
}

async fn asks(flow: &DatagramFlow, question: &[u8]) -> Vec<u8> {
    assert_eq!(flow.send(question), Ok(true));
    let answer = tokio::time::timeout(PATIENCE, flow.receive()).await;
    answer.expect("in time").expect("alive").expect("an answer")
}

#[test]
fn datagrams_go_there_and_back_each_whole() {
    let server = serve("dials datagrams");
    let (destination, thread) = mirror();
    let flow = run(server.dial_datagrams(Some(destination.clone()))).expect("dialled");
    assert_eq!(flow.info().destination, destination);
    run(async {
        assert_eq!(asks(&flow, b"question").await, b"noitseuq");
        assert_eq!(asks(&flow, &[7; 1400]).await, [7; 1400]);
    });
    assert_eq!(flow.send(b""), Ok(true));
    thread.join().expect("no panic");
    drop(flow);
    wait_until("the flow is forgotten", || {
        counter(&server, "host.flows") == 0
    });
    assert_eq!(counter(&server, "host.flows_opened"), 1);
    let error = run(server.dial_datagrams(None)).expect_err("refused");
    assert_eq!(
        error.to_string(),
        "dials datagrams: carries streams, and no datagrams"
    );
}

#[test]
fn a_dialer_carries_datagrams_and_lives_as_long_as_they_do() {
    let guest = guest();
    let (destination, thread) = mirror();
    let tokio = tokio::runtime::Runtime::new().expect("a runtime");
    tokio.block_on(async {
        let dialer = Dialer::builder(&guest).udp("listen", LOCALHOST);
        let dialer = dialer.build().expect("a dialer");
        let to = destination.to_string();
        let flow = dialer.dial_datagrams(&to).await.expect("dialled");
        drop(dialer);
        assert_eq!(asks(&flow, b"question").await, b"noitseuq");
        assert_eq!(flow.send(b""), Ok(true));
        thread.join().expect("no panic");
    });
}

#[test]
fn a_module_without_datagrams_says_so() {
    let error = run(dialer().dial_datagrams(Some("127.0.0.1:9".parse().expect("an address"))));
    let error = error.expect_err("refused").to_string();
    assert!(
        error.ends_with("carries streams, and no datagrams"),
        "{error}"
    );
}

#[test]
fn datagrams_that_were_dialled_run_again_from_a_recording() {
    let path = directory("dialled-datagrams").join("life.watm");
    let server = Server::builder(&guest())
        .udp("listen", LOCALHOST)
        .record(&path)
        .start()
        .expect("starts");
    let (destination, thread) = mirror();
    let flow = run(server.dial_datagrams(Some(destination))).expect("dialled");
    run(async { assert_eq!(asks(&flow, b"question").await, b"noitseuq") });
    assert_eq!(flow.send(b""), Ok(true));
    thread.join().expect("no panic");
    drop(flow);
    wait_until("the flow is forgotten", || {
        counter(&server, "host.flows") == 0
    });
    server.close();
    run(server.wait_closed());
    for mode in [Mode::Exact, Mode::Fitting] {
        let recording = Recording::open(&path).expect("a recording");
        let report = recording.replay(&guest(), mode).expect("replayed");
        assert_eq!(report.difference, None, "{mode:?}");
        assert!(report.calls > 3);
    }
}

#[test]
fn what_was_dialled_runs_again_from_a_recording() {
    let path = directory("dialled").join("life.watm");
    let server = Server::builder(&tcp_forward())
        .tcp("listen", LOCALHOST)
        .record(&path)
        .start()
        .expect("starts");
    let (flow, mut peer) = pair(&server);
    flow.queue_write(b"question").expect("queued");
    let mut question = [0; 8];
    peer.read_exact(&mut question).expect("read");
    peer.write_all(b"answer").expect("written");
    peer.shutdown(Shutdown::Write).expect("shut down");
    assert_eq!(run(read(&flow)), Ok(b"answer".to_vec()));
    run(server.dial(None)).expect_err("refused");
    drop(flow);
    wait_until("the flow is forgotten", || {
        counter(&server, "host.flows") == 0
    });
    server.close();
    run(server.wait_closed());
    for mode in [Mode::Exact, Mode::Fitting] {
        let recording = Recording::open(&path).expect("a recording");
        let report = recording.replay(&tcp_forward(), mode).expect("replayed");
        assert_eq!(report.difference, None, "{mode:?}");
        assert!(report.calls > 3);
        assert!(report.traps.is_empty(), "{:?}", report.traps);
    }
}
