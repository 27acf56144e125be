//! Flows whose application is a socket, with TCP or UDP at the other end of the module.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::UnixStream;
use watm_runtime::{
    ErrorCode, JoinError, Meter, Server, StreamFlow, connect_upstream, connect_upstream_datagrams,
};

use watm_test_support::{
    Client, LOCALHOST, PATIENCE, accept_datagrams, accept_stream, counter, run, serve, tcp_forward,
    wait_until,
};

#[derive(Default)]
struct Counted {
    received: AtomicUsize,
    sent: AtomicUsize,
}

impl Meter for Counted {
    fn receive(&self, bytes: usize) {
        self.received.fetch_add(bytes, Ordering::Relaxed);
    }

    fn send(&self, bytes: usize) {
        self.sent.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Counted {
    fn moved(&self) -> (usize, usize) {
        let received = self.received.load(Ordering::Relaxed);
        (received, self.sent.load(Ordering::Relaxed))
    }
}

/// A client of a module, and the application that its flow is joined to.
struct Pair {
    server: Server,
    client: TcpStream,
    application: TcpStream,
    meter: Arc<Counted>,
    /// The result of the join, at its end.
    ended: std::sync::mpsc::Receiver<Result<(), JoinError>>,
}

impl Pair {
    /// Makes a pair. With `own`, the join runs on the server's own thread.
    fn new(own: bool) -> Pair {
        let server = Server::builder(&tcp_forward())
            .tcp("listen", LOCALHOST)
            .start()
            .expect("starts");
        let address = server.local_addr("listen").expect("granted");
        let client = TcpStream::connect(address).expect("connects");
        let flow = run(accept_stream(&server));
        let listener = TcpListener::bind(LOCALHOST).expect("a port");
        let meter = Arc::<Counted>::default();
        let (tell, ended) = std::sync::mpsc::channel();
        let to = listener.local_addr().expect("bound");
        let joined = join(flow, to, meter.clone());
        let joined = async move {
            // Nobody may be listening any more.
            let _ = tell.send(joined.await);
        };
        if own {
            server.spawn(joined);
        } else {
            std::thread::spawn(move || run(joined));
        }
        let (application, _) = listener.accept().expect("a connection");
        for stream in [&client, &application] {
            stream.set_read_timeout(Some(PATIENCE)).expect("set");
        }
        Pair {
            server,
            client,
            application,
            meter,
            ended,
        }
    }

    /// Makes a pair whose join has carried something.
    fn talking(own: bool) -> Pair {
        let mut pair = Pair::new(own);
        pair.client.write_all(b"said").expect("sent");
        pair.application.read_exact(&mut [0; 4]).expect("heard");
        pair
    }

    fn ended(&self) -> Result<(), JoinError> {
        self.ended.recv_timeout(PATIENCE).expect("an end")
    }
}

async fn join(flow: StreamFlow, to: SocketAddr, meter: Arc<Counted>) -> Result<(), JoinError> {
    let upstream = connect_upstream(&[to], None).await.expect("connects");
    let joined = flow.join(Box::new(upstream), meter).await;
    if joined.is_err() {
        flow.abort(ErrorCode::ConnectionReset);
    }
    joined
}

fn reset(stream: TcpStream) {
    let socket = socket2::Socket::from(stream);
    socket.set_linger(Some(Duration::ZERO)).expect("set");
}

fn assert_reset(stream: &mut TcpStream) {
    let error = stream.read(&mut [0; 1]).expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn each_direction_ends_by_itself_whichever_is_first() {
    for own in [true, false] {
        for client_first in [true, false] {
            let mut pair = Pair::new(own);
            let (one, two) = match client_first {
                true => (&mut pair.client, &mut pair.application),
                false => (&mut pair.application, &mut pair.client),
            };
            one.write_all(b"question").expect("sent");
            one.shutdown(Shutdown::Write).expect("ended");
            let mut heard = Vec::new();
            two.read_to_end(&mut heard).expect("an end");
            assert_eq!(heard, b"question");
            two.write_all(b"the answer").expect("sent");
            two.shutdown(Shutdown::Write).expect("ended");
            heard.clear();
            one.read_to_end(&mut heard).expect("an end");
            assert_eq!(heard, b"the answer");
            assert_eq!(pair.ended(), Ok(()));
            let expected = if client_first { (8, 10) } else { (10, 8) };
            assert_eq!(pair.meter.moved(), expected);
            wait_until("the flow is forgotten", || {
                counter(&pair.server, "host.flows") == 0
            });
        }
    }
}

#[test]
fn a_reset_is_one_on_the_other_side_too() {
    for own in [true, false] {
        let pair = Pair::talking(own);
        let Pair {
            client,
            mut application,
            ended,
            ..
        } = pair;
        reset(client);
        assert_reset(&mut application);
        assert_eq!(ended.recv_timeout(PATIENCE), Ok(Err(JoinError::Flow)));

        // Keeps the server alive.
        let pair = Pair::talking(own);
        let Pair {
            mut client,
            application,
            ended,
            ..
        } = pair;
        reset(application);
        assert_reset(&mut client);
        assert_eq!(ended.recv_timeout(PATIENCE), Ok(Err(JoinError::Upstream)));
    }
}

#[test]
fn a_side_that_does_not_read_stops_the_other_and_loses_nothing() {
    for own in [true, false] {
        for from_client in [true, false] {
            let pair = Pair::new(own);
            let (mut from, mut to) = match from_client {
                true => (pair.client, pair.application),
                false => (pair.application, pair.client),
            };
            from.set_nonblocking(true).expect("set");
            let pattern = |at: usize| (at.wrapping_mul(2_654_435_761) >> 7) as u8;
            let (mut sent, mut quiet) = (0, 0);
            while quiet < 20 {
                let chunk: Vec<u8> = (sent..sent + 50_000).map(pattern).collect();
                match from.write(&chunk) {
                    Ok(count) => (sent, quiet) = (sent + count, 0),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::WouldBlock);
                        quiet += 1;
                        std::thread::sleep(Duration::from_millis(10));
                    }
                }
                assert!(sent < 100 << 20, "nothing stops it");
            }
            from.shutdown(Shutdown::Write).expect("ended");
            let mut heard = Vec::new();
            to.read_to_end(&mut heard).expect("an end");
            assert_eq!(heard.len(), sent);
            let mut whole = heard.iter().enumerate();
            assert!(whole.all(|(at, byte)| *byte == pattern(at)));
        }
    }
}

#[test]
fn what_came_before_the_join_comes_first() {
    let server = Server::builder(&tcp_forward())
        .tcp("listen", LOCALHOST)
        .start()
        .expect("starts");
    let address = server.local_addr("listen").expect("granted");
    let mut client = TcpStream::connect(address).expect("connects");
    client.write_all(&[7; 100_000]).expect("sent");
    client.shutdown(Shutdown::Write).expect("ended");
    let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
    ours.set_nonblocking(true).expect("set");
    let reading = std::thread::spawn(move || {
        let mut heard = Vec::new();
        theirs.read_to_end(&mut heard).expect("an end");
        assert_eq!(heard, [7; 100_000]);
        theirs.write_all(b"all of it").expect("sent");
    });
    let meter = Arc::<Counted>::default();
    run(async {
        let flow = accept_stream(&server).await;
        let mut first = [0; 1];
        let read = std::future::poll_fn(|cx| flow.poll_read_some(cx, 1)).await;
        first.copy_from_slice(&read.expect("there"));
        assert_eq!(first, [7]);
        let upstream = UnixStream::from_std(ours).expect("a socket");
        // The first byte came from another writer.
        upstream.writable().await.expect("room");
        assert_eq!(upstream.try_write(&first).expect("room"), 1);
        assert_eq!(flow.join(Box::new(upstream), meter.clone()).await, Ok(()));
    });
    reading.join().expect("no panic");
    assert_eq!(meter.moved(), (99_999, 9));
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).expect("an end");
    assert_eq!(heard, b"all of it");
}

