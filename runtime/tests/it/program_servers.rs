//! Programs of WASI as servers and listeners: their connections to the reserved name are flows of the
//! application.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use watm_runtime::{Destination, Error, ErrorCode, Listener, Module, Server, SwapOptions};

use crate::programs::{DENIED, forward, obedient, report_of, run_on_threads};
use watm_test_support::{
    LOCALHOST, PATIENCE, accept_stream, counter, guest, read, run, wait_until,
};

fn serve(module: &Module) -> Server {
    Server::builder(module)
        .name("forwarder")
        .tcp("listen", LOCALHOST)
        .start()
        .expect("starts")
}

fn client(server: &Server) -> TcpStream {
    let address = server.local_addr("listen").expect("granted");
    let client = TcpStream::connect(address).expect("connects");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    client
}

#[test]
fn connections_to_the_reserved_name_are_flows() {
    let server = serve(&forward());
    let mut client = client(&server);
    client.write_all(b"question").expect("written");
    client.shutdown(Shutdown::Write).expect("shut");
    run(async {
        let flow = accept_stream(&server).await;
        let info = flow.info();
        let (from, to) = (
            client.local_addr().expect("bound"),
            client.peer_addr().expect("known"),
        );
        assert_eq!(info.source, from);
        assert_eq!(info.destination, Destination::Address(to));
        assert_eq!(info.underlay, Some((from, to)));
        let mut heard = Vec::new();
        while heard.len() < 8 {
            heard.extend(read(&flow).await.expect("data"));
        }
        assert_eq!(heard, b"question");
        assert_eq!(read(&flow).await, Ok(Vec::new()));
        flow.queue_write(b"answer").expect("queued");
        flow.shutdown_write().expect("shut");
    });
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("a regular end");
    assert_eq!(answer, "answer");
    assert_eq!(counter(&server, "host.flows_opened"), 1);
    wait_until("the flow is forgotten", || {
        counter(&server, "host.flows") == 0
    });
}

#[test]
fn clients_are_told_apart_and_each_has_its_own_flow() {
    let server = serve(&forward());
    let clients: Vec<TcpStream> = (0..5).map(|_| client(&server)).collect();
    let mut flows = Vec::new();
    run(async {
        for _ in &clients {
            let flow = accept_stream(&server).await;
            let source = flow.info().source.to_string();
            flow.queue_write(source.as_bytes()).expect("queued");
            flow.shutdown_write().expect("shut");
            flows.push(flow);
        }
    });
    for mut client in clients {
        client.shutdown(Shutdown::Write).expect("shut");
        let mut heard = String::new();
        client.read_to_string(&mut heard).expect("a regular end");
        assert_eq!(heard, client.local_addr().expect("bound").to_string());
    }
}

#[test]
fn what_the_application_resets_and_closes_ends_for_the_client() {
    let server = serve(&forward());
    let mut client = client(&server);
    run(async {
        let flow = accept_stream(&server).await;
        flow.abort(ErrorCode::ConnectionRefused);
    });
    let ended = client.read(&mut [0]);
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");

    let mut client = self::client(&server);
    let flow = run(accept_stream(&server));
    server.close();
    run(server.wait_closed());
    let reset = client.read(&mut [0]).expect_err("no regular end");
    assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
    run(async { read(&flow).await.expect_err("no regular end") });
}

#[test]
fn a_program_listens_for_connections() {
    run_on_threads(async {
        let listener = Listener::builder(&forward())
            .bind(LOCALHOST)
            .expect("listens");
        let client = tokio::net::TcpStream::connect(listener.local_addr());
        let mut client = client.await.expect("connects");
        client.write_all(b"hello").await.expect("written");
        let mut connection = listener.accept().await.expect("a connection");
        connection.read_exact(&mut [0; 5]).await.expect("read");
        connection.write_all(b"world").await.expect("written");
        connection.shutdown().await.expect("shut down");
        let mut heard = [0; 5];
        client.read_exact(&mut heard).await.expect("read");
        assert_eq!(&heard, b"world");
    });
}

#[test]
fn a_program_is_replaced_and_gets_other_arguments() {
    let server = Server::builder(&obedient())
        .tcp("listen", LOCALHOST)
        .arguments(["serve", "127.0.0.1:0"].map(str::to_owned))
        .start()
        .expect("starts");
    let mut client = client(&server);
    client.write_all(b"hello").expect("written");
    client.read_exact(&mut [0; 5]).expect("answered");
    let refused = server.swap(&guest(), SwapOptions::default());
    let refused = refused.expect_err("no program").to_string();
    assert!(refused.contains("and no program of WASI 0.2"), "{refused}");
    let swapped = server.swap(&obedient(), SwapOptions::default());
    assert_eq!(swapped.expect("swapped"), 1);
    let mut next = self::client(&server);
    next.write_all(b"hello").expect("written");
    next.read_exact(&mut [0; 5]).expect("answered");
}

#[test]
fn a_program_that_does_not_listen_does_not_start() {
    for (arguments, said) in [
        (["exit", "7"], "exited with status 1"),
        (
            ["exit", "0"],
            "ended without listening; check its arguments",
        ),
    ] {
        let refused = Server::builder(&obedient())
            .tcp("listen", LOCALHOST)
            .arguments(arguments.map(str::to_owned))
            .start();
        let error = refused.err().expect("refused");
        assert!(matches!(error, Error::Trap { .. }), "{error:?}");
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[test]
fn a_relay_does_not_reach_the_application() {
    let said = run_on_threads(report_of(
        &obedient(),
        &["connect", "", "application.internal:80"],
        |builder| builder,
    ));
    assert_eq!(said, DENIED);
}
