//! Stream flows, with TCP at the other end of the module.

use std::future::poll_fn;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use watm_runtime::{Destination, ErrorCode, Limits, Server, StreamFlow};

use watm_test_support::{
    LOCALHOST, PATIENCE, accept_stream, counter, drained, read, run, tcp_forward, wait_until,
};

fn serve() -> Server {
    Server::builder(&tcp_forward())
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

/// Returns a connection and its flow.
fn pair(server: &Server) -> (TcpStream, StreamFlow) {
    let client = connect(server);
    let flow = run(accept_stream(server));
    (client, flow)
}

#[test]
fn bytes_go_both_ways_and_the_flow_knows_where_from() {
    let server = serve();
    let (mut client, flow) = pair(&server);
    assert_eq!(flow.info().source, client.local_addr().expect("bound"));
    assert_eq!(
        flow.info().destination,
        Destination::Address(server.local_addr("listen").expect("granted"))
    );
    client.write_all(b"question").expect("written");
    assert_eq!(run(read(&flow)), Ok(b"question".to_vec()));
    flow.queue_write(b"answer").expect("queued");
    let mut buffer = [0; 6];
    client.read_exact(&mut buffer).expect("read");
    assert_eq!(&buffer, b"answer");
}

#[test]
fn the_end_is_read_again_and_again_and_writing_goes_on() {
    let server = serve();
    let (mut client, flow) = pair(&server);
    client.write_all(b"all").expect("written");
    client.shutdown(Shutdown::Write).expect("shut down");
    run(async {
        assert_eq!(read(&flow).await, Ok(b"all".to_vec()));
        assert_eq!(read(&flow).await, Ok(Vec::new()));
        assert_eq!(read(&flow).await, Ok(Vec::new()));
        flow.queue_write(b"late answer").expect("half closed only");
        flow.shutdown_write().expect("shut down");
        flow.shutdown_write().expect("and again");
        assert_eq!(flow.queue_write(b"more"), Err(ErrorCode::InvalidState));
    });
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).expect("a regular end");
    assert_eq!(answer, b"late answer");
    drop(flow);
    wait_until("the flow is forgotten", || {
        counter(&server, "host.flows") == 0
    });
}

#[test]
fn the_application_may_end_its_direction_first() {
    let server = serve();
    let (mut client, flow) = pair(&server);
    flow.shutdown_write().expect("shut down");
    assert_eq!(client.read(&mut [0; 1]).expect("the end"), 0);
    client.write_all(b"still here").expect("written");
    client.shutdown(Shutdown::Write).expect("shut down");
    run(async {
        assert_eq!(read(&flow).await, Ok(b"still here".to_vec()));
        assert_eq!(read(&flow).await, Ok(Vec::new()));
    });
}

#[test]
fn close_delivers_what_is_queued_and_ends_reads() {
    let server = serve();
    let (mut client, flow) = pair(&server);
    flow.queue_write(&[5; 60_000]).expect("queued");
    flow.close();
    flow.close();
    assert_eq!(run(read(&flow)), Ok(Vec::new()));
    assert_eq!(flow.queue_write(b"x"), Err(ErrorCode::InvalidState));
    let mut all = Vec::new();
    client.read_to_end(&mut all).expect("a regular end");
    assert_eq!(all, vec![5; 60_000]);
}

#[test]
fn dropping_a_flow_closes_it() {
    let server = serve();
    let (mut client, flow) = pair(&server);
    flow.queue_write(b"bye").expect("queued");
    drop(flow);
    let mut all = Vec::new();
    client.read_to_end(&mut all).expect("a regular end");
    assert_eq!(all, b"bye");
}

#[test]
fn what_came_before_a_reset_is_read_first() {
    let server = serve();
    let (mut client, flow) = pair(&server);
    client.write_all(&[7; 5000]).expect("sent");
    let mut come = run(poll_fn(|cx| flow.poll_read_some(cx, 1))).expect("there");
    // The module has the rest too, in one piece or a few.
    std::thread::sleep(Duration::from_millis(50));
    let socket = socket2::Socket::from(client);
    socket.set_linger(Some(Duration::ZERO)).expect("set");
    drop(socket);
    wait_until("the flow is dead", || flow.queue_write(b"x").is_err());
    let ended = loop {
        match run(read(&flow)) {
            Ok(data) => come.extend(data),
            Err(error) => break error,
        }
    };
    assert_eq!(come, [7; 5000]);
    assert_eq!(ended, ErrorCode::ConnectionReset);
    // Repeated reads fail again, and an abort does not change that.
    flow.abort(ErrorCode::AccessDenied);
    assert_eq!(run(read(&flow)), Err(ErrorCode::ConnectionReset));
}

#[test]
fn abort_resets_the_connection() {
    let server = serve();
    let (mut client, flow) = pair(&server);
    flow.abort(ErrorCode::ConnectionReset);
    let error = client.read(&mut [0; 1]).expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(run(read(&flow)), Err(ErrorCode::ConnectionReset));
    assert_eq!(flow.queue_write(b"x"), Err(ErrorCode::ConnectionReset));
}