#[test]
fn a_join_that_is_given_up_resets_the_upstream_and_leaves_the_flow() {
    let server = Server::builder(&tcp_forward())
        .tcp("listen", LOCALHOST)
        .start()
        .expect("starts");
    let address = server.local_addr("listen").expect("granted");
    let mut client = TcpStream::connect(address).expect("connects");
    client.set_read_timeout(Some(PATIENCE)).expect("set");
    let listener = TcpListener::bind(LOCALHOST).expect("a port");
    run(async {
        let flow = accept_stream(&server).await;
        let to = listener.local_addr().expect("bound");
        let upstream = connect_upstream(&[to], None).await.expect("connects");
        let (mut application, _) = listener.accept().expect("a connection");
        {
            let mut joined = pin!(flow.join(Box::new(upstream), Arc::<Counted>::default()));
            let polled = std::future::poll_fn(|cx| joined.as_mut().poll(cx).map(Some));
            let given_up = tokio::time::timeout(Duration::from_millis(50), polled).await;
            assert!(given_up.is_err(), "nothing ended it");
        }
        assert_reset(&mut application);
        flow.queue_write(b"still here").expect("open");
    });
    let mut heard = [0; 10];
    client.read_exact(&mut heard).expect("an answer");
    assert_eq!(&heard, b"still here");
}

#[test]
fn an_instance_that_fails_resets_the_upstream() {
    let pair = Pair::talking(true);
    pair.server.close();
    run(pair.server.wait_closed());
    let mut application = pair.application;
    assert_reset(&mut application);
}

#[test]
fn datagrams_keep_their_bounds_both_ways() {
    let server = serve("joined datagrams");
    let client = Client::new(&server);
    let application = UdpSocket::bind(LOCALHOST).expect("a port");
    application.set_read_timeout(Some(PATIENCE)).expect("set");
    let to = application.local_addr().expect("bound");
    let meter = Arc::<Counted>::default();
    client.send(b"begin");
    let flow = run(accept_datagrams(&server));
    let counted = meter.clone();
    server.spawn(async move {
        let upstream = connect_upstream_datagrams(&[to], None).await;
        let upstream = upstream.expect("a socket");
        // An error means that the server is closed.
        let _ = flow.join(upstream, b"from us: ".to_vec(), counted).await;
    });
    let mut buffer = vec![0; 1 << 16];
    let mut hear = || {
        let (len, from) = application.recv_from(&mut buffer).expect("a datagram");
        (buffer[..len].to_vec(), from)
    };
    let (begin, flow_at) = hear();
    assert_eq!(begin, b"from us: begin");
    let mut moved = (5, 0);
    for (number, size) in [0, 1, 1420, 1420, 1, 9000, 60_000, 3]
        .into_iter()
        .enumerate()
    {
        let datagram = vec![number as u8; size];
        client.send(&datagram);
        let (heard, from) = hear();
        assert_eq!(from, flow_at);
        assert!(
            heard == [b"from us: ".as_slice(), &datagram].concat(),
            "{size}"
        );
        application.send_to(&datagram, flow_at).expect("sent");
        assert!(client.receive() == Some(datagram), "{size}");
        moved = (moved.0 + size, moved.1 + size);
    }
    // A train of them at once, which the kernel may deliver in one piece.
    for number in 0..50 {
        application.send_to(&[number; 1200], flow_at).expect("sent");
    }
    for number in 0..50 {
        assert!(client.receive() == Some(vec![number; 1200]), "{number}");
    }
    moved.1 += 50 * 1200;
    assert_eq!(meter.moved(), moved);
}

#[test]
fn a_datagram_that_nobody_takes_is_lost_and_the_next_one_is_sent() {
    let server = serve("nobody there");
    let client = Client::new(&server);
    let gone = UdpSocket::bind(LOCALHOST).expect("a port");
    let to = gone.local_addr().expect("bound");
    drop(gone);
    client.send(b"begin");
    let flow = run(accept_datagrams(&server));
    let meter = Arc::<Counted>::default();
    let counted = meter.clone();
    server.spawn(async move {
        let upstream = connect_upstream_datagrams(&[to], None).await;
        // An error means that the server is closed.
        let _ = flow
            .join(upstream.expect("a socket"), Vec::new(), counted)
            .await;
    });
    wait_until("the first is sent", || meter.moved().0 == 5);
    let application = UdpSocket::bind(to).expect("the same port");
    application.set_read_timeout(Some(PATIENCE)).expect("set");
    client.send(b"here?");
    let mut buffer = [0; 5];
    let (_, from) = application.recv_from(&mut buffer).expect("a datagram");
    assert_eq!(&buffer, b"here?");
    application.send_to(b"here!", from).expect("sent");
    assert_eq!(client.receive().as_deref(), Some(&b"here!"[..]));
}