#[test]
fn a_reset_connection_resets_the_flow() {
    let server = serve();
    let (client, flow) = pair(&server);
    // Closing with unread data sends a reset.
    flow.queue_write(b"never read").expect("queued");
    let mut peeked = [0; 1];
    wait_until("it arrives", || {
        client.peek(&mut peeked).is_ok_and(|len| len == 1)
    });
    drop(client);
    run(async {
        assert_eq!(read(&flow).await, Err(ErrorCode::ConnectionReset));
        assert_eq!(drained(&flow).await, Err(ErrorCode::ConnectionReset));
    });
}

#[test]
fn writes_beyond_the_mark_wait_for_the_client() {
    let server = serve();
    let (mut client, flow) = pair(&server);
    let limits = Limits::default();
    run(async {
        // Nothing waits below the mark.
        flow.queue_write(&vec![1; limits.write_high_water])
            .expect("queued");
        drained(&flow).await.expect("not above the mark");
    });
    // More than every buffer on the way: the queue stays above the mark.
    let total = 64 << 20;
    flow.queue_write(&vec![1; total]).expect("takes it all");
    wait_until("the way is full", || {
        let before = flow.buffered_write();
        std::thread::sleep(std::time::Duration::from_millis(50));
        before == flow.buffered_write()
    });
    assert!(flow.buffered_write() > limits.write_high_water);
    let waker = std::task::Waker::noop();
    let mut cx = std::task::Context::from_waker(waker);
    assert!(flow.poll_drained(&mut cx).is_pending());
    let reader = std::thread::spawn(move || {
        let mut received = 0;
        let mut buffer = vec![0; 1 << 16];
        while received < total + limits.write_high_water {
            received += client.read(&mut buffer).expect("read");
        }
        client
    });
    run(drained(&flow)).expect("drained");
    assert!(flow.buffered_write() <= limits.write_low_water);
    reader.join().expect("all arrived");
}

#[test]
fn an_application_that_does_not_read_stops_the_client() {
    let server = serve();
    let (mut client, flow) = pair(&server);
    client.set_nonblocking(true).expect("set");
    let chunk = vec![9; 1 << 16];
    let mut sent = 0;
    let mut quiet = 0;
    while quiet < 20 {
        match client.write(&chunk) {
            Ok(count) => {
                sent += count;
                quiet = 0;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                quiet += 1;
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
        assert!(sent < 100 << 20, "nothing stops the client");
    }
    client.shutdown(Shutdown::Write).expect("shut down");
    run(async {
        let mut received = 0;
        loop {
            let data = read(&flow).await.expect("data");
            if data.is_empty() {
                break;
            }
            received += data.len();
        }
        assert_eq!(received, sent);
    });
}

#[test]
fn tokio_traits_copy_a_large_stream_unharmed() {
    let server = serve();
    let (client, mut flow) = pair(&server);
    let total = 20_000_000usize;
    let pattern = |at: usize| (at.wrapping_mul(2_654_435_761) >> 7) as u8;
    let mut writer = client.try_clone().expect("a clone");
    let sender = std::thread::spawn(move || {
        let data: Vec<u8> = (0..total).map(pattern).collect();
        writer.write_all(&data).expect("written");
        writer.shutdown(Shutdown::Write).expect("shut down");
    });
    let mut reader = client;
    let receiver = std::thread::spawn(move || {
        let mut echoed = Vec::new();
        reader.read_to_end(&mut echoed).expect("a regular end");
        assert_eq!(echoed.len(), total);
        assert!(
            echoed
                .iter()
                .enumerate()
                .all(|(at, byte)| *byte == pattern(at))
        );
    });
    run(async {
        let mut buffer = vec![0; 30_000];
        loop {
            let count = flow.read(&mut buffer).await.expect("read");
            if count == 0 {
                break;
            }
            flow.write_all(&buffer[..count]).await.expect("written");
        }
        flow.shutdown().await.expect("shut down");
    });
    sender.join().expect("sent");
    receiver.join().expect("received");
}

#[test]
fn many_connections_at_once() {
    let server = serve();
    let clients: Vec<TcpStream> = (0..200).map(|_| connect(&server)).collect();
    run(async {
        let mut flows = Vec::new();
        for _ in &clients {
            flows.push(accept_stream(&server).await);
        }
        for (number, mut client) in clients.iter().enumerate() {
            client.write_all(&[number as u8; 100]).expect("written");
        }
        for flow in &flows {
            let data = read(flow).await.expect("data");
            flow.queue_write(&data).expect("queued");
        }
    });
    for (number, mut client) in clients.into_iter().enumerate() {
        let mut buffer = [0; 100];
        client.read_exact(&mut buffer).expect("echoed");
        assert_eq!(buffer, [number as u8; 100]);
    }
}

#[test]
fn closing_the_server_resets_its_streams() {
    let server = serve();
    let (mut client, flow) = pair(&server);
    server.close();
    run(server.wait_closed());
    assert_eq!(run(read(&flow)), Err(ErrorCode::ConnectionReset));
    assert_eq!(
        client.read(&mut [0; 1]).expect_err("a reset").kind(),
        ErrorKind::ConnectionReset
    );
}
